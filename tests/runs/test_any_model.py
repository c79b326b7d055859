"""Whatever goes together is trained, resumed to the bit, and exported or refused by one line."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from normscope.errors import UserError
from normscope.exchange.export import export_run
from normscope.optim import OPTIMIZERS
from normscope.placement import named, registered
from normscope.runs.config import load
from normscope.runs.run import train_run
from tiny import result

pytestmark = pytest.mark.thorough

pytest.importorskip(
    "transformers", reason="exported folders are opened with Hugging Face transformers"
)

KINDS = {
    "language-model": "decoder-only",
    "masked-lm": "encoder-only",
    "translation": "encoder-decoder",
}
SIZES = {
    "language-model": [
        "model.blocks=2",
        "model.positions=32",
        "data.sequence_length=16",
        "data.batch_sequences=4",
    ],
    "masked-lm": [
        "model.blocks=2",
        "model.positions=32",
        "data.sequence_length=16",
        "data.batch_sequences=4",
    ],
    "translation": [
        "model.encoder_blocks=1",
        "model.decoder_blocks=1",
        "data.toy_pairs=300",
        "data.max_tokens=256",
    ],
}
COMMON: dict[str, list[Any]] = {
    "norm": ["as-placement", "layer-norm", "rms-norm", "dyt"],
    "activation": ["relu", "gelu", "gelu-tanh", "swiglu", "geglu", "geglu-tanh"],
    "biases": ["all", "query-key-value", "none"],
    "attention.key_value_heads": ["as-heads", 1, 2],
    "attention.head_width": ["as-width", 6],
    "attention.query_key_norm": ["none", "per-head", "whole"],
    "attention.soft_cap": ["none", 5.0],
    "attention.window_tokens": ["none", 3],
    "attention.windowed_blocks": ["all", "odd"],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "language-model": {
        "position_encoding": ["learned", "sinusoidal", "rotary", "alibi", "none"],
        "output": ["tied", "untied"],
        "logit_soft_cap": ["none", 3.0],
        "embedding_scale": ["none", "root-width"],
    },
    "masked-lm": {"position_encoding": ["learned", "sinusoidal", "rotary", "alibi", "none"]},
    "translation": {
        "position_encoding": ["sinusoidal", "rotary", "alibi", "none"],
        "embeddings": ["shared"],
    },
}
TRAINING: dict[str, list[Any]] = {
    "optimizer.name": [name for name in OPTIMIZERS if name != "lion"],
    "optimizer.weight_decay": [0.0, 0.1],
    "schedule.decay": ["constant", "linear", "wsd"],
    "schedule.warmup_updates": [0, 2],
    "train.clip_norm": [1.0, 100.0],
    "train.clip_update_rms": [0.5, 1e9],
}


def written(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


@st.composite
def runs(draw: Callable[[Any], Any]) -> list[str]:
    task = draw(st.sampled_from(sorted(KINDS)))
    placements = [name for name in registered() if KINDS[task] in named(name).models]
    model = COMMON | OWN[task] | {"placement": placements}
    chosen = {f"model.{key}": draw(st.sampled_from(values)) for key, values in model.items()}
    chosen |= {key: draw(st.sampled_from(values)) for key, values in TRAINING.items()}
    chosen |= {"task": task, "optimizer.peak_lr": 1e-3}
    sizes = ["model.width=16", "model.ffn_width=12", "model.heads=4", *SIZES[task]]
    ends = [
        "train.duration=2",
        "train.checkpoint_every=1",
        "train.validate_every=2",
        "train.threads=1",
    ]
    return [
        *(f"{key}={written(value)}" for key, value in chosen.items()),
        *sizes,
        *ends,
        'train.device="cpu"',
    ]


# Without looking for a smaller example: each takes two trainings.
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(settings_of=runs())
def test_any_model_trains_resumes_exactly_and_is_exported_or_refused(
    settings_of: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("any")
    config = load(None, settings_of)
    refused = told(lambda: train_run(config, folder / "run"))
    if refused:
        # nGPT alone asks for heads that share the width.
        assert "placement 'ngpt' scales queries and keys" in refused
        return
    once = result(folder / "run", 2)
    train_run(config, folder / "run", from_step=1)
    assert result(folder / "run", 2) == once
    refused = told(lambda: export_run(folder / "run", folder / "out"))
    if refused:
        assert "no other library has a model that computes this one" in refused
        assert "\n" not in refused
        assert not (folder / "out").exists()
    shutil.rmtree(folder)


def told(act: Callable[[], object]) -> str:
    """What a user is told; nothing where all went well."""
    try:
        act()
    except UserError as error:
        return str(error)
    return ""
