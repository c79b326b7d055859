"""BERT and GPT-2 (Devlin et al. 2018, Radford et al. 2019) with any placement: models of one
stack.
"""

# N = packed tokens, D = width, V = vocabulary

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..placement import named
from ..placement.reading import read_head
from .context import Cache, Context
from .embedding import Table, TextEmbedding
from .initialisation import initialise
from .layout import Layout
from .linear import HeadLinear
from .stack import PlacedEnd, Stack, make_norm, norm_maker, stack_config
from .transformer import TextModelConfig

# N = packed tokens, M = masked tokens, B = sequences, D = width, V = vocabulary


SEGMENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig(TextModelConfig):
    """An encoder alone. The defaults are BERT-base (Devlin et al. 2018, section 3).

    The embedding and the masked-token head have a norm whatever the placement.
    """

    KIND: ClassVar[Literal["encoder", "decoder"]] = "encoder"

    placement: str = "post-ln"
    activation: str = "gelu"


class MaskedEncoder(nn.Module):
    """Token and segment ids in, hidden states out, with the heads of pre-training.

    `predict` and `logits` name masked tokens; `next_sentence` judges a pair of sentences by what is
    `pooled` of it.
    """

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.placement = named(config.placement)(config.shape())
        self.embedding = TextEmbedding(
            vocabulary,
            config.width,
            self.placement,
            positions=config.positions,
            position_encoding=config.position_encoding,
            segments=SEGMENTS,
            norm=self.norm(),
        )
        self.encoder = Stack(self.placement, stack_config(config), initialisation=None)
        self.pooler = HeadLinear(config.width, config.width)
        self.next_sentence = HeadLinear(config.width, 2)
        self.transform, self.transform_norm = HeadLinear(config.width, config.width), self.norm()
        self.output_bias = nn.Parameter(torch.zeros(vocabulary))
        asked = read_head(self.placement, vocabulary)
        make = norm_maker(self.placement, config.norm, config.norm_epsilon)
        self.head = PlacedEnd(asked, make, self.encoder.schedules.value)
        initialise(self, config.initialisation, named(config.placement))

    @property
    def vocabularies(self) -> tuple[int]:
        """Size of the one vocabulary."""
        return (len(self.embedding.weight),)

    def norm(self) -> nn.Module:
        """A new one, as the embedding and the masked-token head have it."""
        return make_norm(
            self.placement, self.config.norm, self.config.norm_epsilon, self.config.width
        )

    def forward(self, tokens_N: Tensor, segments_N: Tensor | None, layout: Layout) -> Tensor:
        """Packed token and segment ids -> hidden states (N, D). Segments left out are all 0."""
        x_ND = self.embedding(tokens_N, layout.positions_N, segments_N)
        return self.encoder(x_ND, Context(layout=layout))  # type: ignore[no-any-return]

    def pooled(self, hidden_ND: Tensor, layout: Layout) -> Tensor:
        """tanh of a projection of each sequence's first token, (B, D)."""
        first_BD = hidden_ND.index_select(0, layout.first_B)
        return self.pooler(first_BD).tanh()  # type: ignore[no-any-return]

    def predict(self, hidden_MD: Tensor) -> Tensor:
        """Hidden states of masked tokens -> what meets the output rows, (M, D)."""
        return self.transform_norm(nn.functional.gelu(self.transform(hidden_MD)))  # type: ignore[no-any-return]

    def output_rows(self) -> Tensor:
        """Returns the rows (V, D) of the tied output projection, as the placement uses them
        there.
        """
        rows = self.embedding.weight
        return self.encoder.placement.output_rows(rows, self.head, len(rows))  # type: ignore[no-any-return]

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Hidden states (M, D) -> (M, V)."""
        return self.predict(hidden_MD) @ self.output_rows().T + self.output_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig(TextModelConfig):
    """A decoder alone. The defaults are GPT-2's smallest size (Radford et al. 2019, table 2)."""

    KIND: ClassVar[Literal["encoder", "decoder"]] = "decoder"

    positions: int = 1024
    """The length of the longest sequence."""
    activation: str = "gelu-tanh"
    output: Literal["tied", "untied"] = "tied"
    """The output projection: the embedding's table, or one of its own, drawn likewise."""
    logit_soft_cap: float | Literal["none"] = "none"
    """c: logits become c · tanh(logits / c) (Gemma 2 has 30)."""
    embedding_scale: Literal["none", "root-width"] = "none"
    """root-width: looked-up rows are multiplied by √d, as Gemma does."""

    def __post_init__(self) -> None:
        TextModelConfig.__post_init__(self)
        if isinstance(self.logit_soft_cap, int | float) and not self.logit_soft_cap > 0:
            raise ValueError(f"logit_soft_cap must be above 0, or none, got {self.logit_soft_cap}")


class LanguageModel(nn.Module):
    """Token ids in, hidden states out, each seeing the tokens up to itself; `logits` projects them
    on the embedding.
    """

    def __init__(self, config: DecoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        placement = named(config.placement)(config.shape())
        self.embedding = TextEmbedding(
            vocabulary,
            config.width,
            placement,
            positions=config.positions,
            position_encoding=config.position_encoding,
            scale=config.width**0.5 if config.embedding_scale == "root-width" else 1.0,
        )
        self.decoder = Stack(placement, stack_config(config), initialisation=None)
        make = norm_maker(placement, config.norm, config.norm_epsilon)
        self.head = PlacedEnd(read_head(placement, vocabulary), make, self.decoder.schedules.value)
        self.output = (
            None if config.output == "tied" else Table(vocabulary, config.width, placement)
        )
        self.soft_cap = None if config.logit_soft_cap == "none" else config.logit_soft_cap
        initialise(self, config.initialisation, named(config.placement))

    @property
    def vocabularies(self) -> tuple[int]:
        """Size of the one vocabulary."""
        return (len(self.embedding.weight),)

    def forward(self, tokens_N: Tensor, layout: Layout) -> Tensor:
        """Packed token ids -> hidden states (N, D)."""
        x_ND = self.embedding(tokens_N, layout.positions_N)
        return self.decoder(x_ND, Context(layout=layout, causal=True))  # type: ignore[no-any-return]

    def step(self, token_BR: Tensor, parent_BR: Tensor, cache: Cache) -> Tensor:
        """One more token for each of R rows of B texts -> hidden states (B·R, D).

        parent_BR: the row of the last step that each row continues; ignored at the first. The cache
        holds the rest.
        """
        layout, token_N = cache.advance(parent_BR), token_BR.flatten()
        x_ND = self.embedding(token_N, torch.full_like(token_N, cache.steps - 1))
        return self.decoder(x_ND, Context(layout=layout, causal=True, cache=cache))  # type: ignore[no-any-return]

    def output_rows(self) -> Tensor:
        """Returns the rows (V, D) of the output projection, as the placement uses them there."""
        rows = self.embedding.weight if self.output is None else self.output.weight
        return self.decoder.placement.output_rows(rows, self.head, len(rows))  # type: ignore[no-any-return]

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """(N, D) -> (N, V)."""
        logits_NV = hidden_ND @ self.output_rows().T
        return (
            logits_NV
            if self.soft_cap is None
            else self.soft_cap * torch.tanh(logits_NV / self.soft_cap)
        )
