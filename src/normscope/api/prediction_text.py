"""Predicted curves in words and in tables, as the terminal shows them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from ..report.words import counted, learning_rate, significant
from ..theory.doubts import Doubt
from ..theory.mixing import Array
from ..theory.predict import ModelSetting, StackPrediction

PredictedStacks = dict[str, dict[str, StackPrediction]]
"""Predictions by placement, then by stack: "encoder", "decoder" or both."""

GRADIENT_OF = "ffn_out"
"""The matrix whose gradient is drawn and tabled; the curves of all others are there as well."""
_WIDEST = 80
"""Columns of what is printed, whatever prints it."""
_FIRST_ORDER = 0.1
"""The largest change to first order, as a share of a stream's mean square: a stream that moves by a
third of its own length changes by more.
"""
_MOST_SAID = 4
_LEVEL = 1.25
"""The factor below which a difference counts as level."""


def prediction_text(found: PredictedStacks, model: ModelSetting) -> str:
    """Returns what the terminal shows: what the curves come to, as tables, and where they are less
    sure.
    """
    lines = []
    for words in [*_meaning(found), *_beyond(found)]:
        lines += _lines_of(words)
    lines += ["", *_table(found, model), *_change_table(found, model)]
    for words in doubts_in_words(found):
        lines += ["", *_lines_of(words)]
    return "\n".join(lines)


def labelled(found: PredictedStacks) -> dict[str, StackPrediction]:
    """Returns every stack by its placement's name, with its own behind it where there are two."""
    stacks_by_label = {}
    for name, stacks in found.items():
        for stack, one in stacks.items():
            label = f"{name} ({stack})" if len(stacks) > 1 else name
            stacks_by_label[label] = one
    return stacks_by_label


def _lines_of(words: str) -> list[str]:
    return wrap(words, _WIDEST, break_on_hyphens=False)


