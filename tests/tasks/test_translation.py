"""The translation task: batches by number, sums over tokens, and a validation that does not depend
on batching.
"""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from normscope.data.opening import toy_corpus
from normscope.data.parallel.batches import collate
from normscope.errors import UserError
from normscope.model import EncoderDecoder
from normscope.tasks.translation import TRANSLATION, TranslationConfig, TranslationObjective
from tiny import tiny

CORPUS = toy_corpus(200)
CPU = torch.device("cpu")


def make(max_tokens: int = 400, seed: int = 3, **config: float) -> TranslationObjective:
    return TranslationObjective(
        CORPUS, TranslationConfig(**config), max_tokens=max_tokens, seed=seed, device=CPU
    )  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    return TRANSLATION.build(tiny(), CORPUS.codec).double()


def plain_nll(model: EncoderDecoder, index: int) -> float:
    """-log p of one validation sentence, by torch's own cross-entropy over a batch of one."""
    task = make()
    batch = collate(task.valid, [index])
    hidden: list[torch.Tensor] = []
    with (
        torch.no_grad(),
        model.decoder.register_forward_hook(lambda _, __, out: hidden.append(out)),
    ):
        task.loss_sums(model, batch)
        logits = model.logits(hidden[0])
    return float(torch.nn.functional.cross_entropy(logits, batch.target_out_BT[0], reduction="sum"))


def test_validation_is_the_mean_over_tokens_whatever_the_batches(model: EncoderDecoder) -> None:
    model.train()
    results = [make(max_tokens=size).validate(model) for size in (200, 4096)]
    assert model.training  # left as it was
    assert results[0] == pytest.approx(results[1], rel=1e-12)
    model.eval()
    valid = CORPUS.splits["valid"]
    wanted = math.fsum(plain_nll(model, i) for i in range(len(valid))) / len(valid.target.tokens)
    assert results[0]["nll_nats"] == pytest.approx(wanted, rel=1e-10)
    assert results[0]["nll_bits"] == pytest.approx(wanted / math.log(2), rel=1e-10)
    assert results[0]["loss_nats"] != results[0]["nll_nats"]


def test_validation_does_not_depend_on_the_seed_but_the_order_of_training_does(
    model: EncoderDecoder,
) -> None:
    one, other = make(seed=1), make(seed=2)
    assert one.validate(model) == other.validate(model)
    assert one.micro_batch(0).target_out_BT.tolist() != other.micro_batch(0).target_out_BT.tolist()


def test_an_epoch_shows_every_sentence_once_and_batches_are_a_function_of_their_number() -> None:
    task = make()
    for epoch in (0, 1):
        numbers = range(
            epoch * task.micro_batches_per_epoch, (epoch + 1) * task.micro_batches_per_epoch
        )
        assert sum(task.target_tokens(task.micro_batch(n)) for n in numbers) == len(
            task.train.target.tokens
        )
        assert sorted(
            int(i) for n in numbers for i in task.batches[int(task.epochs.micro_batch(n)[1][0])]
        ) == list(range(len(task.train)))
    again = make()
    assert torch.equal(again.micro_batch(17).source_BS, task.micro_batch(17).source_BS)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_corpus_without_a_split_is_refused(split: str) -> None:
    corpus = replace(CORPUS, splits={name: s for name, s in CORPUS.splits.items() if name != split})
    with pytest.raises(UserError, match=f"training needs a {split} split with sentences in it"):
        TranslationObjective(corpus, TranslationConfig(), max_tokens=400, seed=1, device=CPU)


@pytest.mark.parametrize(
    "config", [{"label_smoothing": 1.0}, {"label_smoothing": -0.1}, {"bleu_sentences": -1}]
)
def test_settings_that_mean_nothing_are_refused(config: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        TranslationConfig(**config)  # type: ignore[arg-type]


def test_chance_is_the_entropy_of_words_counted_by_hand() -> None:
    corpus = toy_corpus(10)
    words = Counter(
        w for line in corpus.splits["valid"].target_text for w in [*line.split(), "</s>"]
    )
    total = sum(words.values())
    entropy = -math.fsum(n / total * math.log(n / total) for n in words.values())
    assert TRANSLATION.chance_nats(corpus) == pytest.approx(entropy, rel=1e-12)
