"""Stream moments against all pairs of tokens, and hooks that leave nothing behind."""

import math
import weakref
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from kinds import examples
from live import begin, live_tensors
from normscope.measure import Point, depth_points, first_tensor, measure_stream, points, recording, stream_moments


def stream(tokens: int, seed: int = 0, width: int = 6) -> torch.Tensor:
    """Tokens with a common part and a feature mean, so that no moment is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(width, generator=generator, dtype=torch.float64)
    return torch.randn(tokens, width, generator=generator, dtype=torch.float64) + common + 0.5


def plain_moments(sequences: list[torch.Tensor]) -> tuple[float, float, float]:
    """q, p and the feature mean's share by loops over tokens and pairs."""
    squares, products, means = [], [], []
    for x_ND in sequences:
        for i, x in enumerate(x_ND.tolist()):
            squares.append(math.fsum(a * a for a in x) / len(x))
            means.append((math.fsum(x) / len(x)) ** 2)
            for j, y in enumerate(x_ND.tolist()):
                if i != j:
                    products.append(math.fsum(a * b for a, b in zip(x, y, strict=True)) / len(x))
    q = math.fsum(squares) / len(squares)
    return q, math.fsum(products) / len(products), math.fsum(means) / len(means) / q


def assert_moments(found, sequences):
    q, p, share = plain_moments(sequences)
    assert found.q == pytest.approx(q, rel=1e-12)
    assert found.p == pytest.approx(p, rel=1e-12)
    assert found.correlation == pytest.approx(p / q, rel=1e-12)
    assert found.feature_mean_share == pytest.approx(share, rel=1e-12)
    assert found.tokens == sum(map(len, sequences))


def test_packed_sequences_against_all_pairs():
    x = stream(9)
    assert_moments(stream_moments(x, lengths_B=torch.tensor([4, 1, 3, 1])), list(x.split([4, 1, 3, 1])))
    assert_moments(stream_moments(x), [x])


def test_a_grid_against_all_pairs_whatever_stands_in_the_padding():
    x = stream(15).view(3, 5, 6)
    keep = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 0, 0, 1, 0]]).bool()
    spoiled = x.masked_fill(~keep[..., None], math.nan)
    assert_moments(stream_moments(spoiled, keep_BT=keep), [row[k] for row, k in zip(x, keep, strict=True)])
    assert_moments(stream_moments(spoiled, keep_BT=keep.long()), [row[k] for row, k in zip(x, keep, strict=True)])
    assert_moments(stream_moments(x), list(x))


def test_known_values():
    equal = torch.ones(2, 3, 4)
    found = stream_moments(equal)
    assert (found.q, found.p, found.correlation, found.feature_mean_share) == pytest.approx((1, 1, 1, 1), rel=1e-12)
    assert (found.tokens, found.pairs) == (6, 12)
    found = stream_moments(torch.eye(4))
    assert (found.q, found.p, found.feature_mean_share) == pytest.approx((0.25, 0, 0.25), abs=1e-12)
    lone = stream_moments(torch.ones(3, 4), lengths_B=torch.tensor([1, 1, 1]))
    assert lone.q == 1.0
    assert math.isnan(lone.p)
    assert math.isnan(stream_moments(torch.zeros(2, 4)).correlation)


def test_half_precision_is_summed_in_float64():
    x = torch.full((1, 4096, 8), 3.0, dtype=torch.bfloat16)
    found = stream_moments(x)
    assert (found.q, found.p) == pytest.approx((9, 9), rel=1e-12)


def test_autocast_changes_nothing():
    x = stream(8).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert stream_moments(x) == stream_moments(x)
        inside = stream_moments(x)
    assert inside == stream_moments(x)


@examples(40)
@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=6), data=st.data())
def test_how_sequences_are_dealt_to_batches_does_not_matter(lengths, data):
    cut = data.draw(st.integers(1, len(lengths) - 1))
    x = stream(sum(lengths), seed=len(lengths))
    whole = stream_moments(x, lengths_B=torch.tensor(lengths))
    first, second = x.split([sum(lengths[:cut]), sum(lengths[cut:])])
    pooled = stream_moments(first, lengths_B=torch.tensor(lengths[:cut])) + stream_moments(
        second, lengths_B=torch.tensor(lengths[cut:])
    )
    assert (pooled.tokens, pooled.pairs) == (whole.tokens, whole.pairs)
    for name in ("squares", "products", "squared_means"):
        assert getattr(pooled, name) == pytest.approx(getattr(whole, name), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "given_", "message"),
    [
        (torch.ones(4, 2), {"lengths_B": torch.tensor([1, 2])}, "add up to 3, but the stream has 4"),
        (torch.ones(4, 2), {"keep_BT": torch.ones(4, 2)}, "lengths_B"),
        (torch.ones(2, 3, 4), {"lengths_B": torch.tensor([3, 3])}, "keep_BT"),
        (torch.ones(2, 3, 4), {"keep_BT": torch.ones(2, 4)}, "keep_BT has shape"),
        (torch.ones(4), {}, "shape"),
        (torch.ones(2, 3, 4), {"keep_BT": torch.zeros(2, 3)}, "no tokens"),
    ],
)
def test_shapes_that_do_not_fit(x, given_, message):
    with pytest.raises(ValueError, match=message):
        stream_moments(x, **given_)


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