def _number_table(
    heads: Sequence[object], rows: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """Lines of at most `_WIDEST` columns; a name that is too long for its place stands above its
    numbers.
    """
    width = min(28, _WIDEST - 10 * len(heads))

    def row(name: str, cells: Sequence[object]) -> str:
        return f"{name:{width}}" + "".join(f"{cell:>10}" for cell in cells)

    yield row("placement", heads)
    for name, cells in rows:
        if len(name) < width:
            yield row(name, cells)
        else:
            yield name
            yield row("", cells)


def _change_table(found: PredictedStacks, model: ModelSetting) -> list[str]:
    """Returns how far the first update moves every stream, the output and the loss; no lines
    without an update.
    """
    changed = {}
    for name, stacks in found.items():
        for one in stacks.values():
            if one.change is not None:
                changed[name] = one.change
    if not changed:
        return []
    depths = [depth for depth in _depths(model.blocks) if depth]
    first = next(iter(changed.values()))
    by = f"by the first update ({first.update}, rate {first.rate:g})"
    streams = []
    ends = []
    for name, change in changed.items():
        streams.append((name, [f"{change.stream[depth]:.4g}" for depth in depths]))
        ends.append((name, [f"{change.output:.4g}", f"{change.loss:.4g}"]))
    return [
        "",
        f"E‖δx_l‖² / d {by}, after l blocks",
        *_number_table(depths, streams),
        "",
        "by it, the change of the output and that of the loss in nats",
        *_number_table(["output", "loss"], ends),
    ]


def _beyond(found: PredictedStacks) -> Iterator[str]:
    """Yields, for each placement whose change is beyond first order, the rate up to which it is
    not.
    """
    for name, stacks in found.items():
        for one in stacks.values():
            if one.change is None:
                continue
            moves = zip(one.change.stream, one.q, strict=True)
            times = max(float(moved / square) for moved, square in moves if square > 0)
            if times > _FIRST_ORDER:
                rate = learning_rate(one.change.rate * math.sqrt(_FIRST_ORDER / times), 1)
                yield (
                    f"{name}: out of first order's range, so changes below are no forecasts: the "
                    f"stream's is {significant(times, 2)} times its mean square. First order holds "
                    f"to a rate of about {rate}"
                )


def _meaning(found: PredictedStacks) -> list[str]:
    """Returns the course of the curves from the first block to the last: a sentence for each stack,
    or one for many.
    """
    stacks = labelled(found)
    squares = [_course(one.q) for one in stacks.values()]
    gradients = [_course(one.gradient_norm[GRADIENT_OF]) for one in stacks.values()]
    if len(stacks) > _MOST_SAID:
        level, flat = squares.count("stays"), gradients.count("stays")
        return [
            f"over depth E‖x‖² stays in {level} of {len(stacks)} stacks, and the gradient of W2 "
            f"in {flat}"
        ]
    return [
        f"{name}: over depth E‖x‖² {square} and the gradient of W2 {gradient}"
        for name, square, gradient in zip(stacks, squares, gradients, strict=True)
    ]


def _course(curve: Array) -> str:
    """Returns the course of a quantity from its first value to its last, in words."""
    times = float(curve[-1]) / float(curve[0]) if curve[0] else math.nan
    if math.isnan(times):
        return "is 0 at first"
    if times <= 0:
        return "ends at 0"
    if times == math.inf:
        return "overflows"
    if 1 / _LEVEL < times < _LEVEL:
        return "stays"
    return f"{'grows' if times > 1 else 'falls'} {significant(max(times, 1 / times), 2)}-fold"


def doubts_in_words(found: PredictedStacks) -> list[str]:
    """Returns a sentence for each reason not to trust curves as the rest is trusted, with the
    stacks and blocks it holds of.
    """
    stacks = labelled(found)
    places_by_doubt: dict[str, list[str]] = {}
    for label, one in stacks.items():
        for doubt in one.doubts:
            # Tables and pictures do not show attention.
            if doubt.of != ("attention",):
                words = _doubt_in_words(doubt, one)
                places_by_doubt.setdefault(words, []).append(_place_in_words(label, doubt, one))
    sentences = []
    for words, places in places_by_doubt.items():
        everywhere = places == [*stacks]
        sentences.append(words if everywhere else f"{words}: {', '.join(places)}")
    return sentences


def _place_in_words(label: str, doubt: Doubt, one: StackPrediction) -> str:
    """Returns a stack's label, with the blocks that a doubt holds of where these are not all."""
    if (doubt.first, doubt.last) == (1, len(one.gradient_norm[GRADIENT_OF])):
        return label
    if doubt.first < doubt.last:
        return f"{label} in blocks {doubt.first} to {doubt.last}"
    return f"{label} in block {doubt.first}"


def _doubt_in_words(doubt: Doubt, one: StackPrediction) -> str:
    gradients = [name for name in doubt.of if name not in ("q", "change")]
    every = [name for name, norms in one.gradient_norm.items() if norms.any()]
    matrices = "all matrices" if gradients == every else ", ".join(gradients)
    doubted = []
    if "q" in doubt.of:
        doubted.append("the stream")
    if "change" in doubt.of:
        doubted.append("the change by the update")
    if gradients:
        doubted.append(f"gradients of {matrices}")
    what = " and ".join(doubted)
    if doubt.error is None:
        return f"undecided: {what}, since {doubt.reason}"
    least, most = (f"{100 * error:+.0f}".replace("-", "−") for error in doubt.error)
    return (
        f"less sure: {what}, {least} to {most} % off in models that were drawn, since "
        f"{doubt.reason}"
    )


def _depths(blocks: int) -> list[int]:
    """Returns the completed blocks that tables show."""
    return sorted({0, 1, -(-blocks // 4), -(-blocks // 2), blocks})


def _table(found: PredictedStacks, model: ModelSetting) -> list[str]:
    """Returns what the prediction is for, and its curves as tables."""
    depths, own = _depths(model.blocks * model.loops), _depths(model.blocks)
    squares, norms = [], []
    for label, prediction in labelled(found).items():
        for stream, curves in prediction.streams.items():
            # Only a placement with several streams has to say which one a row is of.
            of = f"{label}: {stream}" if len(prediction.streams) > 1 else label
            squares.append((of, [f"{curves.q[depth]:.4g}" for depth in depths]))
        gradient = prediction.gradient_norm[GRADIENT_OF]
        norms.append((label, [f"{gradient[d - 1]:.4g}" if d else "" for d in own]))
    looped = f" run {model.loops} times" if model.loops > 1 else ""
    about = (
        f"{model.setting} setting: {counted(model.blocks, 'block')}{looped}, width {model.width}, "
        f"feed-forward {model.ffn_width}, {counted(model.tokens, 'token')}, {model.vocabulary:,} "
        "entries"
    )
    gradients = f"gradient norm of {GRADIENT_OF} (W2), block l, mean loss of one sequence in nats"
    return [
        *wrap(about, _WIDEST),
        "",
        "E‖x_l‖² / d, after l blocks",
        *_number_table(depths, squares),
        "",
        gradients,
        *_number_table([depth or "" for depth in own], norms),
    ]
