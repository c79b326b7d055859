"""The plan of a transplant, made from the doctor's record alone: which modules are blocks, and what
part each norm has.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from torch import nn

from ..doctor.record import Stack, Sublayer
from ..placement import Placement, StackShape, SublayerKind, named
from .following import TransplantRefused
from .later import Part, UnfitFormula
from .old_norms import OldNorm, final_norm, is_frozen, norms_of
from .program import Program, programs


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """One block of a stack."""

    module: str
    program: Program
    norms: tuple[OldNorm, ...]
    functional: bool
    """True where norms without a module of their own are among the block's old norms."""
    reused: Mapping[Part, str]
    """The formula's norms for which norms of the model are used, each with the module's name."""
    moved: frozenset[str]
    """The modules of reused norms whose part is not the one that they had."""
    idle: tuple[str, ...]
    """Norms of the model that nothing applies any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """One stack."""

    found: Stack
    placement: Placement
    kinds: tuple[SublayerKind, ...]
    blocks: tuple[BlockPlan, ...]
    final_norm: str
    """The model's own final norm where it is passed over; "" where it stays, or where there is
    none.
    """
    norms_like_the_models: bool
    """True where the placement can use the model's norms, and new norms made like them."""
    norms_embedding: bool
    """True where the transplant has to norm what enters the first block."""
    norms_end: bool | None
    """True where the transplant has to norm what leaves the last block, by a norm that the blocks
    do not have; None where either may be.
    """

    @property
    def is_same(self) -> bool:
        """True where the stack has the placement already."""
        return self.found.placement == self.placement.name

    @property
    def all_norms(self) -> list[str]:
        """Modules of the norms that are passed over in the model's own forward, each as often as it
        is used.
        """
        norms = [norm.module for block in self.blocks for norm in block.norms]
        return norms + ([self.final_norm] if self.final_norm else [])

    def is_inner(self, module: str) -> bool:
        """Tells whether nothing but F reads the norm of this module."""
        uses = [
            norm.inner for block in self.blocks for norm in block.norms if norm.module == module
        ]
        return all(uses) and module != self.final_norm


StackNames = str | Sequence[str] | None
"""The stack that is meant, several by their names, or None for the only one, or encoder and
decoder."""


def chosen_stacks(stacks: Sequence[Stack], stack: StackNames) -> list[int]:
    """Returns the numbers of the stacks that are meant.

    Raises TransplantRefused where there are several others.
    """
    names = [one.name for one in stacks]
    if stack is not None:
        asked = [stack] if isinstance(stack, str) else list(dict.fromkeys(stack))
        unknown = [name for name in asked if name not in names]
        if unknown or not asked:
            missing = repr(unknown[0]) if unknown else "that an empty list names"
            raise TransplantRefused(
                f"there is no stack {missing}; the model has {', '.join(map(repr, names))}"
            )
        return [names.index(name) for name in asked]
    pair = {n for n, one in enumerate(stacks) if one.memory is not None} | {
        one.memory for one in stacks
    }
    if len(stacks) > 1 and pair - {None} != set(range(len(stacks))):
        raise TransplantRefused(
            f"the model has several stacks: name one of {', '.join(map(repr, names))} by stack= "
            "(--stack), or several (a list in Python, --stack again)"
        )
    return list(range(len(stacks)))


def plan(
    model: nn.Module, stacks: Sequence[Stack], number: int, target: type[Placement], *, reset: bool
) -> StackPlan:
    """Plans how a stack comes under a placement.

    reset: whether weights are drawn anew, so that a norm may take another part than it had, if it
    is not frozen. Raises TransplantRefused with the reason and the place.
    """
    found = stacks[number]
    rows = _rows(found)
    kinds = _kinds(found, rows)
    shape = _shape(stacks, number, kinds, len(rows), target)
    placement = _placed(found, target, shape)
    norms = [norms_of(model, found, row) for row in rows]
    final = final_norm(found)
    same = found.placement == target.name
    wants_start, wants_finish = _ends_of(found.placement, shape)
    made = _followed(
        placement,
        kinds,
        # What the old placement asks for and the model has not is left out on purpose.
        given_start=same or found.embedding_norm or wants_start,
        given_finish=same or final is not None or wants_finish,
    )
    paths = _block_paths(model, found, rows, norms)
    _refuse_norms_outside(paths, norms)
    fits = same or (
        found.norm in ("layer-norm", "rms-norm") and target.default_norm == "layer-norm"
    )
    movable = _movable(model, norms) if reset else set()
    blocks = [
        _block(path, program, some, kinds, movable=movable, fits=fits)
        for path, program, some in zip(paths, made, norms, strict=True)
    ]
    start, finish = _ends_of(target.name, shape)
    passed = "" if final is None or same or _keeps_final(made[-1], finish) else final
    if passed:
        blocks[-1] = _with_final_norm(blocks[-1], passed, fits=fits)
    # An end that weighs the normed stream against itself, by a number that follows a schedule, may
    # be either.
    weighs = not finish and ("finish", "main") in dict(made[-1].norms)
    open_end = weighs or any(len(program.outputs) > 1 for program in made)
    wanted = found.final_norm if same else finish and (found.final_norm or not wants_finish)
    return StackPlan(
        found=found,
        placement=placement,
        kinds=kinds,
        blocks=tuple(blocks),
        final_norm=passed,
        norms_like_the_models=fits,
        norms_embedding=start and (found.embedding_norm or not wants_start),
        norms_end=None if open_end else wanted,
    )


