"""Figure 3's panels as the paper lays them out, the figures beside them, the numbers under them,
and its conditions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.report.chart import Kind, Panel, Series
from normscope.report.words import counted

from ..engine.estimates import estimate, exponent, plain_estimate
from ..engine.ladders import in_words
from ..engine.page import StudyFigure, line, measured
from .measure import (
    MATRICES,
    PLACEMENTS,
    POST,
    PRE,
    PRINTED,
    STACKS,
    Condition,
    Figure3Config,
    corpus_title,
    mean_target_tokens,
)
from .numbers import KINDS, Figure3Numbers, Layers, ModelPieces, factor_per_layer, without_noise

PUBLISHED = 1.6
"""Section 3.4: the gradient of the last W₂ of Post-LN, at every depth."""
_PLACEMENT_HUES = {POST: 0, PRE: 1}
_AFTER_HUE, _CONDITION_HUE = 2, 3
_AFTER = "after the warm-up"
_EDGES = ("mean", "low", "high")
_CLAIMED: dict[str, tuple[str, str, Callable[[float, float], float]]] = {
    PRE: ("c", "the paper's order 1/√L", lambda deeper, first: first / deeper**0.5),
    POST: ("d", f"the paper's {PUBLISHED}", lambda deeper, first: PUBLISHED),
}
"""Letter of the panel, and what the paper says: from how many times deeper, and our first value."""


def figures(numbers: Figure3Numbers, trained: str) -> list[StudyFigure]:
    """trained: what the model that went through the warm-up is."""
    found = [
        StudyFigure.of_panels(
            name="figure_3",
            title="Figure 3, in the paper's layout",
            caption="Norms of gradients at initialisation. (a), (b): of the gradient averaged over "
            "mini-batches, layer by layer (e: encoder, d: decoder). (c), (d): of the last W₂, "
            "by the number of blocks in each stack. Bands are 95 % intervals over seeds. The "
            f"paper's own curves are known by what its text says of them: around {PUBLISHED} "
            "in (d), and Theorem 1's order 1/√L in (c), drawn through our first value.",
            panels=[_layers_panel(numbers, matrix, trained) for matrix in MATRICES]
            + [_depth_panel(numbers, placement) for placement in (PRE, POST)],
            told="Gradient norms by layer and by depth, Post-LN and Pre-LN",
        ),
        StudyFigure.of_panels(
            name="noise",
            title="What averaging over batches removes",
            caption=(
                "Three sizes of one gradient, of W₂: the mean over batches of its norm; the norm "
                "of its mean over batches, which the paper shows; and the latter with the noise "
                "that the average still holds removed, which is the limit of more and more batches."
            ),
            panels=[_noise_panel(numbers, placement) for placement in PLACEMENTS],
            told="Mean of norms and norm of the mean, W₂",
        ),
    ]
    if numbers.after:
        found.append(
            StudyFigure.of_panels(
                name="warm_up",
                title="Post-LN before and after the warm-up",
                caption=f"Both of the same model, {trained}, on the same batches.",
                panels=[_warm_up_panel(numbers, matrix) for matrix in MATRICES],
                told="Gradient norms of Post-LN before and after the warm-up",
            )
        )
    return found


def _warm_up_panel(numbers: Figure3Numbers, matrix: str) -> Panel:
    before, after = numbers.before["norm_of_mean"], numbers.after["norm_of_mean"]
    series = [
        _over_layers("at initialisation", _PLACEMENT_HUES[POST], before, matrix),
        _over_layers(_AFTER, _AFTER_HUE, after, matrix),
    ]
    return _by_layer(f"{PRINTED[matrix]}, Post-LN", series)


def _layers_panel(numbers: Figure3Numbers, matrix: str, trained: str) -> Panel:
    series, depth = [], numbers.blocks[0]
    for placement, title in PLACEMENTS.items():
        hue, predicted = _PLACEMENT_HUES[placement], numbers.predicted_layers[placement]
        series.append(_over_layers(title, hue, numbers.layers[placement]["norm_of_mean"], matrix))
        series.append(_over_layers(f"{title}, predicted", hue, predicted, matrix, kind="predicted"))
    if numbers.after:
        label = f"Post-LN {_AFTER} ({trained})"
        series.append(_over_layers(label, _AFTER_HUE, numbers.after["norm_of_mean"], matrix))
    return _by_layer(
        f"({'a' if matrix == 'W1' else 'b'}) {PRINTED[matrix]}, {depth}-{depth}", series
    )


def _depth_panel(numbers: Figure3Numbers, placement: str) -> Panel:
    x, series = list(numbers.blocks), list[Series]()
    for hue, (condition, by_placement) in enumerate(numbers.last.items(), _CONDITION_HUE):
        found, predicted = (
            estimate(by_placement[placement]),
            numbers.predicted_last[condition][placement],
        )
        series.append(measured(condition.title, hue, x, found.mean, found.half_width))
        series.append(line(f"predicted, {condition.title}", "predicted", hue, x, predicted))
    letter, label, claimed = _CLAIMED[placement]
    series.append(
        line(label, "claimed", -1, x, [claimed(depth / x[0], series[0].y[0] or 0.0) for depth in x])
    )
    title = f"({letter}) last W₂, {PLACEMENTS[placement]}"
    return Panel(
        title=title,
        xlabel="blocks of each stack",
        ylabel="gradient norm",
        series=series,
        from_zero=True,
    )


def _noise_panel(numbers: Figure3Numbers, placement: str) -> Panel:
    kinds = numbers.layers[placement]
    sizes = {
        "mean of the batches' norms": kinds["mean_of_norms"],
        "norm of the batches' mean": kinds["norm_of_mean"],
        "norm of the batches' mean, noise removed": {
            key: without_noise(kinds, key) for key in kinds["norm_of_mean"]
        },
    }
    series = [_over_layers(label, hue, of, "W2") for hue, (label, of) in enumerate(sizes.items())]
    return _by_layer(f"{PLACEMENTS[placement]}, W₂", series, ylabel="size of the gradient")


def _by_layer(
    title: str, series: Sequence[Series], *, ylabel: str = "norm of the mean gradient"
) -> Panel:
    """Encoder, an empty place, decoder."""
    layers = range(1, len(series[0].x) // 2 + 1)
    encoder = [f"e{layer}" for layer in layers]
    decoder = [f"d{layer}" for layer in layers]
    ticks = [*encoder, "", *decoder]
    return Panel(
        title=title, xlabel="layer", ylabel=ylabel, series=series, from_zero=True, ticks=ticks
    )


def _over_layers(
    label: str, hue: int, layers: Layers, matrix: str, *, kind: Kind = "measured"
) -> Series:
    """(S, L) for a mean with its band, (L,) for a line."""
    found = [estimate(np.atleast_2d(layers[matrix, stack])) for stack in STACKS]
    values, lows, highs = (_with_a_gap(found, edge) for edge in _EDGES)
    banded = layers[matrix, STACKS[0]].ndim > 1 and len(layers[matrix, STACKS[0]]) > 1
    low, high = (lows, highs) if banded else ((), ())
    return Series(
        label=label, kind=kind, hue=hue, x=range(len(values)), y=values, low=low, high=high
    )


def conditions(config: Figure3Config, pieces: ModelPieces) -> dict[str, str]:
    """Says how it was measured."""
    layers, depth = pieces.layers[POST], config.blocks[0]
    small = pieces.last[config.conditions[-1], POST, depth]
    corpus = pieces.bench.corpus
    found = {
        "gradients": (
            f"of the mean loss per target token, label smoothing {config.label_smoothing:g}, in "
            "nats (natural logarithm); Frobenius norms"
        ),
        "text": corpus_title(corpus),
        "(a), (b)": f"{config.batches} batches of up to {config.max_tokens:,} tokens "
        f"({mean_target_tokens(layers):,.0f} target tokens each on average), dropout "
        f"{config.dropout:g}; gradients averaged first, then the norm",
        "(c), (d)": (
            f"mean of the batches' norms; batches of up to {config.max_tokens:,} tokens as in (a), "
            f"and of up to {config.small_max_tokens:,} ({mean_target_tokens(small):,.0f} target "
            "tokens on average)"
        ),
        "seeds": (
            f"{config.seeds}: weights, batches and dropout masks; intervals are of 95 %, Student's "
            "t over seeds"
        ),
        "model": f"encoder-decoder, width {config.width}, feed-forward {config.ffn_width}, "
        f"{config.heads} heads, initial weights as the paper's (fairseq 0.7 to 0.8), source "
        "embedding apart, decoder's input and output tied",
        "arithmetic": "float32" + (", products through oneDNN" if layers[0]["fast_matmul"] else ""),
        "published": (
            'of its curves the paper prints "around 1.6" alone; the rest it has as pictures, not '
            "drawn here"
        ),
    }
    if pieces.after:
        found["warm-up"] = (
            f"Post-LN {depth}-{depth} of width {config.warm_up_width}, feed-forward "
            f"{config.warm_up_ffn_width}; Adam, {config.warm_up_updates:,} updates of up to "
            f"{config.warm_up_max_tokens:,} tokens up to rate {config.warm_up_peak_lr:g}; "
            f"{counted(len(pieces.after), 'seed')}; measured on batches of the training split, "
            f"before and after; trained by {in_words(pieces.trained_by)}"
        )
    return found


def _with_a_gap(stacks: Sequence[Estimate], edge: str) -> list[float | None]:
    """Returns the layers of all stacks, mean or end of their band, with an empty place between
    stacks.
    """
    values: list[float | None] = []
    for one in stacks:
        values += [*getattr(one, edge), None]
    return values[:-1]


def data(numbers: Figure3Numbers, pieces: ModelPieces) -> dict[str, Any]:
    """Returns every norm with its interval, and theory's prediction of it."""
    by_layer = {}
    for placement, kinds in numbers.layers.items():
        factors = numbers.predicted_factors(placement)
        by_layer[placement] = _layers_data(kinds)
        for (matrix, stack), values in numbers.predicted_layers[placement].items():
            predicted = {
                "predicted_norm_of_mean": values,
                "predicted_factor_per_layer": np.exp(factors[matrix, stack]),
            }
            by_layer[placement][matrix][stack] |= predicted
    by_depth: dict[str, dict[str, Any]] = {}
    for condition, by_placement in numbers.last.items():
        by_depth[condition.title] = {
            placement: _last_data(numbers, pieces, condition, placement)
            for placement in by_placement
        }
    warm_up: dict[str, Any] = {}
    if numbers.after:
        warm_up = {"before": _layers_data(numbers.before), "after": _layers_data(numbers.after)}
        for (matrix, stack), share in numbers.left_after_warm_up.items():
            left = {"share_of_before": share.mean, "share_of_before_half_width": share.half_width}
            warm_up["after"][matrix][stack] |= left
        for name, several in (("before", pieces.before), ("after", pieces.after)):
            warm_up[name]["loss_nats"] = [piece["loss_nats"] for piece in several]
    return {
        "blocks": numbers.blocks,
        "layers": by_layer,
        "last_w2": by_depth,
        "warm_up": warm_up,
        "runs": pieces.trained_by,
    }


