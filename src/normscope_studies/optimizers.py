"""Placement, optimiser and warm-up crossed, each at its own best rate: who needs a warm-up under which optimiser."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from normscope.compare.manifest import in_words
from normscope.data.opening import TOY
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.evidence.judging import LEARNED_NATS, holm
from normscope.optim import OptimizerConfig
from normscope.placement import named
from normscope.report.words import joined
from normscope.runs.config import replaced
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig

from .engine.checks import check_defined_for, check_different, check_positive
from .engine.claims import claim
from .engine.discovery import About
from .engine.figures import rates
from .engine.ladders import Ladder, LadderArm, WarmupPair, climb, end_columns, gains_at_most, trained_by
from .engine.models import LOSS, LadderConfig, language_model, settings_of
from .engine.page import Claim, StudyFigure, StudyTable, table
from .engine.pieces import Pieces
from .engine.study import Findings, Study, scales

ABOUT = About(
    title="Placement, optimiser and warm-up, each at its own best rate",
    question="Which placement needs a learning-rate warm-up under which optimiser, when each has the rate that suits "
    "it best: in a Llama-like language model, under AdamW, Muon, Lion and SGD with momentum?",
    help="Which placements need warm-up, by optimiser?",
)


PLACEMENTS = (
    *("post-ln", "pre-ln", "deepnorm", "peri-ln", "olmo-2", "sub-ln", "residual", "rezero"),
    *("lns", "hybrid-norm-star", "completep", "mhc"),
)
"""Post-LN and Pre-LN, and of each idea since the one that is used most."""

LADDERS = MappingProxyType(
    {
        "adamw": (3e-4, 7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2, 7e-2),
        "muon": (3e-4, 7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2, 7e-2),
        "lion": (3e-5, 7.5e-5, 1.9e-4, 4.7e-4, 1.2e-3, 2.9e-3, 7.4e-3),
        "sgd": (1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0),
    }
)
"""Seven rates of each optimiser, two and a half times apart, SGD's three times: its best rates differ most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizersConfig(LadderConfig):
    """Small decoders of the Llama preset, alike but for placement, optimiser and warm-up."""

    placements: tuple[str, ...] = PLACEMENTS
    optimizers: tuple[str, ...] = tuple(LADDERS)
    warmup_updates: int = 12
    best_rates: int = 3
    """How many of the ladder's rates are trained with all seeds: those with the lowest losses."""
    rates: int = 7
    """Of an optimiser's ladder, from its lowest."""
    updates: int = 120
    needs_nats: float = 0.1
    """A warm-up is needed where the best loss without it lies more than this above the best with it."""
    text: str = "corpora/wikipedia_1000"
    preset: str = "llama"
    width: int = 48
    ffn_width: int = 128
    heads: int = 4
    key_value_heads: int = 2
    blocks: int = 8
    weight_decay: float = 0.1
    momentum: float = 0.9
    """Of SGD."""

    def __post_init__(self) -> None:
        LadderConfig.__post_init__(self)
        check_different(self, "placements", "optimizers")
        if unknown := [name for name in self.optimizers if name not in LADDERS]:
            raise ValueError(
                f"optimizers: {', '.join(unknown)} has no ladder of rates; choose from {', '.join(LADDERS)}"
            )
        if not 1 <= self.best_rates <= self.rates <= len(LADDERS["adamw"]):
            raise ValueError(
                f"1 <= best_rates <= rates <= {len(LADDERS['adamw'])} must hold, got {self.best_rates} and {self.rates}"
            )
        check_positive(self, "needs_nats")
        check_defined_for(self, "placements", model="decoder-only")

    def ladder(self, optimizer: str) -> tuple[float, ...]:
        """The optimiser's rates, rising."""
        return LADDERS[optimizer][: self.rates]


