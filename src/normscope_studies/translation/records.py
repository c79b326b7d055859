"""The numbers under the figures, their data, and how the runs were made."""

import math
from typing import Any

from normscope.compare.sources import in_words
from normscope.evidence.estimates import plain_estimate
from normscope.measure import Estimate
from normscope.report.words import counted

from ..engine.page import StudyTable
from .arms import PAIRS
from .config import PAPER_EPOCH_UPDATES, PAPER_EPOCHS, PAPER_LONG, PAPER_SHORT, RunsConfig
from .trained import Trained


def ends_table(found: Trained) -> StudyTable:
    """Where every run ends."""
    return StudyTable(
        title="Where the runs end",
        columns=(
            "text",
            "configuration",
            "cumulative learning rate",
            "seed",
            "loss, nats",
            "loss, bits",
            "BLEU",
            "ended",
        ),
        rows=[
            (
                arm.pair,
                arm.title,
                arm.summed_lr,
                seed,
                curve.final_nats,
                curve.final_nats / math.log(2),
                curve.final_bleu,
                curve.ended,
            )
            for arm, runs in found.curves.items()
            for seed, curve in enumerate(runs, 1)
        ],
    )


def runs_data(found: Trained) -> dict[str, Any]:
    """Every curve, and the baseline of every language pair."""
    return {
        "configurations": [
            {
                "text": arm.pair,
                "title": arm.title,
                "placement": arm.placement,
                "optimizer": arm.optimizer,
                "peak_lr": arm.peak_lr,
                "schedule": arm.schedule_words,
                "updates": arm.updates,
                "summed_lr": arm.summed_lr,
                "last_loss_nats": [curve.final_nats for curve in runs],
                "last_bleu": [curve.final_bleu for curve in runs],
                "seeds": [
                    {
                        "updates": curve.updates,
                        "nll_nats": curve.nll_nats,
                        "loss_nats": curve.loss_nats,
                        "bleu": curve.bleu,
                        "summed_lr": curve.summed_lr,
                        "first_nats": curve.first_nats,
                        "ended": curve.ended,
                    }
                    for curve in runs
                ],
            }
            for arm, runs in found.curves.items()
        ],
        "unigram_nats": {pair: text.unigram_nats for pair, text in found.texts.items()},
        "runs": found.trained_by,
    }


def as_data(found: Estimate | None) -> dict[str, Any] | None:
    """An estimate for results.json; None where there is none."""
    return None if found is None else plain_estimate(found)


def conditions(config: RunsConfig, found: Trained) -> list[tuple[str, str]]:
    """How the runs were made."""
    optimizers = {arm.optimizer for arm in found.curves}
    settings = ["plain, without momentum" if name == "sgd" else f"{name}, betas 0.9 and 0.98" for name in optimizers]
    told = [
        (
            "loss",
            "negative log-likelihood per target token of the whole validation split, natural logarithm, not smoothed "
            f"(the paper's is smoothed, in bits); trained with label smoothing {config.label_smoothing:g}",
        ),
        ("gradients", "of the mean loss per target token; not clipped"),
        (
            "BLEU",
            f"sacreBLEU of the first {counted(config.bleu_sentences, 'validation sentence')} at every checkpoint, beam "
            f"{config.bleu_beam}",
        ),
    ]
    texts = [
        f"{PAIRS[pair]}, {text.train_pairs:,} pairs ({text.train_tokens:,} target tokens, joint vocabulary of "
        f"{text.vocabulary:,}) to train on, {text.valid_pairs:,} ({text.valid_tokens:,} target tokens) held out"
        for pair, text in found.texts.items()
    ]
    told.append(("text", "; ".join(texts)))
    return [
        *told,
        (
            "model",
            f"{config.blocks}+{config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
            f"{config.heads} heads, dropout {config.dropout:g}, all embeddings shared",
        ),
        (
            "training",
            f"{config.updates:,} updates of at most {config.max_tokens * config.accumulation:,} tokens a side; "
            f"{'; '.join(sorted(settings))}; no weight decay",
        ),
        ("scaling", scaling(config)),
        ("seeds", f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t"),
        ("trained by", in_words(found.trained_by)),
    ]


def scaling(config: RunsConfig) -> str:
    """How an epoch and the warm-ups stand to the paper's."""
    paper = PAPER_EPOCHS * PAPER_EPOCH_UPDATES
    if config.updates == paper and config.long_warmup_updates == PAPER_LONG:
        return "none: epochs and warm-ups are the paper's"
    long, short = config.long_warmup_updates, config.short_warmup_updates
    return (
        f"an epoch is {config.epoch_updates:,} updates, and {config.epochs} of them a run, where the paper's "
        f"{PAPER_EPOCHS} have about {paper:,}; its warm-ups of {PAPER_LONG:,} and {PAPER_SHORT} are here "
        f"{long:,} and {short:,}: {long / config.updates:.3f} and {short / config.updates:.3f} of a run, there "
        f"{PAPER_LONG / paper:.3f} and {PAPER_SHORT / paper:.3f}"
    )
