"""What probes read from hidden states, averaged over seeds, and what is claimed of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate, with_interval
from normscope.evidence.judging import Answer, between, lies_within
from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number

from ..engine.claims import judged
from ..engine.page import Claim
from .measure import PLACES
from .texts import BASE, POST, ProbesConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementReading:
    """One placement's models on one text."""

    placement: str
    seeds: Sequence[Mapping[str, Any]]
    """What `probed` gives, one a seed."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def properties(self) -> tuple[str, ...]:
        return tuple(self.seeds[0]["accuracy"])

    @property
    def reached(self) -> bool:
        """Whether every training came to the target loss."""
        return all(one["reached"] for one in self.seeds)

    def accuracy(self, name: str) -> Floats:
        """(S, L+1, 2): by seed, by completed blocks, before and after the norm."""
        return np.array([one["accuracy"][name] for one in self.seeds], dtype=np.float64)

    def selectivity(self, name: str) -> Floats:
        """Accuracy less that on the control task, shaped alike."""
        return self.accuracy(name) - np.array([one["control"][name] for one in self.seeds], dtype=np.float64)

    def of(self, what: str) -> Floats:
        """(S, …) of cka, lens_nats, anisotropy, left_out_nats, update or valid_nats."""
        return np.array([one[what] for one in self.seeds], dtype=np.float64)

    def neighbours(self) -> Floats:
        """Mean linear CKA of the streams before and after a block, (S,)."""
        cka_SLL = self.of("cka")
        found: Floats = np.diagonal(cka_SLL, 1, 1, 2).mean(1)
        return found

    def lens_gap(self) -> Floats:
        """By how many nats the logit lens half-way up lies above the end, (S,)."""
        lens = self.of("lens_nats")
        gap: Floats = lens[:, lens.shape[1] // 2] - lens[:, -1]
        return gap


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReadings:
    """All placements on one text."""

    text: str
    target_nats: float
    majority: Mapping[str, float]
    """By property: the share of its commonest class."""
    readings: Mapping[str, PlacementReading]


def over_blocks(values_SLP: Floats, place: int = PLACES.index("after")) -> Floats:
    """Mean over the blocks' streams, the embedding's left out, (S,)."""
    found: Floats = values_SLP[:, 1:, place].mean(1)
    return found


def less(one_S: Floats, other_S: Floats) -> Estimate:
    """The difference, over seeds in pairs."""
    return estimate(one_S - other_S)


_ASKED = "an open direction in reviews of the field: the placement may alter what linear probes read"


def claims(config: ProbesConfig, found: Sequence[TextReadings]) -> list[Claim]:
    """What the placement and the norm change, that probes read the model, and four comparisons with Post-LN."""
    return [
        *(_by_placement(config, one) for one in found),
        *(_by_norm(config, one) for one in found),
        _selective(found),
        _compared(
            found,
            "Pre-LN's last block is worth less",
            "Without its last block the loss of a Pre-LN model rises less than that of a Post-LN model.",
            source="dilution: Liu et al. 2020, Sun et al. 2025 (arXiv:2502.05795), of the last blocks of Pre-LN",
            what="rise in nats",
            of=lambda reading: reading.of("left_out_nats")[:, -1],
        ),
        _compared(
            found,
            "the output is ready earlier in Pre-LN",
            "Read by the logit lens half-way up, a Pre-LN model is nearer to its own final loss than a Post-LN model "
            "is.",
            source="not in a paper; asked of the logit lens (nostalgebraist 2020)",
            what="loss half-way less the final one, in nats",
            of=PlacementReading.lens_gap,
        ),
        _compared(
            found,
            "neighbouring blocks are more alike in Pre-LN",
            "Linear CKA of the streams before and after a block is higher in Pre-LN than in Post-LN, on average over "
            "blocks.",
            source="Kornblith et al. 2019 for the measure; the identity path of Pre-LN for the expectation",
            what="mean CKA",
            of=PlacementReading.neighbours,
            lower=POST,
        ),
        _compared(
            found,
            "Pre-LN's stream has a common direction",
            "The mean cosine of two tokens' streams, over the blocks, is higher in Pre-LN than in Post-LN.",
            source="Ethayarajh 2019 for the measure; the un-normalised sum of Pre-LN for the expectation",
            what="mean cosine",
            of=lambda reading: reading.of("anisotropy")[:, 1:].mean(1),
            lower=POST,
        ),
    ]


def differs(found: Estimate, edge: float) -> Answer:
    """Whether the whole interval lies beyond ± edge; False where it lies within."""
    within = lies_within(found, 0.0, edge)
    beyond = between(found, greatest=-edge) or between(found, least=edge)
    return True if beyond else False if within else None


def _by_placement(config: ProbesConfig, one: TextReadings) -> Claim:
    """Of every placement and property, Pre-LN's accuracy is taken away."""
    base = one.readings[BASE]
    return _differ(
        config,
        f"the placement changes what probes read, {one.text}",
        "At the same validation loss the mean accuracy over blocks of a linear probe after the norm differs from "
        "Pre-LN's by more than",
        {
            f"{reading.title}, {name}": less(over_blocks(reading.accuracy(name)), over_blocks(base.accuracy(name)))
            for reading in one.readings.values()
            if reading is not base
            for name in reading.properties
        },
    )


