"""The doctor on folders and models that were transplanted: under the placement that they have."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import normscope
from normscope.cli.main import main
from normscope.targets import opened, opened_on_meta
from normscope.transplant.saved import save

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
SAMPLE = {"tokens": 16, "sequences": 2, "seed": 0}
IDS = {"input_ids": torch.arange(5, 14)[None]}


def made(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{name}Config")(**sizes, **changes)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def opt() -> Any:
    return made("OPT", ffn_dim=64, word_embed_proj_dim=32)


def llama() -> Any:
    return made("Llama", intermediate_size=64)


def transplanted(model: Any, placement: str, folder: Path) -> Any:
    normscope.transplant(model, placement, inputs=IDS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter) * parameter.requires_grad
    model.save_pretrained(folder)
    return model


def said(monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> tuple[Any, str]:
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    found = capsys.readouterr()
    return code, " ".join((found.out + found.err).split())


@pytest.mark.parametrize("placement", ["peri-ln", "post-ln", "deepnorm"])
def test_a_folder_is_opened_with_its_weights_under_its_placement(
    placement: str, tmp_path: Path
) -> None:
    model = transplanted(llama(), placement, tmp_path)
    found = opened(str(tmp_path), [], **SAMPLE)
    assert torch.equal(found.model(**IDS).logits, model(**IDS).logits)
    assert found.wanted_placement == placement
    assert found.loading is not None
    assert found.loading.missing == found.loading.unexpected == ()


def test_the_doctor_finds_the_placement_and_nothing_wrong_with_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transplanted(llama(), "peri-ln", tmp_path)
    code, told = said(monkeypatch, capsys, "doctor", str(tmp_path), "--no-advice")
    assert code == 0
    assert "peri-ln, 2 blocks" in told
    assert "trained weights" in told
    assert "checkpoint-tensors" not in told


@pytest.mark.parametrize("change", ["a weight is gone", "another depth"])
def test_a_folder_whose_weights_do_not_fit_is_an_error_of_one_line(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from safetensors.torch import load_file, save_file

    transplanted(llama(), "peri-ln", tmp_path)
    if change == "another depth":
        table = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**table, "num_hidden_layers": 3}))
    else:
        found = load_file(tmp_path / "model.safetensors")
        del found["model.layers.1.placed.attention.norms.after.weight"]
        save_file(found, tmp_path / "model.safetensors")
    code, told = said(monkeypatch, capsys, "doctor", str(tmp_path))
    assert code == 2
    assert "its weights cannot be loaded, for the file lacks model.layers." in told
    assert "Traceback" not in told


def test_a_model_whose_configuration_has_a_flag_is_what_it_was_transplanted_to(
    tmp_path: Path,
) -> None:
    """OPT's says Pre-LN, by do_layer_norm_before."""
    model = transplanted(opt(), "post-ln", tmp_path)
    for diagnosis in (
        normscope.diagnose(model, IDS, advise=False),
        normscope.diagnose(opened(str(tmp_path), [], **SAMPLE).model, IDS, advise=False),
    ):
        assert {stack.placement for stack in diagnosis.stacks} == {"post-ln"}
        rules = {finding.id for finding in diagnosis.findings}
        assert not [rule for rule in rules if rule.startswith("placement")]
    wrong = normscope.diagnose(opt(), IDS, advise=False, wanted_placement="post-ln")
    assert [one for one in wrong.findings if one.id.startswith("placement")]


def test_a_configuration_alone_is_built_under_its_placement(tmp_path: Path) -> None:
    transplanted(llama(), "peri-ln", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for target in (tmp_path, tmp_path / "config.json"):
        found = opened(str(target), ["num_hidden_layers=3"], **SAMPLE)
        assert found.loading is None
        assert found.model.transplanted.placement == "peri-ln"
        assert len(found.model.model.layers) == 3


def test_what_cannot_be_asked_of_one_is_said(tmp_path: Path) -> None:
    transplanted(llama(), "peri-ln", tmp_path)
    with pytest.raises(normscope.UserError, match="whose configuration is fixed; leave it out"):
        opened(str(tmp_path), ["num_hidden_layers=3"], **SAMPLE)
    for target in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(normscope.UserError, match="leave --structure-only out"):
            opened_on_meta(str(target), [], tokens=16, sequences=2)


@pytest.mark.parametrize("with_configuration", [True, False])
def test_a_folder_of_the_verb_is_opened_where_its_target_is_no_code(
    with_configuration: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the configuration that is written beside the weights, or by the class of an older one."""
    sizes = ("n_layer=2", "n_embd=32", "n_head=4", "vocab_size=96")
    words = [word for size in sizes for word in ("--set", size)]
    out = str(tmp_path / "peri")
    assert not said(
        monkeypatch, capsys, "transplant", "GPT2Config", "--to", "peri-ln", "--out", out, *words
    )[0]
    with pytest.raises(ValueError, match="has no `quant_method` attribute"):
        transformers.GPT2LMHeadModel.from_pretrained(out)
    if not with_configuration:
        (Path(out) / "config.json").unlink()
    found = opened(out, [], **SAMPLE)
    assert type(found.model).__name__ == "GPT2LMHeadModel"
    assert found.model.transplanted.placement == "peri-ln"


def test_a_checkpoint_that_the_verb_moved_is_opened_with_its_own_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A body without a head, whose family has heads."""
    sizes = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, intermediate_size=64)
    transformers.LlamaModel(config).save_pretrained(tmp_path / "given")
    words = ["transplant", str(tmp_path / "given"), "--to", "peri-ln", "--out", str(tmp_path / "o")]
    assert said(monkeypatch, capsys, *words)[0] == 0
    found = opened(str(tmp_path / "o"), [], **SAMPLE)
    assert type(found.model).__name__ == "LlamaModel"
    code, told = said(
        monkeypatch, capsys, "transplant", str(tmp_path / "o"), *words[2:4], "--out", "x"
    )
    assert code == 2
    assert "transplanted already: call untransplant(model) first, or give the model that" in told


@pytest.mark.parametrize("target", ["ran.py:build", "ran:build", "../other", "/x", None, 5])
def test_no_code_runs_because_a_folder_names_it(target: Any, tmp_path: Path) -> None:
    (tmp_path / "ran.py").write_text(f"open({str(tmp_path / 'written')!r}, 'w')\n")
    model = normscope.transplant(torch.nn.Sequential(*layers()), "pre-ln", inputs=rows())
    save(model, tmp_path / "given", target=target, settings=[])
    with pytest.raises(normscope.UserError, match="no code is run because a folder names it"):
        opened(str(tmp_path / "given"), [], **SAMPLE)
    assert not (tmp_path / "written").exists()


def layers() -> list[torch.nn.Module]:
    return [torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)]


def rows() -> torch.Tensor:
    return torch.randn(2, 7, 32)
