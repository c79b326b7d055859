"""The oversights in what passes through blocks: again, not at all, without a gradient, or at
random.

Blocks of one set of weights, positions that are added in every block, blocks that a configuration
has and the model has not, skips that are detached, and numbers that evaluation draws anew.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import torch
from torch import Tensor, nn

from ....measure.unchanged import random_state_kept
from ....report.words import counted, kind_name
from ...record import Stack, Sublayer
from ...result import Severity
from ..patient import Patient, is_installed, is_librarys, listed
from ..rule import Fault, rule, stack_rule
from ..structure import by_kind


@stack_rule("shared-blocks")
def shared_blocks(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Sub-layers of different blocks that are computed with the same tensors."""
    names = list(dict.fromkeys(one.name for one in stack.sublayers))
    if stack.passes > 1 and not _listed_twice(patient.model, names):
        own = counted(stack.blocks // stack.passes, "block")
        message = (
            f"{own} applied {stack.passes} times in turn with the same weights, {stack.blocks} in "
            "all"
        )
        yield Fault(severity=Severity.INFO, where=names, message=message)
        return
    yield from _shared_matrices(patient, stack)
    by_blocks: defaultdict[tuple[tuple[int, ...], bool], list[Sublayer]] = defaultdict(list)
    for likes in by_kind(stack):
        groups = _sharing(likes, patient.weights)
        # One size for all groups is a scheme: one layer for all, or each for two.
        evenly = (
            len({len(group) for group in groups}) == 1 and sum(map(len, groups)) == len(likes) > 1
        )
        for group in groups:
            if len(group) > 1:
                by_blocks[tuple(one.block for one in group), evenly].append(group[0])
    for (blocks, evenly), firsts in by_blocks.items():
        twice = _listed_twice(patient.model, [one.name for one in firsts])
        what = " and ".join(dict.fromkeys(kind_name(one.kind) for one in firsts))
        how = f"{listed(twice)} are one module, listed {len(twice)} times"
        yield Fault(
            severity=Severity.INFO
            if not twice and (evenly or _is_a_librarys_loop(patient.model, stack))
            else Severity.WARNING,
            where=twice or firsts,
            message=(
                f"{what} of blocks {', '.join(map(str, blocks))} (of {stack.blocks}) are computed "
                "with the same weights: "
                f"{how if twice else f'one layer is called {len(blocks)} times'}"
            ),
        )


def _is_a_librarys_loop(model: nn.Module, stack: Stack) -> bool:
    """Whether an installed package's class calls the sub-layers, so that calling some of them again
    is its design, as in a hierarchical reasoning model.
    """
    parts = [one.name.split(".") for one in stack.sublayers]
    # As many names at the beginning as all paths share.
    common = [names[0] for names in takewhile(_is_one, zip(*parts, strict=False))]
    owner = model.get_submodule(".".join(common))
    while common and isinstance(owner, nn.ModuleList | nn.Sequential):
        common = common[:-1]
        owner = model.get_submodule(".".join(common))
    is_row = isinstance(owner, nn.ModuleList | nn.Sequential)
    return is_installed(owner) and not is_row and "forward" not in vars(owner)


def _is_one(names: tuple[str, ...]) -> bool:
    return len(set(names)) == 1


def _shared_matrices(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A matrix that several blocks have in common, beside others of the same sub-layers that each
    block has for itself.
    """
    blocks: defaultdict[int, set[int]] = defaultdict(set)
    for one in stack.sublayers:
        for name in one.measured.matrices:
            if name in patient.weights:
                blocks[patient.weights[name].data_ptr()].add(one.block)
    found: dict[str, set[int]] = {}
    for one in stack.sublayers:
        names = [name for name in one.measured.matrices if name in patient.weights]
        common = [n for n in names if len(blocks[patient.weights[n].data_ptr()]) > 1]
        if common and len(common) < len(names):
            found |= {name: blocks[patient.weights[name].data_ptr()] for name in common}
    for name, several in found.items():
        yield Fault(
            severity=Severity.INFO if is_librarys(patient.model, [name]) else Severity.WARNING,
            where=name,
            message=f"{name} is one matrix of blocks {', '.join(map(str, sorted(several)))} (of "
            f"{stack.blocks}), while the other matrices of these sub-layers are each block's own",
            fix="build this matrix again in every block",
        )


def _sharing(likes: Sequence[Sublayer], weights: Mapping[str, Tensor]) -> list[list[Sublayer]]:
    """Returns the sub-layers by what they are computed with, where each has matrices at all."""
    groups: defaultdict[tuple[int, ...], list[Sublayer]] = defaultdict(list)
    for one in likes:
        used = tuple(
            sorted({weights[name].data_ptr() for name in one.measured.matrices if name in weights})
        )
        groups[used].append(one)
    return [] if () in groups else list(groups.values())


def _listed_twice(model: nn.Module, paths: Sequence[str]) -> list[str]:
    """Names, in one row of modules, of a single one that computes one of the paths, or stands
    around it.
    """
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        if name.rpartition(".")[2].isdigit():
            names[id(module)].append(name)
    for path in paths:
        for same in names.values():
            row = [name for name in same if name.rpartition(".")[0] == same[0].rpartition(".")[0]]
            if len(row) > 1 and any(f"{path}.".startswith(f"{name}.") for name in row):
                return row
    return []


@rule("altered-stream")
def altered_stream(patient: Patient) -> Iterator[Fault]:
    """Dropouts, curves and bounds that stand on the stream between its sums, in stacks with
    attention; and norms that write into it, so that their gain alone is the branch's."""
    cores = {use.at for stack in patient.stacks for use in stack.norm_uses if not use.parameters}
    overwritten = list(
        dict.fromkeys(name for name, number in patient.observed.writers if number in cores)
    )
    if len(overwritten) > 1:
        yield Fault(
            where=overwritten,
            message=(
                f"{len(overwritten)} norms write into the tensor that they are given, which the "
                "skip goes on with: it carries the normalised stream, and of all that the norm "
                "does the branch has its gain alone"
            ),
            fix="make a new tensor, x = x * y for x.mul_(y)",
        )
    altered = patient.observed.altered
    for what in dict.fromkeys(what for what, _, _ in altered):
        places = [(name, number) for one, name, number in altered if one == what]
        attends = any(
            one.kind == "attention"
            for _, number in places
            for one in patient.stacks[number].sublayers
        )
        if len(places) > 1 and attends:
            yield Fault(
                where=[name for name, _ in places],
                message=f"the sum of skip and branch goes through {_SAID.get(what, what)} "
                f"{len(places)} times between the first sub-layer and the last",
                fix=_FIXES.get(what, "add, and no more"),
            )


_SAID = {
    "dropout": "a dropout",
    "clamp": "a bound (clamp) that cuts some of its entries off",
    "factor": "a product with what is made of data, as a gate or a condition is,",
}

_FIXES = {
    "dropout": "take it of the branch alone: x + dropout(F(norm(x)))",
    "factor": "multiply the branch alone: x + gate * F(norm(x))",
}

_CONFIGURATIONS = ("config", "cfg", "args", "hparams", "conf")
_DEPTHS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "num_blocks",
    "n_blocks",
    "depth",
)
_DEPTHS_OF_DECODERS = ("decoder_layers", "num_decoder_layers", "n_decoder_layers")


@rule("depth-unlike-configuration")
def depth_unlike_configuration(patient: Patient) -> Iterator[Fault]:
    """Stacks whose row of modules has another length than the configuration beside it names."""
    rows = [_row(patient.model, stack) for stack in patient.stacks]
    stages = Counter(re.sub(r"\d+", "#", row) for row in set(rows) - {None} if row is not None)
    for stack, row in zip(patient.stacks, rows, strict=True):
        # Of stages in a row each has a depth of its own, and the configuration's number is another
        # thing.
        if row is None or stages[re.sub(r"\d+", "#", row)] > 1:
            continue
        crosses = any(one.kind == "cross_attention" for one in stack.sublayers)
        found = _configured(patient.model, row, (_DEPTHS_OF_DECODERS if crosses else ()) + _DEPTHS)
        if found is not None and found[1] != stack.blocks:
            if _built_by_its_class(patient.model, row) == stack.blocks:
                continue
            key, depth = found
            yield Fault(
                where=row,
                message=(
                    f"{row} has {stack.blocks} blocks, and the configuration says {key} = {depth}"
                ),
            )


def _row(model: nn.Module, stack: Stack) -> str | None:
    """Returns the path of the row of modules that are a stack's blocks one by one; None where no
    row is.
    """
    for likes in by_kind(stack):
        parts = [one.name.split(".") for one in likes]
        for place in range(min(map(len, parts))):
            rows = {".".join(path[:place]) for path in parts}
            numbers = [path[place] for path in parts]
            if (
                len(rows) == 1
                and all(n.isdigit() for n in numbers)
                and len(set(numbers)) == stack.blocks
            ):
                (row,) = rows
                length = sum(
                    name.isdigit() for name, _ in model.get_submodule(row).named_children()
                )
                return row if length == stack.blocks else None
    return None


def _configured(model: nn.Module, row: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Returns the key and number of blocks in the configuration of the innermost module around a
    row that has one.
    """
    parts = row.split(".")
    for end in range(len(parts), -1, -1):
        module = model.get_submodule(".".join(parts[:end]))
        for name in _CONFIGURATIONS:
            values = getattr(module, name, None)
            for key in keys:
                depth = (
                    values.get(key) if isinstance(values, Mapping) else getattr(values, key, None)
                )
                if isinstance(depth, int) and not isinstance(depth, bool):
                    return key, depth
    return None


def _built_by_its_class(model: nn.Module, row: str) -> int | None:
    """How many modules the class of the innermost module with a configuration puts into a row by
    that configuration; None where it cannot be built from it alone, and where a user wrote it.
    """
    parts = row.split(".")
    for end in range(len(parts) - 1, -1, -1):
        module = model.get_submodule(".".join(parts[:end]))
        config = getattr(module, "config", None)
        if config is None or not is_installed(module):
            continue
        try:
            with random_state_kept(), torch.device("meta"):
                again = type(module)(config)
            same = again.get_submodule(".".join(parts[end:]))
        except Exception:
            # A class that asks for more than its configuration, or another tree of modules.
            return None
        return sum(name.isdigit() for name, _ in same.named_children())
    return None


@rule("untied-head")
def untied_head(patient: Patient) -> Iterator[Fault]:
    """An output matrix of an embedding's shape that is none, where the configuration says that it
    is one.
    """
    named = (getattr(patient.model, name, None) for name in _CONFIGURATIONS)
    says = [
        one
        for one in named
        if getattr(one, "tie_word_embeddings", getattr(one, "weight_tying", None)) is True
    ]
    weights, seen = patient.weights, patient.observed
    tables = [weights[one.name] for one in seen.tables if one.name in weights]
    # Classes of transformers list what they tie; Pop2Piano's head is not among it.
    ties = getattr(patient.model, "_tied_weights_keys", None)
    for one in seen.output_matrices if says else ():
        own = weights.get(one.name) if ties is None or one.name in ties else None
        alike = [table for table in tables if own is not None and table.shape == own.shape]
        if alike and all(table is not own for table in alike):
            yield Fault(
                where=one.name,
                message="the configuration says that the output matrix is the embedding, and "
                f"{one.name} is a matrix of its own",
            )


@stack_rule("detached-skip")
def detached_skips(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Sub-layers whose skip is detached: an error where all of a stack's are, for nothing is to be
    gained by that.
    """
    places = [one for one in stack.sublayers if one.measured.skip_stopped]
    # The first sub-layer's comes from no other, and is not known to be.
    possible = max(len(stack.sublayers) - 1, 1)
    if places:
        blocks = dict.fromkeys(str(one.block) for one in places)
        yield Fault(
            severity=Severity.ERROR if len(places) >= possible else Severity.WARNING,
            where=places,
            message=(
                f"the skip of {len(places)} of {len(stack.sublayers)} sub-layers goes through a "
                f"detach, in block{'s' if len(blocks) > 1 else ''} {', '.join(blocks)}: no "
                "gradient passes the sum there but through the branch"
            ),
        )


@rule("positions-added-again")
def positions_again(patient: Patient) -> Iterator[Fault]:
    """Finds a tensor that is the same for every input, differs from token to token, and is added at
    several places of a stream.
    """
    for name, places in patient.observed.added_again:
        blocks = dict.fromkeys(str(_at(patient, number)[1]) for number in places)
        yield Fault(
            # One table may be looked up twice before the first block, as that of a box's left and
            # right edge.
            severity=Severity.WARNING if len(blocks) > 1 else Severity.INFO,
            where=name,
            message=f"{name or 'what is the same for every input'} is added to the stream "
            f"{len(places)} times: before or in block {', '.join(blocks)}",
        )


@rule("random-in-evaluation")
def random_in_evaluation(patient: Patient) -> Iterator[Fault]:
    """Data that is multiplied with numbers which a pass in evaluation mode draws anew."""
    draws = patient.observed.random_factors
    if draws:
        after, block = _at(patient, draws[0][1])
        yield Fault(
            where=[module for module, _ in draws],
            message=(
                "in evaluation mode, too, data is multiplied with numbers that every pass draws "
                f"again, at {len(draws)} place{'s' if len(draws) > 1 else ''}, first in block "
                f"{block}"
            )
            + (f", after {after.name}" if after is not None and after.name else ""),
        )


def _at(patient: Patient, number: int) -> tuple[Sublayer | None, int]:
    """Returns the last sub-layer that was added before a value was made, and the block in which
    that was.
    """
    sites = [
        (one.measured.place.addend, one)
        for one in patient.sublayers()
        if one.measured.place is not None
    ]
    before = [one for addend, one in sites if addend < number]
    later = [one for addend, one in sites if addend >= number]
    last = before[-1] if before else None
    block = (
        later[0].block
        if later and (last is None or later[0].kind != "attention")
        else last.block
        if last
        else 0
    )
    return last, block
