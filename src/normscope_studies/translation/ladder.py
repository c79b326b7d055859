"""Rates of a figure as multiples of the best rate of a ladder, which is climbed before the figure's
own runs.

The paper's rates suit its model. A model of another size learns at others, and a figure whose rates
suit it by chance alone says little of warm-up. So Post-LN with the long warm-up climbs a ladder by
one seed that judges nothing, and the figure's rates are given in multiples of what is best there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from normscope.compare.grid import Cell

from ..engine.pieces import Pieces
from .arms import TranslationArm, coupled
from .config import RunsConfig
from .runs import Trained, cells_of, folder_of, trained

_Runs = TypeVar("_Runs", bound=RunsConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLadder:
    """The outcome of one optimiser's learning-rate sweep."""

    optimizer: str
    finals_nats: Mapping[float, float]
    """The last validation loss of the one run of each rate, rising."""

    @property
    def best_lr(self) -> float:
        """The rate with the lowest loss; the smaller of two that are equal."""
        return min(self.finals_nats, key=lambda lr: (self.finals_nats[lr], lr))

    @property
    def at_an_end(self) -> bool:
        """True where a better rate may lie beyond the sweep."""
        return self.best_lr in (min(self.finals_nats), max(self.finals_nats))

    @property
    def words(self) -> str:
        """The outcome in one sentence, without its full stop."""
        losses = ", ".join(f"{nats:.3f} at {lr:g}" for lr, nats in self.finals_nats.items())
        beyond = "; the best lies at an end of the ladder" if self.at_an_end else ""
        return f"{self.optimizer}: best {self.best_lr:g} (one seed: {losses} nats){beyond}"

    @property
    def data(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "optimizer": self.optimizer,
            "best_lr": self.best_lr,
            "at_an_end": self.at_an_end,
            "peak_lrs": list(self.finals_nats),
            "last_loss_nats": list(self.finals_nats.values()),
        }


def climbed(config: RunsConfig, pieces: Pieces) -> list[RateLadder]:
    """Trains what the folder lacks of the ladders, and returns what each came to.

    The seed is the one behind those that judge. Raises UserError for text that is not there, and
    for a training that fails.
    """
    ladders = config.ladders()
    arms = [arm for name, rates in ladders.items() for arm in _arms(config, name, rates)]
    if not arms:
        return []
    found = trained(
        config,
        arms,
        pieces,
        seeds=range(config.seeds + 1, config.seeds + 2),
        stage="the ladder",
        later={"the trainings": _at_first_rates(config, pieces)},
    )
    return [_came_to(name, found) for name in ladders]


def _at_first_rates(config: RunsConfig, pieces: Pieces) -> list[Cell]:
    """Returns what is trained once the rates are swept, as if the first rate of each sweep were the
    best.
    """
    rates = {name: ladder[0] for name, ladder in config.ladders().items()}
    chosen = config.with_rates(rates)
    found = cells_of(chosen, chosen.arms(), folder_of(chosen, pieces))
    return [cell for runs in found.values() for cell in runs]


def _arms(config: RunsConfig, optimizer: str, rates: tuple[float, ...]) -> list[TranslationArm]:
    schedule = coupled(config.long_warmup_updates)
    return [
        TranslationArm(optimizer=optimizer, peak_lr=rate, schedule=schedule, updates=config.updates)
        for rate in rates
    ]


def _came_to(optimizer: str, found: Trained) -> RateLadder:
    finals = {
        arm.peak_lr: found.finals(arm)[0] for arm in found.curves if arm.optimizer == optimizer
    }
    return RateLadder(optimizer=optimizer, finals_nats=dict(sorted(finals.items())))


def settled(config: _Runs, ladders: list[RateLadder]) -> _Runs:
    """Returns the configuration with rates for multiples, and no ladder left to be climbed."""
    return config.with_rates({one.optimizer: one.best_lr for one in ladders})
