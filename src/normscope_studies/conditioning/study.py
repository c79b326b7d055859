"""Conditioning throughout training: the trainings, and what they say of the theory and of the open question."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from normscope.data.documents.corpus import DocumentCorpus
from normscope.evidence.estimates import estimate, rank_correlation
from normscope.evidence.judging import all_hold, answers, between
from normscope.measure import Estimate
from normscope.report.words import number
from normscope.settings.tables import to_toml
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.claims import claim, judged, listed, shown_factor
from ..engine.page import Claim
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .courses import (
    POST,
    PRE,
    SCALES,
    ConditioningConfig,
    Course,
    PlacementCourses,
    course_of,
    run_config,
    stated_spread,
)
from .measure import followed
from .page import Telling, best, conditions, data, figures, less_post, spread_and_loss, tables


def run(config: ConditioningConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there."""
    corpus = LANGUAGE_MODEL.open(run_config(config, config.telling[0], config.common_lr, 1))
    trainings = _Trainings(config, corpus, pieces)
    telling = {name: [trainings.at(name, lr, config.seeds) for lr in config.peak_lrs] for name in config.telling}
    registry = [
        telling[name][0] if name in telling else trainings.at(name, config.common_lr, 1)
        for name in config.all_placements
    ]
    return Findings(
        conditions=conditions(config, LANGUAGE_MODEL.chance_nats(corpus), len(corpus.tokeniser)),
        claims=claims(config, telling, registry),
        figures=figures(config, telling, registry),
        tables=tables(config, telling, registry),
        data=data(config, telling, registry),
    )


@dataclass(slots=True)
class _Trainings:
    """The trainings, each a piece."""

    config: ConditioningConfig
    corpus: DocumentCorpus
    pieces: Pieces
    done: int = 0

    @property
    def total(self) -> int:
        telling = len(self.config.telling)
        others = len(self.config.all_placements) - telling
        return telling * self.config.seeds * len(self.config.peak_lrs) + others

    def at(self, placement: str, lr: float, seeds: int) -> PlacementCourses:
        return PlacementCourses(
            placement=placement,
            lr=lr,
            stated=stated_spread(self.config, placement, len(self.corpus.tokeniser)),
            looks=self.config.looks,
            courses=[self._course(placement, lr, seed) for seed in range(1, seeds + 1)],
        )

    def _course(self, placement: str, lr: float, seed: int) -> Course:
        config = self.config
        self.pieces.watch("trainings", self.done, self.total)
        of_run = run_config(config, placement, lr, seed)
        settings = {"looks": list(config.looks), "products": config.products, "sequences": config.jacobian_sequences}
        asked = {"run": to_toml(of_run), "text": self.corpus.fingerprint, **settings}
        found = self.pieces.get(f"{placement}/{lr:g}-seed-{seed}", asked, followed, of_run, self.corpus, **settings)
        self.done += 1
        self.pieces.watch("trainings", self.done, self.total)
        return course_of(found)


