"""How large the hidden state is after every block of an encoder, as it is drawn."""

# N = tokens, D = width
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.measure import depth_points, recording
from normscope.model import SCHEMES, Context, Layout, Stack, StackConfig
from normscope.model.initialisation import initialise
from normscope.model.profiling import profile
from normscope.placement import StackShape, named, registered
from normscope.train.device import seed_weights

from ..engine.checks import check_least

_EVERY_DEPTH_UP_TO, _DEPTHS_A_DECADE = 20, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthConfig:
    """An encoder-only stack for every placement. Raises ValueError for what no stack can be built with."""

    placements: tuple[str, ...] = ()
    """Without any, all that are defined for an encoder."""
    blocks: int = 1000
    width: int = 64
    seeds: int = 3
    initialisation: str = "as-placement"
    """as-placement: each as its source draws it; or one of `normscope.model.SCHEMES` for all."""
    ffn_width: int = 256
    heads: int = 4
    sentences: int = 2
    sentence_tokens: int = 16

    def __post_init__(self) -> None:
        check_least(self, blocks=1, width=1, seeds=1, ffn_width=1, heads=1, sentences=1, sentence_tokens=1)
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.initialisation not in ("as-placement", *SCHEMES):
            raise ValueError(f"unknown initialisation {self.initialisation!r}; choose one of {', '.join(SCHEMES)}")
        if self.initialisation == "theory" and (self.heads != 1 or self.ffn_width != self.width):
            raise ValueError("initialisation theory is stated for heads = 1 and ffn_width = width")
        if len(set(self.placements)) < len(self.placements):
            raise ValueError(f"placements: give different names, got {self.placements}")
        for name in self.placements:
            named(name)(self.shape)

    @property
    def shape(self) -> StackShape:
        """Of the encoder."""
        return StackShape(
            kind="encoder",
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=self.blocks,
        )

    @property
    def depths(self) -> list[int]:
        """What is recorded: every depth at first, then some in each decade, and the last."""
        decades = math.log10(max(self.blocks, 1))
        spaced = [round(10 ** (i / _DEPTHS_A_DECADE)) for i in range(int(decades * _DEPTHS_A_DECADE) + 1)]
        return sorted({*range(min(self.blocks, _EVERY_DEPTH_UP_TO) + 1), *spaced, self.blocks})


def encoder_placements() -> tuple[str, ...]:
    """All registered placements that are defined for an encoder alone."""
    return tuple(name for name, placement in registered().items() if "encoder-only" in placement.models)


def seeds_rms(placement: str, config: DepthConfig) -> list[list[float]]:
    """`hidden_rms` of every seed, counted from 1."""
    return [hidden_rms(placement, config, seed) for seed in range(1, config.seeds + 1)]


@torch.no_grad()
def hidden_rms(placement: str, config: DepthConfig, seed: int) -> list[float]:
    """√(E‖x_l‖² / D) at each of `config.depths`, of x_0 from N(0, 1); a number a block is kept, and no state."""
    seed_weights(seed)
    kind = named(placement)
    stack = Stack(kind(config.shape), StackConfig())
    initialise(stack, config.initialisation, kind)
    layout = Layout(torch.full((config.sentences,), config.sentence_tokens))
    x_ND, context = torch.randn(layout.tokens, config.width), Context(layout=layout)
    profile(stack, lambda: stack(x_ND, context))

    points = depth_points(stack.blocks, pick=stack.placement.hidden)
    with recording(points, _rms) as found:
        stack(x_ND, context)
    return [found[f"x_{depth}"][0] for depth in config.depths]


def _rms(x_ND: Tensor) -> float:
    return float(x_ND.double().square().mean().sqrt())
