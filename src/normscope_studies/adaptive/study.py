"""Numbers that move beside numbers that stay: the runs, their verdicts and the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words, sources

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .arms import trained
from .claims import claims
from .config import SCALES, AdaptiveStudyConfig
from .figures import figures
from .standing import Standing
from .tables import data, tables


def run(config: AdaptiveStudyConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = []
    trained_by: dict[str, Any] = {}
    for task in config.tasks:
        trial = trained(config, task, pieces)
        found.append(Standing(task=task, unigram_nats=trial.unigram_nats, config=config, arms=trial.arms))
        for key, arm in trial.arms.items():
            trained_by |= {f"{task}/{key.drive}/{name}": source for name, source in sources(arm.cells).items()}
    return Findings(
        conditions=conditions(config, found, trained_by),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=tables(config, found),
        data=data(found, trained_by),
    )


def conditions(
    config: AdaptiveStudyConfig, found: Sequence[Standing], trained_by: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """How the runs were made."""
    climbing = "one seed" if config.ladder_seeds == 1 else f"{config.ladder_seeds} seeds"
    return [
        ("loss", "negative log-likelihood per target token of the whole validation split, natural logarithm"),
        (
            "models",
            f"width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, no dropout; a language "
            f"model is a decoder of {config.blocks} blocks, translation has "
            f"{config.stack_blocks}+{config.stack_blocks}. Placements have what parameters they have: norms and mixing "
            "weights differ, matrices do not",
        ),
        ("weights", f"drawn by scheme {config.initialisation} for all, times the gains of the placement"),
        (
            "text",
            f"{config.batch_sequences} sequences of {config.sequence_length} tokens of {config.text}; batches of at "
            f"most {config.max_tokens} tokens a side of {config.pairs} to translate; unigram baselines "
            + ", ".join(f"{standing.unigram_nats:.3f} ({standing.words})" for standing in found),
        ),
        (
            "training",
            f"{config.updates:,} updates of Adam, betas 0.9 and 0.98, no weight decay, gradients not clipped; full "
            f"rate up to update {config.warmup_updates}, then in a straight line to 0, and a warm-up of "
            f"{config.warmup_updates} updates or none",
        ),
        (
            "numbers that move",
            f"from 0 to 1: by schedule in a straight line over {config.over_updates} updates; by controller over "
            f"{config.controlled_over_updates} updates that count, which are those after a measured change of the "
            f"output of at most {config.largest_change:g}, measured every {config.measure_every} updates. Both were "
            "set before the runs, for all placements alike",
        ),
        (
            "rates",
            f"{', '.join(f'{lr:g}' for lr in config.peak_lrs)}: {climbing} for the ladder, then {config.seeds} at the "
            "best. The seed that chose the rate is among them, for all alike",
        ),
        (
            "seeds",
            f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t, over seeds "
            "in pairs, each claim by itself: of twenty that are not so, one is expected to look certain",
        ),
        ("trained by", in_words(dict(trained_by))),
    ]


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
