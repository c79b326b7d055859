"""GPT-2 (Radford et al. 2019) with any placement: a decoder-only language model."""

# N = packed tokens, D = width, V = vocabulary
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ..placement import StackShape, named
from ..placement.reading import read_head
from .attention import Context
from .initialisation import initialise
from .layout import Layout
from .learned_embedding import LearnedEmbedding
from .sizes import check_learned
from .stack import PlacedEnd, Stack, norm_maker, stack_config


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder with learned positions. The defaults are GPT-2's smallest size (Radford et al. 2019, table 2)."""

    placement: str = "pre-ln"
    """A registered name, such as post-ln, pre-ln, deepnorm or ngpt."""
    width: int = 768
    ffn_width: int = 3072
    heads: int = 12
    blocks: int = 12
    positions: int = 1024
    """Of the longest sequence."""
    dropout: float = 0.1
    """On the embedding and on each sub-layer's output."""
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    activation: str = "gelu-tanh"
    """gelu-tanh, gelu, relu, or, with a gate and half as many weights more, swiglu or geglu."""
    norm: str = "as-placement"
    norm_epsilon: float | Literal["as-placement"] = "as-placement"
    """as-placement (1e-5, mostly, which is GPT-2's too), or a number."""
    initialisation: str = "normal-0.02"
    """normal-0.02 with the placement's gains, as-placement (the one of the placement's source), or another of
    `normscope.model.SCHEMES`. Embeddings are drawn from N(0, 0.02²) whatever it is."""
    activation_checkpointing: bool = False
    """Compute every block again in the backward pass instead of keeping its activations: less memory, more time."""

    def __post_init__(self) -> None:
        check_learned(self)

    def shape(self) -> StackShape:
        """What the placement of its stack is read for."""
        return StackShape(
            kind="decoder",
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            decoder_blocks=self.blocks,
        )


class LanguageModel(nn.Module):
    """Token ids in, hidden states out, each seeing the tokens up to itself; `logits` projects them on the embedding."""

    def __init__(self, config: DecoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        placement = named(config.placement)(config.shape())
        self.embedding = LearnedEmbedding(vocabulary, config.width, placement, positions=config.positions)
        self.decoder = Stack(placement, stack_config(config), initialisation=None)
        make = norm_maker(placement, config.norm, config.norm_epsilon)
        self.head = PlacedEnd(read_head(placement, vocabulary), make, self.decoder.schedules.value)
        initialise(self, config.initialisation, named(config.placement))

    @property
    def vocabularies(self) -> tuple[int]:
        """Size of the one vocabulary."""
        return (len(self.embedding.weight),)

    def forward(self, tokens_N: Tensor, layout: Layout) -> Tensor:
        """Packed token ids -> hidden states (N, D)."""
        x_ND = self.embedding(tokens_N, layout.positions_N)
        return self.decoder(x_ND, Context(layout=layout, causal=True))  # type: ignore[no-any-return]

    def output_rows(self) -> Tensor:
        """The rows (V, D) of the tied output projection, as the placement uses them there."""
        rows = self.embedding.weight
        return self.decoder.placement.output_rows(rows, self.head, len(rows))  # type: ignore[no-any-return]

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """(N, D) -> (N, V)."""
        return hidden_ND @ self.output_rows().T
