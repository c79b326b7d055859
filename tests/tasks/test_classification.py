"""Batches, loss and scores of labelled pairs, by hand."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from normscope.data import labelled
from normscope.data.labelled import LabelledCorpus
from normscope.tasks import pair_classification
from normscope.tasks.pair_classification import accuracy, f1
from words import word_tokeniser

LOGITS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 3.0], [0.0, 1.0]])


class Table(nn.Module):
    """Tells of each sequence what its first token says; a linear layer of its own, so that there is a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, tokens_N: Tensor, segments_N: Tensor, layout: object) -> Tensor:
        return tokens_N

    def logits(self, hidden_N: Tensor, layout: object) -> Tensor:
        first_B = hidden_N[layout.first_B]  # type: ignore[attr-defined]
        return self.scale * LOGITS[first_B]


def split(labels: list[int]) -> labelled._LabelledSplit:
    tokens = [np.array([i % len(LOGITS), 9, 9][: 1 + i % 3], dtype=np.int64) for i in range(len(labels))]
    return labelled._LabelledSplit(
        tokens_T=tokens,
        segments_T=[np.zeros_like(row) for row in tokens],
        labels=np.array(labels, dtype=np.int64),
        majority_share=0.5,
    )


def task(*, positive: int | None = 1, batch_sequences: int = 2, seed: int = 1) -> Any:
    corpus = LabelledCorpus(
        tokeniser=word_tokeniser("a"),
        labels=("no", "yes"),
        positive=positive,
        splits={"train": split([0, 1] * 6 + [1]), "valid": split([0, 1, 1, 1, 0])},
    )
    return pair_classification._ClassificationObjective(
        corpus, batch_sequences=batch_sequences, seed=seed, device=torch.device("cpu")
    )


def nll(row: list[float], label: int) -> float:
    return math.log(sum(math.exp(value) for value in row)) - row[label]


@pytest.mark.parametrize("batch_sequences", [1, 2, 5, 8])
def test_validation_is_the_mean_over_pairs_whatever_the_batch(batch_sequences: int) -> None:
    model = Table().train()
    found = task(batch_sequences=batch_sequences).validate(model)
    losses = [nll(row, label) for row, label in zip(LOGITS.tolist(), [0, 1, 1, 1, 0], strict=True)]
    assert found["nll_nats"] == pytest.approx(sum(losses) / 5, rel=1e-6)
    assert found["nll_bits"] == pytest.approx(found["nll_nats"] / math.log(2), rel=1e-12)
    # Told: no yes no yes yes. Right: no yes - yes -. Of yes: two right, one told wrongly, one missed.
    assert found["accuracy"] == 3 / 5
    assert found["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1), rel=1e-12)
    assert model.training


def test_f1_is_of_the_positive_label_and_of_two_labels_alone() -> None:
    assert task(positive=0).validate(Table())["f1"] == pytest.approx(2 * 1 / (2 * 1 + 1 + 1), rel=1e-12)
    assert "f1" not in task(positive=None).validate(Table())


def test_the_loss_is_the_sum_over_the_pairs_of_a_batch() -> None:
    ours, model = task(batch_sequences=4), Table()
    batch = ours.micro_batch(0)
    loss, told = ours.loss_sums(model, batch)
    first = batch.tokens_N[torch.tensor([0, *batch.lengths_B.cumsum(0)[:-1].tolist()])]
    wanted = sum(nll(LOGITS[i].tolist(), label) for i, label in zip(first, batch.labels_B.tolist(), strict=True))
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-6)
    assert float(told) == float(loss.detach())
    assert loss.requires_grad
    assert not told.requires_grad
    assert ours.target_tokens(batch) == 4


def test_an_epoch_has_every_pair_once_in_an_order_of_its_own() -> None:
    ours = task(batch_sequences=3)
    assert ours.micro_batches_per_epoch == 5
    wanted = Counter((i % len(LOGITS), 1 + i % 3) for i in range(13))
    orders = []
    for epoch in range(2):
        batches = [ours.micro_batch(5 * epoch + k) for k in range(5)]
        assert [len(batch.labels_B) for batch in batches] == [3, 3, 3, 3, 1]
        rows = [row for batch in batches for row in _rows(batch.tokens_N, batch.lengths_B)]
        assert Counter(rows) == wanted
        orders.append(rows)
    assert orders[0] != orders[1]
    assert orders[0] != [row for k in range(5) for row in _rows_of(task(batch_sequences=3, seed=2), k)]


def _rows(tokens_N: Tensor, lengths_B: Tensor) -> list[tuple[int, int]]:
    return [(int(row[0]), len(row)) for row in torch.split(tokens_N, lengths_B.tolist())]


def _rows_of(ours: Any, number: int) -> list[tuple[int, int]]:
    batch = ours.micro_batch(number)
    return _rows(batch.tokens_N, batch.lengths_B)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1), st.integers(0, 2))
def test_scores_are_those_of_their_definitions(pairs: list[tuple[int, int]], positive: int) -> None:
    told, labels = (torch.tensor(side) for side in zip(*pairs, strict=True))
    assert accuracy(told, labels) == pytest.approx(sum(a == b for a, b in pairs) / len(pairs), abs=1e-12)
    true_positive = sum(a == b == positive for a, b in pairs)
    found = f1(told, labels, positive)
    if not true_positive:
        assert found == 0
    else:
        precision = true_positive / sum(a == positive for a, _ in pairs)
        recall = true_positive / sum(b == positive for _, b in pairs)
        assert found == pytest.approx(2 / (1 / precision + 1 / recall), rel=1e-12)


def test_a_dropout_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.0"):
        pair_classification._ClassificationConfig(dropout=1.0)
