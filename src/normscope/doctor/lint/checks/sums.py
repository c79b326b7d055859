"""Sums that are not there: a sub-layer whose output replaces the stream, is lost, or is never
computed.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import nn

from ....report.words import kind_name
from ...find.branches import BranchKind
from ...record import Stack
from ...result import Severity
from ...trace.forward import joined, norm_parameters
from ..patient import Patient, listed
from ..rule import Fault, rule
from ..structure import carries_norm, in_blocks, number_of

ENCODER, DECODER = ("attention", "feed_forward"), ("attention", "cross_attention", "feed_forward")


@rule("lost-residual")
def lost_residual(patient: Patient) -> Iterator[Fault]:
    """Sub-layers whose output is not added to the stream that they read."""
    yield from _cut(patient)
    for stack in patient.stacks:
        if carries_norm(patient, stack):
            yield Fault(
                where=stack.name,
                message=(
                    f"every skip of {stack.blocks} blocks carries the normed stream: the norm in "
                    "front of a sub-layer is written onto x before x + F(x), and no norm follows "
                    "the last sum"
                ),
                fix="keep x as it is for the sum: x + F(norm(x))",
            )
        number = number_of(patient.stacks, stack)
        if stack.continues is None and not any(
            other.continues == number for other in patient.stacks
        ):
            yield from _one_short(patient, stack)


def _cut(patient: Patient) -> Iterator[Fault]:
    places = []
    for stack in patient.stacks:
        if stack.continues is None or stack.cut_by is None:
            continue
        before, after = in_blocks(patient.stacks[stack.continues]), in_blocks(stack)
        # A network between two stacks that ends neither of their blocks early may be meant: a
        # projection, an adapter.
        if before and after and _ends_early(before[-1].kind, stack.cut_by, after[0].kind):
            places.append((kind_name(stack.cut_by), before[-1].name, after[0].name))
    if places:
        kinds = " and ".join(dict.fromkeys(kind for kind, _, _ in places))
        pairs = [
            f"between {before or 'its start'} and {after or 'its end'}"
            for _, before, after in places
        ]
        yield Fault(
            where=[after for _, _, after in places],
            message=(
                f"the output of {kinds} takes the place of the stream instead of being added to "
                f"it, {listed(pairs)}: {len(places)} of the sums that a stack of such blocks has "
                "are missing"
            ),
            fix="add the sub-layer's input to its output",
        )


def _ends_early(before: BranchKind, cut_by: BranchKind, after: BranchKind) -> bool:
    """Whether what computes a stack's source stands where a sub-layer of the block around it is
    missing.

    A convolution over places between two sub-layers may take no skip by design, as TinyViT's.
    """
    if cut_by == "convolution":
        return False
    if cut_by == "attention":
        return before != "feed_forward" or after != "attention"
    return before not in ("feed_forward", "convolution")


def _one_short(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Kinds of sub-layers that make whole blocks but for one or few that are missing, whose
    matrices are there.

    Without matrices that join no sum, nothing is missing: the blocks are others than they seem, as
    where shared experts are counted as feed-forwards of their own.
    """
    kinds = [sublayer.kind for sublayer in in_blocks(stack)]
    block = DECODER if "cross_attention" in kinds else ENCODER
    numbers = range(1, stack.blocks + 1)
    blocks = {
        tuple(sublayer.kind for sublayer in stack.sublayers if sublayer.block == n) for n in numbers
    }
    if (
        (stack.blocks > 1 and len(blocks) == 1)
        or len(kinds) <= len(block)
        or not set(kinds) <= set(block)
    ):
        return
    missing, place = [], 0
    for kind in kinds:
        while block[place % len(block)] != kind:
            missing.append(place)
            place += 1
        place += 1
    missing += range(place, place + -place % len(block))
    lacks = [block[at % len(block)] for at in missing]
    if missing and 4 * len(missing) <= len(kinds) + 1 and _are_there(patient, stack, lacks):
        said = [
            f"{kind_name(kind)} of block {at // len(block) + 1}"
            for at, kind in zip(missing, lacks, strict=True)
        ]
        # A decoder whose queries begin at zero, as DETR's, has nothing to add its first outputs to.
        begins_later = missing == list(range(len(missing))) and (
            block is DECODER or stack.starts_from_given
        )
        unless = (
            ", unless its stream begins there, at zero or from learnt rows" if begins_later else ""
        )
        # Where others have no name either, the blocks were not understood, and nothing is certain
        # of what is missing.
        understood = all(sublayer.placement for sublayer in in_blocks(stack))
        yield Fault(
            severity=Severity.ERROR if understood and not begins_later else Severity.INFO,
            where=stack.name,
            message=f"{listed(said)} joins no sum, though its likes in the other blocks do{unless}",
            fix="add the sub-layer's output to its input",
        )


