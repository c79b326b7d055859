"""Dilution: how much of the residual stream each sub-layer is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from .stream import Point, measure_stream


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
