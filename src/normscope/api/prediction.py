"""Predicted curves as a result that can be read, drawn and shown in a notebook."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

from ..placement import named, registered
from ..report.chart import Panel, Series
from ..report.notebook import fragment, picture, table
from ..report.words import counted, learning_rate, significant
from ..settings.tables import spelled
from ..settings.validation import checked
from ..theory.doubts import Doubt
from ..theory.predict import ModelSetting, StackPrediction, Update, predict_many, predict_or_refuse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRADIENT_OF = "ffn_out"
"""The matrix whose gradient is drawn and tabled; the curves of all others are there as well."""


_UpdateName = Literal["sgd", "radam", "adam", "adamw", "lion", "muon", "random"]


class _ModelOptions(TypedDict, total=False):
    """Fields of `ModelSetting`, which says what they are and what they are by default."""

    stack: Literal["encoder", "decoder", "encoder-decoder"]
    blocks: int
    loops: int
    width: int
    ffn_width: int
    heads: int
    tokens: int
    source_tokens: int | None
    sequences: int
    vocabulary: int
    setting: str
    activation: Literal["relu", "gelu", "swiglu"]
    norm: Literal["layer-norm", "rms-norm", "dyt", "derf"]
    tied: bool
    dropout: float
    label_smoothing: float


class _UpdateOptions(_ModelOptions, total=False):
    """With the first update of a training, whose change is followed where it is given."""

    update: _UpdateName
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction:
    """What theory says of placements at initialisation.

    `prediction["pre-ln"].q` is a curve as a numpy array; of an encoder-decoder,
    `prediction["pre-ln", "decoder"].q`.
    """

    model: ModelSetting
    stacks: dict[str, dict[str, StackPrediction]]
    """By placement, then by stack: "encoder", "decoder" or both."""

    def __getitem__(self, key: str | tuple[str, str]) -> StackPrediction:
        """One stack under one placement. Raises KeyError for what was not predicted, and where the
        stack is left open and there are two."""
        placement, stack = key if isinstance(key, tuple) else (key, None)
        if placement not in self.stacks:
            raise KeyError(f"{placement!r} was not predicted; there are {', '.join(self.stacks)}")
        found = self.stacks[placement]
        if stack is None and len(found) > 1:
            raise KeyError(
                f"there are two stacks; ask for ({placement!r}, 'encoder') or ({placement!r}, "
                "'decoder')"
            )
        if stack is not None and stack not in found:
            raise KeyError(f"no stack {stack!r}; there is {', '.join(found)}")
        return found[stack or next(iter(found))]

    def plot(self) -> "Figure":
        """The stream beside the gradient over depth, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure(self._panels(), columns=self._columns())

    def svg(self) -> str:
        """The same picture as SVG text."""
        from ..report.chart_svg import panels_svg

        what = (
            "stream, gradients and change by one update"
            if self._update()
            else "stream and gradients"
        )
        return panels_svg(
            self._panels(), title=f"Predicted {what} over depth", columns=self._columns()
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values by placement: one stack's curves as they are, two by their names. What is
        not finite is None.
        """
        data = {
            name: {kind: _as_plain(one) for kind, one in found.items()}
            for name, found in self.stacks.items()
        }
        return {
            name: found if len(found) > 1 else next(iter(found.values()))
            for name, found in data.items()
        }

    def __str__(self) -> str:
        """What the terminal shows."""
        said = [line for words in doubts_in_words(self.stacks) for line in ["", *_lines_of(words)]]
        first = [
            line
            for words in [*_meaning(self.stacks), *_beyond(self.stacks)]
            for line in _lines_of(words)
        ]
        return "\n".join(
            [
                *first,
                "",
                *_table(self.stacks, self.model),
                *_change_table(self.stacks, self.model),
                *said,
            ]
        )

    def __repr__(self) -> str:
        return (
            f"Prediction({', '.join(self.stacks)}; {self.model.blocks} blocks of width "
            f"{self.model.width})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{named(name).title} ({stack})" if len(stacks) > 1 else named(name).title,
                *(significant(float(one.q[place])) for place in (0, -1)),
                *(significant(float(one.gradient_norm[GRADIENT_OF][place])) for place in (0, -1)),
            )
            for name, stacks in self.stacks.items()
            for stack, one in stacks.items()
        ]
        heads = (
            "placement",
            "E‖x_0‖² / d",
            "E‖x_L‖² / d",
            f"gradient of {GRADIENT_OF}, first block",
            "last block",
        )
        shown, doubts = (
            [picture(self.svg()), table(heads, rows)],
            [(words,) for words in doubts_in_words(self.stacks)],
        )
        return fragment([*shown, table(("where it is less sure",), doubts)] if doubts else shown)

    def _update(self) -> str:
        """What the change is of, in words; empty without one."""
        changes = [one.change for one in _labelled(self.stacks).values() if one.change is not None]
        return f"{changes[0].update}, rate {learning_rate(changes[0].rate)}" if changes else ""

    def _columns(self) -> int:
        return 3 if self._update() else 2

    def _panels(self) -> list[Panel]:
        """A row for each stack: streams, gradients and, where an update was asked for, what it
        changes.
        """
        kinds = list(dict.fromkeys(kind for stacks in self.stacks.values() for kind in stacks))
        return [
            panel
            for kind in kinds
            for panel in self._of_stack(kind, f", {kind}" if len(kinds) > 1 else "")
        ]

    def _of_stack(self, kind: str, of: str) -> Iterator[Panel]:
        streams, gradients, changes = list[Series](), list[Series](), list[Series]()
        for name, stacks in self.stacks.items():
            label, hue, one = named(name).title, len(streams), stacks[kind]
            for stream, curves in one.streams.items():
                streams.append(
                    _drawn(
                        f"{label}: {stream}" if len(one.streams) > 1 else label,
                        len(streams),
                        curves.q,
                    )
                )
            gradients.append(
                _drawn(streams[hue].label, hue, one.gradient_norm[GRADIENT_OF], first=1)
            )
            if one.change is not None:
                changes.append(_drawn(streams[hue].label, hue, one.change.stream))
        depth, size = "completed blocks", "E‖x‖² / d"
        yield Panel(title=f"stream{of}", xlabel=depth, ylabel=size, series=streams, log_y=True)
        norm = f"gradient norm of W2 ({GRADIENT_OF})"
        yield Panel(
            title=f"gradient{of}", xlabel="block", ylabel=norm, series=gradients, log_y=True
        )
        if changes:
            title = f"change by one update{of}: {self._update()}"
            yield Panel(title=title, xlabel=depth, ylabel="E‖δx‖² / d", series=changes, log_y=True)


def _drawn(label: str, hue: int, values: Iterable[float], *, first: int = 0) -> Series:
    """A curve for a logarithmic axis, which has no place for 0 and what is not finite."""
    y = [float(value) if 0 < value < math.inf else None for value in values]
    return Series(label=label, kind="predicted", hue=hue, x=range(first, first + len(y)), y=y)


@checked
def predict(*placements: str, **model: Unpack[_UpdateOptions]) -> Prediction:
    """What theory says of these placements at initialisation, without a model.

    model: fields of `ModelSetting`, such as blocks=48, stack="decoder" or setting="paper";
    `ffn_width` is the width where it is not given. With update="adam" (or sgd, radam, adamw, lion,
    muon, random), and a rate (1e-3 by default), every stack's `change` says how far the first
    update of a training moves it, to first order. Raises ValueError for an unknown placement, one
    that is not defined for such a model, or a setting that is not allowed.
    """
    if not placements:
        raise ValueError('give the name of a placement, such as predict("pre-ln", blocks=48)')
    known = {**_ModelOptions.__annotations__, **_UpdateOptions.__annotations__}
    unknown = sorted(set(model) - set(known))
    if unknown:
        raise TypeError(f"predict takes no {', '.join(unknown)}; it takes {', '.join(known)}")
    values: dict[str, Any] = {"ffn_width": model.get("width", ModelSetting().width), **model}
    update = update_of(values.pop("update", None), values.pop("rate", None))
    return predicted(placements, ModelSetting(**values), update)


def update_of(optimizer: str | None, rate: float | None) -> Update | None:
    """The update of these options; None without an optimiser. Raises ValueError for a rate of
    nothing.
    """
    if optimizer is None:
        if rate is not None:
            raise ValueError(
                f"rate={rate} is the rate of an update; name its optimiser, such as update=adam"
            )
        return None
    name = spelled(optimizer, get_args(_UpdateName))
    return Update(optimizer=name) if rate is None else Update(optimizer=name, rate=rate)


def every_prediction(
    model: ModelSetting, update: Update | None = None
) -> tuple[Prediction, dict[str, str]]:
    """Of all placements that are defined for the model; of those that theory does not follow,
    why.
    """
    kind = model.shape("decoder" if model.stack == "decoder" else "encoder").model
    names = [name for name, placement in registered().items() if kind in placement.models]
    found, refused = predict_or_refuse(names, model, update)
    return Prediction(model=model, stacks=found), {
        name: str(reason) for name, reason in refused.items()
    }


def predicted(
    placements: Iterable[str], model: ModelSetting, update: Update | None = None
) -> Prediction:
    """The prediction for a model's setting. Raises ValueError as `predict` does."""
    return Prediction(
        model=model, stacks=predict_many(list(dict.fromkeys(placements)), model, update)
    )


def _as_plain(one: StackPrediction) -> dict[str, Any]:
    return {
        name: _plain(value)
        for name, value in asdict(one).items()
        if name != "change" or value is not None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_plain(item) for item in (value if isinstance(value, tuple) else value.tolist())]


WIDEST = 80
"""Columns of what is printed, whatever prints it."""
_FIRST_ORDER = 0.1
"""Of a stream's mean square: what moves a stream by a third of its own length changes more than to
first order.
"""


def _number_table(
    heads: Sequence[object], rows: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """Lines of at most `WIDEST` columns; a name that is too long for its place stands above its
    numbers.
    """
    label = min(28, WIDEST - 10 * len(heads))
    yield f"{'placement':{label}}" + "".join(f"{head:>10}" for head in heads)
    for name, cells in rows:
        if len(name) >= label:
            yield name
        yield f"{name if len(name) < label else '':{label}}" + "".join(
            f"{one:>10}" for one in cells
        )


def _change_table(found: dict[str, dict[str, StackPrediction]], model: ModelSetting) -> list[str]:
    changed = {
        name: one.change
        for name, stacks in found.items()
        for one in stacks.values()
        if one.change is not None
    }
    if not changed:
        return []
    depths = [depth for depth in _depths(model.blocks) if depth]
    first = next(iter(changed.values()))
    by = f"by the first update ({first.update}, rate {first.rate:g})"
    streams = [
        (name, [f"{change.stream[depth]:.4g}" for depth in depths])
        for name, change in changed.items()
    ]
    ends = [
        (name, [f"{change.output:.4g}", f"{change.loss:.4g}"]) for name, change in changed.items()
    ]
    return [
        *("", f"E‖δx_l‖² / d {by}, after l blocks", *_number_table(depths, streams)),
        *(
            "",
            "by it, the change of the output and that of the loss in nats",
            *_number_table(["output", "loss"], ends),
        ),
    ]


def _beyond(found: dict[str, dict[str, StackPrediction]]) -> Iterator[str]:
    """Whose change is beyond first order, and to which rate it is not."""
    for name, one in ((name, one) for name, stacks in found.items() for one in stacks.values()):
        if one.change is None:
            continue
        moves = zip(one.change.stream, one.q, strict=True)
        times = max(float(moved / square) for moved, square in moves if square > 0)
        if times > _FIRST_ORDER:
            rate = learning_rate(one.change.rate * math.sqrt(_FIRST_ORDER / times), 1)
            yield (
                f"{name}: out of first order's range, so changes below are no forecasts: the "
                f"stream's is {significant(times, 2)} times its mean square. First order holds to "
                f"a rate of about {rate}"
            )


_MOST_SAID = 4
_LEVEL = 1.25
"""What differs by less than such a factor is told as level."""


def _meaning(found: dict[str, dict[str, StackPrediction]]) -> list[str]:
    """What the curves come to from the first block to the last: a sentence a stack, or one of
    many.
    """
    labelled = _labelled(found)
    squares, gradients = (
        [_course(curve) for curve in curves]
        for curves in zip(
            *((one.q, one.gradient_norm[GRADIENT_OF]) for one in labelled.values()), strict=True
        )
    )
    if len(labelled) > _MOST_SAID:
        level, flat = squares.count("stays"), gradients.count("stays")
        return [
            f"over depth E‖x‖² stays in {level} of {len(labelled)} stacks, and the gradient of W2 "
            f"in {flat}"
        ]
    return [
        f"{name}: over depth E‖x‖² {square} and the gradient of W2 {gradient}"
        for name, square, gradient in zip(labelled, squares, gradients, strict=True)
    ]


def _course(curve: Sequence[float]) -> str:
    """What becomes of a quantity from its first value to its last."""
    times = float(curve[-1]) / float(curve[0]) if curve[0] else math.nan
    if not 0 < times < math.inf:
        return "is 0 at first" if math.isnan(times) else "ends at 0" if times <= 0 else "overflows"
    if 1 / _LEVEL < times < _LEVEL:
        return "stays"
    return f"{'grows' if times > 1 else 'falls'} {significant(max(times, 1 / times), 2)}-fold"


def doubts_in_words(found: dict[str, dict[str, StackPrediction]]) -> list[str]:
    """A sentence for each reason not to trust curves as the rest is trusted, with the stacks and
    blocks it holds of.
    """
    of: dict[str, list[str]] = {}
    labelled = _labelled(found)
    for label, one in labelled.items():
        for doubt in one.doubts:
            if doubt.of == ("attention",):  # which tables and pictures do not show
                continue
            where = (
                f"s {doubt.first} to {doubt.last}"
                if doubt.first < doubt.last
                else f" {doubt.first}"
            )
            whole = (doubt.first, doubt.last) == (1, len(one.gradient_norm[GRADIENT_OF]))
            of.setdefault(_doubt_in_words(doubt, one), []).append(
                label if whole else f"{label} in block{where}"
            )
    return [
        words if where == [*labelled] else f"{words}: {', '.join(where)}"
        for words, where in of.items()
    ]


def _labelled(found: dict[str, dict[str, StackPrediction]]) -> dict[str, StackPrediction]:
    """Every stack by its placement's name, with its own behind it where there are two."""
    return {
        f"{name} ({stack})" if len(stacks) > 1 else name: one
        for name, stacks in found.items()
        for stack, one in stacks.items()
    }


def _lines_of(words: str) -> list[str]:
    return wrap(words, WIDEST, break_on_hyphens=False)


def _doubt_in_words(doubt: Doubt, one: StackPrediction) -> str:
    gradients = [name for name in doubt.of if name != "q"]
    every = [name for name, norms in one.gradient_norm.items() if norms.any()]
    matrices = "all matrices" if gradients == every else ", ".join(gradients)
    what = " and ".join(
        ["the stream"] * ("q" in doubt.of) + [f"gradients of {matrices}"] * bool(gradients)
    )
    if doubt.error is None:
        return f"undecided: {what}, since {doubt.reason}"
    least, most = (f"{100 * error:+.0f}".replace("-", "−") for error in doubt.error)
    return (
        f"less sure: {what}, {least} to {most} % off in models that were drawn, since "
        f"{doubt.reason}"
    )


def _depths(blocks: int) -> list[int]:
    """Completed blocks that tables show."""
    return sorted({0, 1, -(-blocks // 4), -(-blocks // 2), blocks})


def _table(found: dict[str, dict[str, StackPrediction]], model: ModelSetting) -> list[str]:
    depths, own = _depths(model.blocks * model.loops), _depths(model.blocks)
    squares, norms = [], []
    for label, prediction in _labelled(found).items():
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
        *wrap(about, WIDEST),
        *("", "E‖x_l‖² / d, after l blocks", *_number_table(depths, squares)),
        *("", gradients, *_number_table([depth or "" for depth in own], norms)),
    ]