def test_a_curve_over_depth():
    blocks, x = foreign_stack(), stream(7)
    expected, states = x, [x]
    for i, block in enumerate(blocks):
        expected = expected + (0.5 if i == 2 else 1.0) * block.linear(expected)
        states.append(expected.detach())
    found = measure_stream(depth_points(blocks), lambda: run_foreign(blocks, x), lengths_B=torch.tensor([4, 3]))
    assert list(found) == ["x_0", "x_1", "x_2", "x_3"]
    for moments, state in zip(found.values(), states, strict=True):
        assert_moments(moments, list(state.split([4, 3])))
    assert hooks_of(blocks) == 0


def test_points_by_name_and_inputs():
    blocks, x = foreign_stack(), stream(4)
    found = measure_stream(points(blocks, ["1.linear"], at="input"), lambda: run_foreign(blocks, x))
    assert_moments(found["1.linear"], [blocks[0](x)[0].detach()])
    # The call names `scale` before the stream.
    found = measure_stream({"last": Point(blocks[2], "input")}, lambda: run_foreign(blocks, x))
    assert_moments(found["last"], [blocks[1](blocks[0](x)[0])[0].detach()])
    with pytest.raises(ValueError, match=r"no such module: 9, 1\.line"):
        points(blocks, ["9", "0", "1.line"])
    with pytest.raises(ValueError, match="at least one block"):
        depth_points([])


def test_a_pick_reaches_any_part():
    block, x = nn.LSTM(6, 6, batch_first=True).double(), stream(4)[None]
    found = measure_stream({"cell": Point(block, pick=lambda output: output[1][1])}, lambda: block(x))
    assert found["cell"].q == pytest.approx(float(block(x)[1][1].detach().square().mean()), rel=1e-12)


def test_first_tensor():
    x = torch.ones(2)
    assert first_tensor(x) is x
    assert first_tensor((x, 1)) is x
    assert first_tensor([(x,), 1]) is x
    assert first_tensor(OrderedDict(last_hidden_state=x, other=torch.zeros(1))) is x
    for nothing in (None, (), [1], "x", {"a": "b"}):
        with pytest.raises(TypeError, match="pick"):
            first_tensor(nothing)


def test_a_module_that_is_called_twice_is_pooled_and_one_that_is_not_is_named():
    block, x = nn.Linear(6, 6).double(), stream(3)
    found = measure_stream({"shared": Point(block)}, lambda: block(block(x)))
    once, twice = block(x).detach(), block(block(x)).detach()
    assert_moments(found["shared"], [once, twice])
    with pytest.raises(ValueError, match="'idle' was not called"):
        measure_stream({"idle": Point(nn.Linear(2, 2))}, lambda: block(x))


def test_hooks_are_removed_after_errors():
    blocks, x = foreign_stack(), stream(3)
    with pytest.raises(ZeroDivisionError):
        measure_stream(depth_points(blocks), lambda: 1 / 0)
    assert hooks_of(blocks) == 0
    with (
        pytest.raises(TypeError, match="pick"),
        recording({"x": Point(blocks[0], pick=lambda _: first_tensor(()))}, id),
    ):
        run_foreign(blocks, x)
    assert hooks_of(blocks) == 0
    with pytest.raises(AttributeError), recording({"good": Point(blocks[0]), "bad": Point("no module")}, id):
        pass
    assert hooks_of(blocks) == 0


def test_hooks_of_others_stay():
    block, calls = nn.Linear(6, 6).double(), []
    block.register_forward_hook(lambda *_: calls.append(1))
    measure_stream({"x": Point(block)}, lambda: block(stream(2)))
    assert (len(calls), hooks_of(block)) == (1, 1)


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
    with recording(points(model, ["0", "1", "2"]), stream_moments) as found:
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    assert [len(moments) for moments in found.values()] == [1, 1, 1]


def test_what_is_reduced_has_no_graph():
    model = nn.Linear(6, 6).double()
    with recording({"x": Point(model)}, lambda x: x.requires_grad or (x + x).requires_grad) as found:
        assert model(stream(2)).requires_grad
    assert found == {"x": [False]}


def test_measuring_leaves_gradients_alone_and_needs_none():
    model, x = nn.Linear(6, 6).double(), stream(2)
    model(x).sum().backward()
    before, outputs = model.weight.grad.clone(), []
    measure_stream({"x": Point(model)}, lambda: outputs.append(model(x)))
    assert torch.equal(model.weight.grad, before)
    assert not outputs[0].requires_grad
    assert torch.is_grad_enabled()


def test_no_activation_is_kept():
    blocks = foreign_stack()
    alive: list[weakref.ref] = []

    def reduce(x: torch.Tensor):
        alive.append(weakref.ref(x))
        return stream_moments(x)

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
    with recording({"x": Point(block)}, stream_moments) as found:
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    assert len(found["x"]) == 1