def _placed(found: Stack, target: type[Placement], shape: StackShape) -> Placement:
    """Returns the placement of such a stack. Raises TransplantRefused where it is none for it."""
    try:
        return target(shape)
    except ValueError as error:
        raise TransplantRefused(f"{found.name or 'the model'}: {error}") from error


def _followed(
    placement: Placement, kinds: Sequence[SublayerKind], *, given_start: bool, given_finish: bool
) -> list[Program]:
    """Returns the programs of all blocks. Raises TransplantRefused for a formula that cannot be
    followed.
    """
    try:
        return programs(placement, kinds, given_start=given_start, given_finish=given_finish)
    except UnfitFormula as error:
        raise TransplantRefused(
            f"placement {placement.name!r} cannot be put on a model of yours: {error}"
        ) from error


def _refuse_norms_outside(paths: Sequence[str], norms: Sequence[Sequence[OldNorm]]) -> None:
    """Raises TransplantRefused where a block at a path reads a norm that is no module within it."""
    for path, row in zip(paths, norms, strict=True):
        for norm in row:
            if norm.module and not _is_around(path, norm.module):
                raise TransplantRefused(
                    f"{norm.module}: {path} reads this norm, which stands outside of it and cannot "
                    "be passed over there"
                )


def _movable(model: nn.Module, norms: Sequence[Sequence[OldNorm]]) -> set[str]:
    """Returns the norms that may take another part than they had: none of their uses is frozen."""
    every = {norm.module for row in norms for norm in row}
    fixed = {norm.module for row in norms for norm in row if is_frozen(model, norm)}
    return every - fixed


def _with_final_norm(last: BlockPlan, module: str, *, fits: bool) -> BlockPlan:
    """Returns the last block with the model's final norm as that of its program, or as one that
    nothing applies any more.
    """
    if fits and ("finish", "main") in dict(last.program.norms):
        return replace(last, reused={**last.reused, ("finish", "main"): module})
    return replace(last, idle=(*last.idle, module))


def _keeps_final(last: Program, ends_in_norm: bool) -> bool:
    """Tells whether the model's final norm stays in its place: the formula ends in a norm, which
    the program leaves to it.
    """
    return ends_in_norm and ("finish", "main") not in dict(last.norms)


def _ends_of(placement: str, shape: StackShape) -> tuple[bool, bool]:
    """Tells of a placement whether it norms the embedding, and whether its very last step norms the
    end of the stack.
    """
    if not placement:
        return False, False
    try:
        whole = programs(
            named(placement)(shape), shape.kinds, given_start=False, given_finish=False
        )
        bare = programs(named(placement)(shape), shape.kinds, given_start=True, given_finish=True)
    except ValueError:
        return False, False
    start = ("start", "main") in dict(whole[0].norms)
    return start, len(whole[-1].steps[-1]) > len(bare[-1].steps[-1])


def _rows(found: Stack) -> list[list[Sublayer]]:
    """Returns the sub-layers of every block. Raises TransplantRefused where they are wired in a way
    that is not followed.
    """
    rows: dict[int, list[Sublayer]] = {}
    for sublayer in found.sublayers:
        if sublayer.block:
            rows.setdefault(sublayer.block, []).append(sublayer)
        unknown = [
            term
            for term in sublayer.formula.segment.terms
            if term.kind not in ("norm", "branch", "sum")
        ]
        beside = len(sublayer.formula.segment.branches) > 1
        if unknown or beside or found.streams > 1:
            where = f"{sublayer.name or found.name}: {sublayer.formula} is wired"
            if sublayer.parallel:
                raise TransplantRefused(
                    f"{where} in parallel: its block adds both sub-layers after both have run, so "
                    "that none can read a sum with the other. Build it with one after the other, "
                    "where its configuration has a switch (use_parallel_residual=False of "
                    "GPT-NeoX, parallel_attn=False of Falcon), or give the block a forward of two "
                    "sums, x = x + attention(norm(x)); x = x + feed_forward(norm(x)): the weights "
                    "fit"
                )
            raise TransplantRefused(f"{where} {_why_not(sublayer, has_factors=bool(unknown))}")
    return [rows[block] for block in sorted(rows)]


_PLAIN = (
    "models with one plain sum a sub-layer can be transplanted, with norms on the stream, on the "
    "branch or on the sum"
)


