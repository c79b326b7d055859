"""One forward pass recorded: every operation below autograd, and what was written into tensors that
it was given.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.flex_attention import flex_attention, math_attention
from torch._ops import HigherOrderOperator
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...measure.autocast import lowered
from .forward import tensors_in
from .operations import (
    FUSED,
    PRODUCTS,
    Origin,
    Ref,
    Trace,
    TracedValue,
    mapped,
    memory_of,
    overlaid,
    place_of,
    share_memory,
)

# What takes of its tensor argument only shape, dtype and device.
_OF_SHAPE_ALONE = frozenset(
    f"{start}_{end}"
    for start in ("new", "empty", "zeros", "ones", "full", "rand", "randn")
    for end in ("like", "empty", "zeros", "ones", "full", "empty_strided")
)


def _addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = a @ b
    return (x if beta == 1 else beta * x) + (product if alpha == 1 else alpha * product)


def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    product = a * b
    return x + (product if value == 1 else value * product)


_WRITTEN_OUT: dict[str, Callable[..., Tensor]] = {
    "addmm": _addmm,
    "baddbmm": _addmm,
    "lerp": lambda x, end, weight: x + (end - x) * weight,
    "addcmul": _addcmul,
}
"""Operations that add a product or a difference to data, in two: the sum in them may be a residual
one.
"""


def _in_steps(operator: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes an operator over functions in operations that can be recorded. Raises ValueError for
    most.
    """
    if operator is not flex_attention:
        raise ValueError(
            f"{operator} runs a function of its own, and what that does cannot be followed; run it "
            "without that"
        )
    return math_attention(*args, **kwargs)


@dataclass(slots=True)
class _Storage:
    """The record of values that share one piece of memory."""

    numbers: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operations below autograd, where every library's arithmetic looks the same."""

    supports_higher_order_operators = True

    # Else torch would import its compiler to leave this mode out, which takes as long as its own
    # import.
    _should_skip_dynamo = classmethod(lambda cls: False)

    def __init__(self, model: nn.Module, origins: Mapping[int, Origin], unknown: Origin) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: list[TracedValue] = []
        self.modules: list[str] = []
        self.written: list[tuple[Tensor, Tensor]] = []
        """Tensors that the pass did not make and wrote into, with what they held."""
        self._origins, self._unknown = origins, unknown
        self._named = _by_memory(model.named_buffers()) | _by_memory(model.named_parameters())
        self._found: dict[Any, int] = {}
        self._places: list[Any] = []
        """The place of every value in its memory, for its tensor may be replaced by a copy."""
        self._storages: dict[int, _Storage] = {}
        self._sums: dict[Any, int] = {}
        """Sums of data by what they add. One that is computed again after a product is the same
        value; at once it is another stream's, as where ResiDual's two begin alike."""
        self._last_product = -1
        self._alive: list[Tensor] = []
        """Keeps the addresses of storages from being given away."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            with self:
                return _in_steps(func, args, kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            # What such a function computes with comes here whole, though it is made of others.
            with self:
                return func.decompose(*args, **kwargs)
        numbers: dict[int, None] = {}

        def referred(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            number = self.number(leaf)
            numbers[number] = None
            return Ref(number)

        call_args, call_kwargs = mapped(referred, args), mapped(referred, kwargs)
        op = func.overloadpacket.__name__
        if self._is_written_out(op, call_args):
            with self:
                return _WRITTEN_OUT[op](*args, **kwargs)
        if func._schema.is_mutable:
            op = op.removesuffix("_")
            for tensor in _written(func, args, kwargs):
                self._keep(tensor)
        result = func(*args, **kwargs)
        inputs = tuple(numbers)
        origin = max((self.values[n].origin for n in inputs), default=Origin.CONSTANT)
        if op in _OF_SHAPE_ALONE or op == "lift_fresh":
            origin, inputs = Origin.CONSTANT, ()
        if not inputs and not self.modules:
            # What is drawn before the model is called is its input.
            origin = self._unknown
        if func is torch.ops.aten.add.Tensor and origin == Origin.DATA:
            key = (*call_args, *call_kwargs.items())
            if self._sums.get(key, len(self.values)) < self._last_product:
                self._name(result, self._sums[key])
                return result
            self._sums[key] = len(self.values)
        if op in PRODUCTS:
            self._last_product = len(self.values)
        for place, tensor in enumerate(
            [result] if isinstance(result, Tensor) else tree_leaves(result)
        ):
            if isinstance(tensor, Tensor):
                call = {"function": func, "args": call_args, "kwargs": call_kwargs, "output": place}
                made = self._add(op, tensor, origin, inputs=inputs, **call)
                if func._schema.is_mutable:
                    self._storage(tensor).writes.append(made)
        return result

    def _add(self, op: str, tensor: Tensor, origin: Origin, **made: Any) -> int:
        """made: further fields of the value."""
        number, modules = len(self.values), tuple(self.modules)
        self._places.append(place_of(tensor))
        value = TracedValue(
            number=number, op=op, tensor=tensor, origin=origin, modules=modules, **made
        )
        if op in PRODUCTS or FUSED in op:
            value.asked_dtype = lowered(tensor.dtype, tensor.device)
        self.values.append(value)
        self._name(tensor, number)
        return number

    def _name(self, tensor: Tensor, number: int) -> None:
        """Note that a tensor holds the value of that number."""
        self._alive.append(tensor)
        self._found[_key(tensor)] = number
        self._storage(tensor).numbers.append(number)

    def _is_written_out(self, op: str, args: Sequence[Any]) -> bool:
        """Tells whether an operation adds to data something that is no product of data with data,
        as attention's scores are.
        """
        if op not in _WRITTEN_OUT or len(args) < 3:
            return False
        first, *others = (
            (self.values[a.number].is_data if isinstance(a, Ref) else False) for a in args[:3]
        )
        return first and (op == "lerp" or not all(others))

    def _storage(self, tensor: Tensor) -> _Storage:
        return self._storages.setdefault(memory_of(tensor), _Storage())

    def number(self, tensor: Tensor) -> int:
        """The value that this tensor holds now."""
        number = self._found.get(_key(tensor))
        storage = self._storage(tensor)
        if number is None and not storage.numbers:
            origin = self._origins.get(memory_of(tensor), self._unknown)
            origin = Origin.CONSTANT if origin == self._unknown and not tensor.ndim else origin
            beside = self._named.get(memory_of(tensor), ())
            exact = [
                name for name, own in beside if own.storage_offset() == tensor.storage_offset()
            ]
            return self._add(
                "leaf", tensor, origin, names=tuple(exact or (name for name, _ in beside))
            )
        place = place_of(tensor)
        later = (n for n in reversed(storage.writes) if number is None or n > number)
        # What was written beside it, into another part of a larger tensor, has changed nothing
        # here.
        write = next((n for n in later if share_memory(self._places[n], place)), None)
        if number is not None and write is None:
            return self._before_detach(number, tensor)
        # Another view of the memory was made or written meanwhile.
        inputs = [
            storage.numbers[0] if number is None else number,
            *([] if write is None else [write]),
        ]
        origin = max(self.values[n].origin for n in inputs)
        parts = [len(self.values), *inputs]
        args = list(map(Ref, parts)), [place, *(self._places[n] for n in inputs)]
        return self._add(
            "rewritten",
            tensor,
            origin,
            inputs=tuple(dict.fromkeys(inputs)),
            function=overlaid,
            args=args,
        )

    def _before_detach(self, number: int, tensor: Tensor) -> int:
        """Returns the value before a `detach` where the tensor is that one: both lie in one place,
        and the tensor itself tells which it is.
        """
        at = number
        stopped = False
        memory = memory_of(tensor)
        while len(self.values[at].inputs) == 1 and memory_of(self.values[at].tensor) == memory:
            stopped = stopped or self.values[at].op == "detach"
            (at,) = self.values[at].inputs
            if stopped and self.values[at].tensor._cdata == tensor._cdata:
                return at
        return number

    def _keep(self, tensor: Tensor) -> None:
        """Give every value in this tensor's memory a copy of its own, for the memory is about to be
        written.
        """
        for number in self._storage(tensor).numbers:
            value = self.values[number]
            if memory_of(value.tensor) == memory_of(tensor):
                copy = value.tensor.clone()
                if value.op == "leaf":
                    self.written.append((value.tensor, copy))
                value.tensor = copy


class _Dropouts(TorchFunctionMode):
    """Notes the values that a pass in evaluation mode hands to a dropout, which leaves them as they
    are.
    """

    def __init__(self, number: Callable[[Tensor], int]) -> None:
        super().__init__()
        self._number = number
        self.found: dict[int, float] = {}
        """The values, with the share that is dropped."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is functional.dropout and args and result is args[0]:
            share = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            if share:
                self.found[self._number(args[0])] = float(share)
        return result


