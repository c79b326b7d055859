"""The residual stream of any model: hooks that reduce a tensor to a few numbers while the forward pass goes on.

Dilution is how much of the stream each sub-layer is.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

# N = packed tokens, B = sequences, T = longest sequence, D = width


_Key = TypeVar("_Key", bound=Hashable)
_Reduced = TypeVar("_Reduced")


def first_tensor(value: Any) -> Tensor:
    """The tensor itself, or the first one of a tuple, list or mapping: what most libraries' blocks put first.

    Raises TypeError where there is none.
    """
    inner = value
    while not isinstance(inner, Tensor):
        children = iter(inner.values() if isinstance(inner, Mapping) else inner if isinstance(inner, Sequence) else ())
        child = next(children, None)
        if child is None or isinstance(inner, str):
            raise TypeError(f"no tensor comes first in this {type(value).__name__}; give a `pick` that takes it out")
        inner = child
    return inner


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a model where a tensor is looked at."""

    module: nn.Module
    at: Literal["input", "output"] = "output"
    """input: the first argument of its `forward`, given by position or by keyword."""
    pick: Callable[[Any], Tensor] = first_tensor
    """Takes the tensor out of what stands there."""


def points(
    model: nn.Module,
    names: Iterable[str],
    *,
    at: Literal["input", "output"] = "output",
    pick: Callable[[Any], Tensor] = first_tensor,
) -> dict[str, Point]:
    """Points at sub-modules by their names in `model.named_modules()`; raises ValueError for a name that is not one."""
    modules = dict(model.named_modules())
    names = list(names)
    if unknown := [name for name in names if name not in modules]:
        raise ValueError(f"no such module: {', '.join(unknown)}; named_modules() lists those there are")
    return {name: Point(modules[name], at, pick) for name in names}


def depth_points(blocks: Iterable[nn.Module], *, pick: Callable[[Any], Tensor] = first_tensor) -> dict[str, Point]:
    """x_0, the first block's input, and x_1 … x_L, the blocks' outputs. Raises ValueError without any block."""
    blocks = list(blocks)
    if not blocks:
        raise ValueError("a stream needs at least one block")
    outputs = {f"x_{depth}": Point(block, "output", pick) for depth, block in enumerate(blocks, 1)}
    return {"x_0": Point(blocks[0], "input", pick), **outputs}


@contextmanager
def recording(
    places: Mapping[_Key, Point], reduce: Callable[[Tensor], _Reduced]
) -> Iterator[dict[_Key, list[_Reduced]]]:
    """While it lasts, every call of a point's module appends `reduce(tensor)` under the point's name.

    The tensor is detached, and nothing of it is kept unless `reduce` returns it. Hooks are removed at the end, after an
    error too. A block under activation checkpointing runs, and is recorded, a second time in the backward pass: leave
    the context before it.
    """
    found: dict[_Key, list[_Reduced]] = {name: [] for name in places}

    def look(name: _Key, point: Point, value: Any) -> None:
        with torch.no_grad():
            found[name].append(reduce(point.pick(value).detach()))

    def hook(name: _Key, point: Point) -> torch.utils.hooks.RemovableHandle:
        if point.at == "output":
            return point.module.register_forward_hook(lambda _, __, output: look(name, point, output))
        return point.module.register_forward_pre_hook(
            lambda module, args, kwargs: look(name, point, _first_argument(module, args, kwargs)),
            with_kwargs=True,
        )

    handles = []
    try:
        for name, point in places.items():
            handles.append(hook(name, point))
        yield found
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMoments:
    """Sums over the tokens of one or more batches; `a + b` pools two. Every token, and every pair, counts the same."""

    tokens: int
    pairs: int
    """Ordered pairs of two different tokens of one sequence: Σ n (n-1)."""
    squares: float
    """Σ ‖x‖² / d over tokens."""
    products: float
    """Σ ⟨x_i, x_j⟩ / d over pairs."""
    squared_means: float
    """Σ m² over tokens, m the mean of a token's features."""

    @property
    def q(self) -> float:
        """E‖x‖² / d."""
        return self.squares / self.tokens

    @property
    def p(self) -> float:
        """E⟨x_i, x_j⟩ / d of two different tokens of a sequence; NaN where no sequence has two."""
        return self.products / self.pairs if self.pairs else nan

    @property
    def correlation(self) -> float:
        """p / q: 0 for independent tokens, 1 for equal ones; NaN where q is 0."""
        return self.p / self.q if self.q else nan

    @property
    def feature_mean_share(self) -> float:
        """Share of E‖x‖² that is the features' mean, which LayerNorm takes away and RMSNorm keeps; NaN where q is 0."""
        return self.squared_means / self.squares if self.squares else nan

    def __add__(self, other: "StreamMoments") -> "StreamMoments":
        return StreamMoments(
            tokens=self.tokens + other.tokens,
            pairs=self.pairs + other.pairs,
            squares=self.squares + other.squares,
            products=self.products + other.products,
            squared_means=self.squared_means + other.squared_means,
        )


