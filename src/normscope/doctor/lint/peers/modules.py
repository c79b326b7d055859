"""The properties of a module beside its parameters that make what it computes: its class, its
numbers, its mode.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ..patient import Patient, is_installed
from ..rule import Fault, rule

_PLACE = re.compile(r"(?<![^.])\d+(?![^.])")
_PATTERNED = re.compile(
    r"window|slid|dilat|global|local|strid|layer|idx|index|depth|level|block|expert|number|_id$|_at$"
)
"""The names of numbers that designs change from block to block."""
_LEAST = 3
"""Blocks of which one can be unlike the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Odd:
    path: str
    block: int
    blocks: int
    what: str
    value: str
    usual: str


@rule("module-unlike-others")
def module_unlike_others(patient: Patient) -> Iterator[Fault]:
    """A number, a class or a mode of one block's module that all other blocks have otherwise."""
    found: dict[tuple[int, str, str], list[_Odd]] = {}
    for peers in _peers(patient.model):
        for one in _odd_in(patient.model, peers):
            found.setdefault((one.block, one.what, one.value), []).append(one)
    for some in found.values():
        one = some[0]
        message = (
            f"block {one.block} of {one.blocks}: {one.what} of {one.path} is {one.value}, and that "
            f"of the same module in every other block {one.usual}"
        )
        if len(some) > 1:
            message += f"; so it is of {len(some) - 1} more of this block"
        yield Fault(where=[odd.path for odd in some], message=message)


def _peers(model: nn.Module) -> Iterator[dict[int, tuple[str, nn.Module]]]:
    """The same module of every block, by the block's number: paths that differ in one number
    alone. Of several numbers in a path it is the one with most likes.
    """
    groups: defaultdict[str, dict[int, tuple[str, nn.Module]]] = defaultdict(dict)
    at: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        for number in _PLACE.finditer(path):
            key = f"{path[: number.start()]}#{path[number.end() :]}"
            groups[key][int(number[0])] = path, module
            at[path].append(key)
    for key, members in groups.items():
        own = {
            number: (path, module)
            for number, (path, module) in sorted(members.items())
            if max(at[path], key=lambda one: len(groups[one])) == key
        }
        if len(own) >= _LEAST:
            yield own


def _odd_in(model: nn.Module, peers: Mapping[int, tuple[str, nn.Module]]) -> Iterator[_Odd]:
    told: dict[int, dict[str, str]] = {
        number: _numbers(model, path, module) for number, (path, module) in peers.items()
    }
    kinds = {type(module) for _, module in peers.values()}
    names = dict.fromkeys(name for numbers in told.values() for name in numbers)
    # Numbers of two classes are of two kinds.
    for what in names if len(kinds) == 1 else (_CLASS, _MODE):
        values = [numbers.get(what) for numbers in told.values()]
        if None in values:
            continue
        counts = Counter(values).most_common()
        # One alone: where two differ from the rest it may be a design.
        if len(counts) != 2 or counts[1][1] != 1 or len(values) < _LEAST:
            continue
        (usual, _), (odd, _) = counts
        place = values.index(odd)
        # A first or a last block of another kind is a design.
        if what == _CLASS and place in (0, len(values) - 1):
            continue
        path, _ = [*peers.values()][place]
        like, _ = [*peers.values()][values.index(usual)]
        if what not in (_CLASS, _MODE) and _of_another_width(model, path, like):
            continue
        yield _Odd(
            path=path,
            block=place + 1,
            blocks=len(values),
            what=what,
            value=str(odd),
            usual=str(usual),
        )


_CLASS, _MODE = "the class", "the mode"


def _numbers(model: nn.Module, path: str, module: nn.Module) -> dict[str, str]:
    """Returns the class, mode and numbers by which a module computes, by names in words."""
    kind = type(module).__name__
    told = {_MODE: "training" if module.training else "evaluation"}
    if _is_norm_or_curve(module):
        told[_CLASS] = kind
    parent = model.get_submodule(path.rpartition(".")[0])
    if is_installed(parent) and is_installed(module):
        # Blocks of libraries are designs: of them what no design changes.
        names = [name for name in vars(module) if name in ("eps", "variance_epsilon", "p")]
    else:
        names = [name for name in vars(module) if not _PATTERNED.search(name)]
    for name in names:
        value = vars(module)[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (is_number or value is None) and not name.startswith("_"):
            told[f"`{name}`"] = "None" if value is None else f"{value:.4g}"
    return told


def _of_another_width(model: nn.Module, path: str, like: str) -> bool:
    """Tells whether the blocks of two modules, whose paths differ in one number, share fewer than
    half of the shapes of their weights: they belong to stages of two widths.
    """
    parts, others = path.split("."), like.split(".")
    ends = next(at for at, part in enumerate(parts, 1) if part != others[at - 1])
    own, usual = (_shapes(model, some[:ends]) for some in (parts, others))
    return 2 * (own & usual).total() < own.total()


def _shapes(model: nn.Module, block: list[str]) -> Counter[torch.Size]:
    return Counter(one.shape for one in model.get_submodule(".".join(block)).parameters())


def _is_norm_or_curve(module: nn.Module) -> bool:
    kind = type(module)
    is_norm = "norm" in kind.__name__.lower()
    return is_norm or kind.__module__ == "torch.nn.modules.activation"
