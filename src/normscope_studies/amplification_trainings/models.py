"""Models that were looked at and trained: a placement at a depth, at every rate and seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from normscope.data.parallel.corpus import Corpus
from normscope.placement import named

from ..engine.judging import learned
from ..engine.ladders import LadderRun, mean_nats, train
from ..engine.pieces import Pieces
from ..engine.trainings import NOTHING_LATER
from .config import AmplificationTrainingsConfig
from .foretelling import MEASURED, PREDICTED, EndedTraining
from .measure import measured_change, predicted_change


@dataclass(frozen=True, slots=True, kw_only=True)
class ClimbedModel:
    """A placement at a depth, whose trainings are over."""

    placement: str
    blocks: int
    """The blocks of each stack."""
    peak_lrs: Sequence[float]
    """Rising."""
    runs: Sequence[Sequence[LadderRun]]
    """A row a seed, a column a rate."""
    measured: Sequence[float]
    """E(f* - f)² of the logits by the first update at a rate of 1, one a seed."""
    predicted: float | None
    """The same from the formula; None where theory does not follow."""
    unigram_nats: float

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def measured_mean(self) -> float:
        """The geometric mean over seeds."""
        return math.exp(math.fsum(map(math.log, self.measured)) / len(self.measured))

    @property
    def mean_nats(self) -> list[float]:
        """Last losses, means over seeds, one a rate."""
        return [mean_nats(column) for column in zip(*self.runs, strict=True)]

    @property
    def best_place(self) -> int:
        """The number, from 0, of the rate with the lowest mean loss; the smaller of two that are
        equal.
        """
        return self.mean_nats.index(min(self.mean_nats))

    @property
    def learned(self) -> bool:
        """Returns whether it has at its best rate; else it is not known which of them fail."""
        return learned(min(self.mean_nats), self.unigram_nats)

    @property
    def largest_lr(self) -> float | None:
        """The largest rate at which every seed learned; None where none is."""
        columns = zip(self.peak_lrs, zip(*self.runs, strict=True), strict=True)
        rates = [lr for lr, column in columns if all(map(self._has_learned, column))]
        return max(rates, default=None)

    def trainings(self) -> list[EndedTraining]:
        """Returns all its trainings.

        One has failed that has not learned at a rate at or above the best; below it one that has
        not is slow.
        """
        found = []
        for seed, row in enumerate(self.runs):
            change = {MEASURED: self.measured[seed]}
            if self.predicted is not None:
                change[PREDICTED] = self.predicted
            for place, one in enumerate(row):
                found.append(
                    EndedTraining(
                        placement=self.placement,
                        blocks=self.blocks,
                        seed=seed + 1,
                        peak_lr=self.peak_lrs[place],
                        last_nats=one.final_nats,
                        unigram_nats=self.unigram_nats,
                        failed=place >= self.best_place and not self._has_learned(one),
                        change=change,
                    )
                )
        return found

    def _has_learned(self, one: LadderRun) -> bool:
        return learned(one.final_nats, self.unigram_nats)


_LookedAt = tuple[str, int]
"""A placement and a depth."""


def climbed_models(
    config: AmplificationTrainingsConfig, corpus: Corpus, unigram_nats: float, pieces: Pieces
) -> list[ClimbedModel]:
    """Look at every model's first update, and train what the folder lacks.

    One piece a look, and a run folder a training. Raises UserError for a training that fails.
    """
    models = list(product(config.placements, config.depths))
    # The trainings first, so that a plan counts them.
    runs = _trained(config, models, pieces)
    measured = _looked_at(config, models, corpus, pieces)
    tokens = round(float(np.mean(corpus.splits["train"].target.lengths)))
    vocabulary = len(corpus.codec.target.vocabulary)
    return [
        ClimbedModel(
            placement=placement,
            blocks=blocks,
            peak_lrs=config.peak_lrs,
            runs=runs[placement, blocks],
            measured=measured[placement, blocks],
            predicted=predicted_change(
                config.training(placement, blocks), tokens=tokens, vocabulary=vocabulary
            ),
            unigram_nats=unigram_nats,
        )
        for placement, blocks in models
    ]


def _looked_at(
    config: AmplificationTrainingsConfig,
    models: Sequence[_LookedAt],
    corpus: Corpus,
    pieces: Pieces,
) -> Mapping[_LookedAt, Sequence[float]]:
    """Returns the measured change of each seed."""
    found: dict[_LookedAt, list[float]] = {model: [] for model in models}
    asked_of = [(seed, *model) for seed in config.seed_numbers for model in models]
    for seed, placement, blocks in pieces.each("first updates", asked_of):
        first = config.first(placement, blocks, seed)
        asked = {"config": asdict(first), "text": corpus.fingerprint}
        name = f"first-{placement}/blocks-{blocks}_seed-{seed}"
        found[placement, blocks].append(pieces.get(name, asked, measured_change, first))
    return found


def _trained(
    config: AmplificationTrainingsConfig, models: Sequence[_LookedAt], pieces: Pieces
) -> Mapping[_LookedAt, Sequence[Sequence[LadderRun]]]:
    """The first seed of all models is trained first."""
    cells = [cell for model in models for cell in config.cells(pieces.folder, *model)]
    cells.sort(key=lambda cell: cell.seed)
    done = {_key(one): one for one in train(cells, "the trainings", pieces, later=NOTHING_LATER)}
    rows: dict[_LookedAt, list[list[LadderRun]]] = {model: [] for model in models}
    for model in models:
        for seed in config.seed_numbers:
            rows[model].append([done[*model, seed, lr] for lr in config.peak_lrs])
    return rows


def _key(one: LadderRun) -> tuple[str, int, int, float]:
    """Placement, blocks of each stack, seed and rate."""
    cell = one.cell
    return cell.arm.placement, cell.config.model.encoder_blocks, cell.seed, cell.arm.peak_lr
