"""A transplanted model comes back from a folder: by the verb, and by what transformers saves."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import normscope
from normscope.cli.main import main
from transplant.hand_written import GPT, ids, perturb

FACTORY = """
import torch
from torch import nn

def build():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 32)

def two():
    return nn.Sequential(build()[0], nn.Linear(32, 32), build()[0]), torch.randn(2, 7, 32)
"""


def says(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    try:
        main()
    except SystemExit as ended:
        return ended.code
    return 0


def test_the_verb_writes_what_python_reads(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(FACTORY)
    assert (
        says(monkeypatch, "transplant", "own_model.py:build", "--to", "Peri_LN", "--out", "peri")
        == 0
    )
    told = capsys.readouterr().out
    assert "layers: from post-ln to peri-ln, named by the doctor in each of 2 blocks" in told
    assert json.loads((tmp_path / "peri/transplant.json").read_text())["placement"] == "peri-ln"
    monkeypatch.syspath_prepend(tmp_path)
    from own_model import build

    model, x = build()
    other, _ = build()
    normscope.transplant(model, str(tmp_path / "peri"), inputs=x)
    normscope.transplant(other, "peri", inputs=x)
    assert torch.equal(model.eval()(x), other.eval()(x))
    assert "layers.0.placed.attention.norms.after.weight" in model.state_dict()

    assert (
        says(monkeypatch, "transplant", "own_model.py:build", "--to", "pre-ln", "--out", "peri")
        == 2
    )
    assert "--out peri: it exists already" in capsys.readouterr().err
    assert (
        says(monkeypatch, "transplant", "own_model.py:two", "--to", "pre-ln", "--out", "two") == 2
    )
    assert (
        "the model has several stacks: name one of '0.layers', '2.layers'"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "two").exists()


def test_tied_weights_and_trained_numbers_come_back(tmp_path: Path) -> None:
    from normscope.transplant.saved import save

    model = perturb(normscope.transplant(GPT(), "rezero", inputs=ids()))
    save(model, tmp_path / "saved")
    other = normscope.transplant(GPT(), str(tmp_path / "saved"), inputs=ids())
    assert torch.equal(other(ids()), model(ids()))
    assert other.head.weight is other.table.weight
    with pytest.raises(normscope.UserError, match="cannot be loaded"):
        normscope.transplant(GPT(blocks=2), str(tmp_path / "saved"), inputs=ids())


@pytest.mark.parametrize("placement", ["deepnorm", "rezero"])
def test_a_model_without_memory_is_whole_once_it_has_its_weights(placement: str) -> None:
    """What a formula adds beside parameters are numbers of Python, which `to_empty` cannot lose."""
    model = perturb(normscope.transplant(GPT(blocks=2), placement, inputs=ids()))
    other = copy.deepcopy(model).to("meta").to_empty(device="cpu")
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids()), model(ids()))


def test_transformers_keeps_the_recipe_with_the_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.arange(5, 14)[None]
    perturb(normscope.transplant(model, "peri-ln", inputs={"input_ids": tokens}))
    model.save_pretrained(tmp_path)
    known = transformers.LlamaConfig.from_pretrained(tmp_path)
    assert known.transplanted == {"placement": "peri-ln", "initialise": "draw", "stack": None}
    other = normscope.transplant(
        transformers.LlamaForCausalLM(known), str(tmp_path), inputs={"input_ids": tokens}
    )
    assert torch.equal(other.eval()(tokens).logits, model.eval()(tokens).logits)
    normscope.untransplant(other)
    assert not hasattr(other.config, "transplanted")


def llama(**changes: int) -> tuple[Any, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes | {"intermediate_size": 64} | changes)
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": torch.arange(5, 14)[None]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A transplanted Llama, trained for two updates by Trainer, and the folder that it wrote."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("trainer")
    torch.manual_seed(0)
    model, batch = llama()
    normscope.transplant(model, "peri-ln", inputs=batch)
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=2, learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    tokens = batch["input_ids"][0]
    rows = [{"input_ids": tokens, "labels": tokens} for _ in range(8)]
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    return model.eval(), folder / "saved"


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "LlamaModel", "AutoModelForCausalLM", "AutoModel"]
)
def test_a_class_of_transformers_does_not_load_a_transplanted_model_as_its_own(
    name: str, saved: tuple[Any, Path]
) -> None:
    """It would compute something else, without an error."""
    transformers = pytest.importorskip("transformers")
    _, folder = saved
    with pytest.raises(ValueError, match="has no `quant_method` attribute"):
        getattr(transformers, name).from_pretrained(folder)
    told = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert "normscope.transplant(model, FOLDER)" in told["load_with"]


def test_its_configuration_builds_the_model_that_takes_the_weights(
    saved: tuple[Any, Path],
) -> None:
    transformers = pytest.importorskip("transformers")
    model, folder = saved
    batch = {"input_ids": torch.arange(5, 14)[None]}
    config = transformers.AutoConfig.from_pretrained(folder)
    assert isinstance(config, transformers.LlamaConfig)
    other = transformers.AutoModelForCausalLM.from_config(config)
    normscope.transplant(other, str(folder), inputs=batch)
    assert torch.equal(other.eval()(**batch).logits, model(**batch).logits)
    assert other.transplanted.lines()[-1] == f"weights are those of {folder}"
    # Saved once more it is the same, and taken back it is a model that any class loads.
    other.save_pretrained(folder.parent / "again")
    again, first = (
        json.loads((one / "config.json").read_text()) for one in (folder.parent / "again", folder)
    )
    assert again == first
    normscope.untransplant(other).save_pretrained(folder.parent / "back")
    plain = transformers.LlamaForCausalLM.from_pretrained(folder.parent / "back").eval()
    assert torch.equal(plain(**batch).logits, other(**batch).logits)


def test_another_model_of_the_same_configuration_is_no_transplanted_one(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, batch = llama()
    beside = transformers.LlamaForCausalLM(model.config)
    normscope.transplant(model, "peri-ln", inputs=batch)
    assert all(one.config is model.config for one in model.modules() if hasattr(one, "config"))
    beside.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(**batch).logits, beside.eval()(**batch).logits)


def test_a_model_that_is_quantised_keeps_its_own_settings(tmp_path: Path) -> None:
    model, batch = llama()
    model.config.quantization_config = {"quant_method": "of its own"}
    normscope.untransplant(normscope.transplant(model, "peri-ln", inputs=batch))
    assert model.config.quantization_config == {"quant_method": "of its own"}


def test_weights_in_several_files_come_back(tmp_path: Path) -> None:
    model, batch = llama(hidden_size=64)
    perturb(normscope.transplant(model, "peri-ln", inputs=batch))
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    other, _ = llama(hidden_size=64)
    normscope.transplant(other, str(tmp_path), inputs=batch)
    assert torch.equal(other(**batch).logits, model.eval()(**batch).logits)
    index = tmp_path / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    for wrong in ("../model-1.safetensors", "", "..", 5, "a\0b"):
        table["weight_map"]["lm_head.weight"] = wrong
        index.write_text(json.dumps(table))
        other, _ = llama(hidden_size=64)
        with pytest.raises(normscope.UserError, match="a file in the folder is named alone"):
            normscope.transplant(other, str(tmp_path), inputs=batch)
