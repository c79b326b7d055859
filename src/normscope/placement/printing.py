"""A placement's formula as text, printed from the formula itself."""

from dataclasses import replace

from .base import Placement, StackShape, State
from .naming import Naming, meanings
from .reading import Step, named_parts, parts, walk
from .symbol import Symbol, SymbolEnd, symbol_sublayer

DEFAULT_STACK = StackShape(kind="encoder", width=512, ffn_width=2048, heads=8, encoder_blocks=6, decoder_blocks=6)


def shown_stack(placement: type[Placement]) -> StackShape:
    """The stack that a formula is printed for where none is given: that of the first model it is defined for, or the
    encoder of an encoder-decoder."""
    if DEFAULT_STACK.model in placement.models:
        return DEFAULT_STACK
    if placement.models[0] == "decoder-only":
        return replace(DEFAULT_STACK, kind="decoder", encoder_blocks=0)
    return replace(DEFAULT_STACK, decoder_blocks=0)


def formula(placement: type[Placement], stack: StackShape | None = None) -> str:
    """What one sub-layer does to the state, or the whole block where the placement reaches across sub-layers.

    Where blocks differ, each kind with the blocks it holds for; the stack's ends where they add something.
    """
    return "; ".join(lines(placement, stack))


def lines(placement: type[Placement], stack: StackShape | None = None) -> list[str]:
    """The statements of `formula`."""
    stack = stack or shown_stack(placement)
    instance = placement(stack)
    state = started = instance.start(Symbol("x", (), stack.width), SymbolEnd())
    by_text: dict[tuple[str, ...], list[int]] = {}
    for block, step in enumerate(walk(instance, started), 1):
        by_text.setdefault(_block(instance, step), []).append(block)
        state = step.after
    found = _assignments(Symbol("x"), started, instance, first=True)
    for text, blocks in by_text.items():
        where = f"block{'s' if len(blocks) > 1 else ''} {ranges(blocks)}: " if len(by_text) > 1 else ""
        found += [where + line for line in text]
    output = instance.finish(named_parts(state, instance), SymbolEnd())
    if output.arguments:
        found += [*meanings([output]), f"y = {output}"]
    return found


def _block(placement: Placement, step: Step) -> tuple[str, ...]:
    """The assignments of one block."""
    if type(placement).block is not Placement.block:
        return tuple(_assignments(step.before, step.after, placement))
    by_kind = {}
    for sublayer in step.sublayers:
        after = placement.block(step.before, [symbol_sublayer(sublayer.site)])
        by_kind[sublayer.site.kind] = "; ".join(_assignments(step.before, after, placement))
    if len(set(by_kind.values())) == 1:
        return tuple(set(by_kind.values()))
    return tuple(f"{kind}: {text}" for kind, text in by_kind.items())


def _assignments(before: State, after: State, placement: Placement, *, first: bool = False) -> list[str]:
    """One assignment for each part that changes, after what they have in common; a history gains what is appended."""
    old = parts(before) if not first else parts(before) * len(parts(after))
    changed = [
        (name, was, now)
        for name, was, now in zip(placement.streams, old, parts(after), strict=True)
        if isinstance(now, tuple) or (not isinstance(was, tuple) and not now.same_name(was))
    ]
    whole = [now for _, _, now in changed if isinstance(now, Symbol)]
    naming = Naming()
    found = meanings(whole) + naming.common(whole)
    for name, was, now in changed:
        if isinstance(now, Symbol):
            found += naming.assignment(name, now)
            continue
        added = [str(value) for value in now if not value.same_name(Symbol(name))]
        if isinstance(was, tuple) and len(now) == len(was):
            found += [f"last {name} ← {value}" for value in added]
        else:
            found.append(f"{name} ← [{', '.join([*([] if first else [name]), *added])}]")
    return found


def ranges(blocks: list[int]) -> str:
    """[1, 2, 3, 6] -> "1-3, 6"."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
