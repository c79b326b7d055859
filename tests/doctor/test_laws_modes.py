"""The law of modes: training computes what evaluation computes, but for chance."""

import pytest
import torch
from torch import Tensor, nn

from normscope import diagnose
from normscope.doctor.result import Finding

IDS = torch.randint(0, 20, (4, 9), generator=torch.Generator().manual_seed(0))


class Encoder(nn.Module):
    """Pre-LN. skipped: what one mode alone computes, and which mode that is."""

    def __init__(self, skipped: str = "", mode: str = "training", dropout: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True, norm_first=True)
            for _ in range(3)
        )
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20)
        self.extra, self.chance = nn.Dropout(dropout), dropout
        self.skipped, self.mode = skipped, mode

    def leaves_out(self, part: str) -> bool:
        return self.skipped == part and self.training == (self.mode == "training")

    def forward(self, ids: Tensor) -> Tensor:
        x = self.extra(self.embedding(ids))
        for number, block in enumerate(self.blocks):
            if not self.leaves_out(f"block {number}"):
                x = block(x)
        x = nn.functional.dropout(x, self.chance, self.training)
        if not self.leaves_out("norm"):
            x = self.norm(x)
        y = self.head(x)
        return y.softmax(-1) if self.leaves_out("logits") else y


class Noisy(Encoder):
    def forward(self, ids: Tensor) -> Tensor:
        made = super().forward(ids)
        return made + torch.randn_like(made) if self.training else made


def told(model: nn.Module) -> list[Finding]:
    found = diagnose(model, (IDS,), advise=False)
    return [one for one in found.findings if one.id == "modes-differ"]


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("part", ["norm", "block 1"])
def test_what_one_mode_leaves_out_is_named(part, mode):
    (warning,) = told(Encoder(part, mode))
    assert warning.severity == "warning"
    other = "evaluation" if mode == "training" else "training"
    name = "norm" if part == "norm" else "blocks.1"
    assert f"{name} runs in {other} alone" in warning.message


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_of_modules_functions_and_attention_is_no_difference(dropout):
    assert told(Encoder(dropout=dropout)) == []


def test_probabilities_in_evaluation_of_what_are_logits_in_training_are_no_difference():
    assert told(Encoder("logits", "evaluation")) == []


def test_batch_norm_takes_other_statistics_by_design():
    model = Encoder()
    model.embedding = nn.Sequential(model.embedding, Transposed(nn.BatchNorm1d(16)))
    assert told(model) == []


class Transposed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.mT).mT


def test_numbers_drawn_in_training_are_a_reason_not_to_ask():
    found = diagnose(Noisy(), (IDS,), advise=False)
    (rule,) = [one for one in found.rules if one.id == "modes-differ"]
    assert (rule.asked, rule.reason) == (False, "training mode draws numbers that are no dropout")
