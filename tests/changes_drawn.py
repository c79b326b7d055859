"""Stacks as they are drawn, one step of an optimiser on them, and what moves: the oracle for
predicted changes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack, StackConfig, profile
from normscope.model.initialisation import initialise
from normscope.placement import named
from normscope.theory.predict import ModelSetting
from normscope.train.device import seed_weights

# N = tokens, D = width

_RATE = 1e-7
"""Small enough for changes to be of first order, and large enough for differences of float64."""
_MUON_SCALE = 0.2
_SPAN = 32
"""At least as many as tokens."""


def changes_of(
    placement: str, model: ModelSetting, updates: Sequence[str], draws: int
) -> list[dict[str, dict[str, Any]]]:
    """For each draw, seeds from 1, and each update: mean squares of changes at a rate of 1,
    sub-layer by sub-layer.

    Of an encoder in the theory's setting; its loss is cross-entropy at random targets over one
    sequence.

    own: of F(x), by F's own new weights at its old input; amplified: of the rest of F(x)'s change;
    total: of all of it.
    stream: of the state that curves show, from the embedding on. output: of the stack's, and
    output_two of two tokens of it; loss: what the update takes off, to first order.
    """
    return [_changes(placement, model, updates, seed) for seed in range(1, draws + 1)]


def _changes(
    placement: str, model: ModelSetting, updates: Sequence[str], seed: int
) -> dict[str, dict[str, Any]]:
    seed_weights(seed)
    kind, width = named(placement), model.width
    stack = Stack(kind(model.shape("encoder")), StackConfig(), initialisation=None)
    initialise(stack, "theory", kind)
    stack = stack.double()
    context = Context(layout=Layout(torch.tensor([model.tokens])))
    x_ND = torch.randn(model.tokens, width, dtype=torch.float64)
    rows = torch.randn(model.vocabulary, width, dtype=torch.float64) / width**0.5
    targets = torch.randint(model.vocabulary, (model.tokens,))
    profile(stack, lambda: stack(x_ND, context))
    moved = _trained(stack)
    before = _Run(stack, x_ND, context)
    nn.functional.cross_entropy(before.output @ rows.T, targets).backward()  # type: ignore[no-untyped-call]
    return {
        update: _moved(stack, moved, before, _STEPS[update], x_ND, context) for update in updates
    }


def _trained(stack: Stack) -> list[nn.Parameter]:
    """Matrices of sub-layers but for the identity in W_O's place, and the formula's own numbers; no
    norms or biases.
    """
    stack.requires_grad_(False)
    matrices = [m for s in stack.sublayers() for name, m in s.f.matrices() if name != "output"]
    own = [weight for name, weight in stack.named_parameters() if ".placed." in name]
    moved = [*(matrix.weight for matrix in matrices), *own]
    for weight in moved:
        weight.requires_grad_(True)
    return moved


class _Run:
    """One forward pass, and what went in and out of every sub-layer."""

    def __init__(self, stack: Stack, x_ND: Tensor, context: Context) -> None:
        self.read: list[tuple[Any, ...]] = []
        self.made: list[Tensor] = []
        self.states: list[Tensor] = []
        hidden = stack.placement.hidden

        def of_sublayer(_: nn.Module, inputs: tuple[Any, ...], made: Tensor) -> None:
            self.read.append((inputs[0].detach().clone(), *inputs[1:]))
            self.made.append(made.detach().clone())

        def of_state(state: Any) -> None:
            self.states.append(hidden(state).detach().clone())

        hooks = [sublayer.register_forward_hook(of_sublayer) for sublayer in stack.sublayers()]
        hooks.append(
            stack.blocks[0].register_forward_pre_hook(lambda _, inputs: of_state(inputs[0]))
        )
        hooks += [
            block.register_forward_hook(lambda _, __, state: of_state(state))
            for block in stack.blocks
        ]
        try:
            self.output: Tensor = stack(x_ND, context)
        finally:
            for hook in hooks:
                hook.remove()


@torch.no_grad()
def _moved(
    stack: Stack,
    weights: Sequence[nn.Parameter],
    before: _Run,
    step: Callable[[Tensor], Tensor],
    x_ND: Tensor,
    context: Context,
) -> dict[str, Any]:
    kept = [weight.detach().clone() for weight in weights]
    loss = 0.0
    for weight in weights:
        if weight.grad is not None and weight.grad.any():
            moves = step(weight.grad)
            loss -= float((moves * weight.grad).sum())
            weight.sub_(_RATE * moves)
    after = _Run(stack, x_ND, context)
    own = [
        (sublayer(*read) - made) / _RATE
        for sublayer, read, made in zip(stack.sublayers(), before.read, before.made, strict=True)
    ]
    for weight, old in zip(weights, kept, strict=True):
        weight.copy_(old)
    total = [(new - old) / _RATE for new, old in zip(after.made, before.made, strict=True)]
    output = (after.output - before.output) / _RATE
    tokens, width = output.shape
    one = _square(output)
    every = float(output.sum(0).square().sum()) / width
    return {
        "own": [_square(change) for change in own],
        "amplified": [_square(all_ - change) for all_, change in zip(total, own, strict=True)],
        "total": [_square(change) for change in total],
        "stream": [
            _square((new - old) / _RATE)
            for new, old in zip(after.states, before.states, strict=True)
        ],
        "output": one,
        "output_two": (every - tokens * one) / (tokens * (tokens - 1)),
        "loss": loss,
    }


def _square(x_ND: Tensor) -> float:
    return float(x_ND.square().mean())


def _orthogonal(gradient: Tensor) -> Tensor:
    """Its orthogonal factor times Muon's scale; what is no matrix is AdamW's. The rank is at most
    the tokens'.
    """
    if gradient.ndim < 2:
        return gradient.sign()
    # Its columns are sums of one vector a token: some random sums of them span them all.
    span = torch.linalg.qr(gradient @ torch.randn(gradient.shape[1], _SPAN, dtype=gradient.dtype))[
        0
    ]
    left, sizes, right = torch.linalg.svd(span.T @ gradient, full_matrices=False)
    there = sizes > 1e-9 * sizes[0]
    scale: float = _MUON_SCALE * max(gradient.shape) ** 0.5
    factor: Tensor = span @ left[:, there] @ right[there]
    return scale * factor


_STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sgd": lambda gradient: gradient,
    "adam": torch.sign,
    "muon": _orthogonal,
}
"""Of Adam's first step, whose ε is far below every entry of a gradient, and Lion's: the sign."""
