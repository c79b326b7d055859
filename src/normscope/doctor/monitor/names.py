"""Measurements under flat names that any logger takes."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..identify.found import FoundStack
from ..observe.observed import ObservedStack, norm_over


def named_measurements(
    stacks: Sequence[FoundStack], observed: Sequence[ObservedStack], gradients: Mapping[str, float]
) -> dict[str, float]:
    """Measurements as `normscope/<stack>/block_<number>/<kind>/<quantity>`, and `normscope/<stack>/<quantity>`.

    Quantities of a sub-layer are `stream_square`, `share`, `correlation` and `gradient_norm`, of a stack
    `source_square` and `end_square`, all as `ObservedSublayer` and `ObservedStack` have them; gradient norms are taken
    of `gradients`, by parameter, over the sub-layer's matrices that have one. What is not known has no name.
    """
    found: dict[str, float | None] = {}
    for name, stack, seen in zip(_stack_names(stacks), stacks, observed, strict=True):
        found[f"normscope/{name}/source_square"] = seen.source_square
        found[f"normscope/{name}/end_square"] = seen.end_square
        for place, sublayer in zip(_sublayer_names(stack), seen.sublayers, strict=True):
            at = f"normscope/{name}/{place}"
            found[f"{at}/stream_square"] = sublayer.stream_square
            found[f"{at}/share"] = sublayer.share
            found[f"{at}/correlation"] = sublayer.correlation
            found[f"{at}/gradient_norm"] = norm_over(sublayer.matrices, gradients)
    return {name: value for name, value in found.items() if value is not None}


def _stack_names(stacks: Sequence[FoundStack]) -> list[str]:
    """The stack's path in the model, `stack` for the model itself; several of one name are numbered."""
    return _numbered([stack.name or "stack" for stack in stacks])


def _sublayer_names(stack: FoundStack) -> list[str]:
    digits = max(2, len(str(stack.blocks)))
    return _numbered([f"block_{sub.block:0{digits}}/{sub.kind}" for sub in stack.sublayers])


def _numbered(names: Sequence[str]) -> list[str]:
    """The second `a` is `a_2`, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
