"""A rate that was best for a smaller model or a shorter training, carried to a larger or a longer
one, and its cost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.report.chart import Panel
from normscope.report.words import percentage

from ..engine.claims import judged
from ..engine.estimates import with_interval
from ..engine.judging import between
from ..engine.page import Claim, StudyTable, scatter, table
from .ladder import Ladder
from .rules import less_by_family
from .study import share_claim

UNCHANGED = "as it is"
POWER = "moved by a power that fits the others"
KNOWN = "moved by the law of known rates"
_NEAR = float(np.log10(1.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A pair of sweeps, the second of a larger model or of longer trainings."""

    group: str
    """The name of what grows and how far, such as "four times the depth"."""
    cluster: str
    """Growths of one are not independent."""
    smaller: Ladder
    larger: Ladder
    decades: float
    """log10 of how many times it is larger."""

    @property
    def moved(self) -> float:
        """Decades from the smaller one's best rate to the larger one's."""
        return self.larger.best - self.smaller.best


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The smaller one's best rate, moved in one way."""

    growth: Growth
    way: str
    foretold: float
    """Decades by which it is moved."""

    @property
    def nats(self) -> float:
        """Returns what the larger one ends at with it, between rungs by a straight line."""
        return self.growth.larger.at(self.growth.smaller.best + self.foretold)

    @property
    def lost(self) -> float:
        """The loss compared with its own best, as a share of the gain of that."""
        return self.growth.larger.regret(self.nats)

    @property
    def near(self) -> bool:
        """Within a factor of 1.5 of its own best rate."""
        return abs(self.growth.moved - self.foretold) <= _NEAR


def carried(
    growths: Sequence[Growth],
    apart: Callable[[Growth, Growth], bool],
    known: Callable[[Growth], float] | None = None,
) -> list[Carried]:
    """Carries every growth in every way; the power is the median over growths of its group that are
    apart from it.

    known: by how many decades the law of known rates moves a rate. Growths of which a ladder
    learned at no rate are left out.
    """
    there = [one for one in growths if one.smaller.learned and one.larger.learned]
    found = []
    for one in there:
        powers = [
            other.moved / other.decades
            for other in there
            if other.group == one.group and apart(one, other)
        ]
        ways = {UNCHANGED: 0.0, POWER: one.decades * float(np.median(powers)) if powers else 0.0}
        if known is not None:
            ways[KNOWN] = known(one)
        found += [Carried(growth=one, way=way, foretold=foretold) for way, foretold in ways.items()]
    return found


def by_group(several: Iterable[Carried]) -> dict[tuple[str, str], list[Carried]]:
    """Groups them by what grows and how the rate is carried, as they come."""
    found: dict[tuple[str, str], list[Carried]] = {}
    for one in several:
        found.setdefault((one.growth.group, one.way), []).append(one)
    return found


def beside_unchanged(
    several: Mapping[tuple[str, str], Sequence[Carried]], group: str, way: str
) -> Estimate:
    """Measures how much less of the gain is lost, at most all of it, than by the rate as it is:
    below 0 where less.
    """
    pairs = zip(several[group, way], several[group, UNCHANGED], strict=True)
    return less_by_family(
        (own.growth.cluster, min(1.0, own.lost) - min(1.0, same.lost)) for own, same in pairs
    )


def claims(several: Sequence[Carried]) -> list[Claim]:
    """Judges whether what is lost stays small in each way, and whether moving the rate is better
    than carrying it as it is.
    """
    groups = by_group(several)
    made = []
    for (group, way), own in groups.items():
        made.append(_little_lost(group, way, own))
        if way == POWER:
            made.append(_near(group, own))
        if way != UNCHANGED:
            made.append(_less(group, way, beside_unchanged(groups, group, way)))
    return made


def _little_lost(group: str, way: str, own: Sequence[Carried]) -> Claim:
    return share_claim(
        f"{group}, {way}: 2 % lost at most",
        f"Over {group}: with the best rate of the smaller model or shorter training, {way}, a "
        "training loses at most 2 % of what its best gains, in at least 80 % of cases.",
        [(one.growth.cluster, one.lost <= 0.02) for one in own],
        least=0.8,
    )


def _near(group: str, own: Sequence[Carried]) -> Claim:
    return share_claim(
        f"{group}: a power foretells the best rate",
        f"Over {group}: how far the best rate moves is foretold within a factor of 1.5 by a power "
        "of it, fitted to cases apart, in at least 80 % of cases.",
        [(one.growth.cluster, one.near) for one in own],
        least=0.8,
    )