def _key(tensor: Tensor) -> Any:
    return memory_of(tensor), place_of(tensor), tensor.dtype


def _written(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for place, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor))


def _by_memory(named: Iterable[tuple[str, Tensor]]) -> dict[int, list[tuple[str, Tensor]]]:
    found: dict[int, list[tuple[str, Tensor]]] = {}
    for name, tensor in named:
        found.setdefault(memory_of(tensor), []).append((name, tensor))
    return found


def recorded(model: nn.Module, run: Callable[[], Any], inputs: Sequence[Tensor] | None) -> Trace:
    """Returns the operations of `run()`, in which the model is called. Whatever it writes into
    tensors it was given is undone.

    inputs: the tensors that are data; without them, every tensor that is neither the model's nor
    made by the pass.
    """
    origins = {
        memory_of(value): Origin.CONSTANT
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor)
    }
    origins |= {memory_of(buffer): Origin.BUFFER for buffer in model.buffers()}
    for parameter in model.parameters():
        trained = parameter.requires_grad
        origins[memory_of(parameter)] = Origin.TRAINABLE if trained else Origin.CONSTANT
    origins |= {memory_of(tensor): Origin.DATA for tensor in inputs or ()}
    recorder = _Recorder(model, origins, Origin.DATA if inputs is None else Origin.CONSTANT)
    try:
        with _calls(model, recorder.modules), _Dropouts(recorder.number) as dropouts, recorder:
            output = run()
        results = tuple(
            recorder.number(tensor) for tensor in tensors_in(output, inside_objects=False)
        )
    finally:
        with torch.no_grad():
            for tensor, before in recorder.written:
                tensor.copy_(before)
    return Trace(recorder.values, output, results, dropouts.found, tuple(recorder.written))


@contextmanager
def _calls(model: nn.Module, running: list[str]) -> Iterator[None]:
    """Keeps in `running` the names of the model's modules whose forward is under way, the outermost
    first.
    """
    names = {module: name for name, module in model.named_modules()}

    def enter(module: nn.Module, _: Any) -> None:
        if module in names:
            running.append(names[module])

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        if module in names:
            running.pop()

    # Hooks of all modules leave no mark on this one.
    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
