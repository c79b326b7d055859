"""The model a prediction is for."""

from dataclasses import dataclass
from typing import Literal

from ..placement import StackShape
from .kernels import ACTIVATIONS, Activation
from .operations import NORMS, Norm
from .settings import AS_PLACEMENT, SETTINGS, Text

StackKind = Literal["encoder", "decoder", "encoder-decoder"]
_ALL_DIFFER = Text()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetting:
    """The model a prediction is for. The loss is the mean cross-entropy per target token, in nats, at random targets,
    over all sequences. The output projection has rows of squared length 1 where it is not tied."""

    stack: StackKind = "encoder"
    blocks: int = 6
    """Of each stack."""
    width: int = 512
    ffn_width: int = 512
    heads: int = 1
    tokens: int = 16
    """Of a sequence: of the target in an encoder-decoder."""
    source_tokens: int | None = None
    """Of a source sequence, where it is not as long as the target."""
    sequences: int = 1
    """Of the batch that the loss is a mean over."""
    vocabulary: int = 10_000
    """Rows of the output projection."""
    setting: str = "theory"
    """Initial weights and embedding: theory, paper or another of `SETTINGS`; as-placement for each source's own."""
    activation: Activation = "relu"
    norm: Norm = "layer-norm"
    tied: bool = True
    """Whether the output projection is the input's embedding, in settings whose embedding has rows."""
    dropout: float = 0.0
    """On the embedding and on every F(x)."""
    label_smoothing: float = 0.0
    source: Text = _ALL_DIFFER
    """What the source's tokens repeat, or those of a stack on its own."""
    target: Text = _ALL_DIFFER
    """The same of the target: of the decoder's input in an encoder-decoder, and of what the loss asks for."""

    def __post_init__(self) -> None:
        for name in ("blocks", "width", "ffn_width", "heads", "tokens", "sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be at least 2, got {self.vocabulary}")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.width < 4 or self.width % 2:
            raise ValueError(f"width must be even and at least 4, for its sinusoids, got {self.width}")
        if self.source_tokens is not None and self.source_tokens < 1:
            raise ValueError(f"source_tokens must be at least 1, got {self.source_tokens}")
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        allowed = {
            "setting": (*SETTINGS, AS_PLACEMENT),
            "stack": ("encoder", "decoder", "encoder-decoder"),
            "activation": ACTIVATIONS,
            "norm": NORMS,
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, got {getattr(self, name)!r}")

    def shape(self, kind: Literal["encoder", "decoder"]) -> StackShape:
        """Of one of its stacks."""
        return StackShape(
            kind=kind,
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=self.blocks if self.stack != "decoder" else 0,
            decoder_blocks=self.blocks if self.stack != "encoder" else 0,
        )
