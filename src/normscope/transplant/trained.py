"""The signs that a model has been trained, whose weights are then not drawn again by default.

What is asked are the blocks alone, whose weights a transplant would draw. Every sign is one that
initial weights do not give; that none is found proves nothing, so that what was decided, and why,
is told with the result.
"""

import contextlib
import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..doctor.trace.forward import joined
from ..measure.unchanged import random_state_kept
from .plan import StackPlan

_LEAST_SIDE = 16
"""The smallest side of a matrix whose largest singular value is examined: that of smaller ones
strays far by chance.
"""
_STRAY = 8.0
"""The largest excess that counts as chance, in units of the law of Tracy and Widom, to which the
square of that value tends (Johnstone 2001): independent entries reach it about three times in 10^7.
"""
_STEPS = 30
"""The steps of the power iteration, which never overestimates the largest singular value."""
_DEVIATIONS = 8.0
"""Beyond which a matrix's size is not one that its own initialisation draws."""


def sign_of_training(model: nn.Module, plans: Sequence[StackPlan]) -> str:
    """Returns the reason why the weights of the blocks are not initial ones, in words; "" where
    nothing shows it.

    In this order: parameters of blocks that are frozen; weights that transformers loaded from a
    checkpoint; norms whose gains or shifts differ from feature to feature; weights of another kind
    than the model's own `_init_weights` gives them; matrices with a direction that independent
    entries do not have.
    """
    blocks = [block.module for one in plans for block in one.blocks]
    return (
        _frozen(model, blocks)
        or _loaded(model, blocks)
        or _uneven(model, [name for one in plans for name in one.all_norms])
        or _unlike_own_start(model, [blocks[0], blocks[-1]])
        or _directed(model, [blocks[0], blocks[-1]])
    )


def _parameters(model: nn.Module, paths: Sequence[str]) -> Iterator[tuple[str, nn.Parameter]]:
    for path in dict.fromkeys(paths):
        for name, parameter in model.get_submodule(path).named_parameters():
            yield joined(path, name), parameter


def _frozen(model: nn.Module, blocks: Sequence[str]) -> str:
    every = dict(_parameters(model, blocks))
    names = [name for name, one in every.items() if not one.requires_grad]
    if not names:
        return ""
    return (
        f"{len(names)} of the {len(every)} parameters of its blocks are frozen, such as {names[0]}"
    )


def _loaded(model: nn.Module, blocks: Sequence[str]) -> str:
    for name, one in _parameters(model, blocks):
        # transformers marks what it has read from a file; vectors are marked by us, too.
        if one.ndim > 1 and getattr(one, "_is_hf_initialized", False):
            return f"transformers loaded {name} from a checkpoint"
    return ""


def _uneven(model: nn.Module, norms: Sequence[str]) -> str:
    for name, one in _parameters(model, norms):
        if one.numel() > 1 and not one.is_meta and not is_even(one):
            return f"the entries of {name} differ, and a norm starts with equal ones"
    return ""


def is_even(x: Tensor) -> bool:
    """Tells whether all entries are the same."""
    return bool((x.detach() == x.detach().flatten()[0]).all())


def _unlike_own_start(model: nn.Module, blocks: Sequence[str]) -> str:
    for path in dict.fromkeys(blocks):
        fresh = _own_start(model, path)
        for name, one in model.get_submodule(path).named_parameters():
            if fresh is None or one.is_meta or not one.numel():
                continue
            start, full = fresh.get_parameter(name), joined(path, name)
            if is_even(start) and not is_even(one):
                return (
                    f"the entries of {full} differ, and the model's own initialisation makes them "
                    "equal"
                )
            if not is_even(one) and _is_other_size(one, start):
                return (
                    f"the entries of {full} are of size {_size(one):.3g}, and the model's own "
                    f"initialisation draws them of size {_size(start):.3g}"
                )
    return ""


def _own_start(model: nn.Module, path: str) -> nn.Module | None:
    """Returns a copy of a block, initialised by the model of transformers around it; None where
    there is none, or where it cannot be.

    Of other models such a method may be a part of what they do: nanoGPT draws some anew after it.
    """
    around = [path.rsplit(".", n)[0] for n in range(path.count(".") + 1)]
    owners = [model.get_submodule(one) for one in [*around, ""]]
    own = next((one for one in owners if _is_of_transformers(one)), None)
    if own is None:
        return None
    with contextlib.suppress(Exception), random_state_kept(), torch.no_grad():
        made = copy.deepcopy(model.get_submodule(path))
        for module in reversed([*made.modules()]):  # children come before what holds them
            own._init_weights(module)  # type: ignore[operator]
        return made
    return None


def _is_of_transformers(module: nn.Module) -> bool:
    library = type(module).__module__.partition(".")[0]
    return library == "transformers" and callable(getattr(module, "_init_weights", None))


def _size(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def _is_other_size(one: Tensor, start: Tensor) -> bool:
    """Tells whether two draws of one law would hardly differ so much in size: the root mean square
    of n entries strays by 1/√(2n).
    """
    strays = _DEVIATIONS * (2 * one.numel()) ** -0.5
    small, large = sorted((_size(one), _size(start)))
    return bool(large > (1 + 0.02 + 2 * strays) * small)


def _directed(model: nn.Module, blocks: Sequence[str]) -> str:
    for name, one in _parameters(model, blocks):
        if one.ndim != 2 or one.is_meta or min(one.shape) < _LEAST_SIDE:
            continue
        if not one.is_floating_point() or is_even(one):
            continue
        times = _largest(one) / _largest_by_chance(*one.shape)
        if times > 1:
            return (
                f"the largest singular value of {name} is {times:.2f} times what independent "
                "entries reach by chance"
            )
    return ""


def _largest(matrix: Tensor) -> float:
    """Returns the largest singular value, with rows and then columns brought to entries of size 1:
    parts of one matrix may be drawn in different sizes.
    """
    w = matrix.detach().float()
    for dimension in (1, 0):
        w = w / w.square().mean(dimension, keepdim=True).sqrt().clamp(min=1e-30)
    x = torch.randn(w.shape[1], generator=torch.Generator().manual_seed(0)).to(w)
    for _ in range(_STEPS):
        x = nn.functional.normalize(w.mT @ (w @ x), dim=0)
    return float((w @ x).norm())


def _largest_by_chance(rows: int, columns: int) -> float:
    """Returns the largest singular value that a matrix of independent entries of variance 1 has by
    chance.
    """
    edge = rows**0.5 + columns**0.5
    unit = (rows**-0.5 + columns**-0.5) ** (1 / 3)
    return float((edge**2 + _STRAY * edge * unit) ** 0.5)
