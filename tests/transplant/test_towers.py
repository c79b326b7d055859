"""Several stacks that are no encoder and decoder are moved in one call, by their names."""

import pytest
import torch
from torch import Tensor, nn

import normscope
from normscope.errors import UserError
from normscope.transplant.recipe import Recipe
from transplant.hand_written import GPT, Block, ids


class Towers(nn.Module):
    """Two stacks that read different inputs, as CLIP has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GPT(Block), GPT(Block)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.first(one).mean(1) @ self.second(other).mean(1).mT


def opened() -> tuple[Towers, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    return Towers(), (ids(), ids().flip(1))


def names(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, str]:
    stacks = normscope.diagnose(model, batch, advise=False, laws=False).stacks
    return {stack.name: stack.placement for stack in stacks}


def test_both_towers_are_moved_by_a_list_of_names() -> None:
    model, batch = opened()
    towers = [*names(model, batch)]
    assert len(towers) == 2
    normscope.transplant(model, "peri-ln", inputs=batch, stack=towers)
    assert names(model, batch) == dict.fromkeys(towers, "peri-ln")
    assert model.transplanted.stacks == tuple(towers)
    recipe = Recipe.of(model.transplanted.recipe, "a test")
    assert recipe.stack == tuple(towers)


def test_norms_on_queries_and_keys_go_into_the_tower_that_is_named() -> None:
    model, batch = opened()
    first = next(iter(names(model, batch)))
    normscope.transplant(model, "own+qk-norm", inputs=batch, stack=[first])
    assert {name.partition(".")[0] for name in model.transplanted.normed} == {
        first.partition(".")[0]
    }


@pytest.mark.parametrize("stack", [["nowhere"], []])
def test_a_list_that_names_none_is_refused_and_the_model_stays(stack: list[str]) -> None:
    model, batch = opened()
    before = model(*batch)
    with pytest.raises(UserError, match="there is no stack"):
        normscope.transplant(model, "peri-ln", inputs=batch, stack=stack)
    assert torch.equal(model(*batch), before)
    with pytest.raises(UserError, match="or several"):
        normscope.transplant(model, "peri-ln", inputs=batch)
