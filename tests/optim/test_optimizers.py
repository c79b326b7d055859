"""Every optimiser against its update rule written out, or torch's own class."""

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normscope.errors import UserError, installation
from normscope.optim import OPTIMIZERS, OptimizerConfig, Role
from normscope.optim.groups import parted
from normscope.settings.validation import validated

STEPS = 20


def over(
    weights: list[nn.Parameter], config: OptimizerConfig, role: Role = "matrix"
) -> torch.optim.Optimizer:
    """Over weights of one role."""
    named = {str(number): weight for number, weight in enumerate(weights)}
    settings = {"peak_lr": config.peak_lr, "weight_decay": config.weight_decay}
    groups = parted(named, dict.fromkeys(named, role), config.groups, **settings)
    return OPTIMIZERS[config.name].make(groups, config)


TARGET = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], dtype=torch.float64)


def path(make) -> Tensor:
    """Weights after every step down a badly scaled bowl."""
    weight = torch.nn.Parameter(torch.full((2, 3), 0.1, dtype=torch.float64))
    optimizer = make([weight])
    scale = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        (scale * (weight - TARGET).square()).sum().backward()
        optimizer.step()
        found.append(weight.detach().clone())
    return torch.stack(found)


ADAPTIVE = {"betas": (0.8, 0.95), "epsilon": 1e-6, "weight_decay": 0.03}
TORCHS = {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.03}


@pytest.mark.parametrize(
    ("config", "theirs"),
    [
        ({"name": "adam", **ADAPTIVE}, lambda p: torch.optim.Adam(p, lr=0.02, **TORCHS)),
        ({"name": "adamw", **ADAPTIVE}, lambda p: torch.optim.AdamW(p, lr=0.02, **TORCHS)),
        ({"name": "radam", **ADAPTIVE}, lambda p: torch.optim.RAdam(p, lr=0.02, **TORCHS)),
        (
            {"name": "sgd", "momentum": 0.7, "weight_decay": 0.03},
            lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.7, weight_decay=0.03),
        ),
    ],
    ids=lambda v: v["name"] if isinstance(v, dict) else "",
)
def test_is_torchs_own(config, theirs):
    ours = path(lambda p: over(p, OptimizerConfig(peak_lr=0.02, **config)))
    torch.testing.assert_close(ours, path(theirs), rtol=1e-12, atol=1e-12)
    assert not torch.equal(ours[0], ours[-1])


def test_the_default_is_the_papers_adam():
    """Kingma & Ba 2015, algorithm 1, at betas (0.9, 0.98) and epsilon 1e-8."""
    found = path(lambda p: over(p, OptimizerConfig(peak_lr=0.02)))
    scale = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    weight, m, v = (
        torch.full((2, 3), 0.1, dtype=torch.float64),
        torch.zeros(2, 3),
        torch.zeros(2, 3),
    )
    for t in range(1, STEPS + 1):
        gradient = 2 * scale * (weight - TARGET)
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        weight = weight - 0.02 * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-8)
        torch.testing.assert_close(found[t - 1], weight, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_fused_step_is_asked_for(name):
    """Same arithmetic, each weight read and written once."""
    assert (
        over([torch.nn.Parameter(torch.zeros(1))], OptimizerConfig(name=name)).defaults["fused"]
        is True
    )


def test_without_momenta_the_step_is_the_gradients_sign():
    found = path(lambda p: over(p, OptimizerConfig(peak_lr=0.02, betas=(0.0, 0.0))))
    torch.testing.assert_close(found[0], 0.1 + 0.02 * (TARGET - 0.1).sign(), rtol=1e-6, atol=0)


def test_lion_is_chen_et_al_s():
    """Chen et al. 2023 (2302.06675), algorithm 2, with decoupled decay."""
    pytest.importorskip("lion_pytorch", reason="needs lion-pytorch")
    config = OptimizerConfig(name="lion", peak_lr=0.02, betas=(0.8, 0.95), weight_decay=0.03)
    found = path(lambda p: over(p, config))
    scale = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    weight, m = torch.full((2, 3), 0.1, dtype=torch.float64), torch.zeros(2, 3)
    for t in range(STEPS):
        gradient = 2 * scale * (weight - TARGET)
        weight = weight - 0.02 * ((0.8 * m + 0.2 * gradient).sign() + 0.03 * weight)
        m = 0.95 * m + 0.05 * gradient
        torch.testing.assert_close(found[t], weight, rtol=1e-10, atol=1e-12)


def test_without_its_package_lion_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lion_pytorch", None)
    with pytest.raises(UserError, match=re.escape(installation("lion"))):
        over([torch.nn.Parameter(torch.zeros(1))], OptimizerConfig(name="lion"))


def test_decay_is_decoupled_in_adamw_alone():
    """One step from a zero gradient: AdamW shrinks the weight by lr · decay, Adam moves it by about
    lr.
    """

    def one_step(name: str) -> float:
        weight = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        weight.grad = torch.zeros((), dtype=torch.float64)
        over([weight], OptimizerConfig(name=name, peak_lr=0.1, weight_decay=0.01)).step()
        return weight.item()

    assert one_step("adamw") == pytest.approx(2 * (1 - 0.1 * 0.01), rel=1e-12)
    assert one_step("adam") == pytest.approx(2 - 0.1, rel=1e-6)
    assert one_step("sgd") == pytest.approx(2 - 0.1 * 0.01 * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peak_lr": 0.0}, "peak_lr must be positive and finite, got 0.0"),
        ({"peak_lr": math.nan}, "peak_lr must be positive and finite, got nan"),
        ({"peak_lr": math.inf}, "peak_lr must be positive and finite, got inf"),
        ({"betas": (0.9, 1.0)}, r"must lie in \[0, 1\)"),
        ({"betas": (-0.1, 0.9)}, r"must lie in \[0, 1\)"),
        ({"name": "sgd", "momentum": 1.0}, r"must lie in \[0, 1\)"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"epsilon": math.inf}, "both finite"),
        ({"weight_decay": -1e-4}, "weight_decay 0 or more"),
        ({"weight_decay": math.inf}, "weight_decay 0 or more, both finite"),
        ({"weight_decay": math.nan}, "weight_decay 0 or more"),
        ({"momentum": 0.9}, "momentum is SGD's; adam has betas"),
        ({"name": "muon", "momentum": 0.9}, "momentum is SGD's; muon has muon_momentum"),
        ({"name": "muon", "muon_momentum": 1.0}, r"muon_momentum must lie in \[0, 1\)"),
    ],
)
def test_what_cannot_be_optimised_with(changes, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**changes)


def test_a_name_of_the_list_is_valid_and_every_other_is_refused_with_the_list():
    for name in OPTIMIZERS:
        assert validated(OptimizerConfig, {"name": name}).name == name
    with pytest.raises(UserError, match=f"one of {', '.join(OPTIMIZERS)}, got 'lamb'"):
        validated(OptimizerConfig, {"name": "lamb"})


def test_the_page_of_training_names_every_one():
    page = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^`optimizer.name` is .*?\n\n", page, re.MULTILINE | re.DOTALL)
    lacking = [name for name in OPTIMIZERS if f"`{name}`" not in paragraph]
    assert lacking == [], (
        "docs/training.md, Optimisers, and parameters by role: name these beside the others"
    )
