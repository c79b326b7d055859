"""How far an update moves sub-layers and logits: by hand for linear stacks, by derivatives for small steps."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jvp
from torch.func import functional_call

from normscope.measure import amplification, weights_after
from normscope.optim import OptimizerConfig, make_optimizer

D, T = 6, 5


class Residual(nn.Module):
    """x ← x + W x, so many times, and a head."""

    def __init__(self, blocks: int, norm: bool = False) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(blocks))
        self.norm = nn.LayerNorm(D) if norm else nn.Identity()
        self.head = nn.Linear(D, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = self.norm(x + branch(x))
        return self.head(x)

    def sublayers(self) -> dict[str, nn.Module]:
        return {f"F_{place}": branch for place, branch in enumerate(self.branches, 1)}


def made(blocks: int = 3, norm: bool = False) -> tuple[Residual, Tensor, dict[str, Tensor]]:
    """A model, its input, and a random direction of its weights; all in float64."""
    torch.manual_seed(0)
    model = Residual(blocks, norm).double()
    direction = {name: torch.randn_like(weight) for name, weight in model.named_parameters()}
    return model, torch.randn(2, T, D, dtype=torch.float64), direction


def moved(model: nn.Module, direction: dict[str, Tensor], step: float) -> dict[str, Tensor]:
    return {name: weight.detach() + step * direction[name] for name, weight in model.named_parameters()}


def test_a_linear_stack_by_hand() -> None:
    """y* - y = δ x + (W + δ)(x* - x), from products of matrices in numpy."""
    model, x, direction = made()
    found = amplification(model, lambda: model(x), moved(model, direction, 0.3), model.sublayers())
    before = after = x.numpy().reshape(-1, D)
    for place, branch in enumerate(model.branches):
        w, d = branch.weight.detach().numpy(), 0.3 * direction[f"branches.{place}.weight"].numpy()
        own, amplified = before @ d.T, (after - before) @ (w + d).T
        change = found.sublayers[f"F_{place + 1}"]
        assert change.square == pytest.approx(np.mean((before @ w.T) ** 2), rel=1e-12)
        assert change.own == pytest.approx(np.mean(own**2), rel=1e-12)
        assert change.amplified == pytest.approx(np.mean(amplified**2), rel=1e-10, abs=1e-25)
        assert change.total == pytest.approx(np.mean((own + amplified) ** 2), rel=1e-10)
        assert change.crossed == pytest.approx(2 * np.mean(own * amplified), rel=1e-9, abs=1e-12)
        before, after = before + before @ w.T, after + after @ (w + d).T
    head, d = model.head.weight.detach().numpy(), 0.3 * direction["head.weight"].numpy()
    assert found.square == pytest.approx(np.mean((before @ head.T) ** 2), rel=1e-12)
    assert found.total == pytest.approx(np.mean((after @ (head + d).T - before @ head.T) ** 2), rel=1e-12)
    assert found.relative == pytest.approx(found.total / found.square)
    assert [*found.sublayers] == ["F_1", "F_2", "F_3"]


def test_small_steps_are_those_of_the_derivative() -> None:
    """E(J δ)² of a stack with norms, by automatic differentiation, up to terms of the order of the step."""
    model, x, direction = made(4, norm=True)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def run(*values: Tensor) -> Tensor:
        return functional_call(model, dict(zip(weights, values, strict=True)), (x,))

    _, tangent = jvp(run, tuple(weights.values()), tuple(direction[name] for name in weights))
    for step in (1e-4, 1e-6):
        found = amplification(model, lambda: model(x), moved(model, direction, step), model.sublayers())
        assert found.total / step**2 == pytest.approx(float(tangent.square().mean()), rel=10 * step)


def test_the_model_is_left_as_it_was() -> None:
    """Weights, buffers, gradients, modes, hooks and generators; dropout is off, so that numbers come twice."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True) for _ in range(2)]
    model = nn.Sequential(nn.Linear(8, 8), *layers, nn.Flatten(0, 1), nn.BatchNorm1d(8))
    model[1].eval()
    x = torch.randn(3, T, 8)
    model(x).square().mean().backward()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = {name: (p.grad, p.grad.clone()) for name, p in model.named_parameters() if p.grad is not None}
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    def loss(update: int) -> Tensor:
        return model(x + update * torch.rand(1)).square().mean()

    after = weights_after(model, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2), loss, (1, 3))
    sublayers = {"first": model[1], "second": model[2]}
    found = [amplification(model, lambda: model(x), after[3], sublayers, before=after[1]) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].sublayers["second"].own > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    for name, p in model.named_parameters():
        held, value = gradients[name]
        assert p.grad is held, name
        assert torch.equal(held, value), name
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert states[2] == np.random.get_state()[1].tolist()


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lion", "muon"])
def test_weights_after_updates_are_those_of_a_loop(name: str) -> None:
    if name == "lion":
        pytest.importorskip("lion_pytorch")
    model, x, _ = made(2)
    config = OptimizerConfig(name=name, peak_lr=0.01, weight_decay=0.1)
    found = weights_after(model, lambda m: make_optimizer(m, config), lambda u: (u * model(x)).square().mean(), (1, 3))
    optimizer = make_optimizer(model, config)
    for update in range(1, 4):
        optimizer.zero_grad()
        (update * model(x)).square().mean().backward()
        optimizer.step()
        if update in found:
            for weight_name, weight in model.named_parameters():
                assert torch.equal(found[update][weight_name], weight), (update, weight_name)
    assert [*found] == [1, 3]


def test_a_shared_module_is_seen_at_every_call_and_a_tied_weight_moves_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
            self.head.weight = self.block.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.block(self.block(x)))

    torch.manual_seed(0)
    model, x = Shared().double(), torch.randn(4, D, dtype=torch.float64)
    after = {"head.weight": 2 * model.head.weight.detach()}
    found = amplification(model, lambda: model(x), after, {"block": model.block})
    assert [*found.sublayers] == ["block", "block (call 2)"]
    second = found.sublayers["block (call 2)"]
    # (4 - 1)² in all, of which its own weights double what comes in: 1; and twice as much comes in: 2².
    assert (second.total / second.square, second.own / second.square) == pytest.approx((9.0, 1.0))
    assert second.amplified / second.square == pytest.approx(4.0)
    assert found.relative == pytest.approx(49.0)


def test_what_cannot_be_measured_is_refused() -> None:
    model, x, direction = made(2)

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(x)
            return x * len(self.seen)

    noisy = nn.Sequential(nn.Linear(D, D).double(), Writes())
    after = moved(model, direction, 0.1)
    for sublayers, given, message in [
        ({}, after, "at least one"),
        (model.sublayers(), {"branch": x}, "no parameter of this Residual"),
        (model.sublayers(), {"head.weight": x}, r"shape \(4, 6\), got \(2, 5, 6\)"),
        ({"other": nn.Linear(D, D)}, after, "'other' was not called"),
    ]:
        with pytest.raises(ValueError, match=message):
            amplification(model, lambda: model(x), given, sublayers)
    with pytest.raises(ValueError, match="something else when it is called again"):
        amplification(noisy, lambda: noisy(x), {}, {"writes": noisy[1]})
    with pytest.raises(ValueError, match="one finite number"):
        weights_after(model, lambda m: torch.optim.SGD(m.parameters()), lambda _: model(x).sum() * torch.inf)
    with pytest.raises(ValueError, match="counted from 1"):
        weights_after(model, lambda m: torch.optim.SGD(m.parameters()), lambda _: model(x).sum(), (0, 1))
