"""The paper's figure 3: gradient norms by layer and by depth, at initialisation and after the warm-up, on real text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from normscope.compare.manifest import in_words
from normscope.data.parallel.batches import TranslationBatch
from normscope.evidence.estimates import estimate, exponent, plain_estimate
from normscope.theory.predict import ModelSetting

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..theory.batches import setting_of
from . import ABOUT
from .claims import PARTS, Expected, claims, left_after_warm_up
from .config import PLACEMENTS, POST, PRE, SCALES, Condition, Figure3Config
from .figures import figures
from .measure import mean_target_tokens
from .numbers import KINDS, Array, Layers, Numbers, factor_per_layer, numbers_of, without_noise
from .pieces import Measured, corpus_title, measure
from .prediction import Predicted, Predictions, last_predicted, predicted
from .tables import tables


def run(config: Figure3Config, pieces: Pieces) -> Findings:
    """Raises UserError for a corpus that is not there, and for a training that fails."""
    measured = measure(config, pieces)
    numbers = numbers_of(measured, config.blocks)
    predictions = predict_all(config, measured)
    layers = config.layers_condition
    theory = Expected(
        exponents={c: _predicted_exponent(predictions, c, PRE, config.blocks) for c in config.conditions},
        factors={name: _predicted_factors(predictions[layers, name, config.blocks[0]]) for name in PLACEMENTS},
    )
    return Findings(
        conditions=conditions_of(config, measured),
        claims=claims(numbers, theory),
        figures=figures(numbers, predictions, layers, trained=f"width {config.warm_up_width}"),
        tables=tables(numbers, predictions, layers),
        data=data_of(numbers, predictions, layers, measured),
    )


def predict_all(config: Figure3Config, measured: Measured) -> Predictions:
    """For every model measured, on the batches that it was measured on."""
    vocabulary = len(measured.bench.corpus.target.vocabulary)

    def settings(batches: Sequence[TranslationBatch], condition: Condition) -> ModelSetting:
        model = config.model(POST, config.blocks[0], condition.dropout)
        return setting_of(batches, model, vocabulary=vocabulary, label_smoothing=config.label_smoothing)

    found: dict[tuple[Condition, str, int], Predicted] = {}
    for condition in {config.layers_condition, *config.conditions}:
        seeds = [measured.bench.batches(condition, seed) for seed in range(1, config.seeds + 1)]
        single = [settings([batch], condition) for batches in seeds for batch in batches]
        averaged = [settings(batches, condition) for batches in seeds]
        for blocks in config.blocks if condition in config.conditions else config.blocks[:1]:
            each, all_ = ([replace(one, blocks=blocks) for one in group] for group in (single, averaged))
            for placement in PLACEMENTS:
                found[condition, placement, blocks] = predicted(placement, each, all_)
    return found


def conditions_of(config: Figure3Config, measured: Measured) -> list[tuple[str, str]]:
    layers, depth = measured.layers[POST], config.blocks[0]
    small = measured.last[config.conditions[-1], POST, depth]
    corpus = measured.bench.corpus
    found = [
        (
            "gradients",
            f"of the mean loss per target token, label smoothing {config.label_smoothing:g}, in nats (natural "
            "logarithm); Frobenius norms",
        ),
        ("text", corpus_title(corpus)),
        (
            "(a), (b)",
            f"{config.batches} batches of up to {config.max_tokens:,} tokens ({mean_target_tokens(layers):,.0f} target "
            f"tokens each on average), dropout {config.dropout:g}; gradients averaged first, then the norm",
        ),
        (
            "(c), (d)",
            f"mean of the batches' norms; batches of up to {config.max_tokens:,} tokens as in (a), and of up to "
            f"{config.small_max_tokens:,} ({mean_target_tokens(small):,.0f} target tokens on average)",
        ),
        ("seeds", f"{config.seeds}: weights, batches and dropout masks; intervals are of 95 %, Student's t over seeds"),
        (
            "model",
            f"encoder-decoder, width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, initial "
            "weights as the paper's (fairseq 0.7 to 0.8), source embedding apart, decoder's input and output tied",
        ),
        ("arithmetic", "float32" + (", products through oneDNN" if layers[0]["fast_matmul"] else "")),
        ("published", 'of its curves the paper prints "around 1.6" alone; the rest it has as pictures, not drawn here'),
    ]
    if measured.after:
        trained = len(measured.after)
        found.append(
            (
                "warm-up",
                f"Post-LN {depth}-{depth} of width {config.warm_up_width}, feed-forward {config.warm_up_ffn_width}; "
                f"Adam, {config.warm_up_updates:,} updates of up to {config.warm_up_max_tokens:,} tokens up to rate "
                f"{config.warm_up_peak_lr:g}; {trained} {'seed' if trained == 1 else 'seeds'}; measured on batches of "
                f"the training split, before and after; trained by {in_words(measured.trained_by)}",
            )
        )
    return found


def data_of(numbers: Numbers, predictions: Predictions, layers: Condition, measured: Measured) -> dict[str, Any]:
    by_layer = {}
    for placement, kinds in numbers.layers.items():
        theory = predictions[layers, placement, numbers.blocks[0]]
        by_layer[placement] = _layers_data(kinds)
        for (matrix, stack), values in theory.norm_of_mean.items():
            factor = np.exp(_predicted_factors(theory)[matrix, stack])
            predicted_too = {"predicted_norm_of_mean": values, "predicted_factor_per_layer": factor}
            by_layer[placement][matrix][stack] |= predicted_too
    by_depth: dict[str, Any] = {}
    for condition, by_placement in numbers.last.items():
        for placement, values in by_placement.items():
            by_depth.setdefault(condition.title, {})[placement] = {
                **plain_estimate(estimate(values)),
                "seeds": values,
                "exponent_of_depth": plain_estimate(exponent(numbers.blocks, values)),
                "predicted": last_predicted(predictions, condition, placement, numbers.blocks),
                "predicted_exponent_of_depth": _predicted_exponent(predictions, condition, placement, numbers.blocks),
                "target_tokens": mean_target_tokens(measured.last[condition, placement, numbers.blocks[0]]),
            }
    warm_up: dict[str, Any] = {}
    if numbers.after:
        warm_up = {"before": _layers_data(numbers.before), "after": _layers_data(numbers.after)}
        for (matrix, stack), share in left_after_warm_up(numbers).items():
            warm_up["after"][matrix][stack]["share_of_before"] = share.mean
        for name, pieces in (("before", measured.before), ("after", measured.after)):
            warm_up[name]["loss_nats"] = [piece["loss_nats"] for piece in pieces]
    return {
        "blocks": numbers.blocks,
        "layers": by_layer,
        "last_w2": by_depth,
        "warm_up": warm_up,
        "runs": measured.trained_by,
    }


def _layers_data(kinds: dict[str, Layers]) -> dict[str, dict[str, dict[str, Any]]]:
    """matrix -> stack -> kind of norm, over layers."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for matrix, stack in kinds[KINDS[0]]:
        found.setdefault(matrix, {})[stack] = {
            "norm_of_mean": plain_estimate(estimate(kinds["norm_of_mean"][matrix, stack])),
            "norm_of_mean_factor_per_layer": _factor(kinds["norm_of_mean"][matrix, stack]),
            "mean_of_norms": plain_estimate(estimate(kinds["mean_of_norms"][matrix, stack])),
            "noise_taken_off": without_noise(kinds, (matrix, stack)),
        }
    return found


def _factor(values_SL: Array) -> dict[str, float]:
    found = factor_per_layer(values_SL)
    return {name: float(np.exp(getattr(found, name))) for name in ("mean", "low", "high")}


def _predicted_exponent(
    predictions: Predictions, condition: Condition, placement: str, blocks: tuple[int, ...]
) -> float:
    norms = np.array([last_predicted(predictions, condition, placement, blocks)])
    return float(exponent(blocks, norms).mean)


def _predicted_factors(theory: Predicted) -> dict[tuple[str, str], float]:
    """Logarithms, from layer to layer."""
    return {key: float(factor_per_layer(theory.norm_of_mean[key][None]).mean) for key in PARTS}


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
