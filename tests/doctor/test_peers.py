"""Peers: what one block has otherwise than the same part of the others, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doctor.test_laws_movement import BLOCKS, IDS, WIDTH, Decoder, next_token
from normscope import diagnose
from normscope.doctor.result import Finding

ODD = 2
"""The block that is changed, counted from 0."""


def told(
    rule: str, change: Callable[[Decoder], None], optimizer: Callable[..., Any] | None = None
) -> list[Finding]:
    model = Decoder()
    with torch.no_grad():
        change(model)
    found = diagnose(
        model,
        (IDS,),
        loss=next_token,
        optimizer="adamw" if optimizer is None else optimizer(model),
        advise=False,
        laws=False,
    )
    return [one for one in found.findings if one.id == rule]


def nothing(_: Decoder) -> None:
    pass


def depth_law(model: Decoder) -> None:
    for place, block in enumerate(model.blocks, 1):
        block.n1.weight.fill_(place**-0.5)
        block.up.scale = place**-0.5


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (lambda block: block.n1.weight.fill_(-1.0), "at -1 everywhere"),
        (lambda block: block.n1.weight.fill_(1.3), "at 1.3 everywhere"),
        (lambda block: nn.init.normal_(block.n2.weight, 1.0, 0.1), "about a mean above 0"),
        (lambda block: block.attention.q.weight.zero_(), "at 0 everywhere"),
        (lambda block: block.attention.v.weight.copy_(0.08 * torch.eye(WIDTH)), "mostly at 0"),
        (lambda block: block.up.weight.sub_(0.02), "about a mean below 0"),
    ],
)
def test_one_block_that_starts_otherwise_is_told(start, said):
    (fault,) = told("start-unlike-others", lambda model: start(model.blocks[ODD]))
    assert fault.severity == "warning"
    assert fault.message.startswith(f"block {ODD + 1} of {BLOCKS}: ")
    assert f" starts {said}, and" in fault.message


@pytest.mark.parametrize("change", [nothing, depth_law])
def test_blocks_that_start_alike_or_by_a_law_of_depth_are_silent(change):
    assert told("start-unlike-others", change) == []
    assert told("module-unlike-others", change) == []


class Scaled(nn.Module):
    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x if self.scale is None else self.scale * x


def scaled(odd: float | None, at: int = ODD) -> Callable[[Decoder], None]:
    def change(model: Decoder) -> None:
        for place, block in enumerate(model.blocks):
            block.n1 = nn.Sequential(block.n1, Scaled(odd if place == at else None))

    return change


def normed(model: Decoder) -> None:
    model.blocks[ODD].n2 = nn.LayerNorm(WIDTH)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: setattr(model.blocks[ODD].n1, "eps", 1e-2), "`eps` of blocks.2.n1 is 0.01"),
        (scaled(1.1), "`scale` of blocks.2.n1.1 is 1.1"),
        (normed, "the class of blocks.2.n2 is LayerNorm"),
        (lambda model: model.blocks[ODD].eval(), "the mode of blocks.2 is evaluation"),
    ],
)
def test_one_block_with_a_number_a_class_or_a_mode_of_its_own(change, said):
    (fault,) = told("module-unlike-others", change)
    assert fault.severity == "warning"
    assert said in fault.message


def windows(model: Decoder) -> None:
    for place, block in enumerate(model.blocks):
        block.attention.window = 4 if place == ODD else None
        block.layer_number = place


def another_last(model: Decoder) -> None:
    model.blocks[-1].n2 = nn.LayerNorm(WIDTH)


def in_evaluation(model: Decoder) -> None:
    model.eval()


@pytest.mark.parametrize("change", [windows, another_last, in_evaluation])
def test_what_designs_change_from_block_to_block_is_silent(change):
    assert told("module-unlike-others", change) == []


def without_norms(blocks: range) -> Callable[[Decoder], None]:
    def change(model: Decoder) -> None:
        for block in blocks:
            model.blocks[block].n2 = nn.Identity()

    return change


def test_norms_lost_in_several_blocks_are_told():
    (fault,) = told("unnormed-unlike-others", without_norms(range(2, BLOCKS)))
    assert fault.message.startswith(f"feed-forward has no norm in blocks 3-4 of {BLOCKS}")
    assert told("unnormed-unlike-others", nothing) == []
    assert told("unnormed-unlike-others", without_norms(range(BLOCKS))) == []


def one_group(model: Decoder, **numbers: Any) -> torch.optim.Optimizer:
    own = [*model.blocks[ODD].parameters()]
    mine = {id(weight) for weight in own}
    rest = [weight for weight in model.parameters() if id(weight) not in mine]
    groups = [{"params": own, **numbers}, {"params": rest}]
    return torch.optim.AdamW(groups, 1e-3, weight_decay=0.0)


def by_depth(model: Decoder) -> torch.optim.Optimizer:
    groups = [
        {"params": [*block.parameters()], "lr": 1e-3 * 0.8**place}
        for place, block in enumerate(reversed(model.blocks))
    ]
    known = {id(weight) for group in groups for weight in group["params"]}
    rest = [weight for weight in model.parameters() if id(weight) not in known]
    return torch.optim.AdamW([*groups, {"params": rest}], 1e-3, weight_decay=0.0)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"lr": 3e-3}, "updated at the rate 0.003"),
        ({"betas": (0.0, 0.999)}, "updated with betas (0.0, 0.999)"),
        ({"eps": 1e-5}, "eps 1e-05"),
    ],
)
def test_a_group_of_one_block_with_numbers_of_its_own_is_told(numbers, said):
    make = lambda model: one_group(model, **numbers)  # noqa: E731
    (fault,) = told("optimizer-unlike-others", nothing, make)
    assert said in fault.message


@pytest.mark.parametrize("make", [one_group, by_depth])
def test_rates_that_are_alike_or_fall_with_depth_are_silent(make):
    assert told("optimizer-unlike-others", nothing, make) == []


class Stage(nn.Module):
    """A feed-forward of its own width, which may lead to another one."""

    def __init__(self, width: int, inner: int, to: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.on = nn.Linear(width, to)

    def forward(self, x: Tensor) -> Tensor:
        return self.on(x + self.down(torch.relu(self.up(self.norm(x)))))


class Staged(nn.Module):
    def __init__(self, widths: list[int], inner: list[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        after = [*widths[1:], widths[-1]]
        self.stages = nn.ModuleList(map(Stage, widths, inner, after))

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


@pytest.mark.parametrize(
    ("widths", "inner", "is_told"),
    [([16, 16, 16, 24], [32, 32, 32, 48], False), ([16] * 4, [32, 32, 48, 32], True)],
)
def test_a_stage_of_another_width_is_a_design_and_one_inner_width_is_not(widths, inner, is_told):
    model = Staged(widths, inner)
    found = diagnose(model, (torch.randn(2, 8, widths[0]),), advise=False, laws=False).findings
    assert any(one.id == "module-unlike-others" for one in found) == is_told
