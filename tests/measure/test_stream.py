"""Tensors that are looked at on their way through any model, by hooks that leave nothing behind."""

import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from live import begin, live_tensors
from normscope.measure import Point, depth_points, first_tensor, recording


def stream(tokens: int, seed: int = 0, width: int = 6) -> torch.Tensor:
    """Tokens with a common part and a feature mean, so that no moment is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(width, generator=generator, dtype=torch.float64)
    return torch.randn(tokens, width, generator=generator, dtype=torch.float64) + common + 0.5


class Pair(nn.Module):
    """A block of a foreign library: keyword input, the stream first of a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, hidden: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, None]:
        return hidden + scale * self.linear(hidden), None


def foreign_stack(depth: int = 3) -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList(Pair() for _ in range(depth)).double()


def run_foreign(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x, _ = block(scale=0.5, hidden=x) if block is blocks[-1] else block(hidden=x)
    return x


def hooks_of(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def size(x: torch.Tensor) -> float:
    return float(x.detach().square().mean())


def test_a_curve_over_depth_by_position_and_by_keyword():
    blocks, x = foreign_stack(), stream(7)
    expected, sizes = x, [size(x)]
    for i, block in enumerate(blocks):
        expected = expected + (0.5 if i == 2 else 1.0) * block.linear(expected)
        sizes.append(size(expected))
    # The call of the last block names `scale` before the stream.
    places = {**depth_points(blocks), "last": Point(blocks[2], "input")}
    with recording(places, size) as found:
        run_foreign(blocks, x)
    assert list(found) == ["x_0", "x_1", "x_2", "x_3", "last"]
    assert [one for (one,) in found.values()] == pytest.approx([*sizes, sizes[2]], rel=1e-12)
    assert hooks_of(blocks) == 0
    with pytest.raises(ValueError, match="at least one block"):
        depth_points([])


def test_a_pick_reaches_any_part():
    block, x = nn.LSTM(6, 6, batch_first=True).double(), stream(4)[None]
    with recording({"cell": Point(block, pick=lambda output: output[1][1])}, size) as found:
        block(x)
    assert found["cell"] == [pytest.approx(size(block(x)[1][1]), rel=1e-12)]


def test_every_call_of_a_module_is_recorded_and_hooks_of_others_stay():
    block, calls = nn.Linear(6, 6).double(), []
    block.register_forward_hook(lambda *_: calls.append(1))
    with recording({"shared": Point(block)}, size) as found:
        twice = block(once := block(stream(3)))
    assert found["shared"] == [size(once), size(twice)]
    assert (len(calls), hooks_of(block)) == (2, 1)


def test_first_tensor():
    x = torch.ones(2)
    assert first_tensor(x) is x
    assert first_tensor((x, 1)) is x
    assert first_tensor([(x,), 1]) is x
    assert first_tensor(OrderedDict(last_hidden_state=x, other=torch.zeros(1))) is x
    for nothing in (None, (), [1], "x", {"a": "b"}):
        with pytest.raises(TypeError, match="pick"):
            first_tensor(nothing)


def test_hooks_are_removed_after_errors():
    blocks, x = foreign_stack(), stream(3)
    with pytest.raises(ZeroDivisionError), recording(depth_points(blocks), size):
        raise ZeroDivisionError
    assert hooks_of(blocks) == 0
    with (
        pytest.raises(TypeError, match="pick"),
        recording({"x": Point(blocks[0], pick=lambda _: first_tensor(()))}, id),
    ):
        run_foreign(blocks, x)
    assert hooks_of(blocks) == 0
    with (
        pytest.raises(AttributeError),
        recording({"good": Point(blocks[0]), "bad": Point("no module")}, id),
    ):
        pass
    assert hooks_of(blocks) == 0


def test_training_goes_on_under_a_recording():
    """Same output, same gradients, same random numbers."""
    model, x = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6)).double(), stream(5)

    def step() -> list[torch.Tensor]:
        torch.manual_seed(1)
        model.zero_grad()
        y = model(x)
        y.square().sum().backward()
        return [y.detach(), *(p.grad.clone() for p in model.parameters()), torch.rand(3)]

    bare = step()
    with recording({name: Point(one) for name, one in model.named_children()}, size) as found:
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    assert [len(moments) for moments in found.values()] == [1, 1, 1]


def test_what_is_reduced_has_no_graph():
    model = nn.Linear(6, 6).double()
    with recording(
        {"x": Point(model)}, lambda x: x.requires_grad or (x + x).requires_grad
    ) as found:
        assert model(stream(2)).requires_grad
    assert found == {"x": [False]}


def test_no_activation_is_kept():
    blocks = foreign_stack()
    alive: list[weakref.ref] = []

    def reduce(x: torch.Tensor):
        alive.append(weakref.ref(x))
        return size(x)

    begin()
    before = live_tensors()
    with torch.no_grad(), recording(depth_points(blocks), reduce) as found:
        for seed in range(5):
            run_foreign(blocks, stream(4, seed))
            assert all(tensor() is None for tensor in alive)
    assert live_tensors() <= before
    assert [len(moments) for moments in found.values()] == [5, 5, 5, 5]


def test_a_checkpointed_block_is_seen_once_outside_the_backward_pass():
    block, x = nn.Linear(6, 6).double(), stream(3).requires_grad_()
    with recording({"x": Point(block)}, size) as found:
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    assert len(found["x"]) == 1
