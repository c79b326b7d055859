"""Part of the third law, of a model of pictures: pieces are pieces, and what is painted stands
where it was seen.

A picture whose pixels hold their own coordinates is given to the model: what its first matrix is
then given of a piece says which pixels it is made of.
"""

# B = pictures, C = colours, H = rows, W = columns, N = pieces

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .given import named_inputs, with_changed
from .trial import OutOfTime, Trial, Untried


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureUses:
    pieces: int = 0
    """The number of pieces that the first matrix reads; 0 where these are not known to be pixels as
    they are.
    """
    scattered: int = 0
    """The number of pieces whose pixels are no rectangle in all colours, and no square of some."""
    elsewhere: float = 0.0
    """Times that outputs change more at another part of the picture than at the one that was
    changed; 0 where the output is no picture."""


_LEAST = 8
"""Rows and columns."""
_MOST_COLOURS = 4


@torch.no_grad()
def picture_uses(trial: Trial) -> PictureUses:
    """Measures what a model makes of pictures. Raises Untried where no input is a picture (B, C, H,
    W).
    """
    given = named_inputs(trial.model, trial.inputs)
    name = next((name for name, x in given.items() if _is_picture(x)), "")
    if not name:
        raise Untried("no input is a picture")
    pieces, scattered = _pieces(trial, name, given[name])
    return PictureUses(
        pieces=pieces, scattered=scattered, elsewhere=_elsewhere(trial, name, given[name])
    )


def _is_picture(x: Tensor) -> bool:
    return (
        x.is_floating_point()
        and x.ndim == 4
        and x.shape[1] <= _MOST_COLOURS
        and min(x.shape[2:]) >= _LEAST
    )


class _FirstProduct(TorchFunctionMode):
    """The first input of a matrix that holds all of the numbers of a picture."""

    def __init__(self, code_BCHW: Tensor) -> None:
        super().__init__()
        self._numbers = code_BCHW.flatten().sort().values
        self.given: Tensor | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        x = args[0] if func is functional.linear and args else None
        if self.given is None and isinstance(x, Tensor) and self._holds_all(x):
            self.given = x.detach()
        return func(*args, **(kwargs or {}))

    def _holds_all(self, x: Tensor) -> bool:
        if x.numel() != self._numbers.numel():
            return False
        return torch.equal(x.detach().to(self._numbers).flatten().sort().values, self._numbers)


def _pieces(trial: Trial, name: str, x_BCHW: Tensor) -> tuple[int, int]:
    """Returns how many pieces the first matrix is given, and how many of them are strips, or of
    several places.
    """
    pictures, colours, rows, columns = x_BCHW.shape
    code = torch.arange(colours * rows * columns, dtype=torch.float32, device=x_BCHW.device)
    if x_BCHW.dtype != torch.float32 or len(code) >= _EXACT:
        return 0, 0
    code_BCHW = code.view(1, colours, rows, columns).expand(pictures, -1, -1, -1).contiguous()
    with _FirstProduct(code_BCHW) as first:
        try:
            trial.run(with_changed(trial.model, trial.inputs, {name: code_BCHW}))
        except OutOfTime:
            raise
        except Exception:  # of a picture that is none to the model
            return 0, 0
    if first.given is None:
        return 0, 0
    numbers = first.given.flatten(0, -2).long()
    each = numbers.shape[-1]
    wide, high, deep = (
        coordinate.amax(-1) - coordinate.amin(-1) + 1
        for coordinate in (
            numbers % columns,
            numbers // columns % rows,
            numbers // (columns * rows),
        )
    )
    is_whole = wide * high * deep == each
    # A channel may be cut by itself, into squares.
    is_piece = is_whole & ((deep == colours) | (wide == high))
    return len(numbers) // pictures, int((~is_piece).sum()) // pictures


_EXACT = 2**24
"""Numbers that float32 holds one by one."""


def _elsewhere(trial: Trial, name: str, x_BCHW: Tensor) -> float:
    """Returns how many times more outputs change in another part of the same size than in the
    changed one, which lies to the right of the top, and nowhere on the diagonal.
    """
    before = trial.scores()
    rows, columns = x_BCHW.shape[2:]
    if before is None or before.ndim != 4 or before.shape[2:] != x_BCHW.shape[2:]:
        return 0.0
    high, wide = rows // 4, columns // 4
    part = (..., slice(0, high), slice(columns - wide, columns))
    other_BCHW = x_BCHW.clone()
    other_BCHW[part] = x_BCHW[part].flip(0).roll(1, -1) + x_BCHW.std()
    after = trial.scores(with_changed(trial.model, trial.inputs, {name: other_BCHW}))
    if after is None or after.shape != before.shape:
        return 0.0
    change_HW = (after - before).double().square().sum((0, 1))
    own = float(change_HW[part].sum())
    means = functional.avg_pool2d(change_HW[None, None], (high, wide), stride=1)
    most = float(means.max()) * high * wide
    return most / own if own > 0 else 0.0
