"""What the study of advice says and shows."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from ...doctor.advise.calibration import Calibration, to_table
from ...report.panels_svg import Panel, Series, panels_svg
from ...report.study.contents import Claim, StudyFigure, StudyTable
from ..protocol.study import Findings
from .cases import rate_of
from .config import AdviceConfig
from .fit import CONFIDENCE, Known
from .judge import FACTOR, Judged, separation
from .search import learned
from .training import MOMENTUM, VALID_TOKENS, WEIGHT_DECAY
from .warmup import Warmup
from .warmup import told as warmup_told

AREA = 0.95
"""Under the receiver operating characteristic: what counts as telling diverged from learned."""
_BINS = 5


def findings(
    config: AdviceConfig,
    constants: Calibration,
    calibration: Sequence[Known],
    evaluation: Sequence[Judged],
    warmups: Sequence[Warmup],
) -> Findings:
    area, bad, good = separation(evaluation)
    trainings = sum(len(one.known.outcomes) for one in evaluation)
    return Findings(
        conditions=_conditions(config, calibration, evaluation),
        claims=[
            _separates(area, bad, good, trainings),
            _trains(evaluation),
            _is_near(evaluation),
        ],
        figures=[_rates_figure(calibration, evaluation, constants), _chances_figure(evaluation)],
        tables=[_cases_table(evaluation), _failures_table(evaluation), _warmup_table(warmups, constants)],
        data={
            "calibration": to_table(constants),
            "evaluation": {
                "trainings": trainings,
                "diverged": bad,
                "learned": good,
                "undecided": trainings - bad - good,
                "area_under_curve": area,
                "cases": len(evaluation),
                "cases_with_a_rate": len(_with_a_rate(evaluation)),
                "safe_trained": sum(one.safe_trained for one in evaluation),
                "within_factor": sum(one.within_factor for one in evaluation),
                "both": sum(one.safe_trained and one.within_factor for one in evaluation),
            },
            "cases": {one.known.case.name: _case_data(one) for one in evaluation},
            "calibration_cases": {one.case.name: _known_data(one, constants) for one in calibration},
            "warmups": [asdict(one) for one in warmups],
            "warmup_rule": warmup_told(constants),
        },
    )


def _conditions(
    config: AdviceConfig, calibration: Sequence[Known], evaluation: Sequence[Judged]
) -> list[tuple[str, str]]:
    corpora = ", ".join(dict.fromkeys(one.known.case.corpus.rpartition("/")[2] for one in evaluation))
    return [
        (
            "models",
            "encoder-decoders with as many blocks on either side, heads of 16, feed-forward twice the width, initial "
            "weights of the placement's source, LayerNorm unless the norm is the placement's own, no dropout",
        ),
        (
            "trainings",
            f"{config.updates} updates on the toy language, {config.corpus_updates} on another corpus, of at most "
            f"{config.max_tokens} tokens; constant rate from the first update on, nothing clipped",
        ),
        (
            "optimisers",
            f"betas (0.9, 0.98); SGD with momentum {MOMENTUM}, AdamW with weight decay {WEIGHT_DECAY}, no other decay",
        ),
        ("rates", "a third of a decade apart, up until two running fail, down until one learns, and a tenth of each"),
        (
            "learned",
            "mean cross-entropy at the end, on about "
            f"{VALID_TOKENS:,} held-out target tokens, below the entropy of these tokens taken one by one; natural "
            "logarithm, no label smoothing",
        ),
        ("diverged", "not learned, or not finite, while a tenth of the rate ends lower"),
        ("data", corpora),
        (
            "cases",
            f"{len(calibration)} to fit constants to, {len(evaluation)} others to judge them by: other depths, widths "
            "and seeds, and placements that the first have not; one seed a case",
        ),
        ("gradient normalisation", "of the mean loss per target token"),
    ]


def _separates(area: float, bad: int, good: int, trainings: int) -> Claim:
    return Claim(
        name="The chance tells diverged from learned",
        statement=f"The foreseen chance separates them with an area under the curve of at least {AREA:g}.",
        source="NormScope",
        found=f"{area:.3f}, over {bad} trainings that diverged and {good} that learned, of {trainings}",
        verdict="reproduced" if area >= AREA else "not reproduced",
    )


def _trains(evaluation: Sequence[Judged]) -> Claim:
    decided = _with_a_rate(evaluation)
    count = sum(one.safe_trained for one in decided)
    return Claim(
        name="The safe rate trains",
        statement=f"At the rate called safe, at least {CONFIDENCE:.0%} of cases learn without warm-up.",
        source="NormScope",
        found=f"{count} of {len(decided)} ({count / len(decided):.1%}){_without(evaluation)}",
        verdict="reproduced" if count >= CONFIDENCE * len(decided) else "not reproduced",
    )


def _is_near(evaluation: Sequence[Judged]) -> Claim:
    decided = _with_a_rate(evaluation)
    near = [one for one in decided if one.safe_trained and one.within_factor]
    times = [one.times_below for one in evaluation if one.times_below is not None]
    return Claim(
        name="The safe rate is not timid",
        statement=f"In at least {CONFIDENCE:.0%} of cases it trains and lies within a factor of {FACTOR:g} of the "
        "largest rate that did.",
        source="NormScope",
        found=f"{len(near)} of {len(decided)} ({len(near) / len(decided):.1%}); the largest rate that learned is "
        f"{float(np.median(times)):.2f} times the safe one in the median, {max(times):.3g} times at most",
        verdict="reproduced" if len(near) >= CONFIDENCE * len(decided) else "not reproduced",
    )


def _with_a_rate(evaluation: Sequence[Judged]) -> list[Judged]:
    """Those that learned at some rate: of the others nobody knows what is safe."""
    return [one for one in evaluation if one.largest_rate is not None]


def _without(evaluation: Sequence[Judged]) -> str:
    count = len(evaluation) - len(_with_a_rate(evaluation))
    return f"; {count} more learned at no rate that was tried, in so few updates" if count else ""


def _rates_figure(calibration: Sequence[Known], evaluation: Sequence[Judged], constants: Calibration) -> StudyFigure:
    def points(label: str, hue: int, pairs: Sequence[tuple[float, float]]) -> Series:
        return Series(label=label, kind="points", hue=hue, x=[x for x, _ in pairs], y=[y for _, y in pairs])

    fitted = [(constants.foreseen(one.facts), one.boundary) for one in calibration if one.bounded]
    ladder = [
        (one.known.case.optimizer, float(np.log10(one.foreseen)), one.known.boundary)
        for one in evaluation
        if one.known.bounded
    ]
    every = [value for pair in fitted for value in pair] + [value for _, *pair in ladder for value in pair]
    ends = (min(every), max(every))
    names = list(dict.fromkeys(name for name, _, _ in ladder))
    equal = Series(label="foreseen = found", kind="claimed", hue=-1, x=ends, y=ends)
    title = "The largest rate that trains: foreseen from the first update, and found by training"
    panels = [
        Panel(
            title="Fitted to",
            xlabel="foreseen, log10 of the rate",
            ylabel="found, log10 of the rate",
            series=[equal, points("calibration", 1, fitted)],
        ),
        Panel(
            title="Judged by",
            xlabel="foreseen, log10 of the rate",
            ylabel="found, log10 of the rate",
            series=[
                equal,
                *(points(name, hue, [(x, y) for own, x, y in ladder if own == name]) for hue, name in enumerate(names)),
            ],
        ),
    ]
    return StudyFigure(
        name="rates",
        title=title,
        caption="A point a case; found is half-way between the largest rate that learned and the next one tried.",
        svg=panels_svg(panels, title=title),
        wide=True,
    )


def _chances_figure(evaluation: Sequence[Judged]) -> StudyFigure:
    runs = sorted((one.chances[step], bad) for one in evaluation for step, bad in one.known.labels().items())
    edges = np.linspace(0, 1, _BINS + 1)
    bins = [
        [(chance, bad) for chance, bad in runs if low <= chance and (chance < high or high == 1)]
        for low, high in pairwise(edges)
    ]
    filled = [some for some in bins if some]
    title = "Foreseen chance to diverge, and how many did"
    return StudyFigure(
        name="chances",
        title=title,
        caption="Trainings of the evaluation in fifths of the foreseen chance; the dotted line is where both agree. "
        + "Trainings in each: "
        + ", ".join(str(len(some)) for some in filled)
        + ".",
        svg=panels_svg(
            [
                Panel(
                    title="Reliability",
                    xlabel="foreseen chance",
                    ylabel="share that diverged",
                    series=[
                        Series(label="foreseen = found", kind="claimed", hue=-1, x=(0, 1), y=(0, 1)),
                        Series(
                            label="trainings",
                            kind="measured",
                            hue=0,
                            x=[float(np.mean([chance for chance, _ in some])) for some in filled],
                            y=[float(np.mean([bad for _, bad in some])) for some in filled],
                        ),
                    ],
                    from_zero=True,
                )
            ],
            title=title,
        ),
    )


def _cases_table(evaluation: Sequence[Judged]) -> StudyTable:
    return StudyTable(
        title="Every case of the evaluation",
        columns=[
            "case",
            "foreseen",
            "safe rate",
            "held-out nats there",
            "unigram",
            "largest that learned",
            "over safe",
        ],
        rows=[
            [
                one.known.case.name,
                one.foreseen,
                one.safe_rate,
                one.safe["valid_nats"],
                one.safe["unigram_nats"],
                one.largest_rate,
                one.times_below,
            ]
            for one in evaluation
        ],
    )


def _failures_table(evaluation: Sequence[Judged]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for one in evaluation:
        if one.largest_rate is None:
            rows.append([one.known.case.name, "learned at no rate that was tried", one.safe_rate, None])
        elif not one.safe_trained:
            rows.append([one.known.case.name, "the safe rate did not learn", one.safe_rate, one.largest_rate])
        elif not one.within_factor:
            rows.append([one.known.case.name, f"more than {FACTOR:g} times too low", one.safe_rate, one.largest_rate])
    return StudyTable(
        title="Where the advice failed", columns=["case", "what", "safe rate", "largest that learned"], rows=rows
    )


def _warmup_table(warmups: Sequence[Warmup], constants: Calibration) -> StudyTable:
    return StudyTable(
        title=f"Shortest warm-up; fitted: {warmup_told(constants)}",
        columns=["case", "peak rate", "decades beyond", "shortest warm-up, updates"],
        rows=[
            [one.name, one.rate, one.beyond, "longer than tried" if one.shortest is None else one.shortest]
            for one in warmups
        ],
    )


def _case_data(one: Judged) -> dict[str, Any]:
    return {
        "foreseen_rate": one.foreseen,
        "safe_rate": one.safe_rate,
        "safe_valid_nats": one.safe["valid_nats"],
        "unigram_nats": one.safe["unigram_nats"],
        "largest_rate": one.largest_rate,
        "times_below": one.times_below,
        "trainings": _trainings(one.known, one.chances),
    }


def _known_data(one: Known, constants: Calibration) -> dict[str, Any]:
    return {
        "facts": asdict(one.facts),
        "foreseen_rate": 10 ** constants.foreseen(one.facts),
        "largest_rate": None if one.largest is None else rate_of(one.largest),
        "trainings": _trainings(one, {}),
    }


def _trainings(known: Known, chances: Any) -> list[dict[str, Any]]:
    labels = known.labels()
    return [
        {
            "rate": rate_of(step),
            "valid_nats": outcome["valid_nats"],
            "learned": learned(outcome),
            "diverged": labels.get(step),
            **({"chance": chances[step]} if step in chances else {}),
        }
        for step, outcome in known.outcomes.items()
    ]
