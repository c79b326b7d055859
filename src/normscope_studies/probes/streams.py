"""The stream after every block of a model, before and after its norm, found by what the norms read and give."""

# N = packed tokens, D = width
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normscope.model import LanguageModel, Layout, Stack
from normscope.model.norms import NormGroup

State = Any


@dataclass(frozen=True, slots=True)
class AroundNorm:
    """One tensor (N, D) before a norm and after it."""

    before_ND: Tensor
    after_ND: Tensor


@dataclass(slots=True)
class Passed:
    """One forward pass, by completed blocks, from the embedding on."""

    states: list[State] = field(default_factory=list)
    """The placement's, L + 1 of them."""
    norms: list[AroundNorm] = field(default_factory=list)
    """What every norm of the stack read and gave, in order."""


@torch.no_grad()
def passed(model: LanguageModel, tokens_N: Tensor, layout: Layout) -> Passed:
    """What a forward pass leaves at its blocks and norms."""
    with _recorded(model.decoder) as found:
        model(tokens_N, layout)
    return found


def around_norms(stack: Stack, found: Passed) -> list[AroundNorm]:
    """Of the stream after each block, L of them: where a norm gives the stream, as in Post-LN, what that norm read and
    the stream; else the stream, and what the first norm gives that reads it: the next block's, or the final one.

    Raises ValueError where a block's stream meets no norm, as between blocks that have it after the branch alone.
    """
    return [
        _around(stack.placement.hidden(state), found.norms, stack, block)
        for block, state in enumerate(found.states[1:], 1)
    ]


def _around(hidden_ND: Tensor, norms: Sequence[AroundNorm], stack: Stack, block: int) -> AroundNorm:
    for one in norms:
        if one.after_ND is hidden_ND:
            return one
    for one in norms:
        if one.before_ND is hidden_ND:
            return one
    raise ValueError(
        f"the stream of {stack.placement.name} meets no norm after block {block}, so there is no before and after to "
        "probe; leave it out of `placements`"
    )


@contextmanager
def _recorded(stack: Stack) -> Iterator[Passed]:
    found = Passed()

    def first(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        found.states.append(inputs[0])

    def block(_: nn.Module, inputs: tuple[Any, ...], output: State) -> None:
        found.states.append(output)

    def norm(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        found.norms.append(AroundNorm(inputs[0], output))

    handles = [stack.blocks[0].register_forward_pre_hook(first)]
    handles += [one.register_forward_hook(block) for one in stack.blocks]
    groups = [module for module in stack.modules() if isinstance(module, NormGroup)]
    handles += [one.register_forward_hook(norm) for group in groups for one in group.children()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
