"""The head above encoders: the same function of the first token, whoever computes the encoder."""

from pathlib import Path

import pytest
import torch

from labelled_toy import tables, toy_encoder
from normscope.adapters.fine_tuning import encoder_in
from normscope.data.labelled import LabelledData, encoded
from normscope.errors import UserError
from normscope.exchange.export import FORMS, export
from normscope.finetune.classifier import GivenEncoder, OwnEncoder, SentenceClassifier
from normscope.finetune.start import open_start
from normscope.tasks.words import of_encoder

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")


def exported(folder: Path, placement: str, form: str) -> tuple[Path, LabelledData]:
    encoder, tokeniser = toy_encoder(placement)
    export(encoder, of_encoder(tokeniser), folder, FORMS[form])
    return folder, encoded(*tables(6, 3), tokeniser, sequence_length=32)


@pytest.mark.parametrize(
    ("placement", "form"), [("post-ln", "bert"), ("pre-ln", "roberta-prelayernorm")]
)
def test_a_run_and_its_export_have_one_head(tmp_path: Path, placement: str, form: str) -> None:
    folder, data = exported(tmp_path / "out", placement, form)
    encoder, _ = toy_encoder(placement)
    ours = SentenceClassifier(
        OwnEncoder(encoder), encoder.pooler, width=16, classes=2, dropout=0.0, seed=4
    )
    theirs = open_start(folder, dropout=0.0)
    assert (theirs.positions, theirs.width) == (40, 16)
    batch = data.batch([data.train[row] for row in range(6)])
    with torch.no_grad():
        wanted, found = ours(**batch), theirs.classifier(2, dropout=0.0, seed=4).eval()(**batch)
    torch.testing.assert_close(found["logits"], wanted["logits"], atol=1e-6, rtol=0)
    torch.testing.assert_close(found["loss"], wanted["loss"], atol=1e-6, rtol=0)
    # Closer than the rows are to each other, and than a head of another seed is.
    assert wanted["logits"].std(0).min() > 1e-4
    with torch.no_grad():
        other = theirs.classifier(2, dropout=0.0, seed=5).eval()(**batch)
    assert (other["logits"] - wanted["logits"]).abs().max() > 1e-3


def test_the_head_is_drawn_alike_above_every_encoder_and_the_pooler_is_kept() -> None:
    made = []
    for placement in ("post-ln", "pre-ln"):
        encoder, _ = toy_encoder(placement)
        head = SentenceClassifier(
            OwnEncoder(encoder), encoder.pooler, width=16, classes=3, dropout=0.1, seed=1
        )
        assert torch.equal(head.pooler.weight, encoder.pooler.weight)
        made.append(head.classifier.weight.detach())
    assert torch.equal(*made)
    assert float(made[0].std()) == pytest.approx(0.02, rel=0.3)


def test_the_loss_is_the_mean_cross_entropy_of_the_logits() -> None:
    encoder, tokeniser = toy_encoder("deepnorm")
    data = encoded(*tables(6, 3), tokeniser, sequence_length=32)
    model = SentenceClassifier(
        OwnEncoder(encoder), None, width=16, classes=2, dropout=0.0, seed=1
    ).double()
    found = model(**data.batch([data.train[row] for row in range(6)]))
    shares = torch.exp(found["logits"]) / torch.exp(found["logits"]).sum(-1, keepdim=True)
    right = shares[torch.arange(6), torch.from_numpy(data.train.labels_P)]
    torch.testing.assert_close(found["loss"], -right.log().mean(), atol=1e-12, rtol=0)


def test_dropout_is_the_asked_one_in_every_layer_of_a_foreign_encoder(tmp_path: Path) -> None:
    folder, _ = exported(tmp_path / "out", "post-ln", "bert")
    found = encoder_in(folder, dropout=0.25)
    rates = {one.p for one in found.model.modules() if isinstance(one, torch.nn.Dropout)}
    assert rates == {0.25}


def test_segments_beyond_those_an_encoder_knows_are_its_last() -> None:
    class Noted(torch.nn.Module):
        def forward(self, **given: torch.Tensor) -> tuple[torch.Tensor]:
            self.given = given
            return (torch.zeros(1, 4, 2),)

    grid = torch.tensor([[0, 0, 1, 1]])
    for segments, seen in ((2, [0, 0, 1, 1]), (1, [0, 0, 0, 0]), (0, None)):
        model = Noted()
        GivenEncoder(model, segments=segments)(grid, grid, grid)
        found = model.given.get("token_type_ids")
        assert (None if found is None else found[0].tolist()) == seen


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_a_folder_of_no_encoder_is_refused_by_its_kind(tmp_path: Path, kind: str) -> None:
    config = {
        "gpt2": transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=12),
        "t5": transformers.T5Config(
            d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=12
        ),
    }[kind]
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "out")
    with pytest.raises(UserError, match=f"holds a {kind}, and fine-tuning takes an encoder"):
        open_start(tmp_path / "out", dropout=0.1)


def test_a_folder_that_is_neither_a_run_nor_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a run folder \(it has no config\.toml\) nor"):
        open_start(tmp_path, dropout=0.1)