def _are_there(patient: Patient, stack: Stack, missing: Sequence[str]) -> bool:
    """Whether the pass reads matrices that no sub-layer has, of the shapes that the likes of the
    missing ones have.
    """
    weights = patient.weights
    joined = {name for sublayer in patient.sublayers() for name in sublayer.measured.parameters}
    idle = joined | set(patient.observed.unused_parameters)
    spare = Counter(
        tuple(w.shape) for name, w in weights.items() if w.ndim > 1 and name not in idle
    )
    for kind, count in Counter(missing).items():
        likes = [s.measured.matrices for s in stack.sublayers if s.kind == kind]
        shapes = [
            Counter(tuple(weights[name].shape) for name in like if name in weights)
            for like in likes
        ]
        if not any(
            one and all(spare[shape] >= count * n for shape, n in one.items()) for one in shapes
        ):
            return False
    return True


@rule("unused-parameters")
def unused_parameters(patient: Patient) -> Iterator[Fault]:
    """Blocks and norms that are built and that the forward pass does not go through."""
    yield from _unregistered(patient)
    unused = set(patient.observed.unused_parameters)
    idle = _skipped_blocks(patient, unused) if unused else []
    others = [path for path in idle if not _has_a_like(patient, path, idle)]
    skipped = [path for path in idle if path not in others]
    uncalled = _never_called(patient, unused, idle) if unused else []

    def elsewhere(paths: Iterable[str]) -> list[str]:
        told = [*skipped, *uncalled]
        return [path for path in paths if not any(_within(path, module) for module in told)]

    for found, severity, said, fix in (
        (
            others,
            Severity.INFO,
            "of the modules in a row do nothing in this pass, and are built otherwise than those "
            "that do: perhaps they wait for inputs that were not given, such as images",
            "give inputs of every kind that the model takes",
        ),
        (
            skipped,
            Severity.ERROR,
            "of the modules in a row of likes do nothing: the forward pass reads none of their "
            "weights, while it reads those of the others",
            "look for a branch of the code that returns its input, such as a flag that no case "
            "matches",
        ),
        (
            uncalled,
            Severity.WARNING,
            "blocks are built and never called: the forward pass reads none of their weights, and "
            "takes no further input that they might wait for",
            "call them, or do not build them; a layer that others are copied from belongs in a "
            "local name",
        ),
        (
            elsewhere(_left_out(patient, unused)),
            Severity.WARNING,
            "sub-layers are built and left out: the forward pass reads none of their weights, "
            "while it reads those of their likes in the other blocks",
            "call them in these blocks too, or do not build them there",
        ),
        (
            _idle_matrices(patient, unused) if unused else [],
            Severity.WARNING,
            "of the matrices are built and never read, while those beside them are: another one "
            "stands where they are meant, or a step was left out",
            "look where each is called: a name that was copied (self.key for self.value), or an "
            "output projection or a gate that is missing",
        ),
        (
            elsewhere(_idle_norms(patient, unused)),
            Severity.WARNING,
            "norms are built and never applied: the forward pass reads none of their parameters",
            "apply them, or do not build them",
        ),
    ):
        if found:
            yield Fault(severity=severity, where=found, message=f"{len(found)} {said}", fix=fix)


def _idle_norms(patient: Patient, unused: set[str]) -> list[str]:
    """Norms none of whose parameters is read, where they are a stream's or stand in a module in
    use.
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
    """One or two matrices of a sub-layer that no block reads, and an output matrix beside the one
    in use.
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
    """Whether a module's weight has the shape of another one beside it."""
    shapes = {
        other: patient.weights[some[0]].shape for (at, other), some in names.items() if at == row
    }
    return (
        names[row, own][0].endswith(".weight") and list(shapes.values()).count(shapes[own]) > _TWO
    )


def _left_out(patient: Patient, unused: set[str]) -> list[str]:
    """Modules that nothing goes through, and that are sub-layers in most of the other blocks."""

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
    """Whether the module around a norm has matrices that are read: norms of queries and keys stand
    in attention.
    """
    around = name.rpartition(".")[0].rpartition(".")[0]
    beside = [
        n
        for n, p in patient.model.named_parameters()
        if p.ndim > 1 and around and _within(n, around)
    ]
    return bool(beside) and not any(n in unused for n in beside)


def _beside_what_rests(patient: Patient, path: str, unused: set[str]) -> bool:
    """Whether a module beside a norm has matrices, none of which is read: the norm is its own, as
    of a tower, or of cross-attention, for which no inputs were given."""
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
    """Modules "path.number" none of whose weights is read, beside others of that path some of whose
    are.
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
    """Blocks none of whose weights is read, where nothing was left out that they might wait for.

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
    """Of each module with matrices and a norm of a stream's width the names and shapes of its
    parameters, in the model's order.
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
    """Whether a module stands within another one of these."""
    return any(_within(path, module) for module in modules if module != path)


def _has_a_like(patient: Patient, path: str, skipped: Sequence[str]) -> bool:
    """Whether a module beside it that is used has parameters of the same names and shapes."""
    row = path.rpartition(".")[0] + "."
    built: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
    for name, parameter in patient.model.named_parameters():
        if name.startswith(row):
            place, _, own = name.removeprefix(row).partition(".")
            built.setdefault(row + place, set()).add((own, tuple(parameter.shape)))
    return any(built[other] == built.get(path) for other in built if other not in skipped)


def _within(path: str, module: str) -> bool:
    return path == module or path.startswith(module + ".")
