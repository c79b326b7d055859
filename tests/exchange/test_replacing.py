"""A model under another placement: which weights it keeps, what is said of its function, and that it can be used."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from normscope.cli.main import main
from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.errors import UserError
from normscope.exchange.replacing import re_placed
from normscope.exchange.verbs import re_place_run
from normscope.model import DecoderConfig, EncoderConfig, EncoderDecoder, LanguageModel, Layout, MaskedEncoder
from normscope.placement import named, registered, registry
from normscope.runs.config import load
from normscope.runs.trained import load_run, write_run
from normscope.tasks.language_model import LanguageModelRunConfig
from normscope.tasks.masked_lm import MaskedRunConfig
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import RunFolder
from stacks import perturbed
from words import word_tokeniser

SIZES = {"width": 12, "ffn_width": 20, "heads": 3}
VOCABULARY = 30


def encoder(placement: str, **changes: object) -> MaskedEncoder:
    torch.manual_seed(1)
    config = EncoderConfig(**{"placement": placement, "blocks": 2, "positions": 16, **SIZES, **changes})
    return perturbed(MaskedEncoder(config, VOCABULARY), 1).float().eval()


def outputs(model: MaskedEncoder) -> torch.Tensor:
    ids = torch.randint(VOCABULARY, (12,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return model(ids, None, Layout(torch.tensor([5, 7])))


class TestWeights:
    def test_to_a_placement_with_one_norm_more(self):
        model = encoder("post-ln")
        new, change = re_placed(model, "pre-ln")
        assert dict(change.new) == {
            "encoder.finish.norm.main.weight": "from 1",
            "encoder.finish.norm.main.bias": "from 0",
        }
        assert change.dropped == ()
        old, now = dict(model.named_parameters()), dict(new.named_parameters())
        assert change.kept == len(old) == len(now) - 2
        assert all(torch.equal(old[name], now[name]) for name in old)
        assert new.config == dataclasses.replace(model.config, placement="pre-ln")

    def test_and_back(self):
        model = encoder("post-ln")
        back, change = re_placed(re_placed(model, "pre-ln")[0], "post-ln")
        assert change.dropped == ("encoder.finish.norm.main.weight", "encoder.finish.norm.main.bias")
        assert torch.equal(outputs(back), outputs(model))

    def test_scaled_skips_make_what_the_formula_says(self):
        """DeepNorm of weights whose branches are skip_scale times as large is Post-LN of the weights as they were."""
        model = encoder("post-ln", norm_epsilon=1e-12)
        new, change = re_placed(model, "deepnorm")
        assert (change.new, change.dropped) == ({}, ())
        scale = new.encoder.placement.skip_scale
        with torch.no_grad():
            for sublayer in new.encoder.sublayers():
                last = list(sublayer.f.matrices())[-1][1]
                last.weight *= scale
                last.bias *= scale
        torch.testing.assert_close(outputs(new), outputs(model), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(outputs(re_placed(model, "deepnorm")[0]), outputs(model), atol=0.01)

    def test_a_norm_of_another_shape_is_new(self):
        _, change = re_placed(encoder("pre-ln"), "scale-norm")
        name = "encoder.blocks.1.attention.norm.main."
        assert change.new[name + "weight"] == f"from {12**0.5:.4g}"
        assert {name + "weight", name + "bias"} <= set(change.dropped)

    def test_weights_on_the_sphere(self):
        new, change = re_placed(encoder("pre-ln"), "ngpt")
        assert change.on_sphere
        assert "ngpt keeps vectors of weights at length 1: they were put there" in change.lines()
        lengths = new.encoder.blocks[0].attention.f.query.weight.norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(12))

    @pytest.mark.parametrize("placement", registered())
    def test_to_every_placement(self, placement):
        if "encoder-only" not in named(placement).models:
            with pytest.raises(UserError, match="is not defined for encoder-only models"):
                re_placed(encoder("post-ln"), placement)
            return
        new, change = re_placed(encoder("post-ln"), placement)
        assert outputs(new).isfinite().all()
        tensors = len([*new.named_parameters(), *(n for n in new.state_dict() if ".schedules." in f".{n}")])
        assert change.kept + len(change.new) == tensors

    def test_an_unknown_placement(self):
        with pytest.raises(UserError, match="unknown placement 'postlm'; did you mean "):
            re_placed(encoder("post-ln"), "postlm")


class TestStatement:
    def test_gains_of_matrices(self):
        """DeepNorm with 2 blocks: (8 · 2)^(-1/4) = 1/2 for value, output and the feed-forward."""
        _, change = re_placed(encoder("post-ln"), "deepnorm")
        assert dict(change.gains) == {
            f"encoder {name}": pytest.approx(0.5)
            for name in ("attention value", "attention output", "feed_forward ffn_in", "feed_forward ffn_out")
        }
        (said,) = [line for line in change.lines() if line.startswith("initial gains")]
        assert "encoder attention value times 0.5" in said
        assert "The weights stay as they are" in said

    def test_the_same_function(self):
        model = encoder("pre-ln")
        new, change = re_placed(model, "gpt2")
        assert change.same_function
        assert torch.equal(outputs(new), outputs(model))
        for other in ("post-ln", "peri-ln", "mix-ln", "ngpt"):
            assert not re_placed(encoder("pre-ln", blocks=8), other)[1].same_function

    def test_another_epsilon_is_another_function(self, monkeypatch):
        """So that a formula alone does not say it."""

        class Blunt(named("pre-ln")):
            name, norm_epsilon = "blunt", 1e-2

        monkeypatch.setitem(registry._REGISTRY, "blunt", Blunt)
        model = encoder("pre-ln")
        new, change = re_placed(model, "blunt")
        assert (change.new, change.dropped) == ({}, ())
        assert not change.same_function
        assert not torch.allclose(outputs(new), outputs(model), atol=1e-4)
        assert re_placed(encoder("pre-ln", norm_epsilon=1e-2), "blunt")[1].same_function

    def test_blocks_are_told_together(self):
        lines = re_placed(encoder("pre-ln"), "sandwich")[1].lines()
        assert [line for line in lines if line.startswith("formula: ")]
        assert sum(line.startswith(("new: ", "dropped: ")) for line in lines) < len(
            list(encoder("pre-ln").parameters())
        )
        assert any(line.startswith("new: encoder.blocks.*.attention.norm.") and " (2), from " in line for line in lines)


@pytest.fixture
def tokeniser() -> TextTokeniser:
    return word_tokeniser("the", "cat", "and", "dog", "sleep")


@pytest.fixture
def masked_run(tmp_path, tokeniser) -> Path:
    config = MaskedRunConfig(
        model=EncoderConfig(placement="post-ln", blocks=2, positions=16, **SIZES),
        data=dataclasses.replace(MaskedRunConfig().data, sequence_length=16),
        train=dataclasses.replace(MaskedRunConfig().train, device="cpu", threads=1),
    )
    model = perturbed(MaskedEncoder(config.model, len(tokeniser)), 1).float()
    write_run(
        tmp_path / "masked",
        config,
        model,
        lambda at: tokeniser.save(at / "tokenizer.json"),
        made_from="a test",
    )
    return tmp_path / "masked"


class TestRuns:
    def test_measured_on_validation_text(self, masked_run, tokeniser, tmp_path, monkeypatch):
        sentences = [["the cat and the dog sleep", "the dog sleep"]] * 4
        corpus = DocumentCorpus.of_texts(tokeniser, {"train": sentences, "valid": sentences})
        monkeypatch.setattr(opening, "open_documents", lambda config: corpus)
        _, effect = re_place_run(masked_run, tmp_path / "out", "pre-ln")
        assert effect.text == f"{len(corpus.splits['valid'].tokens)} tokens of validation text"
        old, new = (load_run(path).model for path in (masked_run, tmp_path / "out"))
        ids = tokeniser.ids
        rows = torch.from_numpy(corpus.splits["valid"].tokens.astype("int64")).split(14)
        tokens = [torch.cat([torch.tensor([ids["[CLS]"]]), row, torch.tensor([ids["[SEP]"]])]) for row in rows]
        layout = Layout(torch.tensor([len(row) for row in tokens]))
        whole = torch.cat(tokens)
        hidden_at = [i for i in range(len(whole)) if whole[i] not in (ids["[CLS]"], ids["[SEP]"])][::7]
        shown = whole.clone()
        shown[hidden_at] = ids["[MASK]"]
        with torch.no_grad():
            before, after = (model(shown, None, layout) for model in (old, new))
            probabilities = new.logits(after[hidden_at]).softmax(-1)[range(len(hidden_at)), whole[hidden_at]]
        assert effect.nll_after == pytest.approx(-probabilities.log().mean().item(), rel=1e-5)
        assert effect.hidden_change == pytest.approx(((after - before).norm() / before.norm()).item(), rel=1e-5)
        assert effect.nll_after != pytest.approx(effect.nll_before, abs=1e-3)

    def test_of_another_vocabulary_the_text_is_not_used(self, masked_run, tmp_path):
        """Its ids would be other words."""
        other = DocumentCorpus.of_texts(word_tokeniser("a", "b", "c"), {"valid": [["a b c a b c a b c"]]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "open_documents", lambda config: other)
            _, effect = re_place_run(masked_run, tmp_path / "out", "pre-ln")
        assert effect.text == "random tokens (the corpus cannot be reached)"
        assert effect.hidden_change > 0.01

    def test_settings_of_the_new_run(self, masked_run, tmp_path, monkeypatch):
        monkeypatch.setattr(opening, "open_documents", _unreachable)
        re_place_run(masked_run, tmp_path / "out", "deepnorm", settings=["optimizer.peak_lr=2e-5"])
        config, before = (load(RunFolder(at).config_file) for at in (tmp_path / "out", masked_run))
        assert config.optimizer.peak_lr == 2e-5
        assert config.model == dataclasses.replace(before.model, placement="deepnorm")
        with pytest.raises(UserError, match="and stays: move it away, or choose another place"):
            re_place_run(masked_run, tmp_path / "out", "pre-ln")
        with pytest.raises(UserError, match="unknown key"):
            re_place_run(masked_run, tmp_path / "other", "pre-ln", settings=["optimizer.lr=1"])
        assert not (tmp_path / "other").exists()

    def test_a_language_model(self, tokeniser, tmp_path, monkeypatch):
        monkeypatch.setattr(opening, "open_documents", _unreachable)
        common = LanguageModelRunConfig()
        config = dataclasses.replace(
            common,
            model=DecoderConfig(blocks=2, positions=16, **SIZES),
            data=dataclasses.replace(common.data, sequence_length=16),
            train=dataclasses.replace(common.train, device="cpu", threads=1),
        )
        model = perturbed(LanguageModel(config.model, len(tokeniser)), 1).float()
        write_run(tmp_path / "lm", config, model, lambda at: tokeniser.save(at / "tokenizer.json"), made_from="")
        change, effect = re_place_run(tmp_path / "lm", tmp_path / "out", "gpt2")
        assert change.same_function
        assert effect.hidden_change == 0
        assert effect.nll_after == effect.nll_before


def _unreachable(config: object) -> None:
    raise UserError("no corpus")


def test_the_three_verbs(masked_run, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    monkeypatch.setattr(opening, "open_documents", _unreachable)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    code, out, _ = call("export", masked_run, tmp_path / "theirs")
    assert code == 0
    assert "bert, opened by transformers.BertModel; its outputs differ from ours by at most " in " ".join(out.split())
    assert float(out.split()[-1]) < 1e-5
    assert json.loads((tmp_path / "theirs/config.json").read_text())["model_type"] == "bert"
    code, out, _ = call("import", tmp_path / "theirs", tmp_path / "back")
    assert (code, " ".join(out.split())) == (0, f"{tmp_path / 'back'}: task masked-lm, update 0")
    code, out, _ = call("convert-placement", tmp_path / "back", tmp_path / "pre", "--placement", "pre-ln")
    assert code == 0
    assert "new: encoder.finish.norm.main.weight, from 1" in out.splitlines()
    assert "measured on random tokens" in out
    code, out, _ = call("export", tmp_path / "pre", tmp_path / "theirs-pre")
    assert "without next_sentence.weight, next_sentence.bias" in " ".join(out.split())
    code, out, err = call("export", tmp_path / "pre", tmp_path / "no", "--format", "bert")
    assert (code, out) == (2, "")
    assert "does not compute placement 'pre-ln'" in " ".join(err.split())
    assert not (tmp_path / "no").exists()


def test_a_translation_run_goes_on_training(tmp_path):
    """From the checkpoint that re-placing wrote, with a fresh optimiser, to the end of its own duration."""
    from normscope.runs.run import train_run
    from tiny import tiny

    config = tiny("train.duration=3", "train.validate_every=3", "train.checkpoint_every=3", 'model.placement="post-ln"')
    train_run(config, tmp_path / "run")
    _, effect = re_place_run(tmp_path / "run", tmp_path / "out", "pre-ln", settings=["train.duration=2"])
    assert effect.text == "16 validation pairs"
    started = load_run(tmp_path / "out").model
    trained = load_run(tmp_path / "run").model
    assert isinstance(started, EncoderDecoder)
    assert torch.equal(started.target_embedding.weight, trained.target_embedding.weight)
    new = load(RunFolder(tmp_path / "out").config_file)
    assert isinstance(new, TranslationRunConfig)
    assert new.model == dataclasses.replace(config.model, placement="pre-ln")
    progress = train_run(new, tmp_path / "out")
    assert progress.update == 2
    finished = load_run(tmp_path / "out", which="last").model
    assert not torch.equal(finished.target_embedding.weight, started.target_embedding.weight)
