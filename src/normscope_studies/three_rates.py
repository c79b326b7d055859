"""Three trainings about a rate: what the best of them loses, what the vertex of a parabola through
them loses, and what is gained by going on where an end of the three is the lowest.

Every rate of a sweep that has half and twice of itself in the same sweep is taken for what somebody
might have begun with. Nothing is trained.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from normscope.errors import UserError
from normscope.limits.reading import read_json
from normscope.measure import Estimate
from normscope.measure.vertex import lowest
from normscope.report.chart import Panel

from .engine.claims import claim
from .engine.estimates import jackknife, plain_estimate
from .engine.page import Claim, Findings, StudyFigure, StudyTable, line, table
from .engine.pieces import Pieces
from .engine.study import Study, scales
from .rate_law.ladders import SOURCE, read_sweeps

PUBLISHED = "published"
OWN = "ours"
_TITLES = {PUBLISHED: "published sweeps", OWN: "our own sweeps"}
_RULES = ("best of three", "vertex", "going on")
_NEAR_OCTAVE = 0.1
"""Two rates are a factor of two apart within so much of an octave: published ones are rounded."""
_MOST_AWAY = 3
"""Octaves between the first rate and the best of the sweep; those further away count as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeRatesConfig:
    """The sweeps that are read."""

    ladders: str = "corpora/dense_lr_bs_loss.csv"
    """The published table."""
    own: str = "results/advice/results.json"
    """The data of `normscope study advice`."""
    shapes: tuple[str, ...] = ("7x960", "10x1280", "13x1280")
    """Blocks x width of the published models that are read; the others are kept for a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSweep:
    """Final losses of trainings that differ in the peak rate alone."""

    source: str
    group: str
    """The sweeps of one group are of one model and one text: they are left out together."""
    octaves: Sequence[float]
    """Binary logarithms of the rates, rising."""
    losses: Sequence[float]

    def regret(self, octave: float) -> float:
        """Returns what a rate loses against the lowest loss, in nats: between two rates that were
        trained on a straight line, which is too much where the curve is convex.
        """
        return float(np.interp(octave, self.octaves, self.losses)) - min(self.losses)

    def place(self, octave: float) -> int | None:
        """Returns the place of a rate among those that were trained; None where it was not."""
        nearest = min(range(len(self.octaves)), key=lambda at: abs(self.octaves[at] - octave))
        return nearest if abs(self.octaves[nearest] - octave) < _NEAR_OCTAVE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunWith:
    """What three trainings about one rate of a sweep come to."""

    source: str
    group: str
    away: int
    """Whole octaves from that rate to the best of the sweep, `_MOST_AWAY` at most."""
    lost: Mapping[str, float]
    """By rule, nats above the lowest loss of the sweep."""
    further: int
    """Trainings beyond the three that going on took."""


def begun(sweep: RateSweep) -> Iterator[BegunWith]:
    """Yields every rate of a sweep that has half and twice of itself in it."""
    best = sweep.octaves[min(range(len(sweep.losses)), key=sweep.losses.__getitem__)]
    for octave in sweep.octaves:
        places = [sweep.place(octave + step) for step in (-1, 0, 1)]
        known = [at for at in places if at is not None]
        if len(known) < 3:
            continue
        three = min(known, key=sweep.losses.__getitem__)
        vertex = lowest([sweep.octaves[at] for at in known], [sweep.losses[at] for at in known])
        last, further = _gone_on(sweep, known)
        yield BegunWith(
            source=sweep.source,
            group=sweep.group,
            away=min(_MOST_AWAY, round(abs(octave - best))),
            lost={
                "best of three": sweep.regret(sweep.octaves[three]),
                "vertex": sweep.regret(vertex),
                "going on": sweep.regret(sweep.octaves[last]),
            },
            further=further,
        )


def _gone_on(sweep: RateSweep, known: Sequence[int]) -> tuple[int, int]:
    """Returns the place of the best rate, and how many trainings more it took, where another is
    trained beyond the lowest as long as that is an end; as far as the sweep goes.
    """
    places = list(known)
    while True:
        best = min(places, key=sweep.losses.__getitem__)
        step = {places[0]: -1, places[-1]: 1}.get(best)
        beyond = None if step is None else sweep.place(sweep.octaves[best] + step)
        if step is None or beyond is None:
            return best, len(places) - len(known)
        places.insert(0 if step < 0 else len(places), beyond)


def read(config: ThreeRatesConfig) -> list[RateSweep]:
    """Reads the published sweeps and ours. Raises UserError for a file that is not there."""
    found = []
    for one in read_sweeps(Path(config.ladders)):
        if f"{one.blocks}x{one.width}" in config.shapes:
            found.append(
                RateSweep(
                    source=PUBLISHED,
                    group=f"{one.family}, {one.tokens:g}",
                    octaves=[math.log2(rate) for rate in one.rates],
                    losses=one.losses,
                )
            )
    return [*found, *_own(Path(config.own))]


def _own(file: Path) -> Iterator[RateSweep]:
    """Yields our sweeps of the shorter length that learned at some rate; a run that did not stay
    finite counts as one that learned nothing.
    """
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; it comes of `normscope study advice`: name another place with "
            "--set own=FILE"
        )
    for case in read_json(file)["cases"].values():
        sweep = case["ladders"][0]
        if sweep["learned"]:
            runs = sorted(sweep["trainings"], key=lambda run: run["rate"])
            nothing = sweep["unigram_nats"]
            yield RateSweep(
                source=OWN,
                group=case["family"],
                octaves=[math.log2(run["rate"]) for run in runs],
                losses=[nothing if run["nats"] is None else run["nats"] for run in runs],
            )


def run(config: ThreeRatesConfig, pieces: Pieces) -> Findings:
    """Reads and judges; nothing is trained. Raises UserError for a file that is not there."""
    sweeps = read(config)
    starts = [one for sweep in sweeps for one in begun(sweep)]
    rows = _rows(starts)
    return Findings(
        conditions={
            "sweeps": f"{_count(sweeps, PUBLISHED)} {PUBLISHED}, {_count(sweeps, OWN)} {OWN}",
            "published": SOURCE,
            "begun with": "every rate of a sweep that has half and twice of itself in the sweep",
            "lost": "against the lowest loss of the sweep, between two rates on a straight line",
            "going on": "another training beyond the lowest, as long as that is an end and the "
            "sweep goes on",
            "intervals": "over groups of sweeps of one model and one text, jackknife",
        },
        claims=_claims(starts),
        figures=[_figure(starts)],
        tables=[_table(rows)],
        data={
            "rows": rows,
            "less": {source: _less_data(starts, source) for source in (PUBLISHED, OWN)},
        },
    )


def _count(sweeps: Sequence[RateSweep], source: str) -> int:
    return sum(one.source == source for one in sweeps)


def _less_data(starts: Sequence[BegunWith], source: str) -> dict[str, Any]:
    """Returns, by rule, what it loses less what the best of three loses."""
    some = _of(starts, source)
    return {rule: plain_estimate(_less(some, rule)) for rule in ("vertex", "going on")}


def _of(starts: Sequence[BegunWith], source: str) -> list[BegunWith]:
    return [one for one in starts if one.source == source]


def _less(starts: Sequence[BegunWith], rule: str) -> Estimate:
    """Returns the mean of what a rule loses less what the best of three loses, over groups."""
    groups: defaultdict[str, list[BegunWith]] = defaultdict(list)
    for one in starts:
        groups[one.group].append(one)

    def mean(some: Sequence[Sequence[BegunWith]]) -> float:
        every = [one for group in some for one in group]
        return statistics.fmean(one.lost[rule] - one.lost["best of three"] for one in every)

    return jackknife(list(groups.values()), mean)


def _claims(starts: Sequence[BegunWith]) -> list[Claim]:
    return [
        _better_claim(
            starts,
            "vertex",
            "The vertex is the better rate",
            "The vertex of a parabola through three losses names a rate that loses less than the "
            "best of the three.",
        ),
        _better_claim(
            starts,
            "going on",
            "Going on is worth it",
            "Where the lowest of three is an end, training beyond it until it is none loses less "
            "than stopping at three.",
        ),
    ]


def _better_claim(starts: Sequence[BegunWith], rule: str, name: str, statement: str) -> Claim:
    return claim(
        name,
        statement,
        source="NormScope",
        value="what it loses less what the best of three loses, mean, nats",
        holds={source: _less(_of(starts, source), rule) for source in (PUBLISHED, OWN)},
        greatest=0.0,
    )


def _mean_lost(starts: Sequence[BegunWith], rule: str) -> float:
    return statistics.fmean(one.lost[rule] for one in starts)


def _rows(starts: Sequence[BegunWith]) -> list[dict[str, Any]]:
    """Returns what each rule loses, in the mean, by how far the first rate lay from the best."""
    rows = []
    for source in (PUBLISHED, OWN):
        for away in (None, *range(_MOST_AWAY + 1)):
            some = [one for one in _of(starts, source) if away in (None, one.away)]
            if some:
                lost = {rule: _mean_lost(some, rule) for rule in _RULES}
                further = statistics.fmean(one.further for one in some)
                rows.append(
                    {"source": source, "away": away, "count": len(some), **lost, "further": further}
                )
    return rows


def _table(rows: Sequence[Mapping[str, Any]]) -> StudyTable:
    def column(key: str) -> Callable[[Mapping[str, Any]], Any]:
        return lambda row: row[key]

    return table(
        "Nats lost, in the mean",
        rows,
        [
            ("sweeps", column("source")),
            ("octaves from the best", lambda row: _away_words(row["away"])),
            ("first rates", column("count")),
            *((rule, column(rule)) for rule in _RULES),
            ("trainings more", column("further")),
        ],
    )


def _away_words(away: int | None) -> str:
    if away is None:
        return "any"
    return f"{away} and more" if away == _MOST_AWAY else str(away)


def _figure(starts: Sequence[BegunWith]) -> StudyFigure:
    panels = []
    for source in (PUBLISHED, OWN):
        some = _of(starts, source)
        aways = sorted({one.away for one in some})
        series = []
        for hue, rule in enumerate(_RULES):
            means = []
            for away in aways:
                means.append(statistics.fmean(one.lost[rule] for one in some if one.away == away))
            series.append(line(rule, "measured", hue, [float(away) for away in aways], means))
        panels.append(
            Panel(
                title=_TITLES[source],
                xlabel="octaves from the first rate to the best",
                ylabel="nats lost, mean",
                series=series,
            )
        )
    return StudyFigure.of_panels(
        name="lost",
        title="What three trainings lose, by how far the first rate lies from the best",
        caption="The last point is of three octaves and more.",
        panels=panels,
        wide=True,
    )


STUDY = Study(
    title="Three trainings about a rate: the best of them, a parabola, or one more?",
    question=(
        "Who trains at half a rate, at it and at twice it: does the vertex of a parabola through "
        "the three losses name a better rate than the best of them, and what is gained by going "
        "on where an end is the lowest?"
    ),
    help="Three rates: best of them, parabola, or more?",
    scales=scales(ThreeRatesConfig, smoke={"shapes": ("7x960",)}, paper={}),
    run=run,
)
