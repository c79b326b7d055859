"""The law of the loss: what it asks of the model on the user's own labels."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope import diagnose
from normscope.doctor.result import Finding

CLASSES, PADDING, SEQUENCES, TOKENS = 48, 2, 4, 12


def padded_ids() -> Tensor:
    """(B, T), of which each row ends in another number of padding, and none by chance."""
    ids_BT = torch.randint(
        3, CLASSES, (SEQUENCES, TOKENS), generator=torch.Generator().manual_seed(0)
    )
    for row, ids_T in enumerate(ids_BT):
        ids_T[TOKENS - 2 * row :] = PADDING
    return ids_BT


IDS = padded_ids()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(CLASSES, 16, padding_idx=PADDING)
        self.positions = nn.Parameter(0.02 * torch.randn(TOKENS, 16))
        layer = [
            nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
            for _ in range(3)
        ]
        self.layers, self.norm = nn.ModuleList(layer), nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x = self.embedding(ids_BT) + self.positions
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def next_token(
    ignored: int, reduction: str = "mean", over: float = 1.0
) -> Callable[[Tensor], Tensor]:
    def loss(logits: Tensor) -> Tensor:
        rows, wanted = logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
        found = functional.cross_entropy(rows, wanted, ignore_index=ignored, reduction=reduction)
        return found / over

    return loss


def told(rule: str, loss: Callable[[Tensor], Tensor], ids: Tensor = IDS) -> list[Finding]:
    found = diagnose(Decoder(), (ids,), loss=loss, advise=False, laws=False)
    return [one for one in found.findings if one.id == rule]


def test_padding_that_the_loss_counts_is_told():
    (fault,) = told("padding-in-loss", next_token(-100))
    padded = sum(2 * row for row in range(SEQUENCES) if 2 * row >= 3)
    assert fault.severity == "warning"
    assert f"of {SEQUENCES * (TOKENS - 1)} targets that count {padded} " in fault.message
    assert told("padding-in-loss", next_token(PADDING)) == []


def test_labels_of_one_class_are_told():
    def all_alike(logits: Tensor) -> Tensor:
        rows = logits.flatten(0, 1)
        return functional.cross_entropy(rows, torch.full((len(rows),), 5))

    (fault,) = told("targets-alike", all_alike)
    assert "are class 5" in fault.message
    assert told("targets-alike", next_token(PADDING)) == []


def test_a_loss_of_one_token_in_a_hundred_is_a_note():
    def of_one(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:1, -1], torch.tensor([7]))

    ids = IDS.repeat(16, 1)
    (fault,) = told("few-targets", of_one, ids)
    assert fault.severity == "info"
    assert f"of {16 * SEQUENCES * TOKENS} places with logits 1 count" in fault.message
    assert told("few-targets", next_token(PADDING)) == []


REAL = int((IDS[:, 1:] != PADDING).sum())


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (next_token(PADDING, "sum"), f"it is a sum over the {REAL} tokens that count"),
        (
            next_token(PADDING, "sum", SEQUENCES * TOKENS),
            f"it is divided by all {SEQUENCES * TOKENS} places, and {REAL} of them count",
        ),
        (
            next_token(PADDING, "mean", 1 / 8),
            f"it is 8 times the mean over the {REAL} tokens that count",
        ),
    ],
)
def test_a_loss_that_is_no_mean_is_told_as_such(loss, said):
    (fault,) = told("loss-far-from-chance", loss)
    assert said in fault.message
    nats = float(next_token(PADDING)(Decoder().eval()(IDS)).detach())
    assert f"of which the mean is {nats:.2f} nats" in fault.message
    assert "mean over the tokens that count" in fault.fix
    assert abs(nats - math.log(CLASSES)) < 1


def test_a_mean_has_the_weight_1_and_smoothed_targets_are_near_it():
    def weight(loss: Callable[[Tensor], Tensor]) -> float:
        found = diagnose(Decoder(), (IDS,), loss=loss, advise=False, laws=False)
        assert found.measured.targets is not None
        return found.measured.targets.weight

    def smoothed(logits: Tensor) -> Tensor:
        rows, wanted = logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
        return functional.cross_entropy(rows, wanted, label_smoothing=0.1)

    assert weight(next_token(PADDING)) == pytest.approx(1, abs=1e-5)
    # A tenth of the weight is spread over all classes, which start as likely as one another.
    assert weight(smoothed) == pytest.approx(0.9, abs=0.01)
    assert told("loss-far-from-chance", smoothed) == []
