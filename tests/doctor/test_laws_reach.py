"""The law of the loss: logits can lie as far apart as the number of classes asks for."""

import math

import pytest
import torch
from torch import Tensor

from doctor.test_laws_movement import IDS, VOCABULARY, Decoder, next_token
from normscope import diagnose
from normscope.doctor.result import Finding


class Capped(Decoder):
    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, ids: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().forward(ids) / self.cap)


def told(model: Decoder) -> list[Finding]:
    found = diagnose(model, (IDS,), loss=next_token, advise=False)
    return [one for one in found.findings if one.id == "capped-logits"]


def test_a_cap_of_1_leaves_a_loss_that_no_training_lowers():
    (warning,) = told(Capped(1.0))
    best = torch.full((VOCABULARY,), -1.0)
    best[3] = 1.0
    floor = -float(best.log_softmax(0)[3])
    assert (warning.severity, warning.where) == ("warning", "head.weight")
    assert f"below {floor:.2f} nats" in warning.message
    assert floor < math.log(VOCABULARY)


@pytest.mark.parametrize("cap", [15.0, 30.0])
def test_a_cap_far_above_the_logarithm_of_the_classes_is_silent(cap):
    assert told(Capped(cap)) == []


def test_logits_without_a_cap_are_silent():
    assert told(Decoder()) == []
