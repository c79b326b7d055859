"""The modules of a block that read the stream itself, and nothing more: they are handed what the
formula gives them.

A block's forward is given a tensor that stands for the stream, in which a sum is the formula's.
What such a module is called with would be that tensor, and hooks on it would see other numbers than
it reads. A module in which a sum is made, or that returns the stream, needs it and keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..doctor.trace.forward import joined
from .following import Following
from .passes import Passes
from .placed import PLACED, watched
from .plan import StackPlan
from .seats import Seat, arguments


@dataclass(frozen=True, slots=True)
class _Call:
    """A module that has been called with the stream, and has not returned."""

    seats: tuple[Seat, ...]
    running: Following
    joins: int
    passed: int


def readers(passes: Passes, plans: Sequence[StackPlan]) -> dict[str, tuple[Seat, ...]]:
    """Finds the modules that read the stream themselves: returns, by the name of the outermost
    ones, the seats of the stream among their arguments.

    Raises TransplantRefused where the model, whose blocks are swapped already, cannot be run.
    """
    found: dict[str, tuple[Seat, ...]] = {}
    others: set[str] = set()
    calls: dict[str, list[_Call | None]] = {}

    with watched() as blocks:

        def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
            call = _called(blocks[-1], module, args, kwargs) if blocks else None
            calls.setdefault(name, []).append(call)

        def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
            call = calls[name].pop()
            if call is None:
                return
            if call.seats and _only_reads(call, output):
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *call.seats)))
            else:
                others.add(name)

        handles = []
        for name, module in _candidates(passes.model, plans).items():
            handles += [
                module.register_forward_pre_hook(partial(enter, name), with_kwargs=True),
                module.register_forward_hook(partial(leave, name)),
            ]
        try:
            passes.outputs()
        finally:
            for handle in handles:
                handle.remove()
    reading = [name for name in found if name not in others]
    around = tuple(f"{name}." for name in reading)
    return {name: found[name] for name in reading if not name.startswith(around)}


def _candidates(model: nn.Module, plans: Sequence[StackPlan]) -> Mapping[str, nn.Module]:
    """Returns the modules in blocks that neither are norms of the placement nor were added by
    it.
    """
    norms = {name for one in plans for name in one.all_norms}
    found = {}
    for block in (block.module for one in plans for block in one.blocks):
        for name, module in model.get_submodule(block).named_modules():
            full, part = joined(block, name), name.partition(".")[0]
            # What is compiled or scripted has a class that cannot be another one.
            fixed = isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod")
            is_ours = part == PLACED or full in norms
            if name and not is_ours and not fixed:
                found[full] = module
    return found


def _called(
    running: Following, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> _Call | None:
    """Returns a call with the stream; without a seat where that is not an argument of its own."""
    given = [one for one in tree_leaves((args, dict(kwargs))) if isinstance(one, Tensor)]
    if not any(running.stands_for(one) for one in given):
        return None
    seats = tuple(
        seat
        for seat, value in arguments(module, args, kwargs)
        if running.moves_of(value) is not None
    )
    return _Call(seats, running, running.run.joins, running.passed)


def _only_reads(call: _Call, output: Any) -> bool:
    running = call.running
    same = running.run.joins == call.joins and running.passed == call.passed
    return same and not any(
        running.stands_for(one) for one in tree_leaves(output) if isinstance(one, Tensor)
    )