def claims(config: ConditioningConfig, telling: Telling, registry: Sequence[PlacementCourses]) -> list[Claim]:
    """registry: every placement at the common rate."""
    at = [best(placed) for placed in telling.values()]
    spread, edge = {one.title: one.worst_spread() for one in at}, math.log(config.stated_factor)
    # Gradients before the first update do not depend on the rate.
    first = {
        placed[0].title: _off_at_first(placed[0]) for placed in telling.values() if not math.isnan(placed[0].stated)
    }
    isometries = {one.title: one.worst("off_isometry") for one in at if not np.isnan(one.courses[0].isometry).any()}
    return [
        claim(
            "the theory's spread at first",
            "Before the first update the largest gradient norm of a block over the smallest is within a factor of 1.5 "
            "of what the formula alone predicts.",
            source="corrected: the mean field of normscope predict, at random targets",
            value="measured over predicted",
            holds=first,
            least=-math.log(1.5),
            greatest=math.log(1.5),
            shown=shown_factor,
        ),
        claim(
            "gradients stay as they are stated to start",
            "Throughout its training at its best rate a placement's spread of gradient norms over blocks stays within "
            f"{config.stated_factor:g} times what the theory states of its first update.",
            source="asked here; the theory is of initialisation alone",
            value="the largest spread over the stated one",
            holds=spread,
            greatest=edge,
            shown=partial(shown_factor, decimals=1),
        ),
        _pre_ln(telling),
        claim(
            "Adam's updates are as large in every block",
            "Throughout training what an update adds differs between blocks by a factor of at most "
            f"{config.update_factor:g}.",
            source="Adam's first update moves every entry by the rate, whatever its gradient",
            value="the largest",
            holds={one.title: one.worst("update_spread") for one in at},
            greatest=math.log(config.update_factor),
            shown=shown_factor,
        ),
        claim(
            "blocks stay near an isometry",
            "Throughout training the root-mean-square singular value of every block's Jacobian stays within a factor "
            f"of {config.isometry_factor:g} of 1.",
            source="dynamical isometry: Pennington et al. 2017, arXiv:1711.04735; Bachlechner et al. 2020 for ReZero",
            value="the largest factor",
            holds=isometries or {"every placement": None},
            greatest=math.log(config.isometry_factor),
            shown=shown_factor,
        ),
        _foretells(registry),
        _open_question(config, telling),
    ]


def _off_at_first(one: PlacementCourses) -> Estimate:
    return estimate([math.log(course.gradient_spread[0] / one.stated) for course in one.courses])


def _pre_ln(telling: Telling) -> Claim:
    """At every rate."""
    holds: dict[str, Estimate | None] = {}
    parts = []
    for one, post in zip(telling.get(PRE, ()), telling[POST], strict=False):
        logs = [[course.log_worst("gradient_spread") for course in both.courses] for both in (one, post)]
        holds[f"a rate of {one.lr:g}"] = estimate([a - b for a, b in zip(*logs, strict=True)])
        spreads = (shown_factor(both.worst("gradient_spread"), 1) for both in (one, post))
        parts.append(f"rate {one.lr:g}: {' beside '.join(spreads)}")
    return claim(
        "Pre-LN is better conditioned than Post-LN throughout",
        "The largest spread of gradient norms over blocks in a whole training is smaller in Pre-LN than in Post-LN at "
        "the same rate.",
        source="summaries of Xiong et al. 2020, which speaks of initialisation",
        value="Pre-LN's largest spread over Post-LN's" if holds else "Pre-LN is not among the placements",
        holds=holds or {"Pre-LN": None},
        greatest=0.0,
        shown=shown_factor,
        beside=f"The largest spread: {'; '.join(parts)}." if parts else "",
    )


def _foretells(registry: Sequence[PlacementCourses]) -> Claim:
    points = spread_and_loss(registry).values()
    r, low, high = rank_correlation([spread for spread, _ in points], [loss for _, loss in points])
    return judged(
        name="who stays conditioned ends lower",
        statement="Over the placements of the registry at one rate, the largest spread of gradients in a training and "
        "its last loss rise together.",
        source="the premise of the open question",
        found=f"rank correlation {number(r, 2)} ({number(low, 2)} to {number(high, 2)}) over {len(points)} placements",
        holds={"one rate for all": answers(low, high, 0.0, 1.0)[0]},
    )


def _open_question(config: ConditioningConfig, telling: Telling) -> Claim:
    at = [best(placed) for name, placed in telling.items() if name != POST]
    less = {one.title: less_post(one, telling) for one in at}
    edge = math.log(config.stated_factor)
    stays = {one.title: between(one.worst_spread(), greatest=edge) for one in at}
    holds = {title: all_hold([stays[title], between(one, greatest=0.0)]) for title, one in less.items()}
    return claim(
        "the open question, at this size",
        f"The placement keeps its gradients within {config.stated_factor:g} times their stated spread throughout "
        "training, and ends no higher than Post-LN, each at its own best rate.",
        source='"Can we design a … scheme that provably keeps gradients well-conditioned throughout training while '
        "matching Post-LN's final accuracy\": asked in reviews of the field; measured here, not proved",
        value=f"last loss less Post-LN's, in nats: {listed(less)}",
        holds=holds or {"no other placement": None},
    )


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
