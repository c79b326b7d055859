"""Configurations and models of others, as the doctor opens them."""

import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from normscope.doctor.lint.linter import silenced_in
from normscope.errors import UserError
from normscope.runs.config import load
from normscope.settings.tables import read_override, to_toml
from normscope.targets import opened
from tiny import SETTINGS


def make_toml(folder: Path) -> None:
    small = list(SETTINGS)
    text = [
        "data.batch_sequences=4",
        "data.sequence_length=16",
        "model.width=16",
        "model.ffn_width=16",
    ]
    text += [
        "model.heads=2",
        "model.blocks=1",
        "model.positions=32",
        "train.threads=1",
        'train.device="cpu"',
    ]
    (folder / "translation.toml").write_text(to_toml(load(None, small)))
    for task in ("masked-lm", "language-model"):
        (folder / f"{task}.toml").write_text(to_toml(load(None, [f"task={task}", *text])))
    (folder / "short.toml").write_text(
        "seed = 3\n[model]\nwidth = 16\nheads = 2\nffn_width = 16\n[data]\ntoy_pairs = 50\n"
    )


def read_toml(folder: Path, changed: Path) -> Any:
    return opened(str(changed), [], tokens=4, sequences=1, seed=0).title


def make_overrides(folder: Path) -> None:
    (folder / "sets.txt").write_text(
        "model.width=64\nimports=['a.py']\ntrain.clip_norm=inf\nseed=7\nschedule.decay=a\n"
    )


def read_overrides(folder: Path, changed: Path) -> Any:
    settings = (folder / "sets.txt").read_text(errors="replace").splitlines()
    return [read_override(line) for line in settings], load(None, settings)


def make_pyproject(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.normscope.doctor]\nsilence = ["dead-sublayer"]\n')


def read_pyproject(folder: Path, changed: Path) -> Any:
    try:
        return silenced_in(folder)
    except ValueError as error:  # told to the user by the command line
        raise UserError(str(error)) from error


_SMALL: dict[str, dict[str, Any]] = {
    "Bert": {
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
    },
    "GPT2": {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "Llama": {
        "hidden_size": 16,
        "intermediate_size": 20,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
    },
    "T5": {"d_model": 12, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 2},
    "ViT": {
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
    },
    "Wav2Vec2": {
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
    },
}
_FURTHER = {
    "ViT": {"image_size": 16, "patch_size": 8},
    "Wav2Vec2": {"conv_dim": [8, 8], "conv_stride": [5, 2]},
}
_FURTHER["Wav2Vec2"] |= {
    "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}


def make_checkpoints(folder: Path) -> None:
    for name, sizes in _SMALL.items():
        vocabulary = {} if name == "ViT" else {"vocab_size": 40}
        config = getattr(transformers, f"{name}Config")(
            **sizes, **vocabulary, **_FURTHER.get(name, {})
        )
        torch.manual_seed(0)
        made = {
            "GPT2": "GPT2LMHeadModel",
            "T5": "T5ForConditionalGeneration",
            "ViT": "ViTForImageClassification",
        }
        made |= {
            "Llama": "LlamaForCausalLM",
            "Bert": "BertForMaskedLM",
            "Wav2Vec2": "Wav2Vec2ForCTC",
        }
        getattr(transformers, made[name])(config).save_pretrained(folder / name)
        (folder / f"{name}-alone").mkdir()
        (folder / f"{name}-alone" / "config.json").write_text(
            (folder / name / "config.json").read_text()
        )


def read_checkpoints(folder: Path, changed: Path) -> Any:
    target = opened(str(changed.parent), [], tokens=4, sequences=2, seed=0)
    return target.title, target.loading


def make_factory(folder: Path) -> None:
    (folder / "factory.py").write_text(_FACTORY)
    (folder / "part.py").write_text(
        "from torch import nn\n\n\ndef body():\n    return nn.Linear(3, 3)\n"
    )
    (folder / "returned.json").write_text(
        '{"inputs": [[0.5, 1.0, 2.0]], "loss": null, "optimizer": null, "more": {"inputs": '
        '{"input": [[1.0, 2.0]]}}}'
    )


_FACTORY = """import json
from pathlib import Path

import torch

import part


def build():
    returned = json.loads((Path(__file__).parent / "returned.json").read_text())
    returned.pop("more")
    body = part.body()
    if isinstance(returned.get("inputs"), list):
        returned["inputs"] = torch.tensor(returned["inputs"])
    return {"model": body, **returned}
"""


def read_factory(folder: Path, changed: Path) -> Any:
    modules, path = set(sys.modules), list(sys.path)
    try:
        target = opened(f"{folder / 'factory.py'}:build", [], tokens=4, sequences=2, seed=0)
        return target.title, str(target.inputs)
    finally:
        # Of the next case's folder the same names are imported anew.
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name == "part" or name.startswith("normscope_user_"):
                del sys.modules[name]
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
