"""A classification is spoken of in its own words: examples, and the accuracy of a guess."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import normscope
from normscope.doctor.diagnose import Diagnosis

LABELS = 5


class Classifier(nn.Module):
    """A Pre-LN encoder with a label for every sentence, or for every token."""

    def __init__(self, *, pooled: bool, flat: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, LABELS)
        self.pooled, self.flat = pooled, flat

    def forward(self, ids: Tensor) -> Tensor:
        x_BTD = self.embedding(ids)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        x_BTD = self.norm(x_BTD)
        if self.pooled:
            x_BTD = x_BTD.mean(1)
        scores: Tensor = self.head(x_BTD)
        return scores.flatten(0, -2) if self.flat else scores


def diagnosed(*, pooled: bool, flat: bool = False) -> Diagnosis:
    torch.manual_seed(0)
    model = Classifier(pooled=pooled, flat=flat)
    labels = torch.arange(4 if pooled else 24) % LABELS
    return normscope.diagnose(
        model,
        (torch.randint(11, (4, 6)),),
        loss=lambda scores: cross_entropy(scores.flatten(0, -2), labels),
        laws=False,
        advise=False,
    )


def test_a_label_for_a_sentence_is_told_beside_the_accuracy_of_a_guess() -> None:
    found = diagnosed(pooled=True)
    assert found.measured.labels_examples
    text = " ".join(str(found).split())
    assert "nats per example, 1.61 for uniform guessing" in text
    assert f"{math.log(LABELS):.2f}" == "1.61"
    assert "accuracy by chance 0.2, 1 of 5 classes" in text
    assert "per token" not in text


@pytest.mark.parametrize("flat", [False, True])
def test_labels_of_tokens_are_none_of_examples_however_they_are_laid_out(flat: bool) -> None:
    found = diagnosed(pooled=False, flat=flat)
    assert not found.measured.labels_examples
    text = " ".join(str(found).split())
    assert "nats per token" in text
    assert "accuracy" not in text
