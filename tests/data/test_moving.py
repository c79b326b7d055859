"""How a batch reaches a device."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from normscope.data.moving import moved


@dataclass(frozen=True)
class Batch:
    tokens_N: Tensor
    lengths_B: Tensor


def test_what_is_named_moves_and_the_rest_stays():
    batch = Batch(torch.arange(6), torch.tensor([4, 2]))
    there = moved(batch, ("tokens_N",), "meta")
    assert there.tokens_N.device.type == "meta"
    assert there.lengths_B is batch.lengths_B


def test_on_a_cpu_nothing_is_copied():
    batch = Batch(torch.arange(6), torch.tensor([4, 2]))
    assert moved(batch, ("tokens_N",), "cpu").tokens_N is batch.tokens_N


def test_to_cuda_a_batch_goes_from_pinned_memory_without_waiting(monkeypatch: pytest.MonkeyPatch):
    asked: list[object] = []

    def pinned(self: Tensor) -> Tensor:
        asked.append("pinned")
        return self

    def to(self: Tensor, *arguments: object, **options: object) -> Tensor:
        asked.append((arguments, options))
        return self

    monkeypatch.setattr(Tensor, "pin_memory", pinned)
    monkeypatch.setattr(Tensor, "to", to)
    moved(Batch(torch.arange(6), torch.tensor([4, 2])), ("tokens_N",), torch.device("cuda", 0))
    assert asked == ["pinned", ((torch.device("cuda", 0),), {"non_blocking": True})]
