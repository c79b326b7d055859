"""What a clip leaves of a rate, compared with torch's own optimisers, and the rule that says so."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from doctor.bugs import both
from doctor.wired import patient, pre
from normscope.doctor.lint.linter import RULES, asked_rules, lint
from normscope.doctor.result import Finding
from normscope.optim.groups import Clipping, epsilon_of

SGD, ADAM, LION = None, 1e-8, 0.0


def stepped(kind: type[torch.optim.Optimizer], gradient: torch.Tensor, clip: float, rate: float) -> torch.Tensor:
    """What one update with torch's own clipping adds to weights of 0."""
    weight = nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_([weight], clip)
    kind([weight], lr=rate).step()
    return weight.detach()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("clip", [1e-9, 1e-6, 1e-3, 1.0, 1e6])
def test_the_effective_rate_makes_the_same_update_without_clipping(kind, clip):
    """Exact for Adam where all entries are of one size, which is what `typical` means."""
    torch.manual_seed(0)
    gradient = 3.0 * torch.randint(0, 2, (400,), dtype=torch.float64).mul(2).sub(1)
    epsilon = epsilon_of(kind([nn.Parameter(gradient)], lr=1.0).param_groups[0])
    norm = float(gradient.norm())
    clipping = Clipping(gradient_norm=norm, clip_norm=clip, rate=0.1, epsilon=epsilon, entries=gradient.numel())
    alone = stepped(kind, gradient, math.inf, clipping.effective_rate)
    # torch adds 1e-6 to the norm that it divides by.
    torch.testing.assert_close(stepped(kind, gradient, clip, 0.1), alone, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("norm", "clip", "epsilon", "hides", "far"),
    [
        (1000.0, 1.0, SGD, True, True),
        (999.0, 1.0, SGD, False, False),
        (5.0, 0.005, SGD, True, True),
        (1000.0, 1.0, ADAM, False, True),
        (1000.0, 1.0, LION, False, True),
        (1.0, 1e-13, ADAM, True, True),
        (1.0, 1e-13, LION, False, True),
        (math.inf, 1.0, SGD, True, True),
        (math.inf, 1.0, ADAM, False, True),
        (1e9, math.inf, SGD, False, False),
    ],
)
def test_a_thousand_times_is_the_boundary(norm, clip, epsilon, hides, far):
    clipping = Clipping(gradient_norm=norm, clip_norm=clip, rate=0.1, epsilon=epsilon)
    assert (clipping.hides_rate, clipping.is_far_below) == (hides, far)


@pytest.mark.parametrize(
    "wrong", [{"gradient_norm": 0.0}, {"clip_norm": -1.0}, {"rate": math.nan}, {"entries": 0}, {"epsilon": -1e-8}]
)
def test_numbers_that_mean_nothing(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Clipping(**{"gradient_norm": 1.0, "clip_norm": 1.0, "rate": 0.1, "epsilon": None, **wrong})


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [
        (torch.optim.SGD, None),
        (torch.optim.AdamW, 1e-8),
        (torch.optim.RMSprop, 1e-8),
        (torch.optim.Adagrad, 1e-10),
        (torch.optim.Rprop, 0.0),
    ],
)
def test_which_optimisers_divide_by_the_gradient(kind, epsilon):
    assert epsilon_of(kind([nn.Parameter(torch.ones(2))]).param_groups[0]) == epsilon


def found(clip: float | None, kind: type[torch.optim.Optimizer]) -> list[Finding]:
    model = both(pre, final=1)()
    of = replace(patient(model), optimizer=kind(model.parameters(), lr=0.1), clip_norm=clip)
    return [finding for finding in lint(of) if finding.id == "clip-hides-rate"]


def test_a_clip_a_thousand_times_below_the_gradient():
    (norm,) = {math.hypot(*patient(both(pre, final=1)()).observed.gradient_norms.values())}
    (warning,) = found(norm / 2000, torch.optim.SGD)
    assert warning.severity == "warning"
    assert (
        "2,000 times less. The first update of SGD at a rate of 0.1 is the one that a rate of 5e-05" in warning.message
    )
    (note,) = found(norm / 2000, torch.optim.Adam)
    assert (note.severity, "hides no rate" in note.message) == ("info", True)
    assert found(norm / 500, torch.optim.SGD) == found(math.inf, torch.optim.SGD) == found(None, torch.optim.SGD) == []


def test_a_diagnosis_says_of_every_rule_whether_it_was_asked():
    model = both(pre, final=1)()
    of = patient(model)
    asked = {rule.id: rule for rule in asked_rules(of, silenced=["no-norm"])}
    assert list(asked) == [rule.id for rule in RULES]
    assert all(rule.asked == (rule.reason == "") for rule in asked.values())
    assert asked["lost-residual"].asked
    assert asked["no-norm"].reason == "it was silenced"
    assert asked["checkpoint-tensors"].reason == "no checkpoint was loaded"
    assert asked["clip-hides-rate"].reason == (
        "no optimiser with its parameter groups was given and no norm was given that gradients are clipped to"
    )
    told = replace(of, optimizer=torch.optim.SGD(model.parameters(), 0.1), clip_norm=1.0)
    more = {rule.id for rule in asked_rules(told) if rule.asked and not asked[rule.id].asked}
    assert more >= {"no-norm", "weight-decay-on-norms", "clip-hides-rate"}
    lacked = {reason for id in more for reason in asked[id].reason.split(" and ")}
    assert lacked == {
        "it was silenced",
        "no optimiser with its parameter groups was given",
        "no norm was given that gradients are clipped to",
    }
