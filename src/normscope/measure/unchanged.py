"""A model looked at without a trace of it: modes, buffers, attributes and random numbers are put
back.
"""

import random
import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .autocast import without_autocast


@contextmanager
def looked_at(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients or autocast; attention, encoder layers and compiled code
    step by step; undone at the end.

    Undone is what `left_unchanged` undoes. What a forward pass writes *into* a tensor is for
    `recorded` to put back.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    with left_unchanged(model):
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            math = sdpa_kernel([SDPBackend.MATH])
            with uncompiled(), without_autocast(), torch.no_grad(), math:
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled code runs step by step, so that hooks see what is between, and does not complain of
    being watched.
    """
    with warnings.catch_warnings(), ExitStack() as undone:
        warnings.filterwarnings("ignore", "Using `torch.compile")
        compiled = torch.compile

        def stepwise(*given: Any, **options: Any) -> Any:
            undone.enter_context(torch.compiler.set_stance("force_eager"))
            return compiled(*given, **options)

        undone.callback(setattr, torch, "compile", compiled)
        # Importing the compiler takes as long as importing torch, so it waits for a model that asks
        # for it.
        torch.compile = stepwise
        if "torch._dynamo" in sys.modules:
            undone.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def left_unchanged(model: nn.Module, written: Sequence[Tensor] = ()) -> Iterator[None]:
    """Evaluation mode; at the end, after an error too, the model and the random generators are as
    they were.

    That is every module's mode, attributes, hooks and tables of parameters, buffers and modules,
    what the containers and plain objects among its attributes hold, and the random state of torch
    (all devices), numpy and `random`.
    written: tensors that the forward pass writes into, whose values are put back as well.
    """
    kept = _contents(model)
    values = [(tensor, tensor.detach().clone()) for tensor in written]
    with random_state_kept():
        try:
            for module in model.modules():
                module.training = False
            yield
        finally:
            for put_back in kept:
                put_back()
            with torch.no_grad():
                for tensor, value in values:
                    tensor.copy_(value)


@contextmanager
def restored(model: nn.Module) -> Iterator[Callable[[], None]]:
    """The context hands out what puts weights and buffers back; at the end they, `.grad`, modes and
    generators are.
    """
    held: list[Tensor] = [*model.parameters(), *model.buffers()]
    gradients = [parameter.grad for parameter in model.parameters()]
    start = [tensor.detach().clone() for tensor in held]

    @torch.no_grad()
    def put_back() -> None:
        for tensor, value in zip(held, start, strict=True):
            tensor.copy_(value)

    with left_unchanged(model):
        try:
            yield put_back
        finally:
            put_back()
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient


def _contents(model: nn.Module) -> list[Callable[[], None]]:
    """Returns functions that restore all that modules hold, and the contents of the containers and
    plain objects in it.

    A model may change what it holds while it runs: caches, tables of positions that grow, hooks put
    on at first use.
    """
    found: list[Callable[[], None]] = []
    seen, todo = set(), list[Any]()
    for module in model.modules():
        todo += [
            vars(module),
            *(vars(held) for held in vars(module).values() if _is_plain_object(held)),
        ]
        found.append(partial(setattr, module, "training", module.training))
    while todo:
        container = todo.pop()
        if id(container) not in seen:
            seen.add(id(container))
            found.append(_restored(container))
            held = container.values() if isinstance(container, dict) else container
            todo += [inner for inner in held if type(inner) in _FILLED_BY]
    return found


_FILLED_BY: Mapping[type, Callable[[Any, Any], None]] = {
    dict: dict.update,
    OrderedDict: OrderedDict.update,
    defaultdict: defaultdict.update,
    list: list.extend,
    deque: deque.extend,
    set: set.update,
}
"""Containers whose contents are put back; a class of somebody's own may do more at that than hold
them.
"""


def _restored(container: Any) -> Callable[[], None]:
    """Returns a function that restores a container's contents."""
    if not container:
        return container.clear  # type: ignore[no-any-return]
    contents = dict(container) if isinstance(container, dict) else list(container)
    return partial(_refill, container, _FILLED_BY[type(container)], contents)


def _refill(container: Any, fill: Callable[[Any, Any], None], contents: Any) -> None:
    container.clear()
    fill(container, contents)


_NO_PLAIN_OBJECTS = (nn.Module, Tensor, type, ModuleType)


def _is_plain_object(held: Any) -> bool:
    return (
        hasattr(held, "__dict__") and not isinstance(held, _NO_PLAIN_OBJECTS) and not callable(held)
    )


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The random state of torch (all devices), numpy and `random` at the end is that of the
    beginning.
    """
    of_torch = torch.get_rng_state()
    of_numpy = np.random.get_state()
    of_python = random.getstate()
    of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
        if of_devices:
            torch.cuda.set_rng_state_all(of_devices)
