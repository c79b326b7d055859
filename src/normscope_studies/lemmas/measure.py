"""Measures what the study of the lemmas asks for: one call a seed, plain numbers out."""

# B = rows, T = tokens of the one sequence, D = width
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from normscope.measure import Point, depth_points, recording
from normscope.model import Context, Layout, Stack
from normscope.model.placed import NORMS

from ..engine.checks import check_least
from ..theory.simulation import drawn, square_encoder

_Key = TypeVar("_Key", bound=Hashable)
STEPS = 6
"""The hidden state, and the five superscripts of Table 1."""
_EQUAL, _ZERO = 1e-6, 1e-6
"""Shares of the largest singular value: two are the same, or one is none, up to rounding in
float64.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LemmasConfig:
    """The settings of the study. Raises ValueError for what cannot be measured."""

    width: int = 512
    tokens: int = 256
    """Tokens of the one sequence of a draw: n of the paper."""
    blocks: int = 24
    seeds: int = 60
    """Each draws its own weights and vectors."""
    sigmas: tuple[float, ...] = (0.5, 1.0, 3.0)
    """Lemma 1: standard deviations of X."""
    vectors: int = 1000
    """Lemma 1: drawn for each sigma and seed."""
    means: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0, 3.0)
    """Lemma 3: added to every feature of x ~ N(0, I)."""
    singular_width: int = 64
    """Lemma 3: of the vectors whose singular values are all computed."""

    def __post_init__(self) -> None:
        check_least(self, width=4, tokens=1, blocks=1, seeds=2, vectors=2)
        if not self.sigmas or min(self.sigmas) <= 0:
            raise ValueError(f"sigmas must be positive, and there must be one, got {self.sigmas}")
        if not self.means:
            raise ValueError("means needs at least one number")
        most = min(512, self.width)
        if not 3 <= self.singular_width <= most:
            raise ValueError(
                f"singular_width must lie between 3 and {most} (it is a part of the width of "
                f"{self.width}), got {self.singular_width}"
            )


def relu(config: LemmasConfig, seed: int) -> dict[str, list[float]]:
    """For each sigma: mean of ‖ReLU(X)‖² / (σ² d) over vectors, and the deviation of one as a share
    of the mean;
    beyond: the share of vectors that have a feature with ReLU(X)² / σ² above 2 ln(100 d), as
    appendix E has it."""
    generator = torch.Generator().manual_seed(seed)
    shares = []
    deviations = []
    beyond = []
    for sigma in config.sigmas:
        x_BD = sigma * torch.randn(
            config.vectors, config.width, generator=generator, dtype=torch.float64
        )
        squares_B = x_BD.relu().square().sum(-1)
        shares.append(float(squares_B.mean()) / (sigma**2 * config.width))
        deviations.append(float(squares_B.std() / squares_B.mean()))
        beyond.append(
            float(
                (x_BD.amax(-1) > sigma * math.sqrt(2 * math.log(100 * config.width)))
                .double()
                .mean()
            )
        )
    return {"share": shares, "deviation": deviations, "beyond": beyond}


def post_ln(config: LemmasConfig, seed: int) -> dict[str, Any]:
    """E‖x‖² / d of the six steps of Table 1, each for every block; and how far a hidden state's own
    is from 1.
    """
    stack = drawn("post-ln", square_encoder(config.blocks, config.width), "theory", seed)
    places: dict[tuple[int, int], Point] = {}
    for i, block in enumerate(stack.blocks):
        attention, feed_forward = block.sublayers()  # type: ignore[operator]
        steps = (
            Point(block),
            Point(attention),
            Point(attention.norm, "input"),
            Point(attention.norm),
            Point(feed_forward),
            Point(feed_forward.norm, "input"),
        )
        places |= {(step, i): point for step, point in enumerate(steps)}
    found = _squared_norms(stack, places, config)
    states = torch.stack([found[0, i] for i in range(config.blocks)])
    squares = []
    for step in range(STEPS):
        squares.append([float(found[step, i].mean()) for i in range(config.blocks)])
    return {
        "steps": squares,
        "hidden_off": float((states - 1).abs().max()),
    }


def pre_ln(config: LemmasConfig, seed: int) -> list[float]:
    """E‖x_l‖² / d after l = 0 … L completed blocks."""
    stack = drawn("pre-ln", square_encoder(config.blocks, config.width), "theory", seed)
    found = _squared_norms(stack, depth_points(stack.blocks), config)
    return [float(found[f"x_{depth}"].mean()) for depth in range(config.blocks + 1)]


def jacobians(config: LemmasConfig, seed: int) -> dict[str, Any]:
    """Returns the spectral norms for each mean of x, by autograd and by formula, and how many
    singular values are alike.
    """
    generator = torch.Generator().manual_seed(seed)
    noise_BD = torch.randn(
        len(config.means), config.width, generator=generator, dtype=torch.float64
    )
    x_BD = noise_BD + torch.tensor(config.means, dtype=torch.float64)[:, None]
    claimed_B = config.width**0.5 / x_BD.norm(dim=-1)
    found: dict[str, Any] = {"claimed": claimed_B.tolist()}
    # Eq. (28) of Xiong et al. 2020: without eps and gain, one over the deviation; RMSNorm's, over
    # the root mean square.
    exact = {"layer-norm": x_BD - x_BD.mean(-1, keepdim=True), "rms-norm": x_BD}
    for name, divided_BD in exact.items():
        norm = NORMS[name](config.width, 0.0).double()
        small = NORMS[name](config.singular_width, 0.0).double()
        values = singular_values(small, x_BD[-1, : config.singular_width])
        measured_B = torch.stack([singular_values(norm, x_D)[0] for x_D in x_BD])
        exact_B = divided_BD.square().mean(-1).rsqrt()
        found[name] = {
            "measured": measured_B.tolist(),
            "exact": exact_B.tolist(),
            "off": float((measured_B / exact_B - 1).abs().max()),
            "off sphere": float((norm(x_BD).detach().square().mean(-1) - 1).abs().max()),
            "equal": int(((values / values[0] - 1).abs() < _EQUAL).sum()),
            "zero": int((values < _ZERO * values[0]).sum()),
        }
    return found


def singular_values(f: nn.Module, x_D: Tensor) -> Tensor:
    """Returns those of ∂f(x)/∂x at one point, falling, from the full matrix: for small D."""
    with torch.enable_grad():
        jacobian_DD = torch.autograd.functional.jacobian(f, x_D)  # type: ignore[no-untyped-call]
    values: Tensor = torch.linalg.svdvals(jacobian_DD)
    return values


@torch.no_grad()
def _squared_norms(
    stack: Stack, places: dict[_Key, Point], config: LemmasConfig
) -> dict[_Key, Tensor]:
    """‖x‖² / d of each token, (T,), at each place, of independent tokens with E‖x_0‖² = d."""
    layout = Layout(torch.tensor([config.tokens]))
    x_TD = torch.randn(config.tokens, config.width)
    with recording(places, lambda x: x.double().square().mean(-1)) as found:
        stack(x_TD, Context(layout=layout))
    return {name: values[0] for name, values in found.items()}
