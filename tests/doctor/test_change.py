"""What the first update changes, as the doctor tells it: against hooks on the modules, and where it tells nothing."""

import copy
import json

import pytest
import torch
from torch import Tensor, nn

from normscope.doctor import find_stacks
from normscope.doctor.advise.first_update import change_along
from normscope.doctor.diagnose import diagnose
from normscope.doctor.observe.examine import examined
from normscope.measure import amplification
from normscope.measure.line import Line

WIDTH = 8


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Stack(nn.Module):
    """Post-LN: what a sub-layer reads is what comes out of the norm before it."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        self.branches = nn.ModuleList(FeedForward() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(blocks))
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for branch, norm in zip(self.branches, self.norms, strict=True):
            x = norm(x + branch(x))
        return self.head(x)


def made() -> tuple[Stack, Tensor]:
    torch.manual_seed(0)
    return Stack(), torch.randint(20, (3, 5))


def test_changes_are_those_that_hooks_see() -> None:
    model, ids = made()
    rate = 3e-3
    found = diagnose(model, ids, wanted_rate=rate).advice
    assert found is not None
    assert found.change is not None
    assert found.change.rate == rate
    (stack,) = found.change.stacks
    # The doctor's update is the mean of ten of Adam with the gradient held, on random targets.
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(20, (ids.numel(),), generator=generator)
    moved = copy.deepcopy(model)
    optimizer = torch.optim.Adam(moved.parameters(), lr=rate)
    nn.functional.cross_entropy(moved(ids).flatten(0, 1), targets).backward()
    optimizer.step()
    sublayers = {str(place): branch for place, branch in enumerate(model.branches)}
    after = {name: weight.detach() for name, weight in moved.named_parameters()}
    seen = amplification(model, lambda: model(ids), after, sublayers)
    for part in ("total", "own", "amplified"):
        wanted = [getattr(change, part) for change in seen.sublayers.values()]
        # Adam's first step has an epsilon beside a square root of its own, which small gradients tell apart.
        assert getattr(stack, part) == pytest.approx(wanted, rel=1e-3), part
    assert found.change.output == pytest.approx(seen.relative, rel=1e-3)
    norms = amplification(model, lambda: model(ids), after, {"": model.embedding, **dict(enumerate(model.norms))})
    streams = [change.total for change in norms.sublayers.values()]
    assert [*stack.stream, stack.end] == pytest.approx(streams, rel=1e-3)
    assert json.dumps(diagnose(model, ids).to_json()["advice"]["change"])


def test_the_model_is_as_before_and_a_path_that_changes_tells_nothing() -> None:
    model, ids = made()

    class Chooses(nn.Module):
        """As a router does, by weights."""

        def __init__(self) -> None:
            super().__init__()
            self.stack, self.gate = model, nn.Parameter(torch.ones(()))

        def forward(self, ids: Tensor) -> Tensor:
            out = self.stack(ids)
            return out if self.gate.item() > 0 else out.relu().abs()

    chooser = Chooses()
    before = {name: weight.clone() for name, weight in chooser.state_dict().items()}
    stacks, _ = examined(chooser, ids)
    weights = dict(chooser.named_parameters())
    line = Line(weights, {"gate": -torch.ones(()), "stack.head.bias": torch.ones(20)})
    there = change_along(chooser, ids, line, 0.5, stacks)
    assert there is not None
    # Only what stands behind the stack has moved.
    assert there.stacks[0].total == (0.0, 0.0, 0.0)
    assert there.output > 0
    assert change_along(chooser, ids, line, 2.0, stacks) is None
    assert change_along(chooser, ids, line, 0.5, ()) is None
    assert all(torch.equal(before[name], weight) for name, weight in chooser.state_dict().items())
    assert len(find_stacks(chooser, ids)) == 1
