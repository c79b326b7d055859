"""The failed trainings with every remedy, judged, and which remedy is named first."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from normscope.history.remedies import Counted, Cured, Remedy, Situation, in_order

from ..engine.checks import settings_but
from ..engine.pieces import Pieces, side_by_side
from .measure import (
    CURED_SHARE,
    FAILED_SHARE,
    LAST,
    RATES,
    SOUND,
    SOUND_RATES,
    RescueConfig,
    RescueTraining,
    answered,
    trained,
)
from .models import WIRINGS

HALF = "half the rate"
"""The remedy that is tried beside the doctor's."""
_Piece = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueCase:
    """A training, what the doctor said of it, and what each remedy made of it."""

    asked: RescueTraining
    said: _Piece
    losses: Mapping[str, Sequence[float | None]]
    """The losses by remedy, "" for the training itself. None where one was not finite; empty where
    a remedy was refused.
    """

    @property
    def words(self) -> str:
        return f"{self.asked.family}, {self.asked.wiring}, {self.asked.rate:g}" + (
            f", seed {self.asked.seed}" if self.asked.seed > 1 else ""
        )

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The remedies that the doctor named, by the work that they take; for a wrong skip path its
        fix alone, as any other is for later.
        """
        return _named(self.said)

    def first(self, counted: Counted) -> Remedy | None:
        """Returns the remedy that is named first by some counts: the fix of the fault, where one
        was found.
        """
        if not self.remedies:
            return None
        return in_order(self.remedies, Situation(self.said["situation"]), counted)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels by which trainings are judged."""

    unigram_nats: float
    sound_nats: Mapping[str, float]
    """The loss of a sound training of the same length, by family."""

    def ended(self, losses: Sequence[float | None]) -> float:
        """Returns the mean of the last losses; infinite where one is not finite, or there is
        none.
        """
        last = [one for one in losses[-LAST:] if one is not None]
        whole = last and len(last) == len(losses[-LAST:])
        return math.fsum(last) / len(last) if whole else math.inf

    def share(self, family: str, losses: Sequence[float | None]) -> float:
        """Returns the share of the way from the entropy of single tokens to the sound training."""
        way = self.unigram_nats - self.sound_nats[family]
        return (self.unigram_nats - self.ended(losses)) / way

    def failed(self, family: str, losses: Sequence[float | None]) -> bool:
        return not self.share(family, losses) >= FAILED_SHARE

    def cured(self, family: str, losses: Sequence[float | None]) -> bool:
        return self.share(family, losses) >= CURED_SHARE


def measured(
    config: RescueConfig, unigram_nats: float, pieces: Pieces
) -> tuple[list[RescueCase], Levels]:
    """Returns all cases, several at a time, and what they are judged by."""
    seeds = range(1, config.seeds + 1)
    sound = [
        RescueTraining(family=family, wiring=SOUND, rate=rate, seed=1)
        for family in config.families
        for rate in SOUND_RATES
    ]
    asked = [
        RescueTraining(family=family, wiring=wiring, rate=rate, seed=seed)
        for seed in seeds
        for wiring in config.wirings
        for family in config.families
        for rate in RATES[wiring]
    ]
    references = side_by_side(
        _reference,
        [(config, one) for one in sound],
        processes=pieces.processes,
        pieces=pieces,
        stage="sound trainings",
    )
    cases = side_by_side(
        _case,
        [(config, one) for one in asked],
        processes=pieces.processes,
        pieces=pieces,
        stage="failed trainings",
    )
    levels = Levels(unigram_nats=unigram_nats, sound_nats={})
    best: dict[str, float] = {}
    for one, losses in zip(sound, references, strict=True):
        best[one.family] = min(levels.ended(losses), best.get(one.family, math.inf))
    return cases, replace(levels, sound_nats=best)


def _reference(item: tuple[RescueConfig, RescueTraining], pieces: Pieces) -> list[float | None]:
    config, asked = item
    return list(_trained(asked, config, pieces)["losses"])


def _case(item: tuple[RescueConfig, RescueTraining], pieces: Pieces) -> RescueCase:
    config, asked = item
    own = _trained(asked, config, pieces)
    settings = {**asdict(asked), "sizes": _sizes(config)}
    name = f"said/{_name(asked)}"
    said = pieces.get(name, settings, answered, asked, config, own["losses"], own["norms"])
    losses = {
        "": own["losses"],
        HALF: _trained(replace(asked, rate=asked.rate / 2), config, pieces)["losses"],
    }
    for remedy in _named(said):
        treated = _treated(asked, remedy, said)
        losses[remedy] = [] if treated is None else _trained(treated, config, pieces)["losses"]
    return RescueCase(asked=asked, said=said, losses=losses)


def _named(said: _Piece) -> tuple[Remedy, ...]:
    remedies = tuple(map(Remedy, said["remedies"]))
    return (Remedy.MEND,) if Remedy.MEND in remedies else remedies


def _treated(asked: RescueTraining, remedy: Remedy, said: _Piece) -> RescueTraining | None:
    """Returns the training with a remedy; None where the doctor found another fault than was
    made.
    """
    match remedy:
        case Remedy.MEND:
            wiring = WIRINGS[asked.wiring]
            right = said["finding"] in wiring.found_by
            return replace(asked, wiring=wiring.mended) if right else None
        case Remedy.RATE:
            return replace(asked, rate=said["rate"])
        case Remedy.WARMUP:
            return replace(asked, warmup_updates=said["warmup_updates"])
        case Remedy.PLACEMENT:
            return replace(asked, to=said["to"])


def _trained(asked: RescueTraining, config: RescueConfig, pieces: Pieces) -> _Piece:
    settings = {**asdict(asked), "sizes": _sizes(config)}
    found: _Piece = pieces.get(f"trained/{_name(asked)}", settings, trained, asked, config)
    return found


def _sizes(config: RescueConfig) -> dict[str, Any]:
    return settings_but(config, "families", "wirings", "seeds")


def _name(asked: RescueTraining) -> str:
    parts = [asked.family, asked.wiring, f"{asked.rate:.4g}", f"seed-{asked.seed}"]
    if asked.warmup_updates:
        parts.append(f"warm-up-{asked.warmup_updates}")
    if asked.to:
        parts.append(f"to-{asked.to}")
    return "_".join(parts)


def counted(cases: Iterable[RescueCase], levels: Levels) -> Counted:
    """Counts the failed trainings that each remedy ended, by situation. A placement that was
    refused was not tried.
    """
    found: dict[Situation, dict[Remedy, Cured]] = {}
    for case in cases:
        if not levels.failed(case.asked.family, case.losses[""]):
            continue
        remedies = found.setdefault(Situation(case.said["situation"]), {})
        for remedy in case.remedies:
            if remedy is Remedy.PLACEMENT and not case.losses[remedy]:
                continue
            before = remedies.get(remedy, Cured(0, 0))
            ended = levels.cured(case.asked.family, case.losses[remedy])
            remedies[remedy] = Cured(before.count + ended, before.of + 1)
    return found


def first_by_others(case: RescueCase, cases: Sequence[RescueCase], levels: Levels) -> Remedy | None:
    """Returns the remedy that is named first by trainings of the other families alone, so that no
    case speaks for itself.
    """
    others = [one for one in cases if one.asked.family != case.asked.family]
    return case.first(counted(others, levels))
