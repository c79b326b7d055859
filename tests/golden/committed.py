"""Committed results whose claims are judged anew, from the losses that their own `results.json` holds."""

import importlib
import json
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from .answers import Desk
from .recording import Items

_ROOTS = ("normscope.studies", "normscope_studies")
"""Where studies are; the first that there is."""


def items(tree: Path) -> Items:
    """Studies on ladders of rates, and the translation figures; each beside the claims that were committed."""
    return {
        "optimizers": _item("optimizers", "optimizers", _optimizers),
        "streams": _item("streams", "streams", _streams),
        "streams-translation": _item("streams_translation", "streams", _streams),
        "adaptive": _item("adaptive", "adaptive", _adaptive),
        "adaptive-slow": _item("adaptive_slow", "adaptive", _adaptive),
        "transfer": _item("transfer", "transfer", _transfer),
        **{f"figure-{number}": _item(f"figure{number}", f"figure_{number}", _figure) for number in (2, 4, 6)},
    }


def of_study(study: str, name: str) -> Any:
    """A class, function or value of a study by its name, in whichever of its files it is defined."""
    for module in _modules(study):
        found = vars(module).get(name)
        elsewhere = isinstance(found, ModuleType) or getattr(found, "__module__", module.__name__) != module.__name__
        if found is not None and not elsewhere:
            return found
    raise LookupError(f"{study} has no {name}")


@cache
def _modules(study: str) -> list[Any]:
    for root in _ROOTS:
        try:
            package = importlib.import_module(f"{root}.{study}")
        except ModuleNotFoundError:
            continue
        inner = pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}.")
        return [package, *(importlib.import_module(one.name) for one in inner)]
    raise LookupError(f"no study {study}")


Adapter = Callable[[str, Any, Mapping[str, Any]], tuple[list[Any], Any]]
"""Study, configuration and results -> claims, and other values worth recording."""


def _item(result: str, study: str, adapter: Adapter) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        data = json.loads((desk.tree / "results" / result / "results.json").read_text(encoding="utf-8"))
        of = of_study(study, "SCALES")["cpu"].config
        known = {one.name for one in fields(of)}
        settings = {key: _tupled(value) for key, value in data["settings"].items() if key in known}
        claims, more = adapter(study, replace(of, **settings), data)
        made = json.loads(json.dumps([asdict(claim) for claim in claims]))
        changed = [new["name"] for new, old in zip(made, data["claims"], strict=True) if _judged(new) != _judged(old)]
        desk.json("claims", {"claims": made, "verdicts_unlike_the_committed": changed, "more": more})

    return item


def _judged(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    return claim["name"], claim["verdict"]


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _run(nats: float, finite: bool = True) -> Any:
    return of_study("ladders", "Run")(cell=None, final_nats=nats, first_nats=math.nan, finite=finite)


def _rows(arm: Mapping[str, Any], losses: str, finite: str) -> list[list[Any]]:
    return [list(map(_run, *both)) for both in zip(arm[losses], arm[finite], strict=True)]


def _optimizers(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    arms = {}
    for pairing in data["pairings"]:
        for arm in (pairing["without_warmup"], pairing["with_warmup"]):
            key = of_study(study, "Key")(pairing["placement"], pairing["optimizer"], arm["warmup_updates"])
            arms[key] = of_study(study, "Arm")(
                key=key,
                peak_lrs=arm["peak_lrs"],
                ladder=_rows(arm, "ladder_nats", "ladder_finite"),
                again={float(lr): [_run(nats) for nats in losses] for lr, losses in arm["again_nats"].items()},
            )
    found = of_study(study, "pairings")(config, arms)
    needs = {" ".join(key): [str(one.need), one.better.best_lr, one.better.at_an_end] for key, one in found.items()}
    return of_study(study, "claims")(config, found), needs


def _streams(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    def standings() -> Iterator[Any]:
        for task, trial in data["trials"].items():
            arms, seen = {}, {}
            for name, placement in trial["placements"].items():
                for arm in (placement["without_warmup"], placement["with_warmup"]):
                    key = name, arm["warmup_updates"]
                    arms[key] = of_study(study, "Arm")(
                        placement=name,
                        warmup_updates=key[1],
                        ffn_width=placement["ffn_width"],
                        parameters=placement["parameters"],
                        peak_lrs=config.peak_lrs,
                        ladder=_rows(arm, "ladder_nats", "ladder_finite"),
                        best=[_run(nats) for nats in arm["last_loss_nats"]],
                    )
                    seen[key] = arm["seen"]
            unigram = trial["unigram_nats"]
            yield of_study(study, "stand")(
                config, task, unigram, arms, lambda arm, seen=seen: seen[arm.placement, arm.warmup_updates]
            )

    found = list(standings())
    return of_study(study, "claims")(config, found), [standing.placements for standing in found]


def _adaptive(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    found = []
    for task, trial in data["trials"].items():
        arms = {}
        for kind in trial["arms"]:
            for arm in (kind["without_warmup"], kind["with_warmup"]):
                key = of_study(study, "Key")(kind["placement"], kind["drive"], arm["warmup_updates"])
                arms[key] = of_study(study, "Arm")(
                    key=key,
                    peak_lrs=arm["peak_lrs"],
                    ladder=_rows(arm, "ladder_nats", "ladder_finite"),
                    best=[_run(nats) for nats in arm["last_loss_nats"]],
                )
        unigram = trial["unigram_nats"]
        found.append(of_study(study, "Standing")(task=task, unigram_nats=unigram, config=config, arms=arms))
    return of_study(study, "claims")(config, found), [standing.kinds for standing in found]


def _transfer(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    moved = {(one["placement"], one["width"], one["blocks"]): one["seeds"] for one in data["coordinates"]}
    ladders = {}
    for one in data["ladders"]:
        key = of_study(study, "Key")(*(one[name] for name in ("placement", "width", "blocks", "warmup_updates")))
        runs = _rows(one, "last_loss_nats", "finite")
        ladders[key] = of_study(study, "Ladder")(key=key, peak_lrs=config.peak_lrs, runs=runs)
    checks = of_study(study, "coordinate_drifts")(config, moved)
    rates = of_study(study, "rate_drifts")(config, ladders)
    return of_study(study, "claims")(config, checks, rates), [asdict(drift) for drift in (*checks, *rates)]


def _figure(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The arms are the configuration's, in the order of the results."""
    arms = {(arm.pair, arm.title): arm for arm in config.arms()}
    curves = {
        arms[one["text"], one["title"]]: [of_study("translation", "Curve")(**seed) for seed in one["seeds"]]
        for one in data["configurations"]
    }
    zero = dict.fromkeys(("train_pairs", "train_tokens", "valid_pairs", "valid_tokens", "vocabulary"), 0)
    text = of_study("translation", "Text")
    texts = {pair: text(unigram_nats=nats, **zero) for pair, nats in data["unigram_nats"].items()}
    found = of_study("translation", "Trained")(curves=curves, texts=texts, trained_by={})
    return of_study(study, "claims")(config, found), None
