"""How the pre-trainings and fine-tunings of figure 5 were made."""

from collections.abc import Mapping
from typing import Any

from normscope.compare.manifest import in_words
from normscope.data.documents.opening import open_documents

from .config import Figure5Config
from .curves import Curves
from .tuning import Tuned


def conditions(
    config: Figure5Config, curves: Curves, tuned: Mapping[str, Tuned], trained_by: dict[str, dict[str, Any]]
) -> list[tuple[str, str]]:
    corpus = open_documents(config.training().data)
    train, valid = corpus.splits["train"], corpus.splits["valid"]
    tokens = config.sequence_length * config.batch_sequences * config.accumulation
    found = [
        (
            "loss",
            "of masked tokens, mean per masked token, plus of next sentences, mean per pair; natural logarithm; the "
            "same held-out pairs and masks for every run",
        ),
        ("gradients", f"of that sum; an update's is clipped to norm {config.clip_norm:g}"),
        (
            "text",
            f"{len(train):,} documents ({train.words:,} words, {len(train.tokens):,} tokens of a vocabulary of "
            f"{len(corpus.tokeniser):,}) to train on, {len(valid):,} held out",
        ),
        (
            "model",
            f"BERT's form: {config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
            f"{config.heads} heads, dropout {config.dropout:g}; weights from N(0, 0.02²)",
        ),
        (
            "training",
            f"{config.updates:,} updates of at most {tokens:,} tokens ({config.batch_sequences * config.accumulation} "
            f"sequences of up to {config.sequence_length}); AdamW, betas {config.betas[0]:g} and {config.betas[1]:g}, "
            f"weight decay {config.weight_decay:g}; the rate falls in a straight line to 0 at the last update",
        ),
        ("configurations", "; ".join(arm.title for arm in curves)),
        ("seeds", f"{config.seeds} of each pre-training: weights, pairs, masks and order"),
        ("trained by", in_words(trained_by)),
    ]
    for task, one in tuned.items():
        found.append((f"{task.upper()}", f"{one.conditions}; intervals are of 95 %, Student's t over seeds"))
    return found
