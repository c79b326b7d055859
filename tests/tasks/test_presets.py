"""Presets: what a run of one is configured with, and what stands before it."""

from dataclasses import fields

import pytest
import torch

from normscope.errors import UserError
from normscope.model import DecoderConfig, LanguageModel, Layout
from normscope.placement import named, registered
from normscope.runs.config import load
from normscope.settings.tables import as_table, to_toml
from normscope.tasks.registry import PRESETS, config_of, with_preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_settings_and_leaves_the_sizes(name: str) -> None:
    config = load(None, [f'model.preset="{name}"'])
    plain = config_of({"task": PRESETS[name]["task"]}, source="")
    assert config.task == PRESETS[name]["task"]
    changed, model = PRESETS[name]["settings"], as_table(config.model)
    for key, value in changed.items():
        assert model[key] == (model[key] | value if isinstance(value, dict) else value)
    kept = {field.name for field in fields(config.model)} - changed.keys()
    assert {"width", "ffn_width", "heads"} <= kept
    assert {key: model[key] for key in kept} == {key: as_table(plain.model)[key] for key in kept}


def test_what_is_written_beside_it_stands_before_it_and_the_resolved_file_names_none() -> None:
    config = load(
        None,
        [
            'model.preset="qwen-3"',
            'model.placement="deepnorm"',
            "model.attention.rotary_base=500.0",
        ],
    )
    assert config.model.placement == "deepnorm"
    assert config.model.attention.rotary_base == 500.0
    assert config.model.attention.query_key_norm == "per-head"
    text = to_toml(config)
    assert "preset" not in text
    assert config_of(load_toml(text), source="") == config


def load_toml(text: str) -> dict[str, object]:
    import tomllib

    return tomllib.loads(text)


@pytest.mark.parametrize("name", ["llama", "olmo-2", "gemma-2"])
@pytest.mark.parametrize(
    "placement", [name for name in registered() if "decoder-only" in named(name).models]
)
def test_any_placement_goes_with_a_preset(name: str, placement: str) -> None:
    """Every parameter has a finite gradient: none is left over, none is not reached."""
    fewer = [] if placement == "ngpt" else ["model.attention.key_value_heads=2"]
    sizes = ["model.width=16", "model.ffn_width=12", "model.heads=4", "model.blocks=2"]
    config = load(
        None, [f'model.preset="{name}"', f'model.placement="{placement}"', *sizes, *fewer]
    ).model
    assert isinstance(config, DecoderConfig)
    torch.manual_seed(1)
    model = LanguageModel(config, 13)
    hidden = model(torch.randint(13, (8,)), Layout(torch.tensor([5, 3])))
    model.logits(hidden).logsumexp(-1).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (['model.preset="lama"'], "model.preset must be one of llama, .*; did you mean 'llama'"),
        (
            ['model.preset="llama"', 'task="masked-lm"'],
            "llama is a model of task language-model, and the task is ",
        ),
        (['model.preset="bert"', 'task="translation"'], "of that task are paper"),
        (
            ['model.preset="llama"', "model.attention.rotary_bas=1.0"],
            "unknown key 'model.attention.rotary_bas'",
        ),
        (
            ["model.attention.window_tokens=0"],
            "model.attention: attention.window_tokens must be at least 1",
        ),
        (
            ['model.attention.soft_cap="yes"'],
            "model.attention.soft_cap must be none or a number, got 'yes'",
        ),
    ],
)
def test_mistakes_are_told(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(None, settings)


def test_a_table_without_a_preset_is_left_as_it_is() -> None:
    table = {"task": "language-model", "model": {"width": 8}}
    assert with_preset(table, source="") is table
