"""The encoder-decoder Transformer of the paper, fairseq's `transformer_iwslt_de_en`, with any
placement.

And what the configurations of all models have in common.
"""

# N = packed source tokens, M = packed target tokens, D = width, V = target vocabulary,
# B = sentences, R = rows (beams) a sentence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..placement import StackShape, named
from ..placement.reading import read_head
from ..settings.tables import check_choice, check_choices
from .context import Cache, Context, as_factor
from .embedding import Embedding
from .initialisation import SCHEMES, initialise
from .layout import AttentionConfig, Layout, PositionEncoding, with_heads
from .linear import product
from .scores import rotated_features
from .stack import PlacedEnd, Stack, norm_maker, stack_config

MOST_BLOCKS = 1000
"""The largest number of blocks, as many as DeepNet has (Wang et al. 2022). Reading a formula for so
many takes ten seconds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchitectureConfig:
    """A Transformer's sizes and parts; a model's own configuration adds its blocks, and has the
    defaults of its source.

    A placement that is written in another way, such as Pre-LN, gets its registered name, so that
    two configurations of one model are equal. Raises ValueError for names that there are not, and
    for sizes that do not go together.
    """

    COUNTS: ClassVar[tuple[str, ...]] = ()
    """Fields that must be at least 1, beside the sizes here."""

    placement: str = "pre-ln"
    """A registered name, such as post-ln, pre-ln, deepnorm or residual."""
    width: int = 512
    ffn_width: int = 1024
    heads: int = 4
    loops: int = 1
    """The number of times in turn that the blocks of a stack are run, with the same weights each
    time.
    """
    position_encoding: PositionEncoding = "sinusoidal"
    """learned or sinusoidal (added to the embedding), rotary (on queries and keys of
    self-attention), alibi (on its scores) or none."""
    dropout: float = 0.1
    """The dropout on embeddings and on each sub-layer's output."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    """relu, gelu, gelu-tanh, or, with a gate and half as many weights more, swiglu, geglu or
    geglu-tanh.
    """
    biases: Literal["all", "query-key-value", "none"] = "all"
    """The biases of the matrices of attention and feed-forward: of all (BERT, GPT-2), of three
    (Qwen 2), or of none (Llama).
    """
    norm: str = "as-placement"
    """as-placement (LayerNorm, unless the norm is the placement's very idea), layer-norm, rms-norm,
    scale-norm, sphere-norm, dyt or derf."""
    initialisation: str = "as-placement"
    """as-placement (the one of the placement's source), or one of `normscope.model.SCHEMES`, such
    as paper.
    """
    activation_checkpointing: bool = False
    """Compute every block again in the backward pass instead of keeping its activations: less
    memory, more time.
    """
    attention: AttentionConfig = field(default_factory=AttentionConfig)

    def __post_init__(self) -> None:
        check_choices(self)
        object.__setattr__(self, "placement", named(self.placement).name)
        for name in ("width", "ffn_width", "heads", "loops", *self.COUNTS):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            if "blocks" in name and getattr(self, name) * self.loops > MOST_BLOCKS:
                raise ValueError(
                    f"{name} must be at most {MOST_BLOCKS // self.loops:,}, got "
                    f"{getattr(self, name):,}"
                )
        shares_width = self.attention.head_width == "as-width"
        if self.width % 2 or (shares_width and self.width % self.heads):
            raise ValueError(
                f"width={self.width} must be even and a multiple of heads={self.heads}"
            )
        shape = with_heads(
            StackShape(kind="encoder", width=self.width, heads=self.heads), self.attention
        )
        if self.position_encoding == "rotary":
            rotated_features(shape.width_of_head, self.attention.rotary_share)
        stack_config(self)
        check_choice("initialisation", self.initialisation, ("as-placement", *SCHEMES))
        if self.initialisation == "theory" and (self.heads != 1 or self.ffn_width != self.width):
            raise ValueError(
                "initialisation = theory is stated for heads = 1 and ffn_width = width"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModelConfig(_ArchitectureConfig):
    """The configuration of one stack that reads text, with a number of positions."""

    COUNTS: ClassVar[tuple[str, ...]] = ("blocks", "positions")
    KIND: ClassVar[Literal["encoder", "decoder"]]
    """The kind of its stack."""

    width: int = 768
    ffn_width: int = 3072
    heads: int = 12
    blocks: int = 12
    positions: int = 512
    """The length of the longest sequence, special tokens included."""
    position_encoding: PositionEncoding = "learned"
    attention_dropout: float = 0.1
    norm_epsilon: float | Literal["as-placement"] = "as-placement"
    """as-placement (1e-5, mostly, which is GPT-2's too), or a number: BERT's own is 1e-12."""
    initialisation: str = "normal-0.02"
    """normal-0.02 with the placement's gains, as-placement (the one of the placement's source), or
    another of `normscope.model.SCHEMES`. Embeddings and heads are drawn from N(0, 0.02²) whatever
    it is."""

    def shape(self) -> StackShape:
        """Returns the shape for which the placement of its stack is read."""
        blocks = {f"{self.KIND}_blocks": self.blocks, "loops": self.loops}
        shape = StackShape(
            kind=self.KIND, width=self.width, ffn_width=self.ffn_width, heads=self.heads, **blocks
        )
        return with_heads(shape, self.attention)


def least_weights(shape: StackShape) -> int:
    """Entries of a stack's largest matrices: what it has at least, known without building it."""
    return (
        shape.blocks
        * 2
        * shape.width
        * (shape.query_width + shape.key_value_width + shape.ffn_width)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(_ArchitectureConfig):
    """An encoder-decoder. The defaults are the paper's sizes (Xiong et al. 2020, section 4.1)."""

    COUNTS: ClassVar[tuple[str, ...]] = ("encoder_blocks", "decoder_blocks")

    encoder_blocks: int = 6
    decoder_blocks: int = 6
    embeddings: Literal["shared", "separate"] = "shared"
    """shared: one table for source, target and output; separate: the source has its own."""

    def __post_init__(self) -> None:
        _ArchitectureConfig.__post_init__(self)
        if self.position_encoding == "learned":
            raise ValueError(
                "an encoder-decoder has no table of learned positions; position_encoding must be "
                "sinusoidal, rotary, alibi or none"
            )


class EncoderDecoder(nn.Module):
    """Token ids in, hidden states of the decoder out; `logits` projects them on the (tied) target
    embedding.

    Raises ValueError for vocabularies that cannot be shared.
    """

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        if config.embeddings == "shared" and source_vocabulary != target_vocabulary:
            raise ValueError(
                "shared embeddings need one joint vocabulary, but the source has "
                f"{source_vocabulary} entries and the "
                f"target {target_vocabulary}; prepare a joint vocabulary or set model.embeddings = "
                '"separate"'
            )
        self.config = config
        encoder, decoder = (
            named(config.placement)(stack_shape(config, kind)) for kind in ("encoder", "decoder")
        )
        waves = config.position_encoding == "sinusoidal"
        self.target_embedding = Embedding(
            target_vocabulary, config.width, decoder, sinusoidal=waves
        )
        self.source_embedding = (
            self.target_embedding
            if config.embeddings == "shared"
            else Embedding(source_vocabulary, config.width, encoder, sinusoidal=waves)
        )
        sizes = stack_config(config)
        self.encoder, self.decoder = (
            Stack(of, sizes, initialisation=None) for of in (encoder, decoder)
        )
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

    def decode(
        self, target_M: Tensor, layout: Layout, memory_ND: Tensor, memory_layout: Layout
    ) -> Tensor:
        """Packed decoder inputs -> hidden states (M, D), each seeing the targets up to itself and
        the whole memory.
        """
        x_MD = self.target_embedding(target_M, layout.positions_N, layout.longest)
        context = Context(
            layout=layout, causal=True, memory_MD=as_factor(memory_ND), memory_layout=memory_layout
        )
        return self.decoder(x_MD, context)  # type: ignore[no-any-return]

    def step(self, token_BR: Tensor, parent_BR: Tensor, cache: Cache) -> Tensor:
        """One more token for each of R rows (beams) of B sentences -> hidden states (B·R, D).

        parent_BR: the row of the last step that each row continues; ignored at the first. The cache
        holds the rest.
        """
        layout, token_N = cache.advance(parent_BR), token_BR.flatten()
        x_ND = self.target_embedding(
            token_N, torch.full_like(token_N, cache.steps - 1), cache.steps
        )
        context = Context(
            layout=layout,
            causal=True,
            memory_MD=cache.memory_MD,
            memory_layout=cache.memory_layout,
            cache=cache,
        )
        return self.decoder(x_ND, context)  # type: ignore[no-any-return]

    def forward(
        self, source_N: Tensor, source_layout: Layout, target_M: Tensor, target_layout: Layout
    ) -> Tensor:
        """Packed source and decoder-input ids -> decoder hidden states (M, D)."""
        return self.decode(
            target_M, target_layout, self.encode(source_N, source_layout), source_layout
        )

    def output_rows(self) -> Tensor:
        """Returns the rows (V, D) that hidden states meet: the target embedding, as the placement
        uses it there.
        """
        rows = self.target_embedding.weight
        return self.decoder.placement.output_rows(rows, self.head, len(rows))  # type: ignore[no-any-return]

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """(M, D) -> (M, V)."""
        return product(hidden_MD, self.output_rows())


def stack_shape(config: ModelConfig, kind: Literal["encoder", "decoder"]) -> StackShape:
    """Returns the shape for which the placement of one of its stacks is read."""
    shape = StackShape(
        kind=kind,
        width=config.width,
        ffn_width=config.ffn_width,
        heads=config.heads,
        loops=config.loops,
        encoder_blocks=config.encoder_blocks,
        decoder_blocks=config.decoder_blocks,
    )
    return with_heads(shape, config.attention)
