"""Trains each placement to its end: one seed chooses its warm-up and rate, and others are trained
at them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from normscope.compare.grid import Cell
from normscope.placement import named

from ..engine.judging import learned
from ..engine.ladders import LadderRun, train
from ..engine.pieces import Pieces
from ..engine.trainings import NOTHING_LATER
from .config import ConvergedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementEnding:
    """Holds the runs of a placement, to their ends."""

    placement: str
    looked: Mapping[tuple[float, float], LadderRun]
    """The run of the seed that chose, by the share of the warm-up and the rate."""
    runs: Sequence[LadderRun]
    """The runs at the best of these, one a seed."""
    split: str

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def chosen(self) -> tuple[float, float]:
        """The share and the rate of the lowest loss."""
        return chosen(self.looked)

    @property
    def at_an_end(self) -> bool:
        """Returns whether the rate is the least or the largest that was tried, so that a better one
        may lie beyond.
        """
        lrs = [lr for share, lr in self.looked if share == self.chosen[0]]
        return self.chosen[1] in (min(lrs), max(lrs))

    def is_stable(self, unigram_nats: float) -> bool:
        """Returns whether the placement also learned at the next larger rate.

        Its best rate is then one that suits it, and not the largest that it survives. At the
        largest rate of all that is not known, and it is taken to be stable, as it learned there.
        """
        share, lr = self.chosen
        larger = [other for of, other in self.looked if of == share and other > lr]
        next_lr = min(larger, default=lr)
        return learned(self.looked[share, next_lr].final_nats, unigram_nats)

    def learned_at(self, unigram_nats: float) -> int:
        """Returns at how many of its warm-ups and rates the seed that chose learned."""
        return sum(learned(run.final_nats, unigram_nats) for run in self.looked.values())

    @property
    def nats(self) -> list[float]:
        """Last losses, one a seed."""
        return [run.final_nats for run in self.runs]

    @property
    def bleu(self) -> list[float]:
        """One a seed; 0 for a run that did not stay finite, which leaves nothing to translate
        with.
        """
        return [run.cell.evaluations().get(self.split, {}).get("bleu", 0.0) for run in self.runs]

    @property
    def validations(self) -> list[tuple[list[int], list[float]]]:
        """Returns the updates of each seed, and its losses there in nats."""
        found = []
        for run in self.runs:
            events = [e for e in run.cell.folder.events() if e["event"] == "validation"]
            updates = [e["update"] for e in events]
            nats = [e["nll_nats"] for e in events]
            found.append((updates, nats))
        return found

    @property
    def late_gain(self) -> float:
        """Measures what the last tenth of the updates brought, in nats; the mean over seeds, NaN
        where none was validated.
        """
        gains = []
        for updates, nats in self.validations:
            before = [
                loss for at, loss in zip(updates, nats, strict=True) if at <= 0.9 * updates[-1]
            ]
            gains += [one - nats[-1] for one in before[-1:]]
        return math.fsum(gains) / len(gains) if gains else math.nan


def chosen(looked: Mapping[tuple[float, float], LadderRun]) -> tuple[float, float]:
    """Returns the share of the warm-up and the rate of the run with the lowest last loss."""
    return min(looked, key=lambda key: looked[key].final_nats)


def trained(
    config: ConvergedConfig, pieces: Pieces, folder: Path
) -> tuple[list[PlacementEnding], list[Cell]]:
    """Train what a folder of runs lacks; what became of each placement, and all runs. Raises as
    `ladders.train` does.
    """
    looking = {
        (pair, lr): cell
        for pair in config.pairs
        for lr in config.peak_lrs
        for cell in config.cells(folder, pair, [lr], range(1, 2), config.ladder_updates)
    }
    judges = range(2, config.seeds + 2)
    any_rate = config.peak_lrs[:1]
    later: list[Cell] = []
    for pair in dict(config.pairs).items():
        later += config.cells(folder, pair, any_rate, judges, config.updates)
    runs = train(list(looking.values()), "the rates", pieces, later={"the best rates": later})
    looked: dict[str, dict[tuple[float, float], LadderRun]] = {
        placement: {} for placement in config.placements
    }
    for ((placement, share), lr), run in zip(looking, runs, strict=True):
        looked[placement][share, lr] = run
    judging = {}
    for placement, own_runs in looked.items():
        share, lr = chosen(own_runs)
        judging[placement] = config.cells(folder, (placement, share), [lr], judges, config.updates)
    cells = sorted((cell for own in judging.values() for cell in own), key=lambda cell: cell.seed)
    ended = train(
        cells,
        "the best rates",
        pieces,
        lambda cell: cell.evaluation_commands(config.split or None),
        later=NOTHING_LATER,
    )
    by_name = {run.cell.name: run for run in ended}
    endings = []
    for placement, own in judging.items():
        own_ended = [by_name[cell.name] for cell in own]
        endings.append(
            PlacementEnding(
                placement=placement,
                looked=looked[placement],
                runs=own_ended,
                split=config.split,
            )
        )
    return endings, [*looking.values(), *cells]
