"""The claims on trainings so deep, and whether ours support them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import counted, joined, number

from ..engine.claims import claim
from ..engine.estimates import Floats, estimate
from ..engine.judging import LEARNED_NATS, Answer, holm, learned
from ..engine.ladders import Ladder, LadderRun
from ..engine.page import Claim
from .config import DeepConfig

_WANG = "Wang et al. 2022, arXiv:2203.00555"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepTrainings:
    """One placement's trainings at one depth."""

    placement: str
    blocks: int
    ladder: Ladder
    windows: int

    @property
    def title(self) -> str:
        return named(self.placement).title

    def learned(self, unigram_nats: float) -> bool:
        """Tells whether the runs that judge end below the unigram baseline by as much as counts."""
        return learned(self.ladder.mean_nats, unigram_nats)

    @property
    def steady(self) -> bool:
        """True where all runs that judge stayed finite."""
        return all(run.finite for run in self.ladder.at_best)

    def below(self, unigram_nats: float) -> Estimate:
        """Returns by how many nats the runs that judge end below the unigram baseline."""
        return estimate([unigram_nats - nats for nats in self.ladder.finals])

    @property
    def rises(self) -> list[float]:
        """The rise of the loss of each run that judges above the lowest that it had reached, in
        nats.
        """
        return [largest_rise(losses_of(run), self.windows) for run in self.ladder.at_best]


def losses_of(run: LadderRun) -> list[float]:
    """Returns the training loss of every update, in nats per target token."""
    return [event["nll_nats"] for event in run.cell.folder.events() if event["event"] == "update"]


def windowed(losses: Sequence[float], windows: int) -> Floats:
    """Returns the mean losses of so many stretches of a training, each as long as the others within
    one update, (windows,).
    """
    parts = np.array_split(np.asarray(losses, dtype=np.float64), windows)
    return np.array([part.mean() for part in parts])


def largest_rise(losses: Sequence[float], windows: int) -> float:
    """Returns by how much the mean loss of a stretch lies above the lowest of those before it, at
    the most, in nats; 0 where it never does.

    >>> largest_rise([4.0, 3.0, 3.5, 2.0], windows=4)
    0.5
    """
    means = windowed(losses, windows)
    lowest = np.minimum.accumulate(means)
    return float((means - lowest).max())


DeepFound = Mapping[int, Mapping[str, DeepTrainings]]
"""The trainings by the number of blocks, then by placement."""


def claims(config: DeepConfig, found: DeepFound, unigram_nats: float) -> list[Claim]:
    """Returns that DeepNorm trains and is steady, that Post-LN does not train, and that DeepNorm
    ends below each of the others.
    """
    rivals = [name for name in config.placements if name != config.scaled]
    below = _less(config, found, rivals, unigram_nats)
    decided = holm({key: (less, -math.inf, 0.0) for key, less in below.items()})
    return [
        _trains(config, found, unigram_nats),
        _is_steady(config, found, unigram_nats),
        _does_not_train(config, found, unigram_nats),
        *(_ends_below(config, rival, below, decided) for rival in rivals),
    ]


def _trains(config: DeepConfig, found: DeepFound, unigram_nats: float) -> Claim:
    title = named(config.scaled).title
    return claim(
        f"{title} trains at any depth",
        f"{title} learns at every depth: it ends at least {LEARNED_NATS:g} nats below the unigram "
        "baseline.",
        source=f"{_WANG}, abstract: “scale Transformers up to 1,000 layers”",
        value="how far it ends below the unigram baseline, in nats",
        holds={
            _depth(config, blocks): own[config.scaled].below(unigram_nats)
            for blocks, own in found.items()
        },
        least=LEARNED_NATS,
    )


def _is_steady(config: DeepConfig, found: DeepFound, unigram_nats: float) -> Claim:
    title = named(config.scaled).title
    holds: dict[str, Estimate | Answer] = {}
    for blocks, own in found.items():
        one = own[config.scaled]
        if not one.steady:
            holds[_depth(config, blocks)] = False
        elif one.learned(unigram_nats):
            holds[_depth(config, blocks)] = estimate(one.rises)
        else:
            holds[_depth(config, blocks)] = None
    return claim(
        f"{title} trains without instability",
        f"Of {title} no run is lost, and the training loss never rises by more than "
        f"{config.rise_nats:g} nats above the lowest that it had reached: means over "
        f"{config.windows} stretches of each run at the best rate.",
        source="the memo on stability, case study 2: “to scale to hundreds or even 1,000 layers "
        f"without instability”, of {_WANG}",
        value="largest rise, in nats",
        holds=holds,
        greatest=config.rise_nats,
        beside=_told(config, found, [config.scaled], unigram_nats),
    )


def _does_not_train(config: DeepConfig, found: DeepFound, unigram_nats: float) -> Claim:
    title = named(config.post).title
    return claim(
        f"{title} does not train as deep",
        f"{title} learns at no depth: at its best rate it ends less than {LEARNED_NATS:g} nats "
        "below the unigram baseline.",
        source=f"{_WANG}, of WMT17 En-De, where Post-LN diverges from 18 layers in each stack on",
        value="how far it ends below the unigram baseline, in nats",
        holds={
            _depth(config, blocks): own[config.post].below(unigram_nats)
            for blocks, own in found.items()
        },
        greatest=LEARNED_NATS,
    )


_DepthAndRival = tuple[int, str]


def _less(
    config: DeepConfig, found: DeepFound, rivals: Sequence[str], unigram_nats: float
) -> dict[_DepthAndRival, Estimate]:
    """Returns by how many nats DeepNorm ends above a rival, where one of the two learned."""
    made = {}
    for blocks, own in found.items():
        scaled = own[config.scaled]
        for rival in rivals:
            if scaled.learned(unigram_nats) or own[rival].learned(unigram_nats):
                made[blocks, rival] = scaled.ladder.less(own[rival].ladder)
    return made


def _ends_below(
    config: DeepConfig,
    rival: str,
    below: Mapping[_DepthAndRival, Estimate],
    decided: Mapping[_DepthAndRival, Answer],
) -> Claim:
    title, other = named(config.scaled).title, named(rival).title
    every = list(config.widths)
    left = [_depth(config, blocks) for blocks in every if (blocks, rival) not in below]
    told = f"Corrected by Holm over {counted(len(below), 'comparison')}"
    if left:
        told += f"; neither of both learned, which decides nothing, at {joined(left)}"
    return claim(
        f"{title} ends below {other} that deep",
        f"{title} ends lower than {other} of the same depth and width, each at its own best rate.",
        source=f"{_WANG}, of WMT17 En-De",
        value=f"last loss less {other}'s, in nats",
        holds={_depth(config, blocks): below.get((blocks, rival)) for blocks in every},
        decided={_depth(config, blocks): decided.get((blocks, rival)) for blocks in every},
        beside=told,
    )


def _told(
    config: DeepConfig, found: DeepFound, placements: Sequence[str], unigram_nats: float
) -> str:
    """Returns the outcome of the trainings whose rise is not known, in words."""
    parts = []
    for blocks, own in found.items():
        for name in placements:
            one = own[name]
            if not one.steady:
                parts.append(f"{one.title} of {_depth(config, blocks)}: a run was lost")
            elif not one.learned(unigram_nats):
                nats = number(one.ladder.mean_nats, 3)
                parts.append(f"{one.title} of {_depth(config, blocks)} did not learn: {nats} nats")
    return "; ".join(parts)


def _depth(config: DeepConfig, blocks: int) -> str:
    return f"{blocks:,} blocks of width {config.widths[blocks]}"