def _last_data(
    numbers: Figure3Numbers, pieces: ModelPieces, condition: Condition, placement: str
) -> dict[str, Any]:
    """Returns the norms of the last W₂'s gradient over depth, and what theory predicts of them."""
    values = numbers.last[condition][placement]
    shallowest = pieces.last[condition, placement, numbers.blocks[0]]
    return {
        **plain_estimate(estimate(values)),
        "seeds": values,
        "exponent_of_depth": plain_estimate(exponent(numbers.blocks, values)),
        "predicted": numbers.predicted_last[condition][placement],
        "predicted_exponent_of_depth": numbers.predicted_exponent(condition, placement),
        "target_tokens": mean_target_tokens(shallowest),
    }


def _layers_data(kinds: dict[str, Layers]) -> dict[str, dict[str, dict[str, Any]]]:
    """matrix -> stack -> kind of norm, over layers."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for matrix, stack in kinds[KINDS[0]]:
        factor = factor_per_layer(kinds["norm_of_mean"][matrix, stack])
        found.setdefault(matrix, {})[stack] = {
            "norm_of_mean": plain_estimate(estimate(kinds["norm_of_mean"][matrix, stack])),
            "norm_of_mean_factor_per_layer": {
                edge: float(np.exp(getattr(factor, edge))) for edge in _EDGES
            },
            "mean_of_norms": plain_estimate(estimate(kinds["mean_of_norms"][matrix, stack])),
            "noise_taken_off": without_noise(kinds, (matrix, stack)),
        }
    return found