def norm_effect(reading: PlacementReading, name: str) -> Estimate:
    """Accuracy after the norm less that before it, mean over blocks; over seeds."""
    accuracy = reading.accuracy(name)
    return less(over_blocks(accuracy, 1), over_blocks(accuracy, 0))


def _by_norm(config: ProbesConfig, one: TextReadings) -> Claim:
    return _differ(
        config,
        f"before and after the norm probes read differently, {one.text}",
        "A linear probe's mean accuracy over blocks after the norm differs from that before it by more than",
        {
            f"{reading.title}, {name}": norm_effect(reading, name)
            for reading in one.readings.values()
            for name in reading.properties
        },
    )


def _differ(config: ProbesConfig, name: str, statement: str, off: Mapping[str, Estimate]) -> Claim:
    """statement: without the edge that it ends with. off: differences of accuracies by setting."""
    largest = max(off, key=lambda setting: abs(float(off[setting].mean)))
    return judged(
        name=name,
        statement=f"{statement} {config.accuracy_edge:g}.",
        source=_ASKED,
        found=f"largest difference: {largest}, {with_interval(off[largest])}",
        holds={setting: differs(value, config.accuracy_edge) for setting, value in off.items()},
    )


def _selective(found: Sequence[TextReadings]) -> Claim:
    least = {
        f"{name}, {one.text}": min(
            (estimate(over_blocks(reading.selectivity(name))) for reading in one.readings.values()),
            key=lambda value: float(value.low) if np.isfinite(value.low) else float(value.mean),
        )
        for one in found
        for name in one.majority
    }
    return judged(
        name="probes read the model",
        statement="Under every placement a probe does better on the property than on its control task, in the mean "
        "over blocks: it reads more than it could learn by heart of the words.",
        source="Hewitt & Liang 2019 (arXiv:1909.03368)",
        found="least selectivity: " + "; ".join(f"{name} {with_interval(value)}" for name, value in least.items()),
        holds={name: between(value, least=0.0) for name, value in least.items()},
    )


def _compared(
    found: Sequence[TextReadings],
    name: str,
    statement: str,
    *,
    source: str,
    what: str,
    of: Callable[[PlacementReading], Floats],
    lower: str = BASE,
) -> Claim:
    """That `of` is lower in one of Pre-LN and Post-LN than in the other; Pre-LN's stands first in what was found."""
    holds: dict[str, Answer] = {}
    parts = []
    for one in found:
        values = {placement: of(one.readings[placement]) for placement in (BASE, POST)}
        higher = POST if lower == BASE else BASE
        holds[one.text] = between(less(values[lower], values[higher]), greatest=0.0)
        parts.append(f"{one.text}: {_told(values[BASE])} beside {_told(values[POST])}")
    return judged(name=name, statement=statement, source=source, found=f"{what}, {'; '.join(parts)}", holds=holds)


def _told(values_S: Floats) -> str:
    found = estimate(values_S)
    return with_interval(found) if len(values_S) > 1 else number(float(found.mean))
