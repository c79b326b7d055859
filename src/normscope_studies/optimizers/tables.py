"""The table that a practitioner pins to the wall, the losses behind it, the conditions, and the data."""

from collections.abc import Mapping
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.placement import named

from ..engine.page import StudyTable
from ..ladders.showing import plain_ladder, plain_sensitivity
from .arms import Arm
from .claims import TITLES
from .config import OptimizersConfig
from .verdicts import Pairing, Pairings


def tables(config: OptimizersConfig, found: Pairings) -> list[StudyTable]:
    """Who needs a warm-up; then, for each optimiser, where the runs end."""
    return [_wall(config, found), *(_ends(config, optimizer, found) for optimizer in config.optimizers)]


def _wall(config: OptimizersConfig, found: Pairings) -> StudyTable:
    return StudyTable(
        title="Who needs a warm-up: verdict, and by how many nats the runs without it end above those with it, each at "
        "its own best rate",
        columns=("placement", *(TITLES[optimizer] for optimizer in config.optimizers)),
        rows=[
            (named(placement).title, *(_need(found[placement, optimizer]) for optimizer in config.optimizers))
            for placement in config.placements
        ],
    )


def _need(pairing: Pairing) -> str:
    return f"{pairing.need}: {with_interval(pairing.gain, 2)}"


def _ends(config: OptimizersConfig, optimizer: str, found: Pairings) -> StudyTable:
    order = sorted(config.placements, key=lambda name: found[name, optimizer].better.mean_nats)
    return StudyTable(
        title=f"{TITLES[optimizer]}: mean last loss in nats at the best rate (* the ladder's first or last), the "
        "sensitivity over the ladder, and how many of its runs did not stay finite; without warm-up and with",
        columns=(
            "placement",
            *("loss, no warm-up", "rate", "sensitivity", "lost"),
            *("loss, warm-up", "rate", "sensitivity", "lost"),
        ),
        rows=[
            (named(name).title, *_arm_cells(found[name, optimizer].without), *_arm_cells(found[name, optimizer].warm))
            for name in order
        ],
    )


def _arm_cells(arm: Arm) -> tuple[float | str | int, ...]:
    return arm.mean_nats, f"{arm.best_lr:g}{'*' if arm.at_an_end else ''}", arm.sensitivity.value, arm.lost


def data(found: Pairings, trained_by: Mapping[str, Any], unigram_nats: float) -> dict[str, Any]:
    """Every loss and verdict."""
    return {
        "unigram_nats": unigram_nats,
        "pairings": [
            {
                "placement": pairing.placement,
                "optimizer": pairing.optimizer,
                "verdict": str(pairing.need),
                "gain_nats": plain_estimate(pairing.gain),
                "without_warmup": _arm(pairing.without),
                "with_warmup": _arm(pairing.warm),
            }
            for pairing in found.values()
        ],
        "runs": dict(trained_by),
    }


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "warmup_updates": arm.key.warmup_updates,
        "peak_lrs": list(arm.peak_lrs),
        **plain_ladder(arm.ladder),
        "again_nats": {f"{lr:g}": [run.final_nats for run in runs] for lr, runs in arm.again.items()},
        "best_lr": arm.best_lr,
        "best_at_an_end": arm.at_an_end,
        "last_loss_nats": arm.finals,
        "mean_nats": arm.mean_nats,
        **plain_sensitivity(arm.sensitivity),
        "lost": arm.lost,
    }


def conditions(
    config: OptimizersConfig, unigram_nats: float, parameters: int, trained_by: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """How the runs were made."""
    ladders = "; ".join(
        f"{TITLES[name]} {', '.join(f'{lr:g}' for lr in config.ladder(name))}" for name in config.optimizers
    )
    climbing = "one seed" if config.ladder_seeds == 1 else f"{config.ladder_seeds} seeds"
    return [
        ("loss", "negative log-likelihood per target token of the whole validation split, natural logarithm"),
        (
            "models",
            f"preset {config.preset}: a decoder of {config.blocks} blocks of width {config.width}, feed-forward "
            f"{config.ffn_width}, {config.heads} heads over {config.key_value_heads} of keys and values; "
            f"{parameters:,} parameters under Pre-LN, those of other placements differ by what is their own",
        ),
        ("weights", "N(0, 0.02²) for all, times the gains of the placement"),
        (
            "text",
            f"{config.batch_sequences} sequences of {config.sequence_length} tokens a batch; unigram baseline "
            f"{unigram_nats:.3f}",
        ),
        (
            "training",
            f"{config.updates:,} updates, weight decay {config.weight_decay:g} of matrices and embeddings, gradients "
            f"not clipped, momentum {config.momentum:g} of SGD; full rate to update {config.warmup_updates}, then in "
            f"a straight line to 0, and a warm-up of {config.warmup_updates} updates or none",
        ),
        ("rates", f"{ladders}. {climbing} on the ladder, then {config.seeds} at its best {config.best_rates} rates"),
        (
            "verdict",
            f"needs it: the interval of the difference lies above {config.needs_nats:g} nats; gains from it: above 0; "
            f"does not: below {config.needs_nats:g}; else undecided",
        ),
        (
            "seeds",
            f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t, over seeds "
            "in pairs, each verdict by itself",
        ),
        ("trained by", in_words(dict(trained_by))),
    ]