def _less(group: str, way: str, less: Estimate) -> Claim:
    return judged(
        name=f"{group}, {way}: better than {UNCHANGED}",
        statement=(
            f"Over {group}: the best rate of the smaller model or shorter training loses less "
            f"{way} than {UNCHANGED}, in the mean over cases."
        ),
        source="NormScope",
        found=f"{with_interval(less)} of the best's gain beside it, over {less.count} families",
        holds={"all": between(less, greatest=0.0)},
    )


def summary(own: Sequence[Carried]) -> dict[str, Any]:
    """Returns what is lost, as shares of the gain; how often little, and how often next to nothing
    is gained.
    """
    lost = [one.lost for one in own]
    return {
        "cases": len(own),
        "moved": float(10 ** np.median([one.growth.moved for one in own])),
        "foretold": float(10 ** np.median([one.foretold for one in own])),
        "median_lost": float(np.median(lost)),
        "high_lost": float(np.quantile(lost, 0.9, method="higher")),
        "within_1_percent": sum(value <= 0.01 for value in lost),
        "within_2_percent": sum(value <= 0.02 for value in lost),
        "near": sum(one.near for one in own),
        "stuck": sum(one.growth.larger.stuck(one.nats) for one in own),
    }


def tables(several: Sequence[Carried], title: str) -> list[StudyTable]:
    """Lists what each way loses, and every growth."""
    groups = by_group(several)
    return [
        table(
            title,
            [(key, summary(own), beside_unchanged(groups, *key)) for key, own in groups.items()],
            [
                ("over", lambda row: row[0][0]),
                ("carried", lambda row: row[0][1]),
                ("cases", lambda row: row[1]["cases"]),
                ("best rate moved by, median", lambda row: row[1]["moved"]),
                ("carried by, median", lambda row: row[1]["foretold"]),
                ("within 1.5", lambda row: row[1]["near"]),
                ("median lost, % of the gain", lambda row: 100 * row[1]["median_lost"]),
                ("90th percentile, %", lambda row: 100 * row[1]["high_lost"]),
                ("at most 1 %", lambda row: row[1]["within_1_percent"]),
                ("at most 2 %", lambda row: row[1]["within_2_percent"]),
                ("stuck", lambda row: row[1]["stuck"]),
                ("mean beside as it is", lambda row: None if row[0][1] == UNCHANGED else row[2]),
            ],
        ),
        table(
            "Every case",
            several,
            [
                ("case", lambda one: one.growth.larger.case.name),
                ("over", lambda one: one.growth.group),
                ("carried", lambda one: one.way),
                ("smaller one's best rate", lambda one: 10**one.growth.smaller.best),
                ("larger one's", lambda one: 10**one.growth.larger.best),
                ("carried rate", lambda one: 10 ** (one.growth.smaller.best + one.foretold)),
                ("lost, %", lambda one: percentage(one.lost)),
            ],
        ),
    ]


def data(several: Sequence[Carried]) -> dict[str, Any]:
    """Returns what the tables show, and how the power was found."""
    groups = by_group(several)
    carried: dict[str, dict[str, Any]] = {}
    for (group, way), own in groups.items():
        carried.setdefault(group, {})[way] = summary(own) | _less_data(groups, group, way)
    return {
        "carried": carried,
        "growths": [
            {
                "group": one.growth.group,
                "smaller": one.growth.smaller.case.name,
                "larger": one.growth.larger.case.name,
                "updates": [one.growth.smaller.updates, one.growth.larger.updates],
                "moved": one.growth.moved,
                "way": one.way,
                "foretold": one.foretold,
                "lost": one.lost,
            }
            for one in several
        ],
    }


def _less_data(
    groups: Mapping[tuple[str, str], Sequence[Carried]], group: str, way: str
) -> dict[str, float]:
    if way == UNCHANGED:
        return {}
    less = beside_unchanged(groups, group, way)
    return {"less": float(less.mean), "less_half_width": float(less.half_width)}


def picture(
    growths: Iterable[Growth], title: str, place: Callable[[Growth], float], xlabel: str
) -> Panel:
    """Draws how far the best rate moved, a point a growth and a hue an optimiser."""
    points: dict[str, list[tuple[float, float]]] = {}
    for one in growths:
        points.setdefault(one.larger.case.optimizer, []).append((place(one), 10**one.moved))
    return scatter(
        title,
        points,
        xlabel=xlabel,
        ylabel="best rate over the smaller one's",
        log_x=True,
        log_y=True,
    )
