"""Measures what the remedies that the doctor names do to trainings that failed."""

import math
from collections.abc import Sequence
from typing import Any

from normscope.history.remedies import Remedy
from normscope.report.chart import Panel, Series
from normscope.report.words import joined

from ..engine.claims import claim, judged
from ..engine.estimates import clustered_proportion, estimate, plain_estimate
from ..engine.judging import Answer
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .cases import HALF, Levels, RescueCase, counted, first_by_others, measured
from .measure import (
    CURED_SHARE,
    FAILED_SHARE,
    LAST,
    RATES,
    SOUND_RATES,
    RescueConfig,
    unigram_nats,
)
from .models import BLOCKS

GOAL = 0.8
"""Share of the failed trainings that the first remedy is to end."""
_SOURCE = "docs/doctor.md, A training that is flat before it learned"


def run(config: RescueConfig, pieces: Pieces) -> Findings:
    """One piece a training and one an answer of the doctor's."""
    cases, levels = measured(config, unigram_nats(), pieces)
    failed = [one for one in cases if levels.failed(one.asked.family, one.losses[""])]
    ended: dict[str, dict[str, list[int]]] = {}
    for situation, remedies in counted(failed, levels).items():
        ended[str(situation)] = {
            str(remedy): [cured.count, cured.of] for remedy, cured in remedies.items()
        }
    return Findings(
        conditions=_conditions(config, levels),
        claims=claims(failed, levels),
        figures=[_figure(failed, levels)],
        tables=[_cases_table(cases, levels), _counts_table(failed, levels)],
        data={
            "unigram_nats": levels.unigram_nats,
            "sound_nats": dict(levels.sound_nats),
            "failed": len(failed),
            "trainings": [_row(one, failed, levels) for one in cases],
            "remedies": ended,
            "first_ended": _share_of(failed, levels, _first_cured(failed, levels)),
            "half_ended": _share_of(failed, levels, _half_cured(failed, levels)),
        },
    )


def claims(failed: Sequence[RescueCase], levels: Levels) -> list[Claim]:
    """Makes the claims that the first remedy ends most failures, and more than half the rate does;
    none where nothing failed.
    """
    if not failed:
        return []
    first, half = _first_cured(failed, levels), _half_cured(failed, levels)
    wirings = [one.asked.wiring for one in failed]
    low, high = clustered_proportion(first, wirings)
    more = estimate([float(a) - float(b) for a, b in zip(first, half, strict=True)])
    return [
        judged(
            name="The first remedy",
            statement=f"The remedy that is named first ends at least {GOAL:.0%} of the failures.",
            source=_SOURCE,
            found=f"{sum(first)} of {len(first)} (95 % interval {low:.2f} to {high:.2f}, as cases "
            f"of a wiring are alike), where half the rate ends {sum(half)}",
            holds={"the failed trainings": _at_least(low, high, GOAL)},
        ),
        claim(
            "More than half the rate",
            "The remedy that is named first ends more of the failures than half the rate does.",
            source=_SOURCE,
            value="By how large a share of them more",
            holds={"the failed trainings": more},
            least=math.nextafter(0, 1),
        ),
        judged(
            name="A way on is named",
            statement="The doctor sees that the training failed, and names a remedy.",
            source=_SOURCE,
            found=f"of {sum(bool(one.remedies) for one in failed)} of {len(failed)}",
            holds={one.words: bool(one.remedies) for one in failed},
        ),
    ]


def _at_least(low: float, high: float, least: float) -> Answer:
    if low >= least:
        return True
    return False if high < least else None


def _first_cured(failed: Sequence[RescueCase], levels: Levels) -> list[bool]:
    """Returns of each case whether the remedy ended it that other families' trainings put first."""
    return [_cured(one, first_by_others(one, failed, levels), levels) for one in failed]


def _half_cured(failed: Sequence[RescueCase], levels: Levels) -> list[bool]:
    return [_cured(one, HALF, levels) for one in failed]


def _cured(case: RescueCase, remedy: str | None, levels: Levels) -> bool:
    return remedy is not None and levels.cured(case.asked.family, case.losses[remedy])


def _share_of(
    failed: Sequence[RescueCase], levels: Levels, cured: Sequence[bool]
) -> dict[str, Any]:
    low, high = clustered_proportion(cured, [one.asked.wiring for one in failed])
    share = estimate([float(one) for one in cured]) if cured else None
    return {
        "count": sum(cured),
        "of": len(cured),
        "low": low,
        "high": high,
        "mean": None if share is None else plain_estimate(share)["mean"],
    }


_COLUMNS = (
    ("mended", Remedy.MEND),
    ("rate", Remedy.RATE),
    ("warm-up", Remedy.WARMUP),
    ("placement", Remedy.PLACEMENT),
    (HALF, HALF),
)


def _cases_table(cases: Sequence[RescueCase], levels: Levels) -> StudyTable:
    failed = [one for one in cases if levels.failed(one.asked.family, one.losses[""])]

    def ended(case: RescueCase, remedy: str) -> str:
        if remedy not in case.losses:
            return ""
        losses = case.losses[remedy]
        if not losses:
            return "refused"
        last = levels.ended(losses)
        mark = " ✓" if levels.cured(case.asked.family, losses) else ""
        return (f"{last:.2f}" if last < float("inf") else "not finite") + mark

    def first(case: RescueCase) -> str:
        return str(first_by_others(case, failed, levels) or "none") if case in failed else ""

    def column(remedy: str) -> Any:
        return lambda one: ended(one, remedy)

    return table(
        "Where each training ended, in nats, as it was and with each remedy; ✓ where that ended "
        "the failure",
        cases,
        [
            ("training", lambda one: one.words),
            ("failed", lambda one: "yes" if one in failed else "no"),
            ("as it was", column("")),
            ("named first", first),
            *((heading, column(remedy)) for heading, remedy in _COLUMNS),
        ],
    )


