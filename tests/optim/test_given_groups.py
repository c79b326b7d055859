"""Groups of the caller's own: with the roles of the rest they part a model's parameters, at the
rates asked for.
"""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from normscope.optim import GroupConfig, GroupsConfig, OptimizerConfig, make_optimizer, roles
from normscope.optim.groups import given_groups

RATE, DECAY = 2e-3, 0.1


class Model(nn.Module):
    """A parameter of every role."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(5, 3), nn.Linear(3, 3)
        self.norm, self.lm_head = nn.LayerNorm(3), nn.Linear(3, 5, bias=False)
        self.gate = nn.Parameter(torch.ones(()))


MODEL = Model()
NAMES = [name for name, _ in MODEL.named_parameters()]
BY_ROLE = GroupsConfig(
    embedding=GroupConfig(lr_factor=0.1), head=GroupConfig(lr_factor=3.0, weight_decay=0.7)
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "lr_factor": st.floats(0, 10),
        "weight_decay": st.one_of(st.just("shared"), st.floats(0, 1)),
    },
)


def by_name(groups: Sequence[dict[str, Any]]) -> dict[str, tuple[str, float, float, float]]:
    """Role, share of the rate, rate, and decay of every parameter; asserts that each stands in one
    group.
    """
    names = {id(weight): name for name, weight in MODEL.named_parameters()}
    held = [
        (names[id(weight)], (group["role"], group["lr_factor"], group["lr"], group["weight_decay"]))
        for group in groups
        for weight in group["params"]
    ]
    assert sorted(name for name, _ in held) == sorted(NAMES)
    return dict(held)


@given(
    places=st.lists(st.integers(0, 2), min_size=len(NAMES), max_size=len(NAMES)),
    own=st.tuples(SETTINGS, SETTINGS),
)
def test_each_parameter_has_what_its_group_says_or_else_its_role(places, own) -> None:
    """The last of three places is no group of the caller's."""
    weights = dict(MODEL.named_parameters())
    members = [
        [name for name, place in zip(NAMES, places, strict=True) if place == group]
        for group in range(2)
    ]
    mine = [
        {"params": [weights[name] for name in members[group]], **own[group]} for group in range(2)
    ]
    config = OptimizerConfig(name="adamw", peak_lr=RATE, weight_decay=DECAY, groups=BY_ROLE)
    of = roles(MODEL)
    found = by_name(make_optimizer(MODEL, config, mine).param_groups)
    for name, place in zip(NAMES, places, strict=True):
        rest: GroupConfig = getattr(BY_ROLE, of[name])
        factor = own[place].get("lr_factor", 1.0) if place < 2 else rest.lr_factor
        decay = own[place].get("weight_decay", "shared") if place < 2 else rest.weight_decay
        wanted = (of[name], factor, RATE * factor, DECAY if decay == "shared" else decay)
        assert found[name][0] == wanted[0]
        assert found[name][1:] == pytest.approx(wanted[1:], rel=1e-12)


def test_no_group_of_the_caller_s_is_the_same_as_none() -> None:
    config = OptimizerConfig(peak_lr=RATE, weight_decay=DECAY, groups=BY_ROLE)
    assert by_name(make_optimizer(MODEL, config, []).param_groups) == by_name(
        make_optimizer(MODEL, config).param_groups
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[MODEL.gate]], "got list"),
        ([{"lr_factor": 2.0}], "got the keys lr_factor"),
        ([{"params": [MODEL.gate], "lr": 1e-3}], "got the keys params, lr"),
        ([{"params": [MODEL.gate]}, {"params": [MODEL.gate]}], "gate is in two groups"),
        ([{"params": [MODEL.norm.weight, MODEL.norm.weight]}], "norm.weight is in two groups"),
        (
            [{"params": [nn.Parameter(torch.ones(2))]}],
            "what a group holds is no parameter of the model",
        ),
        (
            [{"params": [MODEL.gate], "lr_factor": -1.0}],
            "lr_factor must be 0 or more, and finite, got -1.0",
        ),
    ],
)
def test_a_group_that_is_none_is_refused(groups, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        given_groups(MODEL, groups, GroupsConfig(), peak_lr=RATE, weight_decay=DECAY)
