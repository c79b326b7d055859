"""The measurements of the study of amplification: encoders as they are drawn, whose weights are
moved a little, and the singular values of their Jacobians.
"""

# N = packed tokens, D = width, V = vocabulary
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.measure import Point, depth_points, recording, weights_after
from normscope.measure.passes import mean_square, moved
from normscope.model import SCHEMES, Context, Layout, Stack, StackConfig, profile
from normscope.model.initialisation import initialise
from normscope.optim import OptimizerConfig, make_optimizer, roles
from normscope.placement import StackShape, named
from normscope.train.device import seed_weights

RANDOM = "random"
"""A move that is drawn independently of the weights, as theorem 2 of Liu et al. 2020 takes all
updates to be.
"""
SMALL_RATES: Mapping[str, float] = MappingProxyType(
    {RANDOM: 1e-7, "sgd": 1e-5, "adam": 1e-7, "muon": 1e-7}
)
"""The rates at which a change in float64 goes as the rate, which it is given over. SGD's is larger,
as its gradients are small; of the others the entries of an update are about the rate.
"""
MATRICES, ALL = "matrices", "all"
"""The weights that are moved: the matrices of F and the placement's own numbers, as proofs and
predictions have it; or gains of norms and all shifts as well.
"""
OUTPUT = "output"
"""The point of a stack's output, beside those of its stream."""


class DrawnEncoder:
    """An encoder in float64 with inputs from N(0, 1), random targets and output rows of mean
    squared length 1, all of one seed.

    initialisation: a name of `normscope.model.SCHEMES`, or as-placement. Raises ValueError for a
    placement that is not defined for an encoder.
    """

    def __init__(
        self,
        placement: str,
        shape: StackShape,
        *,
        initialisation: str,
        tokens: int,
        vocabulary: int,
        seed: int,
    ) -> None:
        seed_weights(seed)
        kind = named(placement)
        self.scheme = kind.initialisation if initialisation == "as-placement" else initialisation
        self.stack = Stack(kind(shape), StackConfig(), initialisation=None)
        initialise(self.stack, self.scheme, kind)
        self.stack.double()
        self.layout = Layout(torch.tensor([tokens]))
        width = shape.width
        self.inputs_ND = torch.randn(tokens, width, dtype=torch.float64)
        self.rows_VD = torch.randn(vocabulary, width, dtype=torch.float64) / width**0.5
        self.targets_N = torch.randint(vocabulary, (tokens,))
        profile(self.stack, lambda: self.output(self.inputs_ND))

    def output(self, x_ND: Tensor) -> Tensor:
        """(N, D) of inputs (N, D)."""
        y_ND: Tensor = self.stack(x_ND, Context(layout=self.layout))
        return y_ND

    def loss(self) -> Tensor:
        """Returns the mean cross-entropy per token in nats."""
        return functional.cross_entropy(
            self.output(self.inputs_ND) @ self.rows_VD.T, self.targets_N
        )

    def train(self, what: str) -> None:
        """Let updates move `MATRICES` or `ALL`; an identity in the place of W_O, which some schemes
        have, is not a weight and stays.
        """
        stands_in = SCHEMES[self.scheme].draws["output"].of == "identity"
        still = {
            matrix.weight
            for sublayer in self.stack.sublayers()
            for name, matrix in sublayer.f.matrices()
            if stands_in and name == "output"
        }
        role_of = roles(self.stack)
        for name, weight in self.stack.named_parameters():
            asked = what == ALL or role_of[name] in ("matrix", "gate")
            weight.requires_grad_(asked and weight not in still)


def changes(
    placement: str,
    shape: StackShape,
    updates: Sequence[str],
    moves: Sequence[str],
    *,
    initialisation: str,
    tokens: int,
    vocabulary: int,
    seed: int,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Measures, by what is moved and by kind of update, the mean squares over tokens and features
    of the changes, at a rate of 1.

    output: E(y* - y)² of the stack's output, a number; stream: the same of the state after
    l = 0 … L completed blocks.
    """
    drawn = DrawnEncoder(
        placement,
        shape,
        initialisation=initialisation,
        tokens=tokens,
        vocabulary=vocabulary,
        seed=seed,
    )
    stack = drawn.stack
    points = {OUTPUT: Point(stack)} | depth_points(stack.blocks, pick=stack.placement.hidden)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for move in moves:
        drawn.train(move)
        found[move] = {}
        for update in updates:
            step = step_of(stack, update, lambda _: drawn.loss())
            seen = changes_at(stack, lambda: drawn.output(drawn.inputs_ND), step, points)
            output, *stream = (square / SMALL_RATES[update] ** 2 for square in seen.values())
            found[move][update] = {"output": output, "stream": stream}
    return found


def step_of(model: nn.Module, update: str, loss: Callable[[int], Tensor]) -> dict[str, Tensor]:
    """Returns what a small update adds to every trainable weight, by parameter name: a key of
    `SMALL_RATES`, at its rate.

    loss: as `weights_after` takes it; a random update does not ask for it, and is drawn from
    torch's global generator.
    """
    rate = SMALL_RATES[update]
    weights = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if update == RANDOM:
        return {name: rate * torch.randn_like(weight) for name, weight in weights.items()}
    config = OptimizerConfig(name=update, peak_lr=rate)
    after = weights_after(model, lambda one: make_optimizer(one, config), loss, (1,))[1]
    return {name: after[name] - weight.detach() for name, weight in weights.items()}


@torch.no_grad()
def changes_at(
    model: nn.Module,
    run: Callable[[], object],
    step: Mapping[str, Tensor],
    points: Mapping[str, Point],
) -> dict[str, float]:
    """Measures, at each point, the mean square over all its entries of what a step of the weights
    changes there.

    run: calls the model on one input, the same each time, and every point once. The weights are
    at the end what they were, bit by bit.
    """
    with recording(points, torch.clone) as found:
        run()
        with moved(dict(model.named_parameters()), step, 1.0):
            run()
    return {name: mean_square(after - before) for name, (before, after) in found.items()}


def singular_values(
    placement: str, shape: StackShape, *, initialisation: str, tokens: int, seed: int
) -> list[float]:
    """Returns all of ∂y/∂x, falling: x all inputs of a stack as one vector of N · D entries, y its
    outputs.
    """
    drawn = DrawnEncoder(
        placement, shape, initialisation=initialisation, tokens=tokens, vocabulary=2, seed=seed
    )
    drawn.stack.requires_grad_(False)
    size = drawn.inputs_ND.shape

    def flat(x: Tensor) -> Tensor:
        return drawn.output(x.view(size)).flatten()

    jacobian = torch.autograd.functional.jacobian(flat, drawn.inputs_ND.flatten())  # type: ignore[no-untyped-call]
    values: list[float] = torch.linalg.svdvals(jacobian).tolist()
    return values
