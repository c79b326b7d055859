"""Post-LN once it is stable: shallow and deep, with short and long warm-ups, down to small rates.

The trainings, the choice and the comparison are those of `converged`, at several depths.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normscope.compare.grid import Cell
from normscope.data.opening import TOY, open_corpus
from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import counted, joined
from normscope.tasks.translation import TRANSLATION

from .converged.config import ConvergedConfig
from .converged.endings import PlacementEnding, trained
from .converged.study import (
    MEASURES,
    conditions as conditions_of_one,
    data_of,
    ends,
    figures as figures_of_one,
    gains_data,
    gains_of,
    units_of,
)
from .engine import checks
from .engine.claims import claim
from .engine.judging import Answer, bigram_nats, holm
from .engine.ladders import machines, sources
from .engine.page import Claim, Findings, StudyFigure, StudyTable, table
from .engine.pieces import Pieces
from .engine.planning import PlanEnds, PlannedRuns, StudyPlan
from .engine.study import Study, scales

_SAID = (
    "Liu et al. 2020, arXiv:2004.08249, abstract, of Post-LN; the sources of others promise as much"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StableConfig:
    """Encoder-decoders of several depths, each trained and compared as `converged` does.

    Raises ValueError where nothing can be compared.
    """

    depths: tuple[int, ...] = (4, 6)
    """Blocks of each stack, rising."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, or `toy`."""
    warmups: tuple[str, ...] = (
        "post-ln:0.1",
        "post-ln:0.3",
        "pre-ln:0",
        "pre-ln:0.1",
        "deepnorm:0.1",
    )
    """PLACEMENT:SHARE: the share of the updates that the warm-up takes, one or more for each
    placement.
    """
    beside: str = "pre-ln"
    """The placement that the others are compared with."""
    peak_lrs: tuple[float, ...] = (2e-4, 5e-4, 1e-3, 2e-3, 4e-3)
    seeds: int = 3
    updates: int = 2400
    ladder_updates: int = 800
    """Updates of the runs that choose; their warm-ups are the same share of them."""
    validations: int = 20
    width: int = 64
    ffn_width: int = 128
    heads: int = 4
    dropout: float = 0.1
    max_tokens: int = 2048
    clip_norm: float = 1.0
    split: str = "test"
    """The split of the text that is translated with the best checkpoint of each run that judges;
    empty for none.
    """
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """Numbers that products are computed in, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "depths")
        checks.check_rising(self, "depths")
        for blocks in self.depths:
            self.at(blocks)

    def at(self, blocks: int) -> ConvergedConfig:
        """Returns what is trained at one depth."""
        return ConvergedConfig(blocks=blocks, **checks.settings_but(self, "depths"))


_Found = Mapping[int, Sequence[PlacementEnding]]
"""The endings of the placements, by depth."""


def run(config: StableConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    checks.refuse_missing(config.corpus, "corpus", "normscope data prepare")
    found: dict[int, Sequence[PlacementEnding]] = {}
    cells: list[Cell] = []
    for blocks in config.depths:
        found[blocks], more = _trained_at(config, blocks, pieces)
        cells += more
    corpus = open_corpus(config.at(config.depths[0]).training(config.updates, 0.0).data)
    unigram = TRANSLATION.chance_nats(corpus)
    bigram = bigram_nats(*(corpus.splits[name].target.tokens for name in ("train", "valid")))
    runs = {str(cell.folder.path.relative_to(pieces.folder)): cell for cell in cells}
    made_by = {name: sources([cell])[cell.name] for name, cell in runs.items()}
    return Findings(
        conditions=conditions(config, (unigram, bigram), made_by) | {"machine": machines(cells)},
        claims=claims(config, found, unigram),
        figures=[one for blocks in found for one in figures(config, blocks, found[blocks])],
        tables=[one for blocks in found for one in tables(config, blocks, found[blocks], unigram)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "depths": [_data(config, blocks, found[blocks], unigram) for blocks in found],
            "runs": made_by,
        },
    )


def _trained_at(
    config: StableConfig, blocks: int, pieces: Pieces
) -> tuple[list[PlacementEnding], list[Cell]]:
    """Trains one depth, as `trained`."""
    return trained(config.at(blocks), pieces, pieces.folder / f"blocks-{blocks}")


def planned(config: StableConfig, pieces: Pieces) -> StudyPlan:
    """Returns the trainings of every depth that the folder lacks.

    Raises UserError for text that is not there.
    """
    checks.refuse_missing(config.corpus, "corpus", "normscope data prepare")
    stages: list[PlannedRuns] = []
    ends = ""
    for blocks in config.depths:
        of_depth: list[PlannedRuns] = []
        try:
            _trained_at(config, blocks, replace(pieces, plan=of_depth))
        except PlanEnds as end:
            ends = end.words
        stages += [replace(one, stage=f"{_depth(blocks)}, {one.stage}") for one in of_depth]
    return StudyPlan(stages=stages, ends=ends)


def claims(config: StableConfig, found: _Found, unigram_nats: float) -> list[Claim]:
    """Makes the claims that a placement ends lower, and translates better, than the one that it is
    compared with, where it is stable; one for each placement, all of a unit corrected together by
    Holm.
    """
    made = []
    for unit in units_of(config.at(config.depths[0])):
        gains = _gains(config, found, unit)
        stable = _stable(config, found, unigram_nats)
        family = {key: (gain, 0.0, math.inf) for key, gain in gains.items() if key in stable}
        decided = holm(family)
        for placement in dict.fromkeys(placement for placement, _ in gains):
            made.append(_claim_of(config, placement, unit, gains, decided))
    return made


def _claim_of(
    config: StableConfig,
    placement: str,
    unit: str,
    gains: Mapping[tuple[str, int], Estimate],
    decided: Mapping[tuple[str, int], Answer],
) -> Claim:
    """Judges one placement, over the depths; decided: of those at which it is stable."""
    words, _ = MEASURES[unit]
    title, beside = named(placement).title, named(config.beside).title
    at = {_depth(blocks): gain for (one, blocks), gain in gains.items() if one == placement}
    answers = {_depth(blocks): decided.get((placement, blocks)) for blocks in config.depths}
    left = [_depth(blocks) for blocks in config.depths if (placement, blocks) not in decided]
    told = f"Corrected by Holm over {counted(len(decided), 'pair')}"
    if left:
        told += f"; not stable, so that it decides nothing, at {joined(left)}"
    return claim(
        f"{title}, where it is stable, {words} than {beside}",
        f"Where it also learns at the next larger rate, {title} {words} than {beside}, each with "
        f"the warm-up and the rate that suit it best: by more than 0 {unit}.",
        source=_SAID,
        value=f"What it gains over {beside}, in {unit}",
        holds=at,
        decided=answers,
        beside=told,
    )


def _depth(blocks: int) -> str:
    return f"{blocks}+{blocks} blocks"


def _gains(config: StableConfig, found: _Found, unit: str) -> dict[tuple[str, int], Estimate]:
    """Measures by placement and depth by how much it ends better than the one beside."""
    gains = {}
    for blocks, endings in found.items():
        by_title = gains_of(config.at(blocks), endings, unit)
        for one in endings:
            if one.title in by_title:
                gains[one.placement, blocks] = by_title[one.title]
    return gains


def _stable(config: StableConfig, found: _Found, unigram_nats: float) -> set[tuple[str, int]]:
    """Returns the placements and depths at which the placement is stable."""
    return {
        (one.placement, blocks)
        for blocks, endings in found.items()
        for one in endings
        if one.is_stable(unigram_nats)
    }


def figures(
    config: StableConfig, blocks: int, endings: Sequence[PlacementEnding]
) -> list[StudyFigure]:
    """Draws those of `converged`, of one depth."""
    made = figures_of_one(config.at(blocks), endings)
    return [
        replace(one, name=f"{one.name}_{blocks}", title=f"{one.title}: {_depth(blocks)}")
        for one in made
    ]


def tables(
    config: StableConfig, blocks: int, endings: Sequence[PlacementEnding], unigram_nats: float
) -> list[StudyTable]:
    """Lists where the placements end at one depth, and at how many of its rates each learned."""
    whole = ends(config.at(blocks), endings)
    learned = table(
        f"{_depth(blocks)}: which placements train, by the seed that chose",
        endings,
        [
            ("placement", lambda one: one.title),
            ("learned at", lambda one: f"{one.learned_at(unigram_nats)} of {len(one.looked)}"),
            ("stable", lambda one: "yes" if one.is_stable(unigram_nats) else "no"),
        ],
    )
    return [replace(whole, title=f"{_depth(blocks)}: {whole.title}"), learned]


def conditions(
    config: StableConfig, baselines: tuple[float, float], made_by: Mapping[str, Any]
) -> dict[str, str]:
    """Says how the runs were made; as of `converged`, with all depths."""
    one = conditions_of_one(config.at(config.depths[-1]), baselines, made_by)
    depths = joined([_depth(blocks) for blocks in config.depths])
    return one | {
        "models": one["models"].replace(_depth(config.depths[-1]), depths),
        "stable": "by the seed that chose, the placement also learned at the next larger rate, so "
        "that its best rate is not the largest that it survives",
    }


def _data(
    config: StableConfig, blocks: int, endings: Sequence[PlacementEnding], unigram_nats: float
) -> dict[str, Any]:
    return {
        "blocks": blocks,
        "endings": [
            data_of(config.at(blocks), one)
            | {
                "stable": one.is_stable(unigram_nats),
                "learned_at": one.learned_at(unigram_nats),
                "looked_at": len(one.looked),
            }
            for one in endings
        ],
        "gains": gains_data(config.at(blocks), endings),
    }


STUDY = Study(
    title="Post-LN once it is stable",
    question=(
        "Where Post-LN trains, shallow or with a long warm-up or at a small rate, does it end "
        "lower or translate better than Pre-LN; and does DeepNorm?"
    ),
    help="Is Post-LN better once it trains?",
    scales=scales(
        StableConfig,
        smoke={
            "depths": (1, 2), "corpus": TOY, "warmups": ("post-ln:0.1", "pre-ln:0"),
            "peak_lrs": (4e-3,), "seeds": 1, "updates": 20, "ladder_updates": 10,
            "validations": 2, "width": 16, "ffn_width": 32, "heads": 2, "dropout": 0.0,
            "max_tokens": 256,
        },
        paper={
            "depths": (6, 12), "corpus": "corpora/iwslt14_deen", "updates": 60_000,
            "ladder_updates": 6_000, "validations": 60, "width": 512, "ffn_width": 1024,
            "dropout": 0.3, "max_tokens": 4096, "device": "auto",
        },
        more={"gpu": {"width": 256, "ffn_width": 512, "device": "cuda"}},
    ),
    run=run,
    planned=planned,
)  # fmt: skip
"""Cost: smoke takes a minute; cpu 50 runs of four to six minutes of one core and 18 of ten to
fifteen, seven core-hours in all; paper as many runs of an hour of an accelerator; gpu, with
`--processes 16`, some minutes of one by arithmetic, which nobody has timed."""