def stream_moments(x: Tensor, *, lengths_B: Tensor | None = None, keep_BT: Tensor | None = None) -> StreamMoments:
    """Moments of a stream, summed in float64 (float32 on devices without it).

    x: (N, D) packed tokens with the sequences' lengths (without: one sequence), or (B, T, D) with `keep_BT`, True where
    a token is real (without: everywhere).
    The inner products of all pairs are ‖Σx‖² - Σ‖x‖²: no n × n matrix. Raises ValueError for shapes that do not fit.
    """
    dtype = torch.float32 if x.device.type == "mps" else torch.float64
    sums, tokens, pairs = [], 0, 0
    for x_ND in _sequences(x, lengths_B, keep_BT):
        n = len(x_ND)
        tokens, pairs = tokens + n, pairs + n * (n - 1)
        sums.append(
            torch.stack(
                [
                    torch.linalg.vector_norm(part, dtype=dtype).square()
                    for part in (x_ND, x_ND.sum(0, dtype=dtype), x_ND.mean(-1, dtype=dtype))
                ]
            )
        )
    if not tokens:
        raise ValueError("no tokens to take moments of")
    # One transfer for all sequences.
    one, total, squared_means = torch.stack(sums).sum(0).tolist()
    width = x.shape[-1]
    return StreamMoments(
        tokens=tokens, pairs=pairs, squares=one / width, products=(total - one) / width, squared_means=squared_means
    )


def measure_stream(
    places: Mapping[str, Point],
    run: Callable[[], object],
    *,
    lengths_B: Tensor | None = None,
    keep_BT: Tensor | None = None,
) -> dict[str, StreamMoments]:
    """Moments at each point during `run()`, one forward pass without gradients; a module called twice is pooled.

    Where streams of two lengths meet, as in an encoder-decoder, enter a `recording` for each. Raises ValueError where a
    point's module is not called, or as `stream_moments` does.
    """
    with torch.no_grad(), recording(places, lambda x: stream_moments(x, lengths_B=lengths_B, keep_BT=keep_BT)) as found:
        run()
    return {name: _pooled(name, moments) for name, moments in found.items()}


def _first_argument(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args:
        return args[0]
    # A caller may name arguments in any order.
    named = [name for name in inspect.signature(module.forward).parameters if name in kwargs] or list(kwargs)
    return kwargs[named[0]] if named else None


def _pooled(name: str, moments: list[StreamMoments]) -> StreamMoments:
    if not moments:
        raise ValueError(f"the module at {name!r} was not called in this pass")
    first, *rest = moments
    for more in rest:
        first += more
    return first


def _sequences(x: Tensor, lengths_B: Tensor | None, keep_BT: Tensor | None) -> Iterable[Tensor]:
    """The real tokens (n, D) of each sequence."""
    if x.ndim == 2 and keep_BT is None:
        if lengths_B is None:
            return [x]
        if int(lengths_B.sum()) != len(x):
            raise ValueError(f"lengths add up to {int(lengths_B.sum())}, but the stream has {len(x)} tokens")
        return torch.split(x, lengths_B.tolist())
    if x.ndim == 3 and lengths_B is None:
        if keep_BT is None:
            return x.unbind()
        if keep_BT.shape != x.shape[:2]:
            raise ValueError(f"keep_BT has shape {tuple(keep_BT.shape)}, the stream {tuple(x.shape)}")
        return (row[keep] for row, keep in zip(x, keep_BT.to(torch.bool), strict=True))
    raise ValueError(f"give (N, D) with lengths_B, or (B, T, D) with keep_BT; got a stream of shape {tuple(x.shape)}")


@dataclass(frozen=True, slots=True)
class Share:
    """A branch F(x) beside the stream it is compared with."""

    branch: float
    """E‖F(x)‖² / d."""
    stream: float
    """E‖x‖² / d."""

    @property
    def ratio(self) -> float:
        """Branch over stream; inf or NaN where the stream is 0."""
        if self.stream:
            return self.branch / self.stream
        return float("inf") if self.branch else float("nan")


def sublayer_shares(
    branches: Mapping[str, Point],
    stream: Point | Mapping[str, Point],
    run: Callable[[], object],
    *,
    lengths_B: Tensor | None = None,
    keep_BT: Tensor | None = None,
) -> dict[str, Share]:
    """E‖branch‖² relative to E‖stream‖², by branch, in one forward pass `run()` without gradients.

    `stream` is one point for all, usually the last block's output, or one for each branch, such as the sum it enters.
    Where branches are added as they are and nothing normalises the sum (Pre-LN), and they are uncorrelated, as at
    initialisation, the shares of the last stream add up to 1 together with the embedding's; give that as one more
    branch. Where each sum is normalised (Post-LN) a branch shrinks on its way up, and its share of its own sum is the
    one to ask for. A branch that the model scales before adding is to be looked at behind the scale.
    lengths_B, keep_BT: as `stream_moments` takes them. Raises ValueError as `measure_stream` does, and where a branch
    has no stream.
    """
    beside = dict.fromkeys(branches, stream) if isinstance(stream, Point) else stream
    if missing := [name for name in branches if name not in beside]:
        raise ValueError(f"no stream to compare {', '.join(missing)} with")
    # A point that serves several branches is measured once, under the name of the first.
    names: dict[int, str] = {}
    for name in branches:
        names.setdefault(id(beside[name]), f"stream of {name}")
    places = {f"branch {name}": point for name, point in branches.items()}
    places |= {names[id(beside[name])]: beside[name] for name in branches}
    found = measure_stream(places, run, lengths_B=lengths_B, keep_BT=keep_BT)
    return {name: Share(found[f"branch {name}"].q, found[names[id(beside[name])]].q) for name in branches}
