"""Figure 3's panels as the paper lays them out, and the figures beside them."""

from collections.abc import Callable, Sequence

import numpy as np

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate
from normscope.report.chart import Kind, Panel, Series

from ..engine.page import StudyFigure
from .claims import PUBLISHED
from .config import PLACEMENTS, POST, PRE, Condition
from .measure import MATRICES, PRINTED, STACKS
from .numbers import Layers, Numbers, without_noise
from .prediction import Predictions, last_predicted

_PLACEMENT_HUES = {POST: 0, PRE: 1}
_AFTER_HUE, _CONDITION_HUE = 2, 3
_EDGES = ("mean", "low", "high")
_CLAIMED: dict[str, tuple[str, str, Callable[[float, float], float]]] = {
    PRE: ("c", "the paper's order 1/√L", lambda deeper, first: first / deeper**0.5),
    POST: ("d", f"the paper's {PUBLISHED}", lambda deeper, first: PUBLISHED),
}
"""Letter of the panel, and what the paper says: from how many times deeper, and our first value."""


def figures(numbers: Numbers, predictions: Predictions, layers: Condition, trained: str) -> list[StudyFigure]:
    """layers: the condition of panels (a) and (b). trained: what the model that went through the warm-up is."""
    found = [
        StudyFigure.of_panels(
            name="figure_3",
            title="Figure 3, in the paper's layout",
            caption="Norms of gradients at initialisation. (a), (b): of the gradient averaged over mini-batches, layer "
            "by layer (e: encoder, d: decoder). (c), (d): of the last W₂, by the number of blocks in each stack. Bands "
            "are 95 % intervals over seeds. The paper's own curves are known by what its text says of them: around "
            f"{PUBLISHED} in (d), and Theorem 1's order 1/√L in (c), drawn through our first value.",
            panels=[_layers_panel(numbers, predictions, layers, matrix, trained) for matrix in MATRICES]
            + [_depth_panel(numbers, predictions, placement) for placement in (PRE, POST)],
            told="Gradient norms by layer and by depth, Post-LN and Pre-LN",
            wide=True,
        ),
        StudyFigure.of_panels(
            name="noise",
            title="What averaging over batches removes",
            caption="Three sizes of one gradient, of W₂: the mean over batches of its norm; the norm of its mean over "
            "batches, which the paper shows; and the latter with the noise that the average still holds removed, "
            "which is the limit of more and more batches.",
            panels=[_noise_panel(numbers, placement) for placement in PLACEMENTS],
            told="Mean of norms and norm of the mean, W₂",
            wide=True,
        ),
    ]
    if numbers.after:
        panels = [_warm_up_panel(numbers, matrix) for matrix in MATRICES]
        found.append(
            StudyFigure.of_panels(
                name="warm_up",
                title="Post-LN before and after the warm-up",
                caption=f"Both of the same model, {trained}, on the same batches.",
                panels=panels,
                told="Gradient norms of Post-LN before and after the warm-up",
                wide=True,
            )
        )
    return found


def _layers_panel(numbers: Numbers, predictions: Predictions, condition: Condition, matrix: str, trained: str) -> Panel:
    series = []
    for placement, title in PLACEMENTS.items():
        hue = _PLACEMENT_HUES[placement]
        measured = numbers.layers[placement]["norm_of_mean"]
        series.append(_over_layers(title, hue, measured, matrix))
        theory = predictions[condition, placement, numbers.blocks[0]].norm_of_mean
        series.append(_over_layers(f"{title}, predicted", hue, theory, matrix, kind="predicted"))
    if numbers.after:
        label = f"Post-LN after the warm-up ({trained})"
        series.append(_over_layers(label, _AFTER_HUE, numbers.after["norm_of_mean"], matrix))
    panel = "a" if matrix == "W1" else "b"
    return _by_layer(f"({panel}) {PRINTED[matrix]}, {numbers.blocks[0]}-{numbers.blocks[0]}", numbers.blocks[0], series)


def _depth_panel(numbers: Numbers, predictions: Predictions, placement: str) -> Panel:
    x, series = list(numbers.blocks), list[Series]()
    for hue, (condition, by_placement) in enumerate(numbers.last.items(), _CONDITION_HUE):
        series.append(_banded(condition.title, hue, x, estimate(by_placement[placement])))
        theory = last_predicted(predictions, condition, placement, x)
        series.append(Series(label=f"predicted, {condition.title}", kind="predicted", hue=hue, x=x, y=theory))
    letter, label, claimed = _CLAIMED[placement]
    values = [claimed(depth / x[0], series[0].y[0] or 0.0) for depth in x]
    series.append(Series(label=label, kind="claimed", hue=-1, x=x, y=values))
    title = f"({letter}) last W₂, {PLACEMENTS[placement]}"
    return Panel(title=title, xlabel="blocks of each stack", ylabel="gradient norm", series=series, from_zero=True)


def _noise_panel(numbers: Numbers, placement: str) -> Panel:
    kinds, layers = numbers.layers[placement], numbers.blocks[0]
    clean = {key: without_noise(kinds, key) for key in kinds["norm_of_mean"]}
    series = [
        _over_layers("mean of the batches' norms", 0, kinds["mean_of_norms"], "W2"),
        _over_layers("norm of the batches' mean", 1, kinds["norm_of_mean"], "W2"),
        _over_layers("norm of the batches' mean, noise removed", 2, clean, "W2"),
    ]
    return _by_layer(f"{PLACEMENTS[placement]}, W₂", layers, series, ylabel="size of the gradient")


def _warm_up_panel(numbers: Numbers, matrix: str) -> Panel:
    before, after = numbers.before["norm_of_mean"], numbers.after["norm_of_mean"]
    series = [
        _over_layers("at initialisation", _PLACEMENT_HUES[POST], before, matrix),
        _over_layers("after the warm-up", _AFTER_HUE, after, matrix),
    ]
    return _by_layer(f"{PRINTED[matrix]}, Post-LN", numbers.blocks[0], series)


def _by_layer(title: str, layers: int, series: Sequence[Series], *, ylabel: str = "norm of the mean gradient") -> Panel:
    """Encoder, an empty place, decoder."""
    names = [f"{stack[0]}{layer}" for stack in STACKS for layer in range(1, layers + 1)]
    return Panel(
        title=title,
        xlabel="layer",
        ylabel=ylabel,
        series=series,
        from_zero=True,
        ticks=[*names[:layers], "", *names[layers:]],
    )


def _over_layers(label: str, hue: int, layers: Layers, matrix: str, *, kind: Kind = "measured") -> Series:
    """(S, L) for a mean with its band, (L,) for a line."""
    found = [estimate(np.atleast_2d(layers[matrix, stack])) for stack in STACKS]
    values, lows, highs = ([value for one in found for value in (*getattr(one, edge), None)][:-1] for edge in _EDGES)
    banded = layers[matrix, STACKS[0]].ndim > 1 and len(layers[matrix, STACKS[0]]) > 1
    band = {"low": lows, "high": highs} if banded else {}
    return Series(label=label, kind=kind, hue=hue, x=range(len(values)), y=values, **band)


def _banded(label: str, hue: int, x: Sequence[float], found: Estimate) -> Series:
    mean, low, high = (getattr(found, edge).tolist() for edge in _EDGES)
    return Series(label=label, kind="measured", hue=hue, x=x, y=mean, low=low, high=high)
