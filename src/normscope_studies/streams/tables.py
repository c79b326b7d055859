"""The tables of the page, its conditions, and the data."""

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate, with_interval

from ..engine.page import StudyTable
from ..ladders.showing import plain_ladder, plain_sensitivity
from .config import StreamsConfig
from .measure import BATCHES
from .runs import Arm
from .standing import Standing, title

MEASURES = ("worth_nats", "turned", "correlation", "gradient_spread")


def tables(found: Sequence[Standing]) -> list[StudyTable]:
    """Two a task: where the runs end, and what they look like inside."""
    return [table for standing in found for table in (_ends(standing), _inside(standing))]


def _ends(standing: Standing) -> StudyTable:
    rows = []
    for name in standing.placements:
        without, warm = standing.without(name), standing.warm(name)
        rows.append(
            (
                title(name),
                *(cell for arm in (without, warm) for cell in (arm.mean_nats, _rate(arm), arm.sensitivity.value)),
                with_interval(standing.less_base(name)),
                without.parameters,
                without.ffn_width,
            )
        )
    return StudyTable(
        title=f"{standing.words.capitalize()}: mean last loss in nats at the best rate of the ladder (* its first or "
        "last), and sensitivity over the ladder, without warm-up and with; the better of both less Pre-LN's",
        columns=(
            "placement",
            *("loss, no warm-up", "rate", "sensitivity"),
            *("loss, warm-up", "rate", "sensitivity"),
            *("less Pre-LN's", "parameters", "feed-forward"),
        ),
        rows=rows,
    )


def _inside(standing: Standing) -> StudyTable:
    return StudyTable(
        title=f"{standing.words.capitalize()}: the decoder at the better warm-up, means over seeds. What the last "
        "third of its blocks is worth in nats of loss, how far it turns the output (1 - cos), the correlation of the "
        "output's tokens; and the largest over the smallest gradient norm of its blocks before training",
        columns=("placement", "last third is worth", "and turns", "cosine similarity of tokens", "gradient spread"),
        rows=[
            (title(name), *(standing.mean_seen(standing.better(name), measure) for measure in MEASURES))
            for name in standing.placements
        ],
    )


def _rate(arm: Arm) -> str:
    return f"{arm.best_lr:g}{'*' if arm.at_an_end else ''}"


def data(found: Sequence[Standing], trained_by: Mapping[str, Any]) -> dict[str, Any]:
    """Every loss and measurement."""
    return {
        "trials": {
            standing.task: {
                "unigram_nats": standing.unigram_nats,
                "placements": {name: _placement(standing, name) for name in standing.placements},
            }
            for standing in found
        },
        "runs": dict(trained_by),
    }


def _placement(standing: Standing, name: str) -> dict[str, Any]:
    return {
        "title": title(name),
        "parameters": standing.without(name).parameters,
        "ffn_width": standing.without(name).ffn_width,
        "less_pre_ln_nats": plain_estimate(standing.less_base(name)),
        "warmup_gain_nats": plain_estimate(standing.warmup_gain(name)),
        "without_warmup": _arm(standing, standing.without(name)),
        "with_warmup": _arm(standing, standing.warm(name)),
    }


def _arm(standing: Standing, arm: Arm) -> dict[str, Any]:
    return {
        "warmup_updates": arm.warmup_updates,
        **plain_ladder(arm.ladder),
        "best_lr": arm.best_lr,
        "best_at_an_end": arm.at_an_end,
        "last_loss_nats": arm.finals,
        "mean_nats": arm.mean_nats,
        **plain_sensitivity(arm.sensitivity),
        "mean_seen": {measure: standing.mean_seen(arm, measure) for measure in MEASURES},
        "seen": [dict(one) for one in standing.seen[arm.placement, arm.warmup_updates]],
    }


def conditions(
    config: StreamsConfig, found: Sequence[Standing], trained_by: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """How the runs were made."""
    rates = ", ".join(f"{lr:g}" for lr in config.peak_lrs)
    climbing = "one seed" if config.ladder_seeds == 1 else f"{config.ladder_seeds} seeds"
    return [
        ("loss", "negative log-likelihood per target token of the whole validation split, natural logarithm"),
        (
            "models",
            f"width {config.width}, {config.heads} heads, no dropout; a language model is a decoder of {config.blocks} "
            f"blocks, translation has {config.stack_blocks}+{config.stack_blocks}. The feed-forward of Pre-LN is "
            f"{config.ffn_width} wide; the others have as many parameters in all, and less of it where they have some "
            "of their own",
        ),
        ("weights", f"drawn by scheme {config.initialisation} for all, times the gains of the placement"),
        (
            "text",
            f"{config.batch_sequences} sequences of {config.sequence_length} tokens; batches of at most "
            f"{config.max_tokens} tokens a side to translate; unigram baselines "
            + ", ".join(f"{standing.unigram_nats:.3f} ({standing.words})" for standing in found),
        ),
        (
            "training",
            f"{config.updates:,} updates of Adam, betas 0.9 and 0.98, no weight decay, gradients not clipped; full "
            f"rate up to update {config.warmup_updates}, then in a straight line to 0, and a warm-up of "
            f"{config.warmup_updates} updates or none",
        ),
        (
            "rates",
            f"{rates}: {climbing} for the ladder, then {config.seeds} at the best. The seed that chose the rate "
            "is among them, for all alike",
        ),
        ("inside", f"of the last checkpoint, over {BATCHES} batches of training text in an order of their own"),
        (
            "seeds",
            f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t, over seeds "
            "in pairs, each claim by itself: of twenty that are not so, one is expected to look certain",
        ),
        ("trained by", in_words(dict(trained_by))),
    ]
