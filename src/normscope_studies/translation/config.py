"""The sizes that all runs of figures 2, 4 and 6 share, at each scale of a study."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from normscope.data.opening import TOY, DataConfig
from normscope.model import ModelConfig
from normscope.optim import ScheduleConfig
from normscope.tasks.translation import TranslationConfig, TranslationRunConfig
from normscope.train import TrainConfig

from ..engine.checks import check_least, settings_of
from ..engine.study import scales
from .arms import EN_DE, PAIRS, TranslationArm


def _times(best_lr: float, multiples: float | tuple[float, ...]) -> float | tuple[float, ...]:
    """Returns the rate or the rates, to six digits: they name run folders."""
    if isinstance(multiples, tuple):
        return tuple(float(f"{best_lr * one:.6g}") for one in multiples)
    return float(f"{best_lr * multiples:.6g}")


PAPER_EPOCHS, PAPER_EPOCH_UPDATES = 15, 1_100
"""The epochs that the paper shows, and about how many batches of 4,096 tokens its 153,000 pairs
are.
"""
PAPER_LONG, PAPER_SHORT = 4_000, 500
"""The paper's warm-ups, in updates (section 3.2)."""
_SHARED = (
    "toy_pairs",
    "width",
    "ffn_width",
    "heads",
    "blocks",
    "dropout",
    "attention_dropout",
    "label_smoothing",
    "max_tokens",
    "epoch_updates",
    "bleu_sentences",
    "bleu_beam",
)
"""The settings that a run's numbers depend on beside its arm, its seed and what its language pair
has of its own.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsConfig:
    """Says what all runs of figures 2, 4 and 6 have in common. Runs that figures share are those of
    equal settings.
    """

    corpus: str = "corpora/iwslt14_tatoeba_deen"
    """De-En: a folder made by `normscope data prepare`, or `toy`."""
    en_de_corpus: str = "corpora/wmt_ende"
    """En-De text in the WMT style; figure 4 alone reads it. Empty for `corpus` in the other
    direction.
    """
    toy_pairs: int = 20_000
    cells: str = ""
    """The folder of the runs, which the three figures share; empty for `translation-cells` beside
    the study's own.
    """
    seeds: int = 3
    width: int = 64
    ffn_width: int = 128
    heads: int = 2
    blocks: int = 6
    dropout: float = 0.0
    """0 where the text is gone through less than once: nothing can be learned by heart."""
    attention_dropout: float = 0.0
    label_smoothing: float = 0.1
    max_tokens: int = 768
    accumulation: int = 1
    en_de_accumulation: int = 1
    en_de_ffn_width: int = 0
    """0 for that of De-En, as below."""
    en_de_heads: int = 0
    """The number of heads of En-De; 0 for that of De-En: on WMT14 the paper has larger batches and
    Vaswani et al.'s base model.
    """
    epochs: int = 15
    """A checkpoint after each, as in the paper."""
    epoch_updates: int = 70
    """Updates that count as an epoch. The paper's are about 1,100; at a smaller scale the text is
    not gone through.
    """
    long_warmup_updates: int = 255
    """T_warmup = 4000 of the paper's 15 epochs of 1,100 updates, in the same part of a run."""
    short_warmup_updates: int = 32
    """The same of T_warmup = 500."""
    bleu_sentences: int = 100
    """The first ones of the validation split, translated at every epoch."""
    bleu_beam: int = 1
    bleu_length_penalty: float = 1.0
    """The paper names 1.2 (appendix A.1), which may be fairseq's limit of the length instead."""
    adam_ladder: tuple[float, ...] = ()
    """Rates that Post-LN under Adam with the long warm-up climbs first, by a seed of their own. The
    figure's rates of Adam are then multiples of the best of them; without a ladder they are rates.
    """
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    RATES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The settings of a figure that hold its rates, by optimiser."""

    def __post_init__(self) -> None:
        check_least(self, seeds=1, epochs=2, epoch_updates=1, bleu_sentences=1)
        if not 1 < self.short_warmup_updates < self.long_warmup_updates < self.updates:
            raise ValueError(
                f"short_warmup_updates={self.short_warmup_updates} and "
                f"long_warmup_updates={self.long_warmup_updates} must rise, above 1 and below the "
                f"{self.updates:,} updates of a run"
            )
        for name, rates in self.ladders().items():
            if len(rates) < 2 or list(rates) != sorted(set(rates)) or rates[0] <= 0:
                raise ValueError(
                    f"{name}_ladder must be two or more positive rates in rising order, got "
                    f"{list(rates)}"
                )
        for pair in PAIRS:
            self.training(pair, ScheduleConfig(), self.updates)

    def arms(self) -> list[TranslationArm]:
        """Returns the trainings of the figure, each once."""
        raise NotImplementedError

    def ladders(self) -> dict[str, tuple[float, ...]]:
        """Returns the ladders that are to be climbed first, by optimiser."""
        return {
            name: getattr(self, f"{name}_ladder")
            for name in self.RATES
            if getattr(self, f"{name}_ladder")
        }

    def with_rates(self, best_lrs: Mapping[str, float]) -> Self:
        """Returns the configuration whose rates are multiples of these no more, but rates.

        best_lrs: by optimiser; one without a ladder keeps its rates.
        """
        changed: dict[str, Any] = {}
        for name, best_lr in best_lrs.items():
            changed[f"{name}_ladder"] = ()
            for setting in self.RATES[name]:
                changed[setting] = _times(best_lr, getattr(self, setting))
        return replace(self, **changed)

    @property
    def updates(self) -> int:
        return self.epochs * self.epoch_updates

    def digest(self, pair: str) -> str:
        """Eight hexadecimal digits of what a run's numbers depend on beside its arm and seed."""
        own = "en_de_" if pair == EN_DE else ""
        settings = settings_of(self, *_SHARED)
        settings |= {key: getattr(self, own + key) for key in ("corpus", "accumulation")}
        settings |= {
            key: getattr(self, own + key) or getattr(self, key) for key in ("ffn_width", "heads")
        }
        # Settings that came later count where they are not what all had before: folders keep their
        # names.
        if self.bleu_length_penalty != 1.0:
            settings["bleu_length_penalty"] = self.bleu_length_penalty
        if self.reverses(pair):
            settings |= {"corpus": self.corpus, "reverse": True}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]

    def reverses(self, pair: str) -> bool:
        """Tells whether a pair's text is that of De-En, read in the other direction."""
        return pair == EN_DE and not self.en_de_corpus

    def training(self, pair: str, schedule: ScheduleConfig, updates: int) -> TranslationRunConfig:
        """Returns a run on a language pair; placement, optimiser, rate and seed are still to be
        chosen.
        """
        english = pair == EN_DE
        return TranslationRunConfig(
            data=DataConfig(
                corpus=(english and self.en_de_corpus) or self.corpus,
                reverse=self.reverses(pair),
                **settings_of(self, "toy_pairs", "max_tokens"),
            ),
            model=ModelConfig(
                width=self.width,
                ffn_width=(english and self.en_de_ffn_width) or self.ffn_width,
                heads=(english and self.en_de_heads) or self.heads,
                encoder_blocks=self.blocks,
                decoder_blocks=self.blocks,
                **settings_of(self, "dropout", "attention_dropout"),
            ),
            schedule=schedule,
            train=TrainConfig(
                duration=updates,
                accumulation=self.en_de_accumulation if english else self.accumulation,
                validate_every=self.epoch_updates,
                checkpoint_every=self.epoch_updates,
                keep_checkpoints=1,
                device=self.device,
                threads=1,
            ),
            translation=TranslationConfig(
                **settings_of(
                    self, "label_smoothing", "bleu_sentences", "bleu_beam", "bleu_length_penalty"
                )
            ),
        )


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
    "bleu_length_penalty": 1.2,
    "en_de_accumulation": 32,
    "en_de_ffn_width": 2048,
    "en_de_heads": 8,
    "device": "auto",
}
"""Appendix A.1. On WMT14 batches are 16 × 8,192 tokens, and the model is Vaswani et al.'s base one;
an epoch of its 4.5 million pairs is then about as many updates as one of IWSLT14."""


_MULTI30K: dict[str, Any] = {
    "corpus": "corpora/multi30k_deen",
    "en_de_corpus": "",
    "blocks": 4,
    "dropout": 0.1,
    "max_tokens": 2048,
    "epoch_updates": 255,
    "long_warmup_updates": 927,
    "short_warmup_updates": 116,
    "bleu_sentences": 200,
    "bleu_beam": 5,
    "bleu_length_penalty": 1.2,
    "adam_ladder": (1e-3, 2e-3, 4e-3, 8e-3),
}
"""Multi30k, 28,333 pairs under a joint vocabulary of 4,000, where so small a model translates: an
epoch is one pass through them, and the warm-ups take the part of a run that the paper's take.
"""


def figure_scales(
    config: type[RunsConfig],
    *,
    smoke: Mapping[str, Any],
    paper: Mapping[str, Any],
    multi30k: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the scales of one figure; each mapping is what it sets beside what all runs share."""
    return scales(
        config,
        smoke={**_SMOKE, **smoke},
        paper={**_PAPER, **paper},
        more={"multi30k": {**_MULTI30K, **multi30k}},
    )
