"""The encoder-decoder Transformer of the paper: fairseq's `transformer_iwslt_de_en`, with any placement."""

# N = packed source tokens, M = packed target tokens, D = width, V = target vocabulary,
# B = sentences, R = rows (beams) a sentence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..placement import StackShape, named
from ..placement.reading import read_head
from .attention import Cache, Context, Layout, as_factor, with_heads
from .config import ArchitectureConfig
from .embedding import Embedding
from .initialisation import initialise
from .stack import PlacedEnd, Stack, norm_maker, stack_config


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(ArchitectureConfig):
    """An encoder-decoder. The defaults are the paper's sizes (Xiong et al. 2020, section 4.1)."""

    COUNTS: ClassVar[tuple[str, ...]] = ("encoder_blocks", "decoder_blocks")

    encoder_blocks: int = 6
    decoder_blocks: int = 6
    embeddings: Literal["shared", "separate"] = "shared"
    """shared: one table for source, target and output; separate: the source has its own."""

    def __post_init__(self) -> None:
        ArchitectureConfig.__post_init__(self)
        if self.position_encoding == "learned":
            raise ValueError(
                "an encoder-decoder has no table of learned positions; position_encoding must be sinusoidal, rotary, "
                "alibi or none"
            )


class EncoderDecoder(nn.Module):
    """Token ids in, hidden states of the decoder out; `logits` projects them on the (tied) target embedding.

    Raises ValueError for vocabularies that cannot be shared.
    """

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError(
                f"shared embeddings need one joint vocabulary, but the source has {source_vocabulary} entries and the "
                f'target {target_vocabulary}; prepare a joint vocabulary or set model.embeddings = "separate"'
            )
        self.config = config
        encoder, decoder = (named(config.placement)(stack_shape(config, kind)) for kind in ("encoder", "decoder"))
        waves = config.position_encoding == "sinusoidal"
        self.target_embedding = Embedding(target_vocabulary, config.width, decoder, sinusoidal=waves)
        self.source_embedding = (
            self.target_embedding
            if config.embeddings == "shared"
            else Embedding(source_vocabulary, config.width, encoder, sinusoidal=waves)
        )
        sizes = stack_config(config)
        self.encoder, self.decoder = (Stack(of, sizes, initialisation=None) for of in (encoder, decoder))
        asked = read_head(decoder, target_vocabulary)
        self.head = PlacedEnd(asked, norm_maker(decoder, config.norm), self.decoder.schedules.value)
        initialise(self, config.initialisation, named(config.placement))

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Sizes of the source and the target vocabulary."""
        return len(self.source_embedding.weight), len(self.target_embedding.weight)

    def encode(self, source_N: Tensor, layout: Layout) -> Tensor:
        """Packed source ids -> memory (N, D)."""
        x_ND = self.source_embedding(source_N, layout.positions_N, layout.longest)
        return self.encoder(x_ND, Context(layout=layout))  # type: ignore[no-any-return]

    def decode(self, target_M: Tensor, layout: Layout, memory_ND: Tensor, memory_layout: Layout) -> Tensor:
        """Packed decoder inputs -> hidden states (M, D), each seeing the targets up to itself and the whole memory."""
        x_MD = self.target_embedding(target_M, layout.positions_N, layout.longest)
        context = Context(layout=layout, causal=True, memory_MD=as_factor(memory_ND), memory_layout=memory_layout)
        return self.decoder(x_MD, context)  # type: ignore[no-any-return]

    def step(self, token_BR: Tensor, parent_BR: Tensor, cache: Cache) -> Tensor:
        """One more token for each of R rows (beams) of B sentences -> hidden states (B·R, D).

        parent_BR: the row of the last step that each row continues; ignored at the first. The cache holds the rest.
        """
        layout, token_N = cache.advance(parent_BR), token_BR.flatten()
        x_ND = self.target_embedding(token_N, torch.full_like(token_N, cache.steps - 1), cache.steps)
        context = Context(
            layout=layout, causal=True, memory_MD=cache.memory_MD, memory_layout=cache.memory_layout, cache=cache
        )
        return self.decoder(x_ND, context)  # type: ignore[no-any-return]

    def forward(self, source_N: Tensor, source_layout: Layout, target_M: Tensor, target_layout: Layout) -> Tensor:
        """Packed source and decoder-input ids -> decoder hidden states (M, D)."""
        return self.decode(target_M, target_layout, self.encode(source_N, source_layout), source_layout)

    def output_rows(self) -> Tensor:
        """The rows (V, D) that hidden states meet: the target embedding, as the placement uses it there."""
        rows = self.target_embedding.weight
        return self.decoder.placement.output_rows(rows, self.head, len(rows))  # type: ignore[no-any-return]

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """(M, D) -> (M, V)."""
        return hidden_MD @ self.output_rows().T


def stack_shape(config: ModelConfig, kind: Literal["encoder", "decoder"]) -> StackShape:
    """What the placement of one of its stacks is read for."""
    shape = StackShape(
        kind=kind,
        width=config.width,
        ffn_width=config.ffn_width,
        heads=config.heads,
        encoder_blocks=config.encoder_blocks,
        decoder_blocks=config.decoder_blocks,
    )
    return with_heads(shape, config.attention)
