"""GPT-2's loss against `transformers.GPT2LMHeadModel`, and perplexities in closed form."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.opening import TextDataConfig
from normscope.data.toy import toy_pairs
from normscope.errors import UserError
from normscope.model import DecoderConfig, LanguageModel
from normscope.tasks import language_model
from stacks import perturbed

BLOCKS, WIDTH, HEADS, FFN_WIDTH, POSITIONS = 3, 24, 3, 40, 32
CONFIG = DecoderConfig(
    width=WIDTH,
    ffn_width=FFN_WIDTH,
    heads=HEADS,
    blocks=BLOCKS,
    positions=POSITIONS,
    dropout=0.0,
    attention_dropout=0.0,
)


@pytest.fixture(scope="module")
def corpus() -> DocumentCorpus:
    texts = [english for _, english in toy_pairs(200, seed=1, split="train")]
    tokeniser = TextTokeniser.learn(texts, 300, kind="bpe", lowercase=True)
    documents = [texts[i : i + 5] for i in range(0, 200, 5)]
    return DocumentCorpus.of_texts(
        tokeniser, {"train": documents[:30], "valid": documents[30:], "test": documents[35:]}
    )


def task(
    corpus: DocumentCorpus, *, seed: int = 1, batch: int = 5, length: int = 24, **config: float
):
    asked = language_model.LanguageModelRunConfig(
        seed=seed,
        data=TextDataConfig(sequence_length=length, batch_sequences=batch),
        language_model=language_model._LanguageModelConfig(**config),
    )
    return language_model._LanguageModelObjective(corpus, asked, torch.device("cpu"))


def theirs_of(ours: LanguageModel, vocabulary: int, dtype: torch.dtype) -> nn.Module:
    transformers = pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
    )
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=BLOCKS,
        n_head=HEADS,
        n_inner=FFN_WIDTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=3,
        eos_token_id=3,
    )
    model = transformers.GPT2LMHeadModel(config).to(dtype).train()
    model.load_state_dict(
        in_their_names({n: p.detach() for n, p in ours.named_parameters()}), strict=False
    )
    return model


def in_their_names(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Values under our names -> under theirs: matrices the other way round, query, key and value
    side by side.
    """
    found = {
        "transformer.wte.weight": values["embedding.weight"],
        "transformer.wpe.weight": values["embedding.positions"],
    }
    for leaf in ("weight", "bias"):
        found[f"transformer.ln_f.{leaf}"] = values[f"decoder.finish.norm.main.{leaf}"]
        for block in range(BLOCKS):
            ours, theirs = f"decoder.blocks.{block}", f"transformer.h.{block}"
            attention = [
                values[f"{ours}.attention.f.{name}.{leaf}"] for name in ("query", "key", "value")
            ]
            found[f"{theirs}.attn.c_attn.{leaf}"] = torch.cat([part.t() for part in attention], -1)
            found[f"{theirs}.attn.c_proj.{leaf}"] = values[f"{ours}.attention.f.output.{leaf}"].t()
            found[f"{theirs}.mlp.c_fc.{leaf}"] = values[f"{ours}.feed_forward.f.ffn_in.{leaf}"].t()
            found[f"{theirs}.mlp.c_proj.{leaf}"] = values[
                f"{ours}.feed_forward.f.ffn_out.{leaf}"
            ].t()
            found[f"{theirs}.ln_1.{leaf}"] = values[f"{ours}.attention.norm.main.{leaf}"]
            found[f"{theirs}.ln_2.{leaf}"] = values[f"{ours}.feed_forward.norm.main.{leaf}"]
    return found


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_loss_and_every_gradient_are_those_of_transformers(
    corpus: DocumentCorpus, dtype: torch.dtype, close: float
) -> None:
    torch.manual_seed(0)
    vocabulary = len(corpus.tokeniser)
    ours = perturbed(LanguageModel(CONFIG, vocabulary), 1).to(dtype)
    theirs = theirs_of(ours, vocabulary, dtype)
    made = task(corpus)
    last = len(made.train) - 1
    batch = made.train.batch([last, 0, 7])  # the last is shorter: padded on their side
    lengths = batch.lengths_B.tolist()
    assert len(set(lengths)) == 2

    loss, nll = made.loss_sums(ours, batch)

    def padded(values: torch.Tensor, fill: int) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence(
            values.split(lengths), batch_first=True, padding_value=fill
        )

    keep = padded(torch.ones_like(batch.tokens_N), 0)
    logits = theirs(input_ids=padded(batch.tokens_N, 0), attention_mask=keep).logits
    wanted = nn.functional.cross_entropy(
        logits.flatten(0, 1), padded(batch.targets_N, -100).flatten()
    )
    count, tolerance = made.target_tokens(batch), {"rtol": close, "atol": close}
    assert count == sum(lengths)
    torch.testing.assert_close(loss / count, wanted, **tolerance)
    torch.testing.assert_close(nll, loss.detach(), **tolerance)
    (loss / count).backward()
    wanted.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    ours_renamed = in_their_names({name: p.grad for name, p in ours.named_parameters()})
    assert ours_renamed.keys() == gradients.keys()
    for name, gradient in ours_renamed.items():
        torch.testing.assert_close(
            gradient, gradients[name], **tolerance, msg=lambda t, name=name: f"{name}: {t}"
        )
        assert gradient.abs().max() > 1e-4


