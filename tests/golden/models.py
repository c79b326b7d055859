"""What the doctor says of the models that its tests look at."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .answers import Desk
from .recording import Items

Case = Callable[[], tuple[Any, Any, dict[str, Any]]]
"""Gives a model, what it is called with, and options of `normscope.diagnose`."""

_BY_COMMAND: dict[str, tuple[object, ...]] = {
    "gpt2": ("gpt2", "--rate", 1e-3, "--optimizer", "adamw"),
    "bert": ("bert", "--rate", 1e-2),
    "t5": ("t5", "--no-advice"),
    "llama": ("llama", "--rate", 1e-2),
    "post-ln": ("ours-post-ln", "--optimizer", "sgd", "--rate", 1),
    "peri-ln": ("ours-peri-ln", "--optimizer", "muon"),
    "several-streams": ("streams-by-matmul-dynamic", "--optimizer", "lion"),
    "forgotten-norms": ("bug-norms-forgotten", "--rate", 1e-3),
    "torch": ("torch-transformer-post", "--no-advice", "--silence", "missing-final-norm"),
}
_STRUCTURES = ("gpt2", "bert", "t5", "gemma-2", "torch-transformer-pre", "bug-norms-forgotten")


def items(tree: Path) -> Items:
    """A diagnosis as JSON of every model; of some all that the command says and draws, and a
    structure.
    """
    known = cases()
    _warm(known["ours-post-ln"], known["gpt2"])
    return {
        **{name: _diagnosis(case) for name, case in known.items()},
        **{f"command-{name}": _command(*words) for name, words in _BY_COMMAND.items()},
        **{f"structure-{name}": _structure(name) for name in _STRUCTURES},
    }


def _warm(*few: Case) -> None:
    """Have imported what a diagnosis imports late, before items are forked."""
    import normscope

    for case in few:
        model, inputs, options = case()
        normscope.diagnose(model, inputs, advise=False, **options).to_json()


def cases() -> dict[str, Case]:
    from doctor import bugs, bugs_skip_path, bugs_values, corpus_x_transformers
    from doctor.looked import EVERY
    from doctor.several_streams import Dynamic, Static, as_it_is, by_einsum, by_matmul, flat
    from normscope.placement import registered

    every = dict(EVERY)
    if importlib.util.find_spec("x_transformers"):
        odd = corpus_x_transformers.ODD | corpus_x_transformers.WITHOUT_SUMS
        every |= {f"x-transformers: {name}": case for name, case in odd.items()}
    else:
        every = {
            name: case for name, case in every.items() if not name.startswith("x-transformers")
        }
    found: dict[str, Case] = {name: _of_corpus(case) for name, case in every.items()}
    for name, bug in (bugs.BUGS | bugs_values.BUGS | bugs_skip_path.BUGS).items():
        wanted = getattr(bug, "wanted_placement", None)
        found[f"bug: {name}"] = _wired(bug.build, wanted)
        found[f"healthy: {name}"] = _wired(bug.right, wanted)
    for join in (by_matmul, by_einsum, flat, as_it_is):
        for weights in (Dynamic, Static):
            found[f"streams: {join.__name__} {weights.__name__}"] = _streams(join, weights)
    found |= {f"ours: {name}": _ours(name) for name in registered()}
    return {
        re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-"): case for name, case in found.items()
    }


def _of_corpus(case: Any) -> Case:
    return lambda: (case.build(), case.inputs(), {})


def _wired(build: Callable[[], Any], wanted: str | None) -> Case:
    def made() -> tuple[Any, Any, dict[str, Any]]:
        from doctor.wired import tokens

        model = build()
        return model, tokens(model), {"wanted_placement": wanted}

    return made


def _streams(join: Any, weights: Any) -> Case:
    def made() -> tuple[Any, Any, dict[str, Any]]:
        from doctor.several_streams import SeveralStreams, ids

        return SeveralStreams(join, weights), ids(), {}

    return made


def _ours(placement: str) -> Case:
    """Our encoder-decoder where the placement has one, else our language model or encoder."""

    def made() -> tuple[Any, Any, dict[str, Any]]:
        import torch

        from normscope import model as ours

        layouts = [ours.Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
        tokens = [torch.randint(4, 20, (layout.tokens,)) for layout in layouts]
        sizes: dict[str, Any] = {"placement": placement, "width": 16, "ffn_width": 24, "heads": 2}
        try:
            config = ours.ModelConfig(**sizes, encoder_blocks=4, decoder_blocks=3)
            return (
                ours.EncoderDecoder(config, 20, 20),
                (tokens[0], layouts[0], tokens[1], layouts[1]),
                {},
            )
        except ValueError:
            decoder = ours.DecoderConfig(**sizes, blocks=4, positions=8)
            return ours.LanguageModel(decoder, 20), (tokens[0], layouts[0]), {}

    return made


def _diagnosis(case: Case) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        import torch

        import normscope

        torch.manual_seed(0)
        model, inputs, options = case()
        try:
            found: Any = normscope.diagnose(model, inputs, advise=False, **options).to_json()
        except ValueError as error:
            found = {"refused": str(error)}
        desk.json("diagnosis", found)

    return item


def target(case: str) -> tuple[Any, Any]:
    """For the command: a case by its name."""
    return cases()[case]()[:2]


_FILE = "from golden.models import target\n"


def _command(name: str, *words: object) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        Path("it.py").write_text(_FILE, encoding="utf-8")
        asked = ("doctor", "it.py:target", "--set", f'case="{name}"', *words, "--fail-on", "error")
        code, out, err = desk.normscope(*asked, "--json", "it.json", "--html", "it.html")
        desk.text("said", f"exit code {code}\n{out}{err if code > 1 else ''}")
        if code > 1:
            raise RuntimeError(err)
        desk.json("diagnosis", json.loads(Path("it.json").read_text(encoding="utf-8")))
        desk.page("page", Path("it.html"))

    return item


def _structure(name: str) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        Path("it.py").write_text(_FILE, encoding="utf-8")
        asked = (
            "doctor",
            "it.py:target",
            "--set",
            f'case="{name}"',
            "--structure-only",
            "--json",
            "-",
        )
        code, out, err = desk.normscope(*asked)
        desk.json(
            "structure",
            {
                "exit code": code,
                "found": json.loads(out or "null"),
                "said": err if code > 1 else "",
            },
        )

    return item
