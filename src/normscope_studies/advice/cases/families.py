"""The cases, by family: architecture, text and initialisation."""

from collections.abc import Mapping

from normscope.optim.optimizers import OptimizerName

from .case import Architecture, Case, Text

XAVIER, GPT, MEGATRON = "xavier-uniform", "normal-0.02", "megatron"
Families = Mapping[tuple[Architecture, Text, str], str]
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


def cases(families: Families = FAMILIES) -> list[Case]:
    """All of them, family by family."""
    found = []
    for number, ((architecture, text, initialisation), sizes) in enumerate(families.items()):
        usual = "adamw" if (architecture, text) == ("decoder", "characters") else "adam"
        for place, (placement, blocks, width, optimizer) in enumerate(_read(sizes, usual)):
            tokens, length = (
                _SHAPES[(number + place) % len(_SHAPES)] if blocks * width < _LARGE and width < _WIDE else _SHAPES[0]
            )
            found.append(
                Case(
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
