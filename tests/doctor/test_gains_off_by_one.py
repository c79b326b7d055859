"""Checkpoints whose gains have 1 too much or too little: found by losses, and before a placement is
blamed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from doctor.bugs import both
from doctor.trained_flags import NARROW, loaded, patient_under, trained
from doctor.wired import patient, post
from normscope.doctor.diagnose import Diagnosis
from normscope.doctor.lint.checks.gains import gain_convention
from normscope.doctor.lint.checks.training import contradicts_training
from normscope.doctor.lint.patient import Loading, Patient

CLASSES, BLOCKS = 24, 3


class Norm(nn.Module):
    """RMSNorm; added: what is added to its gain."""

    def __init__(self, gain: Tensor, added: float) -> None:
        super().__init__()
        self.weight, self.added = nn.Parameter(gain), added

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:]) * (self.added + self.weight)


class Known(nn.Module):
    """A Pre-LN model that knows which token follows which: its embedding and its head say so, and
    its branches next to nothing.
    """

    def __init__(self, added: float, off: float, sign: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = (nn.Embedding(CLASSES, 2 * CLASSES) for _ in range(2))
        rows = nn.init.orthogonal_(torch.empty(CLASSES, 2 * CLASSES))
        sharp = 0.2 * CLASSES**0.5
        self.embedding.weight = nn.Parameter(rows * (2 * CLASSES) ** 0.5)
        self.head.weight = nn.Parameter(sharp * rows.roll(1, 0))
        # As training leaves them: about 1, and all of them above it where the sign is 0.
        drawn = [0.02 * torch.randn(2 * CLASSES) for _ in range(2 * BLOCKS + 1)]
        gains = [1.05 + (noise if sign else noise.abs()) for noise in drawn]
        self.norms = nn.ModuleList(Norm(gain - added + off, added) for gain in gains)
        self.maps = nn.ModuleList(nn.Linear(2 * CLASSES, 2 * CLASSES) for _ in range(6 * BLOCKS))
        for one in self.maps:
            nn.init.normal_(one.weight, std=0.01)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in range(BLOCKS):
            query, key, value, last, up, down = self.maps[6 * block :][:6]
            read = self.norms[2 * block](x)
            weights = (query(read) @ key(read).mT / 7).softmax(-1)
            x = x + last(weights @ value(read))
            x = x + down(functional.gelu(up(self.norms[2 * block + 1](x))))
        return self.norms[-1](x) @ self.head.weight.T


def next_of(ids: Tensor) -> Tensor:
    """Of most tokens the one before it in the list, and of one in three another one."""
    chance = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1))
    return torch.where(chance < 0.7, (ids + 1) % CLASSES, (ids + 5) % CLASSES)


IDS = torch.randint(0, CLASSES, (8, 16), generator=torch.Generator().manual_seed(0))


def loss(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), next_of(IDS).flatten())


def diagnosed(model: nn.Module, of: Callable[[Tensor], Tensor] | None = loss) -> Diagnosis:
    return normscope.diagnose(model, (IDS,), loss=of, advise=False)


def told(found: Diagnosis) -> list[str]:
    asked = "gain-convention", "contradicts-training"
    return [one.id for one in found.findings if one.id in asked]


@pytest.mark.parametrize("sign", [0.0, 1.0])
@pytest.mark.parametrize("added", [0.0, 1.0])
def test_right_gains_are_left_alone_with_a_loss_and_without(added, sign):
    model = Known(added, off=0.0, sign=sign)
    assert told(diagnosed(model)) == told(diagnosed(model, None)) == []


@pytest.mark.parametrize("sign", [0.0, 1.0])
@pytest.mark.parametrize("added", [0.0, 1.0])
@pytest.mark.parametrize(("off", "step"), [(1.0, "1 taken from"), (-1.0, "1 added to")])
def test_gains_that_are_off_by_one_either_way_are_told_by_the_losses(off, step, added, sign):
    model, right = Known(added, off, sign), Known(added, 0.0, sign)
    before = [weight.clone() for weight in model.parameters()]
    found = diagnosed(model)
    assert told(found) == ["gain-convention"]
    (finding,) = [one for one in found.findings if one.id == "gain-convention"]
    nats = [loss(one(IDS)).item() for one in (model, right)]
    said = f"the loss is {nats[0]:.2f} nats a token, and {nats[1]:.2f} with {step}"
    assert said in finding.message
    assert finding.fix.startswith("subtract 1 from" if off > 0 else "add 1 to")
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("off", "added", "said"),
    [
        (1.0, 0.0, "7 of 7 norms have parameters about 2"),
        (1.0, 1.0, "7 of 7 norms have parameters about 1"),
        (-1.0, 0.0, "7 of 7 norms have parameters about 0"),
        (-1.0, 1.0, "7 of 7 norms have parameters about -1"),
    ],
)
def test_without_a_loss_they_are_told_by_where_they_lie(off, added, said):
    model = Known(added, off)
    with torch.no_grad():
        for norm in model.norms:
            norm.weight -= 0.05
    found = diagnosed(model, None)
    assert told(found) == ["gain-convention"]
    (finding,) = [one for one in found.findings if one.id == "gain-convention"]
    assert finding.severity == "warning"
    assert said in finding.message


@pytest.mark.parametrize(
    ("shifted", "rewired", "blamed"),
    [
        ({1: 3.4, -1: 1.3}, 1.6, ["gain-convention"]),
        ({1: 1.3, -1: 3.4}, 1.6, ["gain-convention"]),
        ({1: 2.57, -1: 4.0}, 2.9, []),  # too near to each other
        ({1: 1.6, -1: 4.0}, 1.3, ["contradicts-training"]),  # another wiring explains more
        ({1: float("nan"), -1: float("inf")}, 1.6, ["contradicts-training"]),
        ({}, 1.6, ["contradicts-training"]),
    ],
)
def test_gains_are_tried_before_a_placement_is_blamed(shifted, rewired, blamed):
    under = patient(both(post)())
    losses = {"loss_nats": 2.6, "rewired_loss_nats": rewired, "shifted_loss_nats": shifted}
    observed = replace(under.observed, classes=24, **losses)
    known = replace(under, observed=observed, loading=Loading(missing=(), unexpected=()))
    assert _blamed(known) == blamed


def _blamed(known: Patient) -> Sequence[str]:
    rules = gain_convention, contradicts_training
    return [finding.id for rule in rules for finding in rule.check(known)]


@pytest.mark.thorough
@pytest.mark.parametrize("off", [1.0, -1.0])
@pytest.mark.parametrize("trained_pre", [True, False])
def test_trained_gains_off_by_one_are_told_and_no_placement_is(trained_pre, off):
    model, held_out = trained(pre=trained_pre, **NARROW)
    moved = loaded(model, pre=trained_pre)
    with torch.no_grad():
        for name, weight in moved.named_parameters():
            if "norm" in name and name.endswith("weight"):
                weight += off
    assert _blamed(patient_under(moved, held_out, pre=trained_pre)) == ["gain-convention"]
    assert _blamed(patient_under(model, held_out, pre=trained_pre)) == []
