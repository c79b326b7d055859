"""The cases of the study of advice: models, families of them, and how much is trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from normscope.optim.optimizers import OPTIMIZERS, OptimizerName
from normscope.placement import named
from normscope.settings.tables import check_choices

from ..engine.checks import check_least

_Architecture = Literal["decoder", "encoder", "encoder-decoder"]
_TextName = Literal["toy", "characters", "pieces", "multi30k"]
HEAD_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceCase:
    """A model, its initial weights, its optimiser, and the text it is trained on."""

    architecture: _Architecture
    """decoder: the next token; encoder: the text itself, of which some is masked; encoder-decoder: translation."""
    text: _TextName
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


XAVIER, GPT, MEGATRON = "xavier-uniform", "normal-0.02", "megatron"
Families = Mapping[tuple[_Architecture, _TextName, str], str]
FAMILIES: Families = {
    ("decoder", "characters", XAVIER): "post-ln 4x32; pre-ln 6x32; deepnorm 12x64; peri-ln 12x64; post-ln 12x64; "
    "post-ln 2x192",
    ("decoder", "characters", GPT): "pre-ln 4x48; post-ln 3x32:lion; deepnorm 6x32; post-ln 12x64; pre-ln 12x64; "
    "pre-ln 2x256",
    ("decoder", "characters", MEGATRON): "post-ln 6x32; pre-ln 3x64; hybrid-norm 4x32; rezero 4x32; post-ln 2x48:sgd",
    ("decoder", "pieces", GPT): "post-ln 3x48:adam; pre-ln 4x32:adam; peri-ln 4x32; deepnorm 6x32; pre-ln 2x48:lion",
    ("decoder", "pieces", XAVIER): "pre-ln 3x32:adam; post-ln 4x32; deepnorm 3x48:sgd; b2t 4x32; peri-ln 2x32:radam",
    ("decoder", "toy", XAVIER): "post-ln 6x32; pre-ln 3x48:radam; deepnorm 8x32; sandwich 4x32; pre-ln 2x32:sgd",
    ("encoder", "characters", GPT): "post-ln 4x48; pre-ln 6x32; deepnorm 3x32; peri-ln 4x32:adamw; post-ln 2x48:lion",
    ("encoder", "characters", MEGATRON): "pre-ln 3x48; post-ln 3x32:radam; hybrid-norm 3x32; residual 4x32; "
    "deepnorm 6x32:sgd",
    ("encoder", "toy", XAVIER): "post-ln 3x32 8x32; pre-ln 4x32:lion; deepnorm 4x48; rezero 4x32; pre-ln 2x192",
    ("encoder", "pieces", GPT): "pre-ln 3x32; post-ln 3x32:adamw; sandwich 3x32; mix-ln 4x32; pre-ln 2x48:radam",
    ("encoder-decoder", "toy", XAVIER): "post-ln 2x48 4x32; pre-ln 3x48; deepnorm 2x32:lion; pre-ln 2x32:sgd; "
    "pre-ln 1x192",
    ("encoder-decoder", "toy", GPT): "post-ln 2x32; pre-ln 3x32:lion; deepnorm 4x32; peri-ln 2x48:radam; b2t 3x32",
    ("encoder-decoder", "toy", MEGATRON): "pre-ln 4x32; post-ln 2x32:sgd; residual 2x32; hybrid-norm 2x48:adamw",
    ("encoder-decoder", "multi30k", XAVIER): "post-ln 2x48; pre-ln 2x32; deepnorm 3x32:radam; sandwich 2x32:lion",
    ("encoder-decoder", "multi30k", GPT): "pre-ln 2x48:sgd; post-ln 2x32:lion; peri-ln 2x32; deepnorm 2x32",
}
"""Placements with blocks x width, and the optimiser where it is not Adam (AdamW, where characters are decoded)."""
_SHAPES = ((256, 64), (256, 32), (512, 64), (256, 128))
"""Tokens and length of the batches, in turn."""
_LARGE, _WIDE = 300, 128
"""Blocks times width, and width, from which on batches are of the first shape."""


def cases(families: Families = FAMILIES) -> list[AdviceCase]:
    """All of them, family by family."""
    found = []
    for number, ((architecture, text, initialisation), sizes) in enumerate(families.items()):
        usual = "adamw" if (architecture, text) == ("decoder", "characters") else "adam"
        for place, (placement, blocks, width, optimizer) in enumerate(_read(sizes, usual)):
            tokens, length = (
                _SHAPES[(number + place) % len(_SHAPES)] if blocks * width < _LARGE and width < _WIDE else _SHAPES[0]
            )
            found.append(
                AdviceCase(
                    architecture=architecture,
                    text=text,
                    initialisation=initialisation,
                    placement=placement,
                    blocks=blocks,
                    width=width,
                    optimizer=optimizer,
                    tokens=tokens,
                    length=length,
                )
            )
    return found


def _read(sizes: str, usual: OptimizerName) -> list[tuple[str, int, int, OptimizerName]]:
    """sizes: "post-ln 2x32 5x64:sgd; pre-ln 2x32", placements with blocks x width and an optimiser of their own."""
    found = []
    for line in sizes.split(";"):
        placement, *several = line.split()
        for size in several:
            shape, _, optimizer = size.partition(":")
            blocks, width = map(int, shape.split("x"))
            found.append((placement, blocks, width, optimizer or usual))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceConfig:
    """Cases and the length of their trainings."""

    cases: tuple[AdviceCase, ...]
    updates: int = 200
    """Of a training; one with a warm-up is longer by that."""
    probe_updates: int = 60
    """Of a whole probe of rates, and of a range test beside it."""
    warmup_ladder: tuple[int, ...] = (10, 20, 40, 80, 160)
    """Warm-ups that are tried, in updates."""
    text_file: str = "corpora/wikipedia.txt"
    """Running text, for characters and pieces."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, for translation."""
    processes: int = 0
    """Cases at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        if len({case.family for case in self.cases}) < 3:
            raise ValueError(
                "cases must be of at least three families, because each is judged by a rule fitted to the others"
            )
        check_least(self, updates=1, probe_updates=1, processes=0)
        if list(self.warmup_ladder) != sorted(set(self.warmup_ladder)) or min(self.warmup_ladder, default=1) < 1:
            raise ValueError(f"warmup_ladder must rise from at least 1, got {self.warmup_ladder}")

    @property
    def places(self) -> dict[str, str]:
        """Where the texts are, as what is measured takes them."""
        return {"text_file": self.text_file, "corpus": self.corpus}
