"""Blocks, sub-layers, norms and matrices that are built and that the forward pass does not go
through.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from ...result import Severity
from ...trace.forward import joined, norm_parameters
from ..patient import Patient
from ..rule import Fault, rule


class _Words(NamedTuple):
    """The words about modules or weights of one kind, after their number, and what to do."""

    severity: Severity
    said: str
    fix: str


_WAITING = _Words(
    Severity.INFO,
    "of the modules in a row do nothing in this pass, and are built otherwise than those that do: "
    "perhaps they wait for inputs that were not given, such as images",
    "give inputs of every kind that the model takes",
)
_SKIPPED = _Words(
    Severity.ERROR,
    "of the modules in a row of counterparts do nothing: the forward pass reads none of their "
    "weights, while it reads those of the others",
    "look for a branch of the code that returns its input, such as a flag that no case matches",
)
_UNCALLED = _Words(
    Severity.WARNING,
    "blocks are built and never called: the forward pass reads none of their weights, and takes no "
    "further input that they might wait for",
    "call them, or do not build them; a layer that others are copied from belongs in a local name",
)
_LEFT_OUT = _Words(
    Severity.WARNING,
    "sub-layers are built and left out: the forward pass reads none of their weights, while it "
    "reads those of their counterparts in the other blocks",
    "call them in these blocks too, or do not build them there",
)
_IDLE_MATRICES = _Words(
    Severity.WARNING,
    "of the matrices are built and never read, while those beside them are: another one stands "
    "where they are meant, or a step was left out",
    "look where each is called: a name that was copied (self.key for self.value), or an output "
    "projection or a gate that is missing",
)
_IDLE_NORMS = _Words(
    Severity.WARNING,
    "norms are built and never applied: the forward pass reads none of their parameters",
    "apply them, or do not build them",
)


@rule("unused-parameters")
def unused_parameters(patient: Patient) -> Iterator[Fault]:
    """Blocks and norms that are built and that the forward pass does not go through."""
    yield from _unregistered(patient)
    unused = set(patient.observed.unused_parameters)
    idle = _skipped_blocks(patient, unused) if unused else []
    waiting = [path for path in idle if not _has_a_like(patient, path, idle)]
    skipped = [path for path in idle if path not in waiting]
    uncalled = _never_called(patient, unused, idle) if unused else []
    matrices = _idle_matrices(patient, unused) if unused else []
    told = [*waiting, *skipped, *uncalled]

    def elsewhere(paths: Iterable[str]) -> list[str]:
        return [path for path in paths if not any(_within(path, module) for module in told)]

    for found, words in (
        (waiting, _WAITING),
        (skipped, _SKIPPED),
        (uncalled, _UNCALLED),
        (elsewhere(_left_out(patient, unused)), _LEFT_OUT),
        (matrices, _IDLE_MATRICES),
        (elsewhere(_idle_norms(patient, unused)), _IDLE_NORMS),
    ):
        if found:
            message = f"{len(found)} {words.said}"
            yield Fault(severity=words.severity, where=found, message=message, fix=words.fix)


def _idle_norms(patient: Patient, unused: set[str]) -> list[str]:
    """Returns the norms none of whose parameters is read, where they are a stream's or stand in a
    module in use.
    """
    widths = {stack.width for stack in patient.stacks}
    norms = {
        name.rpartition(".")[0]
        for name, parameter in norm_parameters(patient.model).items()
        if name in unused
        and parameter.ndim == 1
        and parameter.numel() > 1
        and (parameter.numel() in widths or _stands_in_use(patient, name, unused))
    }
    read = [name for name, _ in patient.model.named_parameters() if name not in unused]
    idle = [
        path for path in sorted(norms) if path and not any(_within(name, path) for name in read)
    ]
    return [path for path in idle if not _beside_what_rests(patient, path, unused)]


def _unregistered(patient: Patient) -> Iterator[Fault]:
    count = patient.observed.unregistered
    if count > len(patient.held - {id(weight) for weight in patient.model.parameters()}):
        yield Fault(
            where=type(patient.model).__name__,
            message=f"the pass reads {count} trainable parameters that are none of the model's: "
            "model.parameters(), state_dict() and to() do not know them, so that no optimiser "
            "made of these trains them",
            fix="keep modules in nn.ModuleList or nn.ModuleDict and not in a list or a dictionary",
        )


def _idle_matrices(patient: Patient, unused: set[str]) -> list[str]:
    """Returns one or two matrices of a sub-layer that no block reads, and an output matrix beside
    the one in use.
    """
    around: dict[str, dict[str, set[bool]]] = {}
    names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, weight in patient.model.named_parameters():
        parts = name.removesuffix(".weight").split(".")
        if (
            weight.ndim > 1
            and any(part.isdigit() for part in parts[:-1])
            and not parts[-1].isdigit()
        ):
            row, own = re.sub(r"\d+", "#", ".".join(parts[:-1])), parts[-1]
            around.setdefault(row, {}).setdefault(own, set()).add(name in unused)
            names[row, own].append(name)
    idle = [
        (row, own)
        for row, members in around.items()
        for own, states in members.items()
        # Several that rest together wait for something else, as Longformer's for tokens that look
        # at all others.
        if states == {True}
        and len(members) > (idle_there := sum(True in some for some in members.values()))
        and (idle_there == 1 or (idle_there == _TWO and _like_others(patient, names, row, own)))
    ]
    tables = patient.weights
    found = [name for key in idle for name in names[key]]
    outputs = [
        tables[one.name].shape for one in patient.observed.output_matrices if one.name in tables
    ]
    resting = {name for name in unused if tables[name].ndim > 1} - set(found)
    # Towers and tables that wait for inputs of another kind may have matrices of that shape, as
    # Longformer's have.
    waiting = {
        f"{path}.weight"
        for path, module in patient.model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    is_output = (
        len(resting) == 1
        and not resting & waiting
        and all(tables[name].shape in outputs for name in resting)
    )
    return found + sorted(resting) * is_output


_TWO = 2


def _like_others(
    patient: Patient, names: Mapping[tuple[str, str], list[str]], row: str, own: str
) -> bool:
    """Tells whether a module's weight has the shape of another one beside it."""
    shapes = {
        other: patient.weights[some[0]].shape for (at, other), some in names.items() if at == row
    }
    return (
        names[row, own][0].endswith(".weight") and list(shapes.values()).count(shapes[own]) > _TWO
    )


