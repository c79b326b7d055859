"""How a batch reaches a device."""

from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor

from normscope.data import batches
from normscope.data.documents.batches import PairBatch, StretchBatch
from normscope.data.parallel.batches import TranslationBatch


@dataclass(frozen=True)
class Batch(batches.Batch):
    on_device = ("tokens_N",)

    tokens_N: Tensor
    lengths_B: Tensor


@pytest.mark.parametrize("kind", [PairBatch, StretchBatch, TranslationBatch])
def test_every_batch_moves_all_but_lengths_and_numbers(kind: type[batches.Batch]):
    tensors = {field.name for field in fields(kind) if "Tensor" in str(field.type)}
    assert tensors - set(kind.on_device) == {name for name in tensors if "lengths" in name}
    assert set(kind.on_device) < tensors


def test_what_is_named_moves_and_the_rest_stays():
    batch = Batch(torch.arange(6), torch.tensor([4, 2]))
    there = batch.to("meta")
    assert there.tokens_N.device.type == "meta"
    assert there.lengths_B is batch.lengths_B


def test_on_a_cpu_nothing_is_copied():
    batch = Batch(torch.arange(6), torch.tensor([4, 2]))
    assert batch.to("cpu").tokens_N is batch.tokens_N


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
    Batch(torch.arange(6), torch.tensor([4, 2])).to(torch.device("cuda", 0))
    assert asked == ["pinned", ((torch.device("cuda", 0),), {"non_blocking": True})]