def test_a_model_that_knows_nothing_has_the_vocabulary_for_its_perplexity(
    corpus: DocumentCorpus,
) -> None:
    model = LanguageModel(CONFIG, len(corpus.tokeniser)).double()
    with torch.no_grad():
        model.embedding.weight.zero_()
    numbers = task(corpus).validate(model)
    split = corpus.splits["valid"]
    targets = len(split.tokens) + len(split)
    assert numbers["perplexity"] == pytest.approx(len(corpus.tokeniser), rel=1e-12)
    assert numbers["nll_nats"] == pytest.approx(math.log(len(corpus.tokeniser)), rel=1e-12)
    assert numbers["nll_bits"] == pytest.approx(math.log2(len(corpus.tokeniser)), rel=1e-12)
    per_word = math.log(len(corpus.tokeniser)) * targets / split.words
    assert math.log(numbers["word_perplexity"]) == pytest.approx(per_word, rel=1e-12)


def test_validation_is_the_same_for_every_seed_and_batch(corpus: DocumentCorpus) -> None:
    model = perturbed(LanguageModel(replace(CONFIG, dropout=0.5), len(corpus.tokeniser)), 1).train()
    first = task(corpus).validate(model)
    assert model.training
    assert task(corpus, seed=9).validate(model) == first
    assert task(corpus, batch=11).validate(model) == pytest.approx(first, rel=1e-12)
    assert first["loss_nats"] == pytest.approx(first["nll_nats"], rel=1e-12)
    assert first["perplexity"] == pytest.approx(math.exp(first["nll_nats"]), rel=1e-12)
    assert task(corpus).evaluate(model, "test") != first
    smoothed = task(corpus, label_smoothing=0.1).validate(model)
    assert smoothed["nll_nats"] == pytest.approx(first["nll_nats"], rel=1e-12)
    assert smoothed["loss_nats"] > smoothed["nll_nats"]


def test_an_epoch_tells_every_token_of_the_text_once(corpus: DocumentCorpus) -> None:
    made = task(corpus)
    batches = [made.micro_batch(i) for i in range(made.micro_batches_per_epoch)]
    told = torch.cat([batch.targets_N for batch in batches])
    split = corpus.splits["train"]
    assert (
        sum(made.target_tokens(batch) for batch in batches)
        == len(told)
        == len(split.tokens) + len(split)
    )
    end = corpus.tokeniser.ids["[SEP]"]
    assert sorted(told[told != end].tolist()) == sorted(split.tokens.tolist())
    assert int((told == end).sum()) == len(split)


def test_a_model_gone_wrong_has_a_finite_perplexity(corpus: DocumentCorpus) -> None:
    model = perturbed(LanguageModel(CONFIG, len(corpus.tokeniser)), 1)
    with torch.no_grad():
        model.embedding.weight *= 1e6
    numbers = task(corpus).validate(model)
    assert numbers["nll_nats"] > 700
    assert all(math.isfinite(value) for value in numbers.values())


def test_mistakes(corpus: DocumentCorpus) -> None:
    without = DocumentCorpus.in_memory(corpus.tokeniser, {"train": corpus.splits["train"]})
    with pytest.raises(
        UserError, match="the corpus has no valid split with text in it; it has train"
    ):
        task(without)
    with pytest.raises(UserError, match="no test split with text"):
        task(
            DocumentCorpus.of_texts(
                corpus.tokeniser, {"train": [["a"]], "valid": [["a"]], "test": [[""]]}
            )
        ).evaluate(LanguageModel(CONFIG, len(corpus.tokeniser)), "test")
    with pytest.raises(ValueError, match=r"label_smoothing must lie in \[0, 1\), got 1"):
        language_model._LanguageModelConfig(label_smoothing=1.0)
