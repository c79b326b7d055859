"""The readings of probes, averaged over seeds, and the claims on them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import counted, joined

from ..engine.claims import claim, judged
from ..engine.estimates import Floats, estimate, with_interval
from ..engine.judging import Answer, holm, learned
from ..engine.page import Claim
from .config import ProbesConfig
from .measure import UNCONTROLLED

_MEMO = (
    "the memo on stability, future directions: the placement “could alter linear probe behavior”"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementReading:
    """One placement's models, one a seed."""

    placement: str
    trained: Sequence[Mapping[str, Any]]
    """The results of `measure.probed` for each seed."""
    untrained: Sequence[Mapping[str, Any]]
    """The results for the same models as they were drawn."""
    nats: Sequence[float]
    """The last validation losses."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def properties(self) -> list[str]:
        """The properties that were asked of the words."""
        return list(self.trained[0])

    def learned(self, unigram_nats: float) -> bool:
        """Tells whether the mean of its losses lies below the unigram baseline."""
        return learned(sum(self.nats) / len(self.nats), unigram_nats)

    def accuracy(self, name: str) -> Floats:
        """Returns (S, L + 1): by seed and completed blocks."""
        return _of(self.trained, name, "accuracy")

    def untrained_accuracy(self, name: str) -> Floats:
        """Returns the same of the models as they were drawn."""
        return _of(self.untrained, name, "accuracy")

    def control(self, name: str) -> Floats:
        """Returns the same on the property's control task; there is none of the word itself."""
        return _of(self.trained, name, "control")

    def changed(self, name: str) -> Floats:
        """Returns (S, L): by how much a probe of the depth before falls short behind each block of
        one that is fitted there.
        """
        return self.accuracy(name)[:, 1:] - _of(self.trained, name, "carried")

    def changed_deep(self, name: str) -> Floats:
        """Returns (S,): the mean of these over the upper half of the blocks."""
        changed = self.changed(name)
        found: Floats = changed[:, changed.shape[1] // 2 :].mean(1)
        return found


def _of(seeds: Sequence[Mapping[str, Any]], name: str, what: str) -> Floats:
    return np.array([one[name][what] for one in seeds], dtype=np.float64)


def over_blocks(values_SL: Floats) -> Floats:
    """Returns (S,): the mean over the streams behind blocks; the embedding's is left out."""
    found: Floats = values_SL[:, 1:].mean(1)
    return found


_Readings = Mapping[str, PlacementReading]


def claims(config: ProbesConfig, found: _Readings, unigram_nats: float) -> list[Claim]:
    """Returns that the placement changes what probes read, that Pre-LN's deep blocks change it
    less, and that training put there what is read, and not the words alone.
    """
    know = [one for one in found.values() if one.learned(unigram_nats)]
    return [
        _differs(config, found, know),
        _dilution(config, found, know),
        _family(
            "training puts there what probes read",
            "Of a trained model a probe reads more than of the same model as it was drawn, in the "
            "mean over blocks.",
            "what it reads more, as a share of the words",
            "not in a source; what an untrained model shows is of the words and the wiring",
            {
                f"{one.title}, {name}": estimate(
                    over_blocks(one.accuracy(name)) - over_blocks(one.untrained_accuracy(name))
                )
                for one in know
                for name in one.properties
            },
            found,
            know,
        ),
        _family(
            "probes read more than the words alone tell",
            "A probe does better on a property than on its control task, whose classes the word "
            "alone decides at random, in the mean over blocks.",
            "selectivity, as a share of the words",
            "Hewitt and Liang 2019, arXiv:1909.03368",
            {
                f"{one.title}, {name}": estimate(
                    over_blocks(one.accuracy(name)) - over_blocks(one.control(name))
                )
                for one in know
                for name in one.properties
                if name != UNCONTROLLED
            },
            found,
            know,
        ),
    ]


def _differs(config: ProbesConfig, found: _Readings, know: Sequence[PlacementReading]) -> Claim:
    """Makes the claim for every placement and property that its mean accuracy lies beyond an edge
    from the base's; all corrected together.
    """
    base, edge = found[config.base], config.accuracy_edge
    others = [one for one in know if one is not base] if base in know else []
    less = {
        f"{one.title}, {name}": estimate(
            over_blocks(one.accuracy(name)) - over_blocks(base.accuracy(name))
        )
        for one in others
        for name in one.properties
    }
    alike = holm({setting: (value, -edge, edge) for setting, value in less.items()})
    holds: dict[str, Answer] = {
        setting: None if answer is None else not answer for setting, answer in alike.items()
    }
    told = "nothing is known"
    if less:
        largest = max(less, key=lambda setting: abs(float(less[setting].mean)))
        told = f"the largest difference: {largest}, {with_interval(less[largest])}"
    return judged(
        name="the placement changes what probes read",
        statement=f"The mean accuracy of linear probes over the blocks differs from {base.title}'s "
        f"by more than {edge:g}, each placement at its own best rate.",
        source=_MEMO,
        found=f"{told}. {_corrected(len(less), found, know)}",
        holds=holds or {"all": None},
    )


def _dilution(config: ProbesConfig, found: _Readings, know: Sequence[PlacementReading]) -> Claim:
    base, post = found[config.base], found[config.post]
    less: dict[str, Estimate | None] = dict.fromkeys(base.properties)
    beside = "One of both did not learn, which decides nothing"
    if base in know and post in know:
        less = {
            name: estimate(base.changed_deep(name) - post.changed_deep(name))
            for name in base.properties
        }
        beside = f"Corrected by Holm over {counted(len(less), 'comparison')}. Each shortfall: "
        beside += "; ".join(
            f"{name} {with_interval(estimate(base.changed_deep(name)))} beside "
            f"{with_interval(estimate(post.changed_deep(name)))}"
            for name in base.properties
        )
    return claim(
        f"{base.title}'s deep blocks change less what a probe reads",
        "In the upper half of the blocks a probe of the depth before, which is not fitted again, "
        f"falls short of one that is by less in {base.title} than in {post.title}.",
        source="dilution: Liu et al. 2020, section 4; Sun et al. 2025, arXiv:2502.05795, of the "
        "deep blocks of Pre-LN",
        value=f"{base.title}'s shortfall less {post.title}'s, as a share of the words",
        holds=less,
        decided=holm(
            {name: (one, -math.inf, 0.0) for name, one in less.items() if one is not None}
        ),
        beside=beside,
    )


def _family(
    name: str,
    statement: str,
    value: str,
    source: str,
    more: Mapping[str, Estimate],
    found: _Readings,
    know: Sequence[PlacementReading],
) -> Claim:
    """Makes the claim that each of these lies above 0, all corrected together."""
    return claim(
        name,
        statement,
        source=source,
        value=value,
        holds=more or {"all": None},
        decided=holm({setting: (one, 0.0, math.inf) for setting, one in more.items()}),
        beside=_corrected(len(more), found, know),
    )


def _corrected(count: int, found: _Readings, know: Sequence[PlacementReading]) -> str:
    told = f"Corrected by Holm over {counted(count, 'comparison')}"
    left = [one.title for one in found.values() if one not in know]
    if left:
        told += f"; did not learn, so that they decide nothing: {joined(left)}"
    return told
