"""What the configurations of all models have in common, and what they are checked for."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..placement import StackShape, named
from ..settings.tables import check_choice, check_choices
from .attention import AttentionConfig, PositionEncoding, with_heads
from .attention.scores import rotated_features
from .initialisation import SCHEMES
from .stack import stack_config

MOST_BLOCKS = 1000
"""As many as DeepNet has (Wang et al. 2022). Reading a formula for so many takes ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureConfig:
    """A Transformer's sizes and parts; a model's own configuration adds its blocks, and has the defaults of its source.

    A placement that is written in another way, such as Pre-LN, gets its registered name, so that two configurations of
    one model are equal. Raises ValueError for names that there are not, and for sizes that do not go together.
    """

    COUNTS: ClassVar[tuple[str, ...]] = ()
    """Fields that must be at least 1, beside the sizes here."""

    placement: str = "pre-ln"
    """A registered name, such as post-ln, pre-ln, deepnorm or residual."""
    width: int = 512
    ffn_width: int = 1024
    heads: int = 4
    position_encoding: PositionEncoding = "sinusoidal"
    """learned or sinusoidal (added to the embedding), rotary (on queries and keys of self-attention), alibi (on its
    scores) or none."""
    dropout: float = 0.1
    """On embeddings and on each sub-layer's output."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    """relu, gelu, gelu-tanh, or, with a gate and half as many weights more, swiglu, geglu or geglu-tanh."""
    biases: Literal["all", "query-key-value", "none"] = "all"
    """Of the matrices of attention and feed-forward: of all (BERT, GPT-2), of three (Qwen 2), or of none (Llama)."""
    norm: str = "as-placement"
    """as-placement (LayerNorm, unless the norm is the placement's very idea), layer-norm, rms-norm, scale-norm,
    sphere-norm, dyt or derf."""
    initialisation: str = "as-placement"
    """as-placement (the one of the placement's source), or one of `normscope.model.SCHEMES`, such as paper."""
    activation_checkpointing: bool = False
    """Compute every block again in the backward pass instead of keeping its activations: less memory, more time."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)

    def __post_init__(self) -> None:
        check_choices(self)
        object.__setattr__(self, "placement", named(self.placement).name)
        for name in ("width", "ffn_width", "heads", *self.COUNTS):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            if "blocks" in name and getattr(self, name) > MOST_BLOCKS:
                raise ValueError(f"{name} must be at most {MOST_BLOCKS:,}, got {getattr(self, name):,}")
        shares_width = self.attention.head_width == "as-width"
        if self.width % 2 or (shares_width and self.width % self.heads):
            raise ValueError(f"width={self.width} must be even and a multiple of heads={self.heads}")
        shape = with_heads(StackShape(kind="encoder", width=self.width, heads=self.heads), self.attention)
        if self.position_encoding == "rotary":
            rotated_features(shape.width_of_head, self.attention.rotary_share)
        stack_config(self)
        check_choice("initialisation", self.initialisation, ("as-placement", *SCHEMES))
        if self.initialisation == "theory" and (self.heads != 1 or self.ffn_width != self.width):
            raise ValueError("initialisation = theory is stated for heads = 1 and ffn_width = width")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModelConfig(ArchitectureConfig):
    """Of one stack that reads text, with a number of positions."""

    COUNTS: ClassVar[tuple[str, ...]] = ("blocks", "positions")

    width: int = 768
    ffn_width: int = 3072
    heads: int = 12
    blocks: int = 12
    positions: int = 512
    """Of the longest sequence, special tokens included."""
    position_encoding: PositionEncoding = "learned"
    attention_dropout: float = 0.1
    norm_epsilon: float | Literal["as-placement"] = "as-placement"
    """as-placement (1e-5, mostly, which is GPT-2's too), or a number: BERT's own is 1e-12."""
    initialisation: str = "normal-0.02"
    """normal-0.02 with the placement's gains, as-placement (the one of the placement's source), or another of
    `normscope.model.SCHEMES`. Embeddings and heads are drawn from N(0, 0.02²) whatever it is."""


def least_weights(shape: StackShape) -> int:
    """Entries of a stack's largest matrices: what it has at least, known without building it."""
    return shape.blocks * 2 * shape.width * (shape.query_width + shape.key_value_width + shape.ffn_width)