def _why_not(sublayer: Sublayer, *, has_factors: bool) -> str:
    """Says why a wiring cannot be moved, and what would help."""
    if has_factors and "trained" in str(sublayer.formula):
        return (
            f"with factors; {_PLAIN}. A factor that is trained on each feature of the branch, as "
            "LayerScale's, can be multiplied into the rows of the sub-layer's last matrix and its "
            "bias, which changes no output; then put nn.Identity() in its place, or build the "
            "model without it (init_values=None in timm)"
        )
    if has_factors:
        return (
            f"with factors; {_PLAIN}. A constant on the branch can be multiplied into the "
            "sub-layer's last matrix; one on the skip cannot be moved"
        )
    return (
        f"with skips over sub-layers; {_PLAIN}. If your code has no such skip, it was misread, as "
        "recurrent mixers and shifts of tokens are: `normscope doctor TARGET` prints what was read "
        "of every sub-layer"
    )


def _kinds(found: Stack, rows: Sequence[Sequence[Sublayer]]) -> tuple[SublayerKind, ...]:
    known: dict[str, SublayerKind] = {
        "feed_forward": "feed_forward",
        "cross_attention": "cross_attention",
    }
    kinds: list[tuple[SublayerKind, ...]] = []
    for row in rows:
        kinds.append(tuple(known.get(one.kind, "attention") for one in row))
    allowed: tuple[tuple[SublayerKind, ...], ...] = (
        ("attention", "feed_forward"),
        ("attention", "cross_attention", "feed_forward"),
    )
    if len(set(kinds)) != 1 or kinds[0] not in allowed:
        lists = [", ".join(row) for row in kinds]
        every = "; ".join(dict.fromkeys(lists))
        raise TransplantRefused(
            f"{found.name or 'the model'}: blocks of {every}; placements are defined for blocks of "
            "attention and feed_forward, with cross_attention between them in a decoder"
        )
    return kinds[0]


def _shape(
    stacks: Sequence[Stack],
    number: int,
    kinds: tuple[SublayerKind, ...],
    blocks: int,
    target: type[Placement],
) -> StackShape:
    found = stacks[number]
    shape = StackShape(kind="encoder", width=found.width, encoder_blocks=blocks)
    if "cross_attention" in kinds:
        memory = blocks if found.memory is None else stacks[found.memory].blocks
        return replace(shape, kind="decoder", encoder_blocks=memory, decoder_blocks=blocks)
    readers = [one.blocks for one in stacks if one.memory == number]
    if readers:
        return replace(shape, decoder_blocks=readers[0])
    if "encoder-only" not in target.models and "decoder-only" in target.models:
        return replace(shape, kind="decoder", encoder_blocks=0, decoder_blocks=blocks)
    return shape


def _block_paths(
    model: nn.Module,
    found: Stack,
    rows: Sequence[Sequence[Sublayer]],
    norms: Sequence[Sequence[OldNorm]],
) -> list[str]:
    paths = []
    for row, some in zip(rows, norms, strict=True):
        inside = [one.name for one in row] + [norm.module for norm in some if norm.module]
        parts = zip(*(name.split(".") for name in inside), strict=False)
        path = ".".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, parts))
        while path and type(model.get_submodule(path)).forward is nn.Module.forward:
            path = path.rpartition(".")[0]
        paths.append(path)
    if len(set(paths)) < len(paths) or any(
        _is_around(one, other) for one in paths for other in paths
    ):
        raise TransplantRefused(
            f"{found.name or 'the model'}: its blocks are no modules of their own, or share their "
            f"weights ({paths[0] or 'the model'} holds several); what was read is "
            f"{rows[0][0].formula}. Make a block a module that takes and returns the stream; where "
            "the skip starts behind the norm, as MiniMax's does, build it with the skip in front"
        )
    return paths


def _is_around(outer: str, inner: str) -> bool:
    return outer != inner and (not outer or inner.startswith(f"{outer}."))


def _block(
    path: str,
    program: Program,
    norms: Sequence[OldNorm],
    kinds: Sequence[SublayerKind],
    *,
    movable: Collection[str],
    fits: bool,
) -> BlockPlan:
    """movable: norms that may take another part than they had."""
    free = [norm for norm in norms if norm.module]
    reused: dict[Part, str] = {}
    moved = set[str]()
    for same_role in (True, False):
        for part, role in program.norms:
            if part[0] not in kinds or part in reused:
                continue
            mine = []
            for norm in free:
                may_move = not same_role and norm.module in movable
                if norm.kind == part[0] and (norm.role == role or may_move):
                    mine.append(norm)
            if mine and fits:
                reused[part] = mine[0].module
                moved |= set() if same_role else {mine[0].module}
                free.remove(mine[0])
    return BlockPlan(
        module=path,
        program=program,
        norms=tuple(norm for norm in norms if norm.module),
        functional=any(not norm.module for norm in norms),
        reused=reused,
        moved=frozenset(moved),
        idle=tuple(norm.module for norm in free),
    )
