"""Predicted curves as a result that can be read, drawn and shown in a notebook."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

from ..placement import named, registered
from ..report.chart import Panel, Series
from ..report.notebook import fragment, picture, table
from ..report.plain import plain_values
from ..report.words import learning_rate, significant
from ..settings.tables import spelled
from ..settings.validation import checked
from ..theory.predict import ModelSetting, StackPrediction, Update, predict_many, predict_or_refuse
from .prediction_text import (
    GRADIENT_OF,
    PredictedStacks,
    doubts_in_words,
    labelled,
    prediction_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UpdateName = Literal["sgd", "radam", "adam", "adamw", "lion", "muon", "random"]


class _ModelOptions(TypedDict, total=False):
    """Fields of `ModelSetting`, which says what they are and what they are by default."""

    stack: Literal["encoder", "decoder", "encoder-decoder"]
    blocks: int
    loops: int
    width: int
    ffn_width: int
    heads: int
    key_value_heads: int | None
    query_key_norm: Literal["none", "per-head", "whole"]
    position_encoding: Literal["sinusoidal", "rotary", "none"]
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
    """The options of a prediction with the first update of a training, whose change is followed
    where it is given.
    """

    update: _UpdateName
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction:
    """The prediction of theory for placements at initialisation.

    `prediction["pre-ln"].q` is a curve as a numpy array; of an encoder-decoder,
    `prediction["pre-ln", "decoder"].q`.
    """

    model: ModelSetting
    stacks: PredictedStacks
    """The predictions by placement, then by stack: "encoder", "decoder" or both."""

    def __getitem__(self, key: str | tuple[str, str]) -> StackPrediction:
        """Returns one stack under one placement. Raises KeyError for what was not predicted, and
        where the stack is left open and there are two.
        """
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
        """Returns the stream beside the gradient over depth, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure(self._panels(), columns=self._columns())

    def svg(self) -> str:
        """The same picture as SVG text."""
        from ..report.chart_svg import panels_svg

        what = "stream and gradients"
        if self._update():
            what = "stream, gradients and change by one update"
        return panels_svg(
            self._panels(), title=f"Predicted {what} over depth", columns=self._columns()
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values by placement: one stack's curves as they are, two by their names.
        What is not finite is None.
        """
        data: dict[str, Any] = {}
        for name, stacks in self.stacks.items():
            found = {kind: _as_plain(one) for kind, one in stacks.items()}
            data[name] = found if len(found) > 1 else next(iter(found.values()))
        return data

    def __str__(self) -> str:
        """Returns the text that the terminal shows."""
        return prediction_text(self.stacks, self.model)

    def __repr__(self) -> str:
        return (
            f"Prediction({', '.join(self.stacks)}; {self.model.blocks} blocks of width "
            f"{self.model.width})"
        )

    def _repr_html_(self) -> str:
        rows = []
        for name, stacks in self.stacks.items():
            for stack, one in stacks.items():
                title = named(name).title
                gradients = one.gradient_norm[GRADIENT_OF]
                ends = (one.q[0], one.q[-1], gradients[0], gradients[-1])
                row = [f"{title} ({stack})" if len(stacks) > 1 else title]
                row += [significant(float(value)) for value in ends]
                rows.append(row)
        heads = (
            "placement",
            "E‖x_0‖² / d",
            "E‖x_L‖² / d",
            f"gradient of {GRADIENT_OF}, first block",
            "last block",
        )
        shown = [picture(self.svg()), table(heads, rows)]
        doubts = [(words,) for words in doubts_in_words(self.stacks)]
        if doubts:
            shown.append(table(("where it is less sure",), doubts))
        return fragment(shown)

    def _update(self) -> str:
        """Returns the update whose change is predicted, in words; "" without one."""
        changes = [one.change for one in labelled(self.stacks).values() if one.change is not None]
        return f"{changes[0].update}, rate {learning_rate(changes[0].rate)}" if changes else ""

    def _columns(self) -> int:
        return 3 if self._update() else 2

    def _panels(self) -> list[Panel]:
        """Returns a row for each stack: streams, gradients and, where an update was asked for, what
        it changes.
        """
        kinds = list(dict.fromkeys(kind for stacks in self.stacks.values() for kind in stacks))
        panels: list[Panel] = []
        for kind in kinds:
            of = f", {kind}" if len(kinds) > 1 else ""
            panels += self._of_stack(kind, of)
        return panels

    def _of_stack(self, kind: str, of: str) -> Iterator[Panel]:
        streams: list[Series] = []
        gradients: list[Series] = []
        changes: list[Series] = []
        for name, stacks in self.stacks.items():
            title = named(name).title
            one = stacks[kind]
            first = len(streams)
            for stream, curves in one.streams.items():
                label = f"{title}: {stream}" if len(one.streams) > 1 else title
                streams.append(_drawn(label, len(streams), curves.q))
            # A placement's other curves look as its first stream does.
            label = streams[first].label
            gradients.append(_drawn(label, first, one.gradient_norm[GRADIENT_OF], first=1))
            if one.change is not None:
                changes.append(_drawn(label, first, one.change.stream))
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
    """Returns a curve for a logarithmic axis, which has no place for 0 and what is not finite."""
    y = [float(value) if 0 < value < math.inf else None for value in values]
    return Series(label=label, kind="predicted", hue=hue, x=range(first, first + len(y)), y=y)


@checked
def predict(*placements: str, **model: Unpack[_UpdateOptions]) -> Prediction:
    """Predicts, without a model, what these placements do at initialisation.

    The model:
        placements: names, such as pre-ln, one or more.
        stack: stack to predict: encoder, decoder or encoder-decoder.
        blocks: number of blocks of each stack.
        loops: how many times in turn the blocks are run, with the same weights each time.
        width: width of the model.
        ffn_width: inner width of the feed-forward. By default the width.
        heads: number of attention heads.
        key_value_heads: number of heads of keys and values, each read by as many heads of queries.
            By default as many as heads.
        query_key_norm: norms on queries and keys: none, per-head, or whole for all heads together.
        position_encoding: kind of positions: sinusoidal (added to the embedding, in settings whose
            embedding has rows), rotary (on queries and keys) or none.
        tokens: number of tokens of a sequence: of the target in an encoder-decoder.
        source_tokens: number of tokens of a source sequence, where it is not as long as the target.
        sequences: number of sequences of the batch that the loss is a mean over.
        vocabulary: number of rows of the output projection.
        setting: initial weights and embedding: theory, paper, another scheme such as normal-0.02,
            or as-placement for each source's own.
        activation: activation of the feed-forward: relu, gelu or swiglu.
        norm: kind of norm: layer-norm, rms-norm, dyt or derf.
        tied: whether the output projection is the input's embedding, in settings whose embedding
            has rows.
        dropout: share that is dropped, on the embedding and on every F(x).
        label_smoothing: share of the target that is spread over the vocabulary.

    The first update:
        update: also predict how far the first update moves every block, to first order: sgd, radam,
            adam, adamw, lion, muon, or random, which follows no gradient; every stack's `change`
            says it.
        rate: the rate of that update. By default 0.001.

    What is left out of the model is as `ModelSetting` has it. Raises ValueError for an unknown
    placement, one that is not defined for such a model, or a setting that is not allowed.
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
    """Returns the update of these options; None without an optimiser. Raises ValueError for a rate
    of nothing.
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
    """Returns the prediction of all placements that are defined for the model, and by name the
    reason for each that theory does not follow.
    """
    kind = model.shape("decoder" if model.stack == "decoder" else "encoder").model
    names = [name for name, placement in registered().items() if kind in placement.models]
    found, refused = predict_or_refuse(names, model, update)
    reasons = {name: str(reason) for name, reason in refused.items()}
    return Prediction(model=model, stacks=found), reasons


def predicted(
    placements: Iterable[str], model: ModelSetting, update: Update | None = None
) -> Prediction:
    """Returns the prediction for a model's setting. Raises ValueError as `predict` does."""
    once_each = list(dict.fromkeys(placements))
    return Prediction(model=model, stacks=predict_many(once_each, model, update))


def _as_plain(one: StackPrediction) -> dict[str, Any]:
    left_out = ("change",) if one.change is None else ()
    found: dict[str, Any] = plain_values(one, without=left_out)
    return found
