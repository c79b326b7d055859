"""The numbers under figure 5, and its data."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from normscope.evidence.estimates import estimate, plain_estimate, with_interval

from ..engine.page import StudyTable
from .claims import advantage, pairings, shares
from .config import Figure5Config
from .curves import Chance, Curves
from .tuning import Tuned


def tables(config: Figure5Config, curves: Curves, tuned: Mapping[str, Tuned]) -> list[StudyTable]:
    found = [
        StudyTable(
            title="Where the pre-trainings end",
            columns=("configuration", "seed", "loss, nats", "masked tokens, nats", "next sentences, accuracy", "ended"),
            rows=[
                (
                    arm.title,
                    seed,
                    curve.loss_nats[-1],
                    curve.nll_nats[-1],
                    curve.next_sentence_accuracy[-1],
                    curve.ended,
                )
                for arm, runs in curves.items()
                for seed, curve in enumerate(runs, 1)
            ],
        ),
        StudyTable(
            title="Share of the updates after which Pre-LN reaches the loss that Post-LN ends at",
            columns=("compared", *(f"seed {seed}" for seed in range(1, config.seeds + 1))),
            rows=[(pairing.name, *shares(pairing, curves)) for pairing in pairings(config)],
        ),
    ]
    for task, one in tuned.items():
        rows = [
            (
                arm.title,
                update,
                with_interval(estimate(point.accuracies)),
                with_interval(estimate(point.f1s)) if point.f1s else "",
                point.setting,
            )
            for (arm, update), point in one.points.items()
        ]
        columns = ("pre-trained", "updates", "accuracy", "F1", "setting")
        found.append(StudyTable(title=f"{task.upper()}, fine-tuned", columns=columns, rows=rows))
        found.append(
            StudyTable(
                title=f"{task.upper()}: the search, first seed",
                columns=("pre-trained", "updates", "setting", "accuracy"),
                rows=[(arm.title, update, setting, accuracy) for arm, update, setting, accuracy in one.searched],
            )
        )
    return found


def data(config: Figure5Config, curves: Curves, chance: Chance, tuned: Mapping[str, Tuned]) -> dict[str, Any]:
    return {
        "pre_training": {
            arm.title: {
                "placement": arm.placement,
                "warmup_updates": arm.warmup_updates,
                "peak_lr": arm.peak_lr,
                "updates": runs[0].updates,
                "last_loss_nats": [curve.loss_nats[-1] for curve in runs],
                "seeds": [
                    {
                        "loss_nats": curve.loss_nats,
                        "nll_nats": curve.nll_nats,
                        "next_sentence_accuracy": curve.next_sentence_accuracy,
                        "ended": curve.ended,
                    }
                    for curve in runs
                ],
            }
            for arm, runs in curves.items()
        },
        "chance": asdict(chance),
        "share_of_updates": {pairing.name: shares(pairing, curves) for pairing in pairings(config)},
        "fine_tuning": {task: _tuned_data(config, one) for task, one in tuned.items()},
    }


def _tuned_data(config: Figure5Config, tuned: Tuned) -> dict[str, Any]:
    own = pairings(config)[0]
    return {
        "majority": tuned.majority,
        "points": [
            {
                "arm": arm.title,
                "updates": update,
                "setting": point.setting,
                "accuracies": point.accuracies,
                "f1s": point.f1s,
                "accuracy": plain_estimate(estimate(point.accuracies)),
                "f1": plain_estimate(estimate(point.f1s)) if point.f1s else None,
                "above_majority": float(estimate(point.accuracies).low) > tuned.majority,
            }
            for (arm, update), point in tuned.points.items()
        ],
        "pre_less_post": {
            str(update): plain_estimate(advantage(tuned.points[own.post, update], tuned.points[own.pre, update]))
            for update in config.tuned_updates
        },
        "searched": [
            {"arm": arm.title, "updates": update, "setting": setting, "accuracy": accuracy}
            for arm, update, setting, accuracy in tuned.searched
        ],
    }
