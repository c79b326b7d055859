"""Parts of a training on a CUDA device, each beside what it stands for."""

import pytest
import torch
from torch import Tensor, nn

from normscope.data.opening import toy_corpus
from normscope.data.parallel.batches import collate
from normscope.optim import OptimizerConfig, make_optimizer
from normscope.runs.config import load
from normscope.runs.machine import counting
from normscope.tasks.registry import task_of
from normscope.train.protocol import Feed
from tiny import SETTINGS

# Python's, of processes that fork where CUDA has threads: they prepare batches, and never touch the
# device.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

CPU = torch.device("cpu")


def matrices(device: torch.device) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)


def gradients(model: nn.Module, seed: int) -> None:
    """Random ones, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.device)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_fused_step_is_the_plain_one_but_for_rounding(device: torch.device, name: str) -> None:
    ours = matrices(device)
    plain = matrices(device).double()
    fused = make_optimizer(ours, OptimizerConfig(name=name, peak_lr=1e-2, weight_decay=0.1))
    assert all(group["fused"] for group in fused.param_groups)
    like = make_optimizer(plain, OptimizerConfig(name=name, peak_lr=1e-2, weight_decay=0.1))
    for group in like.param_groups:
        group["fused"], group["foreach"] = False, False
    for seed in range(20):
        gradients(ours, seed)
        for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
            assert mine.grad is not None
            other.grad = mine.grad.double()
        fused.step()
        like.step()
    # Twenty steps of 1e-2, each rounded to 24 bits of weights of about 1.
    for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)


def test_a_batch_arrives_as_it_was(device: torch.device) -> None:
    """Also while the device is busy, and the pinned memory of the batch before is given out
    again.
    """
    train = toy_corpus(300).splits["train"]
    busy = torch.randn(512, 512, device=device)
    sent = []
    for number in range(20):
        batch = collate(train, range(number, number + 8))
        for _ in range(10):
            busy = busy @ busy / 512
        there = batch.to(device)
        assert there.source_lengths_B.device == CPU
        sent.append((batch, there))
    for batch, there in sent:
        for name in ("source_BS", "target_in_BT", "target_out_BT"):
            found: Tensor = getattr(there, name)
            assert found.device.type == device.type
            assert torch.equal(found.cpu(), getattr(batch, name))


def test_batches_prepared_ahead_are_the_same(device: torch.device) -> None:
    config = load(None, [*SETTINGS])
    task = task_of(config)
    objective = task.objective(config, task.open(config), device)
    alone, ahead = (Feed(objective, workers=workers, end=12, device=device) for workers in (0, 2))
    for number in range(12):
        plain, prepared = alone(number), ahead(number)
        for name in plain.on_device:
            assert getattr(prepared, name).device.type == device.type
            assert torch.equal(getattr(prepared, name), getattr(plain, name))
    ahead.close()


def test_operations_are_counted_as_on_a_cpu(device: torch.device) -> None:
    """Whatever kernel attention has there. In float32, where both compute every score once
    forward.
    """
    config = load(None, [*SETTINGS, "model.dropout=0.0"])
    task = task_of(config)
    corpus = task.open(config)
    found = []
    for place in (CPU, device):
        model = task.build(config, corpus.codec).to(place)
        objective = task.objective(config, corpus, place)
        with counting() as counted:
            objective.loss_sums(model, objective.micro_batch(0))[0].backward()
        found.append(counted.get_total_flops())
    # A fused kernel computes the scores anew in its backward pass.
    assert found[1] == pytest.approx(found[0], rel=0.1)