def _counts_table(failed: Sequence[RescueCase], levels: Levels) -> StudyTable:
    rows = []
    for situation, remedies in counted(failed, levels).items():
        row = [str(situation)]
        for remedy in Remedy:
            cured = remedies.get(remedy)
            row.append(f"{cured.count} of {cured.of}" if cured else "")
        rows.append(row)
    return StudyTable(
        title="How many failures each remedy ended, by what model and log say",
        columns=["situation", *(str(remedy) for remedy in Remedy)],
        rows=rows,
    )


def _row(case: RescueCase, failed: Sequence[RescueCase], levels: Levels) -> dict[str, Any]:
    asked = case.asked
    first = first_by_others(case, failed, levels) if case in failed else None
    return {
        "family": asked.family,
        "wiring": asked.wiring,
        "rate": asked.rate,
        "seed": asked.seed,
        "failed": case in failed,
        "situation": case.said["situation"],
        "finding": case.said["finding"],
        "episode": case.said["episode"],
        "cause": case.said["cause"],
        "remedy_rate": case.said["rate"],
        "remedy_warmup_updates": case.said["warmup_updates"],
        "first": None if first is None else str(first),
        "ended_nats": {name or "as it was": levels.ended(x) for name, x in case.losses.items()},
        "cured": {
            str(name): levels.cured(asked.family, losses)
            for name, losses in case.losses.items()
            if name
        },
    }


def _figure(failed: Sequence[RescueCase], levels: Levels) -> StudyFigure:
    """A panel a wiring and family, at the lower of the rates that failed."""
    panels, shown = [], set[tuple[str, str]]()
    for case in failed:
        key = (case.asked.wiring, case.asked.family)
        if key in shown:
            continue
        shown.add(key)
        first = first_by_others(case, failed, levels)
        drawn = [("as it was", ""), (HALF, HALF)]
        if first is not None:
            drawn.append((f"first: {first}", first))
        series = [
            Series(label=label, kind="measured", hue=hue, x=_places(losses), y=_smooth(losses))
            for hue, (label, name) in enumerate(drawn)
            if (losses := case.losses[name])
        ]
        title = f"{case.asked.wiring}, {case.asked.family}, {case.asked.rate:g}"
        panels.append(Panel(title=title, xlabel="update", ylabel="loss (nats)", series=series))
    return StudyFigure.of_panels(
        name="losses",
        title="Failed trainings, with half the rate and with the remedy that is named first",
        caption=f"Each point is the mean of {_WINDOW} updates; losses above {_MOST_NATS:g} are not "
        "drawn.",
        panels=panels,
        told="Losses of failed trainings, and of the same with a remedy",
    )


_WINDOW = 10
_MOST_NATS = 6.0


def _places(losses: Sequence[float | None]) -> list[int]:
    return [start + _WINDOW // 2 for start in range(0, len(losses), _WINDOW)]


def _smooth(losses: Sequence[float | None]) -> list[float | None]:
    found: list[float | None] = []
    for start in range(0, len(losses), _WINDOW):
        part = [one for one in losses[start : start + _WINDOW] if one is not None]
        mean = sum(part) / len(part) if part else None
        found.append(mean if mean is not None and mean <= _MOST_NATS else None)
    return found


def _conditions(config: RescueConfig, levels: Levels) -> dict[str, str]:
    sound = joined([f"{nats:.2f} ({family})" for family, nats in levels.sound_nats.items()])
    rates = "; ".join(
        f"{wiring} {RATES[wiring][0]:g} and {RATES[wiring][1]:g}" for wiring in config.wirings
    )
    return {
        "Models": f"hand-written decoders of {BLOCKS} blocks, width {config.width}, matrices "
        "Xavier's: gpt has LayerNorm, GELU and a table of positions, llama RMSNorm, SwiGLU and "
        "rotations",
        "Training": f"{config.updates} updates of {config.sequences} sequences, AdamW at a "
        "constant rate, gradients clipped to a norm of 1, no warm-up",
        "Rates": rates,
        "Failed": f"went less than {FAILED_SHARE:.0%} of the way from the entropy of single "
        f"tokens, {levels.unigram_nats:.2f}, to what a sound training of the same length comes "
        f"to, {sound}: the best of Pre-LN at {joined([f'{one:g}' for one in SOUND_RATES])}; the "
        f"mean of the last {LAST} updates counts",
        "Cured": f"went {CURED_SHARE:.0%} of that way, with as many updates",
        "Named first": "by trainings of the other family alone; the fault, where one is found in "
        "the skip path",
        "Tokens": f"sequences of {config.tokens}, of a chain of 24 tokens in which the two before "
        "tell which of two comes next; no batch comes twice",
        "Gradient normalisation": "of the mean loss per token",
        "Logarithm": "natural",
        "Seeds": f"{config.seeds}: weights and batches",
        "Spread": "cases of a wiring are taken as a cluster",
    }


STUDY = Study(
    title="Failed trainings and their remedies",
    question="Does the remedy that the doctor names first for a failed training end the failure, "
    "and more often than half the rate?",
    help="Do the doctor's remedies end failed trainings?",
    scales=scales(
        RescueConfig,
        smoke={"families": ("gpt", "llama"), "wirings": ("post-ln",), "updates": 60, "width": 16},
        paper={"seeds": 5, "updates": 3000, "width": 128, "tokens": 64},
    ),
    run=run,
)
"""Cost: smoke takes under a minute, cpu a quarter of a core-hour, paper days of a core."""
