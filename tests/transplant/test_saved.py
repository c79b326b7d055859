"""A transplanted model comes back from a folder: by the verb, and by what transformers saves."""

import copy
import json
import sys
from pathlib import Path

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
