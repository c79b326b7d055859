"""The change of the best peak rate with the length of a training, and the cost of a shorter one's
rate.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from normscope.report.words import joined

from .advice import carrying
from .advice.cases import AdviceCase, cases
from .advice.ladder import Ladder, ladder_from
from .advice.page import of_ladder
from .advice.tasks import task_of
from .engine.checks import check_least
from .engine.page import Findings, StudyFigure
from .engine.pieces import Pieces, side_by_side
from .engine.study import Study, scales


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonsConfig:
    """Cases of the study of advice, and how long they are trained. Raises ValueError for what is no
    length.
    """

    cases: tuple[AdviceCase, ...]
    horizons: tuple[int, ...] = (1_000, 200, 4_000)
    """Updates of a training, in the order in which they are trained; a case is trained for the
    first `reach` of them, and all but the first begin their search at its best rate."""
    text_file: str = "corpora/wikipedia.txt"
    """Running text, for characters and pieces."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, for translation."""
    processes: int = 0
    """Cases at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        check_least(self, processes=0)
        if (
            len(self.horizons) < 2
            or min(self.horizons) < 20
            or len(set(self.horizons)) < len(self.horizons)
        ):
            raise ValueError(
                "horizons must be two or more numbers of updates from 20 on, none twice, got "
                f"{self.horizons}"
            )
        if not self.cases:
            raise ValueError("cases must be one or more")

    @property
    def places(self) -> dict[str, str]:
        """The places of the texts, as measurements take them."""
        return {"text_file": self.text_file, "corpus": self.corpus}


def ladders_of(config: HorizonsConfig, asked: tuple[AdviceCase, int], pieces: Pieces) -> Ladder:
    """asked: the case, and the place of its horizon."""
    case, place = asked
    start = None
    if place:
        start = ladder_from(case, None, config.horizons[0], config, pieces, twice=False).best_step
    return ladder_from(case, start, config.horizons[place], config, pieces, twice=not place)


def growths(ladders: Sequence[Ladder]) -> list[carrying.Growth]:
    """Pairs every shorter training of a case with every longer one."""
    by_case: dict[AdviceCase, list[Ladder]] = {}
    for one in ladders:
        by_case.setdefault(one.case, []).append(one)
    found = []
    for case, several in by_case.items():
        rising = sorted(several, key=lambda one: one.updates)
        for shorter, longer in itertools.combinations(rising, 2):
            found.append(
                carrying.Growth(
                    group=f"{shorter.updates:,} to {longer.updates:,} updates",
                    cluster=case.family,
                    smaller=shorter,
                    larger=longer,
                    decades=math.log10(longer.updates / shorter.updates),
                )
            )
    return sorted(found, key=lambda one: (one.smaller.updates, one.larger.updates))


def run(config: HorizonsConfig, pieces: Pieces) -> Findings:
    """One piece a training, the shortest horizons first. Raises UserError for a text or a corpus
    that is not there.
    """
    for case in {(case.model, case.text): case for case in config.cases}.values():
        task_of(case, **config.places, seed=1)
    every = [
        (case, place)
        for place in range(len(config.horizons))
        for case in config.cases
        if case.reach > place
    ]
    ladders = side_by_side(
        partial(ladders_of, config),
        every,
        processes=config.processes,
        pieces=pieces,
        stage="ladders",
    )
    found = growths(ladders)
    carried = carrying.carried(found, lambda one, other: one.smaller.case.apart(other.smaller.case))
    shortest = min(config.horizons)
    return Findings(
        conditions=conditions(config, ladders),
        claims=carrying.claims(carried),
        figures=[
            StudyFigure.of_panels(
                name="horizons",
                title="How far the best rate moves with the length of the training",
                caption="A point a case and horizon, a hue an optimiser.",
                panels=[
                    carrying.picture(
                        [
                            one
                            for one in found
                            if one.smaller.updates == shortest
                            and one.smaller.learned
                            and one.larger.learned
                        ],
                        f"moved from {shortest:,} updates",
                        lambda one: float(one.larger.updates),
                        "updates",
                    )
                ],
                wide=False,
            )
        ],
        tables=carrying.tables(
            carried,
            "What a longer training loses at the best rate of a shorter one, in shares of its "
            "best's gain",
        ),
        data=carrying.data(carried)
        | {
            "ladders": [
                {"case": one.case.name, "family": one.case.family} | of_ladder(one)
                for one in ladders
            ]
        },
    )


def conditions(config: HorizonsConfig, ladders: Sequence[Ladder]) -> dict[str, str]:
    """Returns what was trained, and how its ends were read."""
    unlearned = sorted({f"{one.case.name} ({one.updates:,})" for one in ladders if not one.learned})
    return {
        "cases": f"{len(config.cases)} of the study of advice, in "
        f"{len({case.family for case in config.cases})} families of model, text and initial "
        "weights. "
        + (
            f"Learned at no rate, and left out: {joined(unlearned)}"
            if unlearned
            else "All learned at some rate"
        ),
        "trainings": f"{sum(len(one.outcomes) + len(one.again) for one in ladders)}, of "
        f"{', '.join(f'{updates:,}' for updates in sorted(config.horizons))} updates; linear "
        "warm-up over 1 % of them, 8 % where residual sums are normed, then a cosine to a tenth",
        "rates": "factors of two, until the best has two on either side; the best one is read by a "
        "parabola through it and its neighbours, a loss between rungs by a straight line",
        "seeds": "two, of weights and batches, at the best rung of the first horizon and its "
        "neighbours; else one",
        "loss": "mean cross-entropy at the end in nats, on held-out targets; gain: over a model of "
        "pairs of tokens, or of single ones where the best does not reach that",
        "the power": (
            "of the length, the median of those of the cases that share neither model nor text nor "
            "initial weights with the one that is foretold"
        ),
    }


_SIZES: dict[str, Any] = {"blocks": 1, "width": 16, "tokens": 64, "length": 16}
_SMALL = (
    AdviceCase(
        model="decoder",
        text="arithmetic",
        initialisation="xavier-uniform",
        placement="post-ln",
        **_SIZES,
    ),
    AdviceCase(model="nanogpt", text="toy", **_SIZES),
)
STUDY = Study(
    title="How does the best rate move with the length of the training?",
    question=(
        "How far does the best peak rate move from trainings of 200 updates to those of 4,000, and "
        "what does a longer training lose at the best rate of a shorter one?"
    ),
    help="How does the best rate move with the length?",
    scales=scales(
        HorizonsConfig,
        every={"cases": tuple(case for case in cases() if case.reach > 2)},
        smoke={"cases": _SMALL, "horizons": (60, 30)},
        paper={"horizons": (4_000, 1_000, 16_000, 64_000)},
    ),
    run=run,
)
