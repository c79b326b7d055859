"""How far an update moves what a model computes, and how much of that each sub-layer adds to what comes in.

The change of an output is f(x, θ*) - f(x, θ), θ the weights before an update and θ* those after it (Liu et al. 2020,
arXiv:2004.08249, section 4.1 and theorem 2).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..settings.arguments import checked
from .passes import first_tensor
from .unchanged import TwoWeights, looked_at, values_kept

_Pick = Callable[[Any], Tensor]
_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEffect:
    """Of one sub-layer's output y = F(x; θ), which is y* = F(x*; θ*) after the update; means over all its entries.

    As vectors, y* - y = [F(x; θ*) - F(x; θ)] + [F(x*; θ*) - F(x; θ*)]: the first bracket is the sub-layer's own change,
    whose variance Liu et al. 2020 call C in the proof of theorem 2, and the second what it makes of the changes of
    those before it. Their squares add up to `total` only where the two are uncorrelated: see `crossed`.
    """

    square: float
    """E y², before the update."""
    total: float
    """E(y* - y)²."""
    own: float
    """E(F(x; θ*) - F(x; θ))²: only this sub-layer's weights changed, its input as before."""
    amplified: float
    """E(F(x*; θ*) - F(x; θ*))²: only its input changed, by the changes of what comes before."""

    @property
    def crossed(self) -> float:
        """Twice the mean product of the two parts: 0 where they are uncorrelated, positive where they agree."""
        return self.total - self.own - self.amplified

    @property
    def relative(self) -> float:
        """The total over `square`; inf or NaN where that is 0."""
        return _over(self.total, self.square)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplification:
    """Of a model between two sets of weights, on one input."""

    sublayers: Mapping[str, UpdateEffect]
    """By name, in the order in which they were called; a module's second call is `name (call 2)`."""
    square: float
    """E f(x, θ)² of the model's output, such as its logits."""
    total: float
    """E(f(x, θ*) - f(x, θ))² of it."""

    @property
    def relative(self) -> float:
        """The total over `square`; inf or NaN where that is 0."""
        return _over(self.total, self.square)


@checked
def amplification(
    model: nn.Module,
    run: Callable[[], object],
    after: Mapping[str, Tensor],
    sublayers: Mapping[str, nn.Module],
    *,
    before: Mapping[str, Tensor] | None = None,
    pick: _Pick = first_tensor,
) -> Amplification:
    """The change of every sub-layer's output and of the model's between two sets of weights, in evaluation mode.

    run: calls the model on one input, the same each time. after: weights after the update by parameter name, as
    `weights_after` gives them; before: those before it; a name that is missing is a weight as it is now. sublayers:
    modules by name, whole blocks or what is in them, or both: `total` is of their outputs, and `own` of all parameters
    that are in them.
    pick: takes the tensor out of an output, of modules and model alike; one that indexes leaves out padding.

    Takes four forward passes, and memory for the sub-layers' outputs and three copies of the weights. Sums are kept in
    float64; a change smaller than the rounding of the model's own numbers is that rounding. Weights, buffers,
    gradients, modes, hooks and random generators are at the end what they were.

    Raises ValueError for a name that is no parameter, a tensor of another shape, no sub-layer, one that is not called
    or that gives something else when it is called again on the same input (noise, or a cache that it writes into),
    and a model that calls others after the update than before it.
    """
    if not sublayers:
        raise ValueError("name at least one sub-layer: the change of what stands between none cannot be split")
    weights = TwoWeights(model, before or {}, after)
    with looked_at(model), values_kept(model):
        weights.put_before()
        with _watching(sublayers, lambda *called: _first_look(weights, pick, *called)) as first:
            output = _kept(pick(run()))
        _check_called(sublayers, first)
        weights.put_after()
        with _watching(sublayers, lambda _module, _args, _kwargs, y: _kept(pick(y))) as second:
            moved = pick(run())
        return Amplification(
            sublayers=_in_order(first, second), square=_square(output), total=_square(moved.detach() - output)
        )


@dataclass(frozen=True, slots=True)
class _Look:
    """A sub-layer's output before the update, and what its own change would add to it."""

    y: Tensor
    own: Tensor


def _first_look(
    weights: TwoWeights, pick: _Pick, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
) -> _Look:
    y = _kept(pick(output))
    try:
        # By `forward`, so that what hangs on the module is not told of calls that the model does not make.
        again = pick(module.forward(*args, **kwargs))
        same = again.shape == y.shape and torch.equal(again, y)
        if same:
            with weights.moved(module):
                return _Look(y, _kept(pick(module.forward(*args, **kwargs))) - y)
    except Exception as error:
        raise ValueError(
            f"a {type(module).__name__} cannot be called twice on the same input "
            f"({type(error).__name__}: {error}); turn off caches that it writes into, such as use_cache"
        ) from error
    raise ValueError(
        f"a {type(module).__name__} gives something else when it is called again on the same input: it draws random "
        "numbers, or writes into a cache or its input; turn that off"
    )


@contextmanager
def _watching(
    sublayers: Mapping[str, nn.Module], look: Callable[..., _Seen]
) -> Iterator[dict[str, list[tuple[int, _Seen]]]]:
    """Every call of a sub-layer by name: its place among all calls, and what was seen; calls by a look do not count."""
    found: dict[str, list[tuple[int, _Seen]]] = {name: [] for name in sublayers}
    count, busy = 0, False

    def hook(name: str) -> Callable[..., None]:
        def called(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal count, busy
            if busy:
                return
            busy = True
            try:
                seen = look(module, args, kwargs, output)
            finally:
                busy = False
            found[name].append((count, seen))
            count += 1

        return called

    handles = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in sublayers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _check_called(sublayers: Mapping[str, nn.Module], found: Mapping[str, Sequence[Any]]) -> None:
    if missing := [name for name in sublayers if not found[name]]:
        raise ValueError(f"the module at {missing[0]!r} was not called in this pass")


def _in_order(
    first: Mapping[str, Sequence[tuple[int, _Look]]], second: Mapping[str, Sequence[tuple[int, Tensor]]]
) -> dict[str, UpdateEffect]:
    changes: dict[int, tuple[str, UpdateEffect]] = {}
    for name, looks in first.items():
        if len(second[name]) != len(looks):
            raise ValueError(
                f"{name} is called {len(looks)} times before the update and {len(second[name])} times after it"
            )
        for call, ((place, look), (_, y)) in enumerate(zip(looks, second[name], strict=True), 1):
            changes[place] = (name if call == 1 else f"{name} (call {call})", _change(look, y))
    return dict(changes[place] for place in sorted(changes))


def _change(look: _Look, after: Tensor) -> UpdateEffect:
    total = after - look.y
    return UpdateEffect(
        square=_square(look.y), total=_square(total), own=_square(look.own), amplified=_square(total - look.own)
    )


def _kept(x: Tensor) -> Tensor:
    return x.detach().clone()


def _square(x: Tensor) -> float:
    """The mean of all squares."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    return float(torch.linalg.vector_norm(x.detach(), dtype=wide).square()) / x.numel()


def _over(total: float, square: float) -> float:
    if square:
        return total / square
    return float("inf") if total else float("nan")