def _left_out(patient: Patient, unused: set[str]) -> list[str]:
    """Returns the modules that nothing goes through, and that are sub-layers in most of the other
    blocks.
    """

    def kind(path: str) -> str:
        return re.sub(r"\d+", "#", path)

    used = Counter(kind(sublayer.name) for sublayer in patient.sublayers())
    idle: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in patient.model.named_modules():
        names = [f"{path}.{name}" for name, _ in module.named_parameters()]
        if kind(path) in used and names and unused.issuperset(names):
            idle[kind(path)].append(path)
    return [
        path
        for name, paths in idle.items()
        if "#" in name and len(paths) < used[name]
        for path in paths
    ]


def _stands_in_use(patient: Patient, name: str, unused: set[str]) -> bool:
    """Tells whether the module around a norm has matrices that are read: norms of queries and keys
    stand in attention.
    """
    around = name.rpartition(".")[0].rpartition(".")[0]
    beside = [
        n
        for n, p in patient.model.named_parameters()
        if p.ndim > 1 and around and _within(n, around)
    ]
    return bool(beside) and not any(n in unused for n in beside)


def _beside_what_rests(patient: Patient, path: str, unused: set[str]) -> bool:
    """Tells whether the nearest module beside a norm has matrices of which none is read: the norm
    is its own, as of a tower, or of cross-attention, for which no inputs were given.
    """
    while path:
        around = path.rpartition(".")[0]
        start = around + "." * bool(around)
        read: dict[str, bool] = {}
        for name, parameter in patient.model.named_parameters():
            if parameter.ndim > 1 and name.startswith(start) and not _within(name, path):
                module = name.removeprefix(start).partition(".")[0]
                read[module] = read.get(module, False) or name not in unused
        if read:
            return not all(read.values())
        path = around
    return False


