"""Measurements under flat names that any logger takes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..doctor.record import Stack, SublayerMeasurements, norm_over
from .inner import Inner
from .steps import Moved

DEAD_SHARE = 1e-6
"""Energy ratio below which a branch changes the stream by less than a thousandth of it: as good as nothing."""
SATURATED = 0.98
"""Share of hidden units that stand still, and 1 less attention's relative entropy, from which a sub-layer counts as
saturated."""


def named_measurements(
    stacks: Sequence[Stack],
    inner: Sequence[Inner],
    gradients: Mapping[str, float],
) -> dict[str, float]:
    """Measurements as `normscope/<stack>/block_<number>/<kind>/<quantity>`, and `normscope/<stack>/<quantity>`.

    Quantities of a sub-layer are `stream_square`, `share`, `correlation` and `gradient_norm`, as the record has
    them, `attention_entropy` and `idle_units`; of a stack `source_square`, `end_square`, `end_correlation`,
    `dead_sublayers` and `saturated_sublayers`, the last two being counts. Gradient norms are taken of `gradients`, by
    parameter, over the sub-layer's matrices that have one. What is not known has no name.
    """
    found: dict[str, float | None] = {}
    for name, stack, inside in zip(stack_names(stacks), stacks, inner, strict=True):
        found[f"normscope/{name}/source_square"] = stack.source_square
        found[f"normscope/{name}/end_square"] = stack.end_square
        found[f"normscope/{name}/end_correlation"] = inside.end_correlation
        dead = saturated = 0
        places = zip(sublayer_names(stack), _measured(stack), inside.entropies, inside.idle, strict=True)
        for place, sublayer, entropy, idle in places:
            at = f"normscope/{name}/{place}"
            gradient = norm_over(sublayer.matrices, gradients)
            found[f"{at}/stream_square"] = sublayer.stream_square
            found[f"{at}/share"] = sublayer.share
            found[f"{at}/correlation"] = sublayer.correlation
            found[f"{at}/gradient_norm"] = gradient
            found[f"{at}/attention_entropy"] = entropy
            found[f"{at}/idle_units"] = idle
            dead += sublayer.share < DEAD_SHARE or gradient == 0
            saturated += (entropy is not None and 1 - entropy >= SATURATED) or (idle or 0.0) >= SATURATED
        found[f"normscope/{name}/dead_sublayers"] = float(dead)
        found[f"normscope/{name}/saturated_sublayers"] = float(saturated)
    return {name: value for name, value in found.items() if value is not None}


def named_updates(stacks: Sequence[Stack], moved: Moved) -> dict[str, float]:
    """`update_norm` and `update_ratio` of every sub-layer's matrices: what a step added, and that over what they were.

    A ratio to matrices that are 0 has no name.
    """
    found = {}
    for at, matrices in _sublayers(stacks):
        update, weights = norm_over(matrices, moved.update), norm_over(matrices, moved.before)
        if update is not None:
            found[f"{at}/update_norm"] = update
        if update is not None and weights:
            found[f"{at}/update_ratio"] = update / weights
    return found


def _measured(stack: Stack) -> list[SublayerMeasurements]:
    return [sublayer.measured for sublayer in stack.sublayers]


def _sublayers(stacks: Sequence[Stack]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The name of every sub-layer with those of its matrices."""
    for name, stack in zip(stack_names(stacks), stacks, strict=True):
        for place, measured in zip(sublayer_names(stack), _measured(stack), strict=True):
            yield f"normscope/{name}/{place}", measured.matrices


def stack_names(stacks: Sequence[Stack]) -> list[str]:
    """The stack's path in the model, `stack` for the model itself; several of one name are numbered."""
    return _numbered([stack.name or "stack" for stack in stacks])


def sublayer_names(stack: Stack) -> list[str]:
    """`block_03/attention` for each, in order."""
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
