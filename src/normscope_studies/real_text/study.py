"""The paper's models on real text, every layer: what formulas predict from the text's statistics, and what is there."""

# S = seeds, L = layers of a stack
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from normscope.model.linear import fast_matmul
from normscope.tasks.translation import TranslationConfig, TranslationObjective
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import keep_freed_memory

from ..engine.deviation import mean_over_draws
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..figure_3.config import corpus_of
from ..figure_3.measure import STACKS
from ..theory.batches import setting_of
from . import ABOUT
from .config import QUANTITIES, SCALES, Curves, Key, RealTextConfig
from .measure import measured
from .page import findings


def run(config: RealTextConfig, pieces: Pieces) -> Findings:
    """One piece a model. Raises UserError for a corpus that is not there."""
    corpus = corpus_of(config)
    keep_freed_memory()
    fast = fast_matmul(torch.device("cpu")).on
    keys = [(placement, blocks) for placement in config.placements for blocks in config.blocks]
    drawn: dict[Key, list[dict[str, Any]]] = {key: [] for key in keys}
    foreseen: dict[Key, list[dict[str, Any]]] = {key: [] for key in keys}
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        loss = TranslationConfig(label_smoothing=config.label_smoothing)
        task = TranslationObjective(corpus, loss, max_tokens=config.max_tokens, seed=seed, device=torch.device("cpu"))
        batch = task.micro_batch(0)
        setting = setting_of(
            [batch],
            config.model(*keys[0]),
            vocabulary=len(corpus.target.vocabulary),
            label_smoothing=config.label_smoothing,
        )
        for key in keys:
            model = config.model(*key)
            asked = {
                "model": asdict(model),
                "seed": seed,
                "max_tokens": config.max_tokens,
                "label_smoothing": config.label_smoothing,
                "corpus": corpus.fingerprint,
                "fast_matmul": fast,
            }
            name = f"{key[0]}_{key[1]}-{key[1]}_seed-{seed}"
            drawn[key].append(pieces.get(name, asked, measured, model, seed, task, batch))
            foreseen[key].append(_predicted(key[0], replace(setting, blocks=key[1])))
    pieces.watch("seeds", config.seeds, config.seeds)
    found = {key: _compared(drawn[key], foreseen[key]) for key in keys}
    return findings(config, corpus, found, fast)


def _predicted(placement: str, setting: ModelSetting) -> dict[str, Any]:
    """The same, from what the batch repeats."""
    found = predict(placement, setting)
    return {kind: {"q": found[kind].q, "ffn_out": found[kind].gradient_norm["ffn_out"]} for kind in STACKS}


def _compared(drawn: Sequence[Mapping[str, Any]], foreseen: Sequence[Mapping[str, Any]]) -> Curves:
    """Means over seeds of both: every seed has a batch of its own, and a prediction for it."""
    return {
        kind: {
            what: mean_over_draws(
                [one[kind][what] for one in drawn], np.mean([one[kind][what] for one in foreseen], axis=0)
            )
            for what in QUANTITIES
        }
        for kind in STACKS
    }


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