def _skipped_blocks(patient: Patient, unused: set[str]) -> list[str]:
    """Returns the modules "path.number" none of whose weights is read, beside others of that path
    some of whose are.
    """
    read: dict[str, bool] = {}
    for name, parameter in patient.model.named_parameters():
        parts = name.split(".")
        for end in range(1, len(parts)):
            if parts[end - 1].isdigit() and parameter.ndim >= 2:
                path = ".".join(parts[:end])
                read[path] = read.get(path, False) or name not in unused
    # An expert that no token was sent to is no mistake.
    branches = [
        sublayer.name for stack in patient.stacks for sublayer in stack.sublayers if sublayer.name
    ]
    found: list[str] = []
    for path, is_read in read.items():
        row = path.rpartition(".")[0]
        beside = any(
            other.rpartition(".")[0] == row and is_read_there
            for other, is_read_there in read.items()
        )
        if not is_read and beside and not any(_within(path, branch) for branch in branches):
            found += [path] if not any(_within(path, outer) for outer in found) else []
    return found


def _never_called(patient: Patient, unused: set[str], idle: Sequence[str]) -> list[str]:
    """Returns the blocks none of whose weights is read, where nothing was left out that they might
    wait for.

    A block has matrices and a norm of a stream's width. In a row each has a number; one that stands
    alone counts where it is built like one in use. idle: modules beside others that are read, which
    are told otherwise.
    """
    if patient.observed.takes_more:
        return []
    built = _blocks_built(patient)
    told = [*idle, *(one.name for one in patient.sublayers() if one.name)]
    unread = {
        path
        for path, weights in built.items()
        if unused.issuperset(joined(path, name) for name, _ in weights)
        and not any(_within(path, other) for other in told)
    }
    in_row = [path for path in built if path in unread and path.rpartition(".")[2].isdigit()]
    in_row = [path for path in in_row if not _is_inside(path, in_row)]
    in_use = [weights for path, weights in built.items() if path not in unread]
    alone = [
        path
        for path in built
        if path in unread and not _is_inside(path, unread) and built[path] in in_use
    ]
    return list(dict.fromkeys([*in_row, *alone]))


def _blocks_built(patient: Patient) -> dict[str, frozenset[tuple[str, tuple[int, ...]]]]:
    """Returns the names and shapes of the parameters of each module with matrices and a norm of a
    stream's width, in the model's order.
    """
    widths = {stack.width for stack in patient.stacks}
    norms = {n for n, p in norm_parameters(patient.model).items() if p.numel() in widths}
    found = {}
    for path, module in patient.model.named_modules():
        own = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
        matrices = [shape for shape in own.values() if len(shape) > 1]
        if path and len(matrices) >= _TWO and any(_within(name, path) for name in norms):
            found[path] = frozenset(own.items())
    return found


def _is_inside(path: str, modules: Iterable[str]) -> bool:
    """Tells whether a module stands within another one of these."""
    return any(_within(path, module) for module in modules if module != path)


def _has_a_like(patient: Patient, path: str, skipped: Sequence[str]) -> bool:
    """Tells whether a used module beside this one has parameters of the same names and shapes."""
    row = path.rpartition(".")[0] + "."
    built: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
    for name, parameter in patient.model.named_parameters():
        if name.startswith(row):
            place, _, own = name.removeprefix(row).partition(".")
            built.setdefault(row + place, set()).add((own, tuple(parameter.shape)))
    return any(built[other] == built.get(path) for other in built if other not in skipped)


def _within(path: str, module: str) -> bool:
    return path == module or path.startswith(module + ".")
