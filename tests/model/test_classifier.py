"""The pair classifier beside transformers' BERT, and what it takes of a pre-trained encoder."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from normscope.model import EncoderConfig, Layout, MaskedEncoder, PairClassifier

VOCABULARY, CLASSES = 40, 3
LENGTHS, SECOND_FROM = (9, 4, 7), (5, 2, 6)
SIZES = {"width": 12, "ffn_width": 20, "heads": 3, "blocks": 2, "positions": 16}

_LAYER = {
    "attention.f.query": "attention.self.query",
    "attention.f.key": "attention.self.key",
    "attention.f.value": "attention.self.value",
    "attention.f.output": "attention.output.dense",
    "attention.norm.main": "attention.output.LayerNorm",
    "feed_forward.f.ffn_in": "intermediate.dense",
    "feed_forward.f.ffn_out": "output.dense",
    "feed_forward.norm.main": "output.LayerNorm",
}
_OTHERS = {
    "embedding.weight": "bert.embeddings.word_embeddings.weight",
    "embedding.positions": "bert.embeddings.position_embeddings.weight",
    "embedding.segments": "bert.embeddings.token_type_embeddings.weight",
    "embedding.norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "classifier": "classifier",
}


def classifier(dropout: float = 0.0, **changes: object) -> PairClassifier:
    given = {"dropout": 0.0, "attention_dropout": 0.0, "norm_epsilon": 1e-12} | SIZES | changes
    return PairClassifier(EncoderConfig(**given), VOCABULARY, CLASSES, dropout=dropout)  # type: ignore[arg-type]


def their_name(ours: str) -> str:
    if ours.startswith("encoder."):
        _, _, block, *rest = ours.split(".")
        module, parameter = ".".join(rest[:-1]), rest[-1]
        return f"bert.encoder.layer.{block}.{_LAYER[module]}.{parameter}"
    if ours in _OTHERS:
        return _OTHERS[ours]
    module, _, parameter = ours.rpartition(".")
    return f"{_OTHERS[module]}.{parameter}"


def batch() -> tuple[Tensor, Tensor, Tensor, Layout]:
    tokens = torch.randint(5, VOCABULARY, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
    segments = torch.cat([(torch.arange(n) >= at).long() for n, at in zip(LENGTHS, SECOND_FROM, strict=True)])
    return tokens, segments, torch.tensor([2, 0, 1]), Layout(torch.tensor(LENGTHS))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_loss_and_gradients_are_those_of_transformers(dtype: torch.dtype, tolerance: float) -> None:
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    torch.manual_seed(1)
    ours = classifier().to(dtype).eval()
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=SIZES["width"],
        intermediate_size=SIZES["ffn_width"],
        num_attention_heads=SIZES["heads"],
        num_hidden_layers=SIZES["blocks"],
        max_position_embeddings=SIZES["positions"],
        num_labels=CLASSES,
    )
    theirs = transformers.BertForSequenceClassification(config).to(dtype).eval()
    their_parameters = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter += 0.2 * torch.randn_like(parameter)
            their_parameters.pop(their_name(name)).copy_(parameter)
    assert not their_parameters

    tokens, segments, labels, layout = batch()
    functional.cross_entropy(ours.logits(ours(tokens, segments, layout), layout), labels).backward()
    grid = {"input_ids": layout.unpack(tokens), "token_type_ids": layout.unpack(segments)}
    found = theirs(**grid, attention_mask=layout.keep_BT.long(), labels=labels)
    found.loss.backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = gradients[their_name(name)].grad
        torch.testing.assert_close(parameter.grad, wanted, rtol=tolerance, atol=tolerance, msg=lambda m: f"{name}: {m}")  # noqa: B023
    torch.testing.assert_close(
        ours.logits(ours(tokens, segments, layout), layout), found.logits, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("placement", ["post-ln", "pre-ln", "admin", "branch-norm", "attn-res"])
def test_it_starts_with_every_weight_of_the_pretrained_encoder_and_a_classifier_of_its_own(placement: str) -> None:
    torch.manual_seed(1)
    ours = classifier(placement=placement)
    pretrained = MaskedEncoder(ours.config, VOCABULARY)
    with torch.no_grad():
        for tensor in (*pretrained.parameters(), *pretrained.buffers()):
            tensor += 0.3
    drawn = ours.classifier.weight.clone()
    ours.start_from(pretrained)
    tokens, segments, _, layout = batch()
    for model in (ours, pretrained):
        model.eval()
    hidden = pretrained(tokens, segments, layout)
    assert torch.equal(ours(tokens, segments, layout), hidden)
    assert torch.equal(ours.pooled(hidden, layout), pretrained.pooled(hidden, layout))
    assert torch.equal(ours.classifier.weight, drawn)
    assert 0.01 < float(drawn.detach().std()) < 0.03  # N(0, 0.02²)


def test_an_encoder_of_other_sizes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        classifier().start_from(MaskedEncoder(EncoderConfig(**SIZES | {"width": 24}), VOCABULARY))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the pre-trained encoder has no encoder"):
        classifier().start_from(MaskedEncoder(EncoderConfig(**SIZES | {"blocks": 1}), VOCABULARY))  # type: ignore[arg-type]


def test_dropout_is_on_the_pooled_vector_in_training_alone() -> None:
    torch.manual_seed(1)
    model = classifier(dropout=0.5)
    tokens, segments, _, layout = batch()
    hidden = model(tokens, segments, layout)
    first, second = (model.logits(hidden, layout) for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model.logits(hidden, layout), model.classifier(model.pooled(hidden, layout)))
