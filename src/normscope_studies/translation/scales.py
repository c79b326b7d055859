"""The three sizes at which figures 2, 4 and 6 are asked, which are the same, so that they share runs."""

from collections.abc import Mapping
from typing import Any

from normscope.data.parallel.opening import TOY

from ..engine.study import Scale
from .config import RunsConfig

ADAM_LRS = (1e-3, 2e-3)
SGD_LRS = (0.2, 1.0)
PAPER_ADAM_LRS = (5e-4, 1e-3)
PAPER_SGD_LRS = (1e-3, 5e-3)
"""Section 3.2."""

_SMOKE: dict[str, Any] = {
    "corpus": TOY,
    "en_de_corpus": TOY,
    "toy_pairs": 300,
    "seeds": 1,
    "width": 8,
    "ffn_width": 16,
    "heads": 2,
    "blocks": 1,
    "max_tokens": 512,
    "epochs": 2,
    "epoch_updates": 3,
    "long_warmup_updates": 4,
    "short_warmup_updates": 2,
    "bleu_sentences": 1,
}
_PAPER: dict[str, Any] = {
    "corpus": "corpora/iwslt14_deen",
    "en_de_corpus": "corpora/wmt14_ende",
    "width": 512,
    "ffn_width": 1024,
    "heads": 4,
    "dropout": 0.1,
    "max_tokens": 4096,
    "epoch_updates": 1_100,
    "long_warmup_updates": 4_000,
    "short_warmup_updates": 500,
    "bleu_sentences": 1_000,
    "bleu_beam": 5,
    "en_de_accumulation": 32,
    "en_de_ffn_width": 2048,
    "en_de_heads": 8,
    "device": "auto",
}
"""Appendix A.1. On WMT14 batches are 16 × 8,192 tokens, and the model is Vaswani et al.'s base one; an epoch of its 4.5
million pairs is then about as many updates as one of IWSLT14."""


def scales(config: type[RunsConfig], *, smoke: Mapping[str, Any], paper: Mapping[str, Any]) -> dict[str, Scale]:
    """Of one figure; smoke and paper: what it sets beside what all runs share."""
    return {
        "smoke": Scale(config=config(**_SMOKE, **smoke), decides=False),
        "cpu": Scale(config=config()),
        "paper": Scale(config=config(**_PAPER, **paper)),
    }
