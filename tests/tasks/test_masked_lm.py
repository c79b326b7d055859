"""BERT's losses against `transformers.BertForPreTraining`: the two losses, every gradient, and what
validation says.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope.data.documents.batches import PairBatch
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import CLS, MASK, PAD, SEP, TextTokeniser
from normscope.data.opening import TextDataConfig
from normscope.data.toy import toy_pairs
from normscope.errors import UserError
from normscope.model import EncoderConfig, Layout, MaskedEncoder
from normscope.tasks import masked_lm
from stacks import perturbed

BLOCKS, WIDTH, HEADS, FFN_WIDTH, POSITIONS = 3, 24, 3, 40, 48
LENGTH = 40
CONFIG = EncoderConfig(
    width=WIDTH,
    ffn_width=FFN_WIDTH,
    heads=HEADS,
    blocks=BLOCKS,
    positions=POSITIONS,
    dropout=0.0,
    attention_dropout=0.0,
    norm_epsilon=1e-12,
)


@pytest.fixture(scope="module")
def corpus() -> DocumentCorpus:
    """Documents of one to nine sentences, so that pairs have many lengths."""
    texts = [english for _, english in toy_pairs(300, seed=1, split="train")]
    tokeniser = TextTokeniser.learn(texts, 300, kind="wordpiece", lowercase=True)
    documents, following = [], iter(texts)
    for number in range(60):
        documents.append([next(following) for _ in range(1 + number % 9)])
    return DocumentCorpus.of_texts(
        tokeniser, {"train": documents[:40], "valid": documents[40:], "test": documents[50:]}
    )


def task(
    corpus: DocumentCorpus, *, seed: int = 1, batch_sequences: int = 6, **config: object
) -> Any:
    data = TextDataConfig(sequence_length=LENGTH, batch_sequences=batch_sequences)
    asked = masked_lm.MaskedRunConfig(
        seed=seed, data=data, masked_lm=masked_lm.MaskedConfig(**config)
    )
    return masked_lm._MaskedObjective(corpus, asked, torch.device("cpu"))


def names() -> dict[str, str]:
    """Our parameters -> those of transformers."""
    modules = {
        "embedding.norm": "bert.embeddings.LayerNorm",
        "pooler": "bert.pooler.dense",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "next_sentence": "cls.seq_relationship",
    }
    for block in range(BLOCKS):
        ours, theirs = f"encoder.blocks.{block}", f"bert.encoder.layer.{block}"
        modules |= {
            f"{ours}.attention.f.{n}": f"{theirs}.attention.self.{n}"
            for n in ("query", "key", "value")
        }
        modules |= {
            f"{ours}.attention.f.output": f"{theirs}.attention.output.dense",
            f"{ours}.attention.norm.main": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.feed_forward.f.ffn_in": f"{theirs}.intermediate.dense",
            f"{ours}.feed_forward.f.ffn_out": f"{theirs}.output.dense",
            f"{ours}.feed_forward.norm.main": f"{theirs}.output.LayerNorm",
        }
    tables = {
        "embedding.weight": "bert.embeddings.word_embeddings.weight",
        "embedding.positions": "bert.embeddings.position_embeddings.weight",
        "embedding.segments": "bert.embeddings.token_type_embeddings.weight",
        "output_bias": "cls.predictions.bias",
    }
    return tables | {
        f"{o}.{leaf}": f"{t}.{leaf}" for o, t in modules.items() for leaf in ("weight", "bias")
    }


def theirs_of(ours: MaskedEncoder, vocabulary: int, dtype: torch.dtype) -> nn.Module:
    transformers = pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
    )
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        intermediate_size=FFN_WIDTH,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForPreTraining(config).to(dtype).train()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameters[names()[name]].copy_(parameter)
    assert set(names().values()) == parameters.keys()  # nothing of theirs is left as it was drawn
    return model


def padded(batch: PairBatch, values: Tensor, fill: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(
        values.split(batch.lengths_B.tolist()), batch_first=True, padding_value=fill
    )


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("whole_words", [False, True])
def test_losses_and_every_gradient_are_those_of_transformers(
    corpus: DocumentCorpus, dtype: torch.dtype, close: float, whole_words: bool
) -> None:
    torch.manual_seed(0)
    vocabulary = len(corpus.tokeniser)
    ours = perturbed(MaskedEncoder(CONFIG, vocabulary), 1).to(dtype)
    theirs = theirs_of(ours, vocabulary, dtype)
    made = task(corpus, whole_words=whole_words)
    batch = made.micro_batch(2)
    assert len(set(batch.lengths_B.tolist())) > 1  # padded on their side
    assert len(set(batch.is_random_B.tolist())) == 2

    loss, masked = made.loss_sums(ours, batch)
    labels = torch.full_like(batch.tokens_N, -100)
    labels[batch.masked_M] = batch.targets_M
    real = torch.ones_like(batch.tokens_N)
    inputs = {
        "input_ids": padded(batch, batch.tokens_N, corpus.tokeniser.ids[PAD]),
        "token_type_ids": padded(batch, batch.segments_N, 0),
        "attention_mask": padded(batch, real, 0),
    }
    out = theirs(
        **inputs, labels=padded(batch, labels, -100), next_sentence_label=batch.is_random_B
    )
    tolerance = {"rtol": close, "atol": close}
    count = made.target_tokens(batch)
    torch.testing.assert_close(loss / count, out.loss, **tolerance)
    alone = theirs(**inputs).prediction_logits[padded(batch, labels, -100) != -100]
    torch.testing.assert_close(
        masked / count,
        nn.functional.cross_entropy(alone, labels[batch.masked_M]),
        check_dtype=False,
        **tolerance,
    )
    (loss / count).backward()
    out.loss.backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = gradients[names()[name]].grad
        assert parameter.grad is not None
        assert wanted is not None
        torch.testing.assert_close(
            parameter.grad, wanted, **tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
        assert wanted.abs().max() > (
            0 if name.endswith("key.bias") else 1e-4
        )  # a comparison of zeros says nothing


def test_an_update_of_several_batches_weighs_pairs_by_their_batch_s_masked_tokens(
    corpus: DocumentCorpus,
) -> None:
    """The mean loss that an update reports, by its definition."""
    model = perturbed(MaskedEncoder(CONFIG, len(corpus.tokeniser)), 1)
    made = task(corpus)
    batches = [made.micro_batch(i) for i in range(3)]
    sums = [made.loss_sums(model, batch) for batch in batches]
    counts = [made.target_tokens(batch) for batch in batches]
    total = sum(counts)
    pairs = [(loss - masked) / count for (loss, masked), count in zip(sums, counts, strict=True)]
    wanted = sum(m for _, m in sums) / total + sum(
        p * c / total for p, c in zip(pairs, counts, strict=True)
    )
    torch.testing.assert_close(sum(loss for loss, _ in sums) / total, wanted)
    assert 0.3 < float(pairs[0].detach()) < 2  # near ln 2: a mean over pairs, not a sum


def test_validation_is_the_mean_over_the_same_pairs_whatever_the_run(
    corpus: DocumentCorpus,
) -> None:
    model = perturbed(MaskedEncoder(replace(CONFIG, dropout=0.5), len(corpus.tokeniser)), 1).train()
    first = task(corpus).validate(model)
    assert model.training
    assert task(corpus, seed=7).validate(model) == first  # equal to the bit
    other = task(corpus, seed=7, batch_sequences=11, packings=3).validate(model)
    assert other == pytest.approx(first, rel=1e-12)
    assert first["loss_nats"] == pytest.approx(
        first["nll_nats"] + first["next_sentence_nats"], rel=1e-15
    )
    assert first["nll_bits"] == pytest.approx(first["nll_nats"] / math.log(2), rel=1e-15)
    assert task(corpus).evaluate(model, "test") != first
    assert task(corpus, valid_sequences=3).validate(model) != first


def test_validation_by_hand(corpus: DocumentCorpus) -> None:
    """One pair at a time, with the plain logits."""
    model = perturbed(MaskedEncoder(CONFIG, len(corpus.tokeniser)), 1).eval()
    made = task(corpus, batch_sequences=1, valid_sequences=7)
    source = made._source("valid", 0, 1)
    nll, pairs, right, tokens = 0.0, 0.0, 0, 0
    with torch.no_grad():
        for index in range(7):
            batch = source.batch([index], epoch=0)
            layout = Layout(batch.lengths_B)
            hidden = model(batch.tokens_N, batch.segments_N, layout)
            log_p = model.logits(hidden[batch.masked_M]).log_softmax(-1)
            nll -= float(log_p.gather(1, batch.targets_M[:, None]).sum())
            judged = model.next_sentence(model.pooled(hidden, layout)).log_softmax(-1)[0]
            pairs -= float(judged[batch.is_random_B])
            right += int(judged.argmax() == batch.is_random_B)
            tokens += len(batch.targets_M)
    numbers = task(corpus, valid_sequences=7).validate(model)
    assert numbers["nll_nats"] == pytest.approx(nll / tokens, rel=1e-12)
    assert numbers["next_sentence_nats"] == pytest.approx(pairs / 7, rel=1e-12)
    assert numbers["next_sentence_accuracy"] == right / 7


def test_masks_change_with_the_epoch_and_an_epoch_has_every_pair_once(
    corpus: DocumentCorpus,
) -> None:
    made = task(corpus, packings=2)
    epoch = made.micro_batches_per_epoch
    seen: list[dict[tuple[int, ...], list[int]]] = []
    special = {corpus.tokeniser.ids[name] for name in (CLS, SEP, PAD, MASK)}
    for number in range(2):
        shown: dict[tuple[int, ...], list[int]] = {}
        for place in range(epoch):
            batch = made.micro_batch(number * epoch + place)
            assert not set(batch.targets_M.tolist()) & special
            text = batch.tokens_N.clone()
            text[batch.masked_M] = batch.targets_M
            for plain, hidden in zip(
                text.split(batch.lengths_B.tolist()),
                batch.tokens_N.split(batch.lengths_B.tolist()),
                strict=True,
            ):
                shown[tuple(plain.tolist())] = hidden.tolist()
        seen.append(shown)
    assert seen[0].keys() == seen[1].keys()
    changed = sum(seen[0][text] != seen[1][text] for text in seen[0])
    assert changed > 0.8 * len(seen[0])  # a short pair with one hidden token may hide the same one


def test_a_split_that_cannot_be_packed_is_told(corpus: DocumentCorpus) -> None:
    without = DocumentCorpus.in_memory(corpus.tokeniser, {"train": corpus.splits["train"]})
    with pytest.raises(UserError, match="the corpus has no valid split, only train"):
        task(without)
    one = DocumentCorpus.of_texts(
        corpus.tokeniser, {"train": [["the house ."], ["it ."]], "valid": [["the house ."]]}
    )
    with pytest.raises(
        UserError, match=r"the valid split has 1 document\(s\); at least 2 are needed"
    ):
        task(one)
    for packings in (0, 2**31):
        with pytest.raises(ValueError, match=f"packings must be from 1 to 100, got {packings}"):
            masked_lm.MaskedConfig(packings=packings)
    with pytest.raises(ValueError, match="valid_sequences must be at least 1, got 0"):
        masked_lm.MaskedConfig(valid_sequences=0)
    with pytest.raises(ValueError, match="masked_share must lie between 0 and 1"):
        masked_lm.MaskedConfig(masked_share=1.5)
