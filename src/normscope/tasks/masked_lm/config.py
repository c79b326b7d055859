"""The configuration of BERT's pre-training."""

from dataclasses import dataclass, field
from typing import Literal

from ...data.documents.masking import MaskingConfig
from ...data.documents.opening import TextDataConfig
from ...model import EncoderConfig
from ..run_config import TextRunConfig

MOST_PACKINGS = 100
"""All of them lie in memory; RoBERTa's static masking had 10, on 40 epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedConfig:
    """What is masked, and how sentence pairs are packed."""

    masked_share: float = 0.15
    """Of a sequence's tokens: masked, 80 % behind [MASK], 10 % behind a random token, 10 % left as they are."""
    whole_words: bool = False
    """Mask whole words, not single tokens."""
    packings: int = 1
    """How many times the training text is packed into pairs, each time with other random choices; an epoch goes through
    all of them. BERT's data had 10."""
    valid_sequences: int = 2000
    """At most so many of the held-out pairs are validated on: the first ones, the same in every run."""

    def __post_init__(self) -> None:
        MaskingConfig(masked_share=self.masked_share)
        if not 1 <= self.packings <= MOST_PACKINGS:
            raise ValueError(f"packings must be from 1 to {MOST_PACKINGS}, got {self.packings}")
        if self.valid_sequences < 1:
            raise ValueError(f"valid_sequences must be at least 1, got {self.valid_sequences}")

    def masking(self) -> MaskingConfig:
        return MaskingConfig(masked_share=self.masked_share, whole_words=self.whole_words)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRunConfig(TextRunConfig):
    """BERT's pre-training."""

    task: Literal["masked-lm"] = "masked-lm"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: EncoderConfig = field(default_factory=EncoderConfig)
    masked_lm: MaskedConfig = field(default_factory=MaskedConfig)
