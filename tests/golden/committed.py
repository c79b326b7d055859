"""Committed results whose claims are judged anew, from the losses that their own `results.json`
holds.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from .answers import Desk, defined
from .recording import Items


def items(tree: Path) -> Items:
    """The study on ladders of rates, and the translation figures; each beside the claims that were
    committed.
    """
    return {
        "optimizers": _item("optimizers_long", "optimizers", _optimizers),
        **{
            f"figure-{number}": _item(f"figure{number}", f"figure_{number}", _figure)
            for number in (2, 4, 6)
        },
    }


def of_study(study: str, name: str) -> Any:
    """A class, function or value of a study by its name."""
    return defined(f"normscope_studies.{study}", name)


Adapter = Callable[[str, Any, Mapping[str, Any]], tuple[list[Any], Any]]
"""Study, configuration and results -> claims, and other values worth recording."""


def _item(result: str, study: str, adapter: Adapter) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        data = json.loads(
            (desk.tree / "results" / result / "results.json").read_text(encoding="utf-8")
        )
        of = of_study(study, "SCALES")["cpu"]
        known = {one.name for one in fields(of)}
        settings = {key: _tupled(value) for key, value in data["settings"].items() if key in known}
        claims, more = adapter(study, replace(of, **settings), data)
        made = json.loads(json.dumps([asdict(claim) for claim in claims]))
        were = {old["name"]: old["verdict"] for old in data["claims"]}
        changed = [new["name"] for new in made if were.get(new["name"]) != new["verdict"]]
        desk.json(
            "claims", {"claims": made, "verdicts_unlike_the_committed": changed, "more": more}
        )

    return item


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _ladder(arm: Mapping[str, Any], peak_lrs: Any) -> Any:
    run = partial(of_study("engine", "LadderRun"), cell=None, first_nats=math.nan)
    again = arm.get("again_nats") or {arm.get("best_lr"): arm.get("last_loss_nats")}
    return of_study("engine", "Ladder")(
        warmup_updates=arm["warmup_updates"],
        peak_lrs=peak_lrs,
        runs=[
            [run(final_nats=nats, finite=stayed) for nats, stayed in zip(*row, strict=True)]
            for row in zip(arm["ladder_nats"], arm["ladder_finite"], strict=True)
        ],
        again={
            float(lr): [run(final_nats=nats, finite=True) for nats in found]
            for lr, found in again.items()
        },
    )


def _pair(arm: Mapping[str, Any], peak_lrs: Any) -> Any:
    without, warm = (_ladder(arm[name], peak_lrs) for name in ("without_warmup", "with_warmup"))
    return of_study("engine", "WarmupPair")(without=without, warm=warm)


def _optimizers(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    pairs = {
        (one["placement"], one["optimizer"], one["with_warmup"]["warmup_updates"]): _pair(
            one, one["without_warmup"]["peak_lrs"]
        )
        for one in data["pairings"]
    }
    unigram = data["unigram_nats"]
    needs = of_study(study, "all_needs")(pairs, config.needs_nats, unigram)
    told = {
        " ".join(map(str, key)): [str(needs[key]), pair.better.best_lr, pair.better.at_an_end]
        for key, pair in pairs.items()
    }
    return of_study(study, "claims")(config, pairs, unigram), told


def _figure(study: str, config: Any, data: Mapping[str, Any]) -> tuple[list[Any], Any]:
    arms = {(arm.pair, arm.title): arm for arm in config.arms()}
    curves = {
        arms[one["text"], one["title"]]: [
            of_study("translation", "TranslationCurve")(**seed) for seed in one["seeds"]
        ]
        for one in data["configurations"]
    }
    found = of_study("translation", "Trained")(
        curves=curves, unigram_nats=data["unigram_nats"], texts=[], trained_by={}
    )
    return of_study(study, "claims")(config, found), None
