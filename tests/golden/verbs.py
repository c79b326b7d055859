"""Verbs that need no model of the user's: help, predictions, choices and studies."""

import json
from collections.abc import Callable
from pathlib import Path

from .answers import Desk, defined
from .recording import Items

_STACKS = ("encoder", "decoder", "encoder-decoder")
_SHORT = ("--blocks", 4, "--tokens", 8)
_UPDATES = ("sgd", "radam", "adam", "adamw", "lion", "muon", "random")
_CASES: dict[str, tuple[object, ...]] = {
    "default": (),
    "deep-muon": ("--blocks", 24, "--width", 1024, "--optimizer", "muon", "--tokens", "5e9"),
    "translation-sgd": (
        "--model",
        "encoder-decoder",
        "--blocks",
        6,
        "--width",
        512,
        "--optimizer",
        "sgd",
    ),
    "encoder-lion": ("--model", "encoder-only", "--optimizer", "lion", "--tokens", "1e8"),
    "three-placements": (
        "post-ln",
        "pre-ln,deepnorm",
        "--blocks",
        100,
        "--width",
        256,
        "--optimizer",
        "radam",
    ),
    "small-adam": ("all", "--blocks", 2, "--width", 32, "--optimizer", "adam", "--tokens", "1e5"),
}


def helps(tree: Path) -> Items:
    """Help of every verb, and the listings of placements."""
    import typer

    from normscope.cli.main import command_line

    def verbs(command: object, words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        found = {" ".join(words) or "normscope": words}
        for name, inner in getattr(command, "commands", {}).items():
            found |= verbs(inner, (*words, name))
        return found

    def help_of(words: tuple[str, ...]) -> Callable[[Desk], None]:
        return lambda desk: _ignored(desk.said("help", *words, "--help"))

    items = {
        name.replace(" ", "-"): help_of(words)
        for name, words in verbs(typer.main.get_command(command_line()), ()).items()
    }
    listings: dict[str, tuple[object, ...]] = {
        "start": (),
        "version": ("--version",),
        "placements-all": ("placements",),
        "placements-json": ("placements", "--json"),
        "placements-decoder": ("placements", "--model", "decoder-only", "--blocks", 12),
        "placements-show": ("placements", "show", "post-ln", "deepnorm", "mhc", "ngpt"),
        "doctor-rules": ("doctor", "--rules"),
    }
    return {
        **items,
        **{
            f"said-{name}": lambda desk, words=words: _ignored(desk.said("said", *words))
            for name, words in listings.items()
        },
    }


def predictions(tree: Path) -> Items:
    """All placements in every kind of stack and setting, by every update, and their picture."""
    every: dict[str, tuple[object, ...]] = {
        **{
            f"{stack}-{setting}": ("all", "--stack", stack, "--setting", setting)
            for stack in _STACKS
            for setting in ("theory", "paper", "as-placement")
        },
        **{f"update-{update}": ("all", "--update", update, "--rate", 0.002) for update in _UPDATES},
        "normal-0.02": ("all", "--setting", "normal-0.02", "--heads", 4, "--ffn-width", 1024),
        **{f"norm-{norm}": ("all", "--norm", norm) for norm in ("rms-norm", "dyt", "derf")},
        **{f"activation-{name}": ("all", "--activation", name) for name in ("gelu", "swiglu")},
    }

    def as_json(words: tuple[object, ...]) -> Callable[[Desk], None]:
        def item(desk: Desk) -> None:
            code, out, err = desk.normscope("predict", *words, *_SHORT, "--json")
            desk.json(
                "predicted", {"exit code": code, "said": err, "found": json.loads(out or "null")}
            )

        return item

    def told(desk: Desk) -> None:
        desk.said(
            "table", "predict", "post-ln", "pre-ln", "deepnorm", "lns", "mhc", "--plot", "it.svg"
        )
        desk.text("picture", Path("it.svg").read_text(encoding="utf-8"))
        desk.said(
            "updates", "predict", "post-ln", "pre-ln", "--update", "adam", "--stack", "decoder"
        )

    return {**{name: as_json(words) for name, words in every.items()}, "told": told}


def choices(tree: Path) -> Items:
    """The evidence as it is read from `results/`, and cases that are looked up in it."""

    def case(words: tuple[object, ...]) -> Callable[[Desk], None]:
        def item(desk: Desk) -> None:
            code, out, err = desk.normscope("choose", *words, "--json")
            desk.json(
                "chosen", {"exit code": code, "said": err, "found": json.loads(out or "null")}
            )
            desk.said("text", "choose", *words)

        return item

    def evidence(desk: Desk) -> None:
        collect = defined("normscope_studies.manual", "collect")
        packed = defined("normscope.choosing", "packed")
        desk.json("evidence", json.loads(packed(collect(desk.tree / "results"))))

    return {"evidence": evidence, **{name: case(words) for name, words in _CASES.items()}}


def studies(tree: Path) -> Items:
    """Every study at scale smoke."""
    import typer

    from normscope.cli.main import command_line

    listed = typer.main.get_command(command_line()).commands["study"].commands  # type: ignore[attr-defined]

    def study(name: str) -> Callable[[Desk], None]:
        def item(desk: Desk) -> None:
            words: tuple[str, ...] = ()
            if name == "paper":
                words = ("--set", f"results={desk.tree / 'results'}")
            out = desk.said("said", "study", name, "--scale", "smoke", *words, "--out", "it")
            if out:
                desk.json(
                    "results", json.loads(Path("it/results.json").read_text(encoding="utf-8"))
                )
                desk.page("report", Path("it/report.html"))

        return item

    return {name: study(name) for name in listed}


def _ignored(said: str) -> None:
    return None
