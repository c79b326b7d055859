"""What the doctor found in each model of the corpus and of the registry, looked at once a
process.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from doctor.corpus import CORPUS, FURTHER, Case
from doctor.corpus_newer import NEWER
from doctor.corpus_torch import TORCH
from doctor.corpus_x_transformers import X_TRANSFORMERS
from doctor.scrambled import scrambled
from normscope.doctor import Stack, find_stacks
from normscope.doctor.measured import UNMEASURED
from normscope.model import EncoderDecoder, Layout, ModelConfig

EVERY: dict[str, Case] = {
    **CORPUS,
    **FURTHER,
    **NEWER,
    **{f"torch: {name}": case for name, case in TORCH.items()},
    **{f"x-transformers: {name}": case for name, case in X_TRANSFORMERS.items()},
}


@cache
def scrambled_model(name: str) -> nn.Module:
    """A model of the corpus whose names say nothing, unless its own code asks for them."""
    return EVERY[name].build() if name in NEWER else scrambled(EVERY[name].build())


@cache
def stacks_of(name: str) -> list[Stack]:
    """What was found in it."""
    return find_stacks(scrambled_model(name), EVERY[name].inputs())


@cache
def found_in(placement: str, blocks: int = 4, **changes: Any) -> list[Stack]:
    """What was found in our own encoder-decoder with this placement, its names scrambled."""
    torch.manual_seed(0)
    sizes = {
        "width": 16,
        "ffn_width": 24,
        "heads": 2,
        "encoder_blocks": blocks,
        "decoder_blocks": blocks,
    }
    model = EncoderDecoder(ModelConfig(placement=placement, **{**sizes, **changes}), 20, 20)
    layouts = [Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
    tokens = [torch.randint(4, 20, (layout.tokens,)) for layout in layouts]
    return find_stacks(scrambled(model), (tokens[0], layouts[0], tokens[1], layouts[1]))


def unmeasured(stack: Stack) -> Stack:
    """The structure alone."""
    sublayers = tuple(replace(sublayer, measured=UNMEASURED) for sublayer in stack.sublayers)
    return replace(stack, sublayers=sublayers, predicted=None)
