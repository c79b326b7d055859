"""Linear probes of models of the same loss: the trainings, what was read, and the page."""

from dataclasses import asdict
from itertools import product

import numpy as np

from normscope.adapters.scikit_learn import probe_accuracy
from normscope.data.opening import TOY
from normscope.model import DecoderConfig

from ..engine.models import settings_of
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .claims import PlacementReading, TextReadings, claims
from .measure import probed
from .page import conditions, data, figures, tables
from .texts import BASE, MAKERS, POST, ProbesConfig, ProbeText

_LONGEST_SENTENCE = 17
"""Inputs of a sentence of the toy language, its beginning included."""


def run(config: ProbesConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and where scikit-learn is not installed."""
    texts = {name: MAKERS[name](config) for name in config.texts}
    asked = list(product(texts, config.placements, range(1, config.seeds + 1)))
    fingerprints = {name: text.fingerprint for name, text in texts.items()}
    seeds: dict[tuple[str, str], list[dict[str, object]]] = {}
    for name, placement, seed in pieces.each("models", asked):
        one = _read(config, texts[name], fingerprints[name], placement, seed, pieces)
        seeds.setdefault((name, placement), []).append(one)
    found = []
    for name in texts:
        readings = {one: PlacementReading(placement=one, seeds=seeds[name, one]) for one in config.placements}
        majority, target = readings[BASE].seeds[0]["majority"], config.target_nats(name)
        found.append(TextReadings(text=name, target_nats=target, majority=majority, readings=readings))
    return Findings(
        conditions=conditions(config, {name: _unigram_nats(text) for name, text in texts.items()}),
        claims=claims(config, found),
        figures=figures(found),
        tables=tables(found),
        data=data(found),
    )


def _read(
    config: ProbesConfig, text: ProbeText, fingerprint: str, placement: str, seed: int, pieces: Pieces
) -> dict[str, object]:
    model = model_config(config, placement)
    sequences = config.batch_sequences if text.name == "grammar" else max(1, config.batch_sequences // 2)
    settings = settings_of(config, "peak_lr", "warmup_updates", "validate_every", "most_updates")
    settings |= {"seed": seed, "batch_sequences": sequences, "target_nats": config.target_nats(text.name)}
    asked = {"model": asdict(model), "text": fingerprint, **settings}
    name = f"{text.name}/{placement}-seed-{seed}"
    return pieces.get(name, asked, probed, model, text, probe_accuracy, **settings)  # type: ignore[no-any-return]


def model_config(config: ProbesConfig, placement: str) -> DecoderConfig:
    """The same for every text."""
    return DecoderConfig(
        placement=placement,
        **settings_of(config, "width", "ffn_width", "heads", "blocks"),
        positions=max(config.sequence_length, _LONGEST_SENTENCE),
        dropout=0.0,
        attention_dropout=0.0,
        initialisation="paper",
    )


def _unigram_nats(text: ProbeText) -> float:
    """Validation loss of a model that knows how frequent tokens are in training, one added to every count."""
    train, valid = (np.concatenate([ids[1:] for ids in part]) for part in (text.train, text.valid))
    counts = np.bincount(train, minlength=text.vocabulary) + 1.0
    return float(-np.log(counts / counts.sum())[valid].mean())


SCALES = scales(
    ProbesConfig,
    smoke={
        "placements": (POST, BASE), "text": TOY, "seeds": 2, "grammar_target_nats": 5.6, "documents_target_nats": 5.6,
        "most_updates": 20, "warmup_updates": 5, "width": 16, "ffn_width": 16, "blocks": 2, "batch_sequences": 8,
        "train_sentences": 200, "valid_sequences": 16, "probe_sequences": 90, "frequent": 5,
    },
    paper={
        "text": "corpora/wikipedia_8000", "grammar_target_nats": 1.7, "documents_target_nats": 4.2,
        "most_updates": 50_000, "validate_every": 100, "peak_lr": 5e-4, "warmup_updates": 2_000, "width": 512,
        "ffn_width": 2048, "heads": 8, "blocks": 12, "sequence_length": 128, "batch_sequences": 64,
        "train_sentences": 500_000, "valid_sequences": 2_000, "probe_sequences": 6_000, "frequent": 100,
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu 36 trainings of some ten seconds of one core and as long for their probes; paper, with
models of 40 million parameters, as many of an hour or two of an accelerator."""
STUDY = Study(about=ABOUT, scales=SCALES, run=run)
