"""One model with its optimiser, its text and its batches, and the ladder of rates that it is trained at."""

from dataclasses import dataclass
from typing import Literal

from normscope.optim.optimizers import OPTIMIZERS, OptimizerName
from normscope.placement import named
from normscope.settings.tables import check_choices

Architecture = Literal["decoder", "encoder", "encoder-decoder"]
Text = Literal["toy", "characters", "pieces", "multi30k"]
HEAD_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, its initial weights, its optimiser, and the text it is trained on."""

    architecture: Architecture
    """decoder: the next token; encoder: the text itself, of which some is masked; encoder-decoder: translation."""
    text: Text
    """toy: the embedded language; characters, pieces: of a file of running text; multi30k: a prepared corpus."""
    initialisation: str
    """A name of `normscope.model.SCHEMES`, with the placement's gains."""
    placement: str
    blocks: int
    """Of the stack; of an encoder-decoder's encoder, and as many of its decoder."""
    width: int
    """The feed-forward is twice as wide; heads have 16 dimensions."""
    optimizer: OptimizerName = "adam"
    tokens: int = 512
    """Of a batch."""
    length: int = 64
    """Of a sequence; an encoder-decoder has sentences instead."""
    seed: int = 1
    """Of the weights and the order of the batches."""

    def __post_init__(self) -> None:
        check_choices(self)
        named(self.placement)
        if self.blocks < 1 or self.width % HEAD_WIDTH:
            raise ValueError(f"blocks must be at least 1 and width a multiple of 16, got {self.blocks}, {self.width}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")
        if (self.architecture == "encoder-decoder") != (self.text in ("toy", "multi30k")) and self.text != "toy":
            raise ValueError(f"{self.text} is no text for the architecture {self.architecture}")
        if self.length < 2 or self.tokens < self.length:
            raise ValueError("length must be at least 2, and tokens at least that")

    @property
    def family(self) -> str:
        """What is left out as a whole when the advice is judged."""
        return f"{self.architecture}, {self.text}, {self.initialisation}"

    @property
    def name(self) -> str:
        """Safe as a part of a file's name."""
        size = f"{self.blocks}x{self.width}_{self.tokens}-{self.length}"
        kind = f"{self.architecture}_{self.text}_{self.initialisation}"
        return f"{kind}_{self.placement}_{size}_{self.optimizer}_seed-{self.seed}"

    @property
    def sublayers(self) -> int:
        """Of all stacks."""
        return (5 if self.architecture == "encoder-decoder" else 2) * self.blocks


def rate_of(step: int) -> float:
    """The ladder: each rate is twice the one below, and step 0 is 0.001."""
    return float(f"{1e-3 * 2.0**step:.3g}")
