"""BERT checkpoints as transformers saves them, opened as runs: the same outputs, and what is missing is told."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.errors import UserError
from normscope.exchange.verbs import export_run, import_run
from normscope.model import Layout
from normscope.runs.config import load
from normscope.runs.trained import load_run
from normscope.train import RunFolder
from words import word_tokeniser

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

WORDS = ["the", "cat", "dog", "##s", "sleep", "and", ".", "a", "b", "##a", "##b", "[unused0]"]
VOCABULARY = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
SENTENCES = ["The cats sleep.", "A dog and the cat", "ab zebra"]
SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "max_position_embeddings": 24,
}


def saved(folder: Path, kind: str = "BertForPreTraining", **config: object) -> Path:
    """A folder as transformers writes it, every weight off its initial value."""
    torch.manual_seed(5)
    model = getattr(transformers, kind)(transformers.BertConfig(**(SMALL | config)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    transformers.BertTokenizer(vocab=VOCABULARY).save_pretrained(folder)
    return folder


@pytest.fixture
def corpus(monkeypatch) -> DocumentCorpus:
    """What `data.corpus=toy` opens here."""
    tokeniser = word_tokeniser("the", "cat", "dog", "sleep")
    made = DocumentCorpus.of_texts(tokeniser, {"train": [["the cat sleep"]]})
    monkeypatch.setattr(opening, "open_documents", lambda config: made)
    return made


def changed(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("BertForPreTraining", {}),
        ("BertModel", {"layer_norm_eps": 1e-3, "hidden_act": "gelu_new"}),
        ("BertForMaskedLM", {"hidden_act": "relu"}),
    ],
)
def test_the_same_hidden_states(kind, config, tmp_path):
    folder = saved(tmp_path / "theirs", kind, **config)
    import_run(folder, tmp_path / "run")
    run = load_run(tmp_path / "run", device="cpu")
    theirs = transformers.BertModel.from_pretrained(folder, dtype=torch.float64).eval()
    given = transformers.AutoTokenizer.from_pretrained(folder)(
        SENTENCES[:2], SENTENCES[1:], padding=True, return_tensors="pt"
    )
    layout = Layout(given["attention_mask"].sum(1))
    with torch.no_grad():
        output = theirs(**given)
        model = run.model.double()
        hidden = model(layout.pack(given["input_ids"]), layout.pack(given["token_type_ids"]), layout)
    torch.testing.assert_close(hidden, layout.pack(output.last_hidden_state), rtol=1e-10, atol=1e-10)
    if output.pooler_output is not None and kind != "BertForMaskedLM":
        torch.testing.assert_close(model.pooled(hidden, layout), output.pooler_output, rtol=1e-10, atol=1e-10)
    assert (run.config.task, run.update, run.config.model.placement) == ("masked-lm", 0, "post-ln")


def test_there_and_back(tmp_path):
    """An export of the import has the same tensors, and a tokeniser that gives the same ids."""
    folder = saved(tmp_path / "theirs")
    assert import_run(folder, tmp_path / "run").drawn == ()
    assert export_run(tmp_path / "run", tmp_path / "back").difference < 1e-5
    before, after = (load_file(at / "model.safetensors") for at in (folder, tmp_path / "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    one, other = (transformers.AutoTokenizer.from_pretrained(at) for at in (folder, tmp_path / "back"))
    pair = SENTENCES[0], SENTENCES[2]
    assert other(*pair)["input_ids"] == one(*pair)["input_ids"]
    assert other(*pair)["token_type_ids"] == one(*pair)["token_type_ids"]
    assert other.decode(one(SENTENCES[1])["input_ids"], skip_special_tokens=True) == "a dog and the cat"
    assert (other.pad_token_id, other.mask_token) == (0, "[MASK]")


class TestWhatTheCheckpointLacks:
    def test_heads(self, tmp_path):
        lacking = import_run(saved(tmp_path / "theirs", "BertModel"), tmp_path / "run")
        heads = ("next_sentence", "transform", "transform_norm")
        expected = {f"{head}.{part}" for head in heads for part in ("weight", "bias")} | {"output_bias"}
        assert set(lacking.drawn) == expected
        assert lacking.unused == ()

    def test_drawn_weights_are_those_of_the_seed(self, tmp_path):
        folder = saved(tmp_path / "theirs", "BertModel")
        weights = []
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            import_run(folder, tmp_path / name, settings=[f"seed={seed}"])
            weights.append(load_run(tmp_path / name).model.transform.weight)
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
        assert weights[0].std().item() == pytest.approx(0.02, rel=0.3)

    def test_a_pooler_and_a_classifier_that_is_not_ours(self, tmp_path):
        lacking = import_run(saved(tmp_path / "theirs", "BertForTokenClassification"), tmp_path / "run")
        assert {"pooler.weight", "pooler.bias", "output_bias"} <= set(lacking.drawn)
        assert lacking.unused == ("classifier.bias", "classifier.weight")

    def test_a_weight_of_the_encoder(self, tmp_path):
        folder = saved(tmp_path / "theirs")
        tensors = load_file(folder / "model.safetensors")
        del tensors["bert.encoder.layer.1.output.dense.bias"]
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(UserError, match=r"the checkpoint lacks bert\.encoder\.layer\.1\.output\.dense\.bias$"):
            import_run(folder, tmp_path / "run")

    def test_names_of_the_first_checkpoints(self, tmp_path):
        folder = saved(tmp_path / "theirs")
        tensors = load_file(folder / "model.safetensors")
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        old["bert.embeddings.position_ids"] = torch.arange(24.0)[None]
        assert old.keys() != tensors.keys()
        save_file(old, folder / "model.safetensors")
        lacking = import_run(folder, tmp_path / "run")
        assert lacking.drawn == lacking.unused == ()


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"model_type": "roberta"}, "model_type is 'roberta'; what can be imported is bert, llama"),
            ({"type_vocab_size": 1}, "type_vocab_size is 1, and our encoder has 2 alone"),
            ({"position_embedding_type": "relative_key"}, "'relative_key', and our encoder has 'absolute' alone"),
            ({"is_decoder": True}, "is_decoder is True"),
            ({"hidden_act": "silu"}, "hidden_act is 'silu'; ours are gelu, gelu_pytorch_tanh, relu, gelu_new"),
            ({"hidden_size": 13}, "width=13 must be even and a multiple of heads=3"),
            ({"hidden_size": "twelve"}, "hidden_size is 'twelve'; it must be of type int"),
            ({"num_hidden_layers": True}, "num_hidden_layers is True; it must be of type int"),
            ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; it must be of type str"),
            ({"hidden_dropout_prob": None}, "hidden_dropout_prob is None; it must be of type float or int"),
            ({"num_hidden_layers": 10**9}, "blocks must be at most 1,000, got 1,000,000,000"),
            ({"max_position_embeddings": 10**9}, r"is \(24, 12\), and config.json asks for \(1000000000, 12\)"),
            ({"hidden_size": 3 * 2**30}, r"is \(17, 12\), and config.json asks for \('any', 3221225472\)"),
            ({"hidden_size": 2**70}, "1180591620717411303424' is an integer beyond 64 bits"),
            ({"num_hidden_layers": 3}, r"lacks bert\.encoder\.layer\.2\.attention.*, which .*config\.json asks for"),
            (
                {"intermediate_size": 24},
                r"intermediate.dense.weight is \(20, 12\), and config.json asks for \(24, 12\)",
            ),
        ],
    )
    def test_of_a_configuration(self, values, message, tmp_path):
        folder = changed(saved(tmp_path / "theirs"), **values)
        with pytest.raises(UserError, match=message):
            import_run(folder, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_of_a_folder(self, tmp_path):
        whole = saved(tmp_path / "theirs")
        for name, message in (
            ("config.json", "cannot be read .*; give a folder that transformers saved"),
            ("model.safetensors", r"is missing; .*\.save_pretrained\(NEW_FOLDER, max_shard_size="),
            ("tokenizer.json", "is missing; transformers writes one"),
        ):
            folder = Path(shutil.copytree(whole, tmp_path / f"without-{name}"))
            (folder / name).unlink()
            with pytest.raises(UserError, match=message):
                import_run(folder, tmp_path / "run")
            (folder / name).write_text("{")
            with pytest.raises(UserError, match=name):
                import_run(folder, tmp_path / "run")
        with pytest.raises(UserError, match="and stays: move it away, or choose another place"):
            import_run(whole, tmp_path)

    def test_another_vocabulary(self, tmp_path):
        folder = saved(tmp_path / "theirs", vocab_size=30)
        with pytest.raises(UserError, match=r"the model has 30 tokens, and its tokenizer\.json 17"):
            import_run(folder, tmp_path / "run")

    def test_an_output_table_of_its_own(self, tmp_path):
        folder = saved(tmp_path / "theirs")
        tensors = load_file(folder / "model.safetensors")
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] * 2
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(UserError, match="not tied to the embedding, and ours is"):
            import_run(folder, tmp_path / "run")

    def test_settings_that_the_weights_were_not_made_for(self, corpus, tmp_path):
        folder = saved(tmp_path / "theirs")
        for setting in ("model.placement=pre-ln", "model.heads=2"):
            with pytest.raises(UserError, match=r"only dropout, .* can be set: its weights were made for the rest"):
                import_run(folder, tmp_path / "run", settings=[setting])
        with pytest.raises(UserError, match="was prepared with another tokeniser"):
            import_run(folder, tmp_path / "run", settings=["data.corpus=toy"])


def test_a_corpus_to_go_on_with(corpus, tmp_path):
    """With the corpus's own tokeniser the imported run has its fingerprint, which training compares."""
    folder = saved(tmp_path / "theirs", vocab_size=len(corpus.tokeniser))
    corpus.tokeniser.save(folder / "tokenizer.json")
    import_run(folder, tmp_path / "run", settings=["data.corpus=toy", "model.dropout=0.0", "optimizer.peak_lr=1e-4"])
    config = load(RunFolder(tmp_path / "run").config_file)
    assert (config.model.dropout, config.optimizer.peak_lr, config.data.sequence_length) == (0.0, 1e-4, 24)
    assert RunFolder(tmp_path / "run").environment()["data_fingerprint"] == corpus.fingerprint
    assert str(folder) in RunFolder(tmp_path / "run").environment()["made_from"]
