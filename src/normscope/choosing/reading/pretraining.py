"""The paper's Figure 5, small: BERT's pre-training under Post-LN and Pre-LN."""

from collections.abc import Iterator
from typing import Any

from ..evidence import BASELINE, BestRate, EvidenceRow, EvidenceSetting
from .judged import paired
from .settings import measured_in


def pretraining(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow | BestRate]:
    """Each placement at the lower of its two rates."""
    asked = data["settings"]
    setting = measured_in(
        name,
        data,
        model="encoder-only",
        blocks=asked["blocks"],
        width=asked["width"],
        updates=asked["updates"],
        update_tokens=asked["batch_sequences"] * asked["sequence_length"],
        text=asked["corpus"],
        # The losses have the next sentence's in them, and the baseline has not.
        unigram_nats=None,
    )
    yield setting
    arms: dict[str, list[tuple[str, Any]]] = {}
    for title, arm in data["pre_training"].items():
        arms.setdefault(arm["placement"], []).append((f"/pre_training/{title}/last_loss_nats", arm))
    best = {placement: min(found, key=lambda one: sum(one[1]["last_loss_nats"])) for placement, found in arms.items()}
    for placement, (at, arm) in best.items():
        rates = [one["peak_lr"] for _, one in arms[placement]]
        yield BestRate(
            placement=placement,
            optimizer="adamw",
            setting=name,
            warmup_updates=arm["warmup_updates"],
            peak_lr=arm["peak_lr"],
            ladder=(min(rates), max(rates)),
            at_an_end=True,
            loss_nats=arm["last_loss_nats"],
            source=at,
        )
        if placement != BASELINE:
            theirs = best[BASELINE]
            yield paired(
                "lower-loss",
                placement=placement,
                optimizer="adamw",
                setting=setting,
                losses=(arm["last_loss_nats"], theirs[1]["last_loss_nats"]),
                source=[at, theirs[0]],
                note=f"with a warm-up of {arm['warmup_updates']}, Pre-LN without; masked tokens and next sentences",
            )