SCALES = scales(
    OptimizersConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"), "optimizers": ("adamw", "sgd"), "seeds": 2, "rates": 2, "best_rates": 1,
        "updates": 4, "warmup_updates": 2, "text": TOY, "width": 16, "ffn_width": 24, "heads": 2, "key_value_heads": 1,
        "blocks": 2, "sequence_length": 24, "batch_sequences": 4,
    },
    paper={
        "ladder_seeds": 3, "updates": 20_000, "warmup_updates": 2_000, "text": "corpora/wikipedia", "width": 768,
        "ffn_width": 2048, "heads": 12, "key_value_heads": 4, "blocks": 12, "sequence_length": 1024,
        "batch_sequences": 32, "device": "auto",
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu 1,250 runs of some ten seconds of one core; paper, with models of 124 million
parameters, as many runs of an hour of an accelerator."""


_OptimizerPairs = Mapping[tuple[str, str], WarmupPair]
"""By placement and optimiser."""
TITLES = {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD with momentum"}
_SAID = (
    ("post-ln", True, "Xiong et al. 2020, section 3.2, of Adam and SGD"),
    ("pre-ln", False, "Xiong et al. 2020, section 4.2, of Adam and SGD"),
    ("deepnorm", False, "Wang et al. 2022, arXiv:2203.00555, which trains with warm-up and promises stability"),
    ("rezero", False, "Bachlechner et al. 2020, arXiv:2003.04887, section 5: without warm-up"),
)


def run(config: OptimizersConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    base = base_config(config)
    corpus = LANGUAGE_MODEL.open(base)
    parameters = sum(p.numel() for p in LANGUAGE_MODEL.build(base, corpus.tokeniser).parameters())
    pairs = climb(arms(config, base, pieces.folder), config, pieces, best_rates=config.best_rates)
    runs, unigram_nats = trained_by(pairs.values()), LANGUAGE_MODEL.chance_nats(corpus)
    needs = all_needs(pairs, config.needs_nats, unigram_nats)
    return Findings(
        conditions=conditions(config, unigram_nats, parameters, runs),
        claims=claims(config, pairs, unigram_nats),
        figures=figures(config, pairs),
        tables=tables(config, pairs, needs),
        data={
            "unigram_nats": unigram_nats,
            "pairings": [
                {
                    "placement": placement,
                    "optimizer": optimizer,
                    "verdict": str(needs[placement, optimizer]),
                    "gain_nats": plain_estimate(pair.gain),
                    "without_warmup": _data(pair.without),
                    "with_warmup": _data(pair.warm),
                }
                for (placement, optimizer), pair in pairs.items()
            ],
            "runs": runs,
        },
    )


def base_config(config: OptimizersConfig) -> LanguageModelRunConfig:
    """What all runs share. Raises UserError for text that is not there."""
    sizes = settings_of(config, "width", "ffn_width", "heads", "blocks")
    return language_model(
        config,
        preset=config.preset,
        sizes=sizes | {"attention": {"key_value_heads": config.key_value_heads}},
        optimizer=OptimizerConfig(weight_decay=config.weight_decay),
    )


def arms(config: OptimizersConfig, base: LanguageModelRunConfig, folder: Path) -> dict[tuple[str, str], LadderArm]:
    """Every placement under every optimiser; SGD alone has momentum."""
    made = {}
    for placement in config.placements:
        for optimizer in config.optimizers:
            momentum = {"optimizer__momentum": config.momentum} if optimizer == "sgd" else {}
            made[placement, optimizer] = LadderArm(
                base=replaced(base, optimizer__name=optimizer, **momentum),
                placement=placement,
                folder=folder,
                peak_lrs=config.ladder(optimizer),
            )
    return made


class Need(StrEnum):
    """Whether a placement needs a warm-up under an optimiser, the strongest answer first."""

    NEEDS = "needs it"
    GAINS = "gains from it"
    DOES_NOT = "does not"
    UNDECIDED = "undecided"
    UNLEARNED = "did not learn"


def all_needs(pairs: _OptimizerPairs, needs_nats: float, unigram_nats: float) -> dict[tuple[str, str], Need]:
    """By the interval of each gain: above `needs_nats`, above 0, below `needs_nats`, or across an edge.

    Intervals are corrected for how many pairs there are. A gain that is certain and below `needs_nats` is one; so is
    one that may be above it. A pair neither of whose runs learned decides nothing.
    """
    found = {}
    without, no_gain = (gains_at_most(pairs, edge, unigram_nats) for edge in (needs_nats, 0.0))
    for key, pair in pairs.items():
        if not pair.learned(unigram_nats):
            found[key] = Need.UNLEARNED
        elif without[key] is False:
            found[key] = Need.NEEDS
        elif no_gain[key] is False:
            found[key] = Need.GAINS
        else:
            found[key] = Need.DOES_NOT if without[key] else Need.UNDECIDED
    return found


def claims(config: OptimizersConfig, pairs: _OptimizerPairs, unigram_nats: float) -> list[Claim]:
    """One for each placement of which a source speaks, and one for the order of placements under two optimisers."""
    made, edge = [], config.needs_nats
    at_most = gains_at_most(pairs, edge, unigram_nats)
    family = sum(pair.learned(unigram_nats) for pair in pairs.values())
    for placement, needs, source in _SAID:
        if placement not in config.placements:
            continue
        title = named(placement).title
        holds = {TITLES[optimizer]: pairs[placement, optimizer] for optimizer in config.optimizers}
        does_not = {TITLES[optimizer]: at_most[placement, optimizer] for optimizer in config.optimizers}
        unlearned = [setting for setting, pair in holds.items() if not pair.learned(unigram_nats)]
        made.append(
            claim(
                f"{title} {'needs' if needs else 'does without'} warm-up",
                f"{title} without warm-up ends {'more than' if needs else 'at most'} {edge:g} nats above its runs with "
                "it, each at its own best rate.",
                source=source,
                value="the loss without less that with warm-up, in nats",
                holds={setting: pair.gain for setting, pair in holds.items()},
                decided={
                    setting: answer if answer is None or not needs else not answer
                    for setting, answer in does_not.items()
                },
                beside=_decided_by(family, unlearned),
            )
        )
    if {"adamw", "muon"} <= set(config.optimizers):
        less = {
            named(name).title: pairs[name, "adamw"].better.less(pairs[name, "muon"].better)
            for name in config.placements
            if pairs[name, "adamw"].learned(unigram_nats) or pairs[name, "muon"].learned(unigram_nats)
        }
        made.append(
            claim(
                "Muon ends lower than AdamW",
                "Under Muon a placement ends lower than under AdamW, each at its own best rate and warm-up.",
                source="Jordan 2024, Muon; Liu et al. 2025, arXiv:2502.16982, section 3, of larger models",
                value="AdamW's last loss less Muon's, in nats",
                holds=less or {"all": None},
                decided=holm({title: (one, 0.0, math.inf) for title, one in less.items()}),
                beside=f"Corrected by Holm over {len(less)} placements",
            )
        )
    return made


def _decided_by(family: int, unlearned: Sequence[str]) -> str:
    corrected = f"Corrected by Holm over {family} pairs"
    return f"{corrected}; did not learn, so that it decides nothing: {joined(unlearned)}" if unlearned else corrected


def figures(config: OptimizersConfig, pairs: _OptimizerPairs) -> list[StudyFigure]:
    """One an optimiser, a panel a placement."""
    return [
        StudyFigure.of_panels(
            name=f"rates_{optimizer}",
            title=f"{TITLES[optimizer]}: the loss over the rate",
            caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts as its "
            "loss at initialisation.",
            panels=[
                rates(named(placement).title, {"no warm-up": pair.without, "warm-up": pair.warm})
                for placement in config.placements
                for pair in [pairs[placement, optimizer]]
            ],
            told=f"Last loss over the peak rate under {TITLES[optimizer]}",
            wide=True,
        )
        for optimizer in config.optimizers
    ]


def tables(config: OptimizersConfig, pairs: _OptimizerPairs, needs: Mapping[tuple[str, str], Need]) -> list[StudyTable]:
    """The one that a practitioner pins to the wall: who needs a warm-up; then where the runs of each optimiser end."""

    def cell(placement: str, optimizer: str) -> str:
        return f"{needs[placement, optimizer]}: {with_interval(pairs[placement, optimizer].gain, 2)}"

    wall = StudyTable(
        title="Who needs a warm-up: verdict, and by how many nats the runs without it end above those with it, each at "
        "its own best rate",
        columns=("placement", *(TITLES[optimizer] for optimizer in config.optimizers)),
        rows=[
            (named(placement).title, *(cell(placement, optimizer) for optimizer in config.optimizers))
            for placement in config.placements
        ],
    )
    ends = [
        table(
            f"{TITLES[optimizer]}: mean last loss in nats at the best rate (* the ladder's first or last), the "
            "sensitivity over the ladder, and how many of its runs did not stay finite; without warm-up and with",
            sorted(
                [(named(placement).title, pairs[placement, optimizer]) for placement in config.placements],
                key=lambda row: row[1].better.mean_nats,
            ),
            [("placement", lambda row: row[0]), *end_columns(lambda row: row[1], [("lost", lambda one: one.lost)])],
        )
        for optimizer in config.optimizers
    ]
    return [wall, *ends]


def conditions(
    config: OptimizersConfig, unigram_nats: float, parameters: int, runs: Mapping[str, Any]
) -> dict[str, str]:
    """How the runs were made."""
    ladders = "; ".join(
        f"{TITLES[name]} {', '.join(f'{lr:g}' for lr in config.ladder(name))}" for name in config.optimizers
    )
    return {
        **LOSS,
        "models": f"preset {config.preset}: a decoder of {config.blocks} blocks of width {config.width}, feed-forward "
        f"{config.ffn_width}, {config.heads} heads over {config.key_value_heads} of keys and values; {parameters:,} "
        "parameters under Pre-LN, those of other placements differ by what is their own",
        "weights": "N(0, 0.02²) for all, times the gains of the placement",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens a batch; unigram baseline "
        f"{unigram_nats:.3f}",
        "training": f"{config.updates:,} updates, weight decay {config.weight_decay:g} of matrices and embeddings, "
        f"gradients not clipped, momentum {config.momentum:g} of SGD; full rate to update {config.warmup_updates}, "
        f"then in a straight line to 0, and a warm-up of {config.warmup_updates} updates or none",
        "rates": f"{ladders}. {config.climbing} on the ladder, then {config.seeds} at its best {config.best_rates} "
        "rates",
        "verdict": f"needs it: the interval of the difference lies above {config.needs_nats:g} nats; gains from it: "
        f"above 0; does not: below {config.needs_nats:g}; else undecided; all corrected by Holm for how many pairs "
        f"there are. A pair learned where the better of its runs ends more than {LEARNED_NATS:g} nats below the "
        "unigram baseline; another decides nothing",
        "seeds": f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t, over "
        "seeds in pairs",
        "trained by": in_words(dict(runs)),
    }


def _data(one: Ladder) -> dict[str, Any]:
    return {
        "peak_lrs": list(one.peak_lrs),
        **one.data(),
        "again_nats": {f"{lr:g}": [run.final_nats for run in runs] for lr, runs in one.again.items()},
        "lost": one.lost,
    }


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
