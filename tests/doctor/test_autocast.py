"""A forward pass under torch.autocast is read as without it, and weights of bfloat16 are read
too.
"""

from functools import wraps
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

import normscope
from doctor.wired import WIDTH, Model, Stack, pre, tokens
from golden.models import cases
from normscope.doctor import find_stacks

CASES = cases()
OF_ITS_OWN = "bug-a-feed-forward-computed-in-bfloat16"
"""Where all is under autocast, none of its blocks is unlike the others."""


def under_autocast(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """The same model, class and names kept, whose forward enters autocast."""
    forward = type(model).forward

    @wraps(forward)
    def within(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype):
            return forward(self, *args, **kwargs)

    own = {"__module__": type(model).__module__, "forward": within}
    model.__class__ = type(type(model).__name__, (type(model),), own)
    return model


def halved(given: Any) -> Any:
    return tree_map(
        lambda x: x.bfloat16() if isinstance(x, Tensor) and x.is_floating_point() else x, given
    )


def diagnosed(name: str, how: str = "") -> Any:
    """All that is said of a model, or why it is refused; how: under autocast, or of bfloat16."""
    torch.manual_seed(0)
    model, inputs, options = CASES[name]()
    if how == "autocast":
        model = under_autocast(model)
    if how == "bfloat16":
        model, inputs = model.bfloat16(), halved(inputs)
    try:
        return normscope.diagnose(model, inputs, advise=False, **options).to_json()
    except ValueError as error:
        return {"refused": str(error)}


@pytest.mark.sampled(one_in=30)
@pytest.mark.parametrize("name", sorted(CASES.keys() - {OF_ITS_OWN}))
def test_a_model_under_autocast_is_read_as_without_it(name):
    assert diagnosed(name, "autocast") == diagnosed(name)


class Usual(nn.Module):
    """The most usual decoder: queries, keys and values of their own, and a forward under
    autocast.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype
        self.embedding = nn.Embedding(97, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(9))
        self.maps = nn.ModuleList(nn.Linear(64, 64) for _ in range(16))
        self.up, self.down = (
            nn.ModuleList(nn.Linear(*size) for _ in range(4)) for size in ((64, 256), (256, 64))
        )
        self.head = nn.Linear(64, 97)

    def attention(self, x: Tensor, block: int) -> Tensor:
        query, key, value = (
            one(x).unflatten(-1, (4, 16)).transpose(1, 2) for one in self.maps[4 * block :][:3]
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.maps[4 * block + 3](y.transpose(1, 2).flatten(2))

    def forward(self, ids: Tensor) -> Tensor:
        with torch.autocast("cpu", self.dtype, enabled=self.dtype is not None):
            x = self.embedding(ids)
            for block in range(4):
                x = x + self.attention(self.norms[2 * block](x), block)
                hidden = functional.gelu(self.up[block](self.norms[2 * block + 1](x)))
                x = x + self.down[block](hidden)
            return self.head(self.norms[8](x))


IDS = torch.randint(0, 97, (2, 16), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_queries_keys_and_values_of_their_own_under_autocast(dtype):
    found = []
    for asked in (None, dtype):
        torch.manual_seed(0)
        found.append(normscope.diagnose(Usual(asked), (IDS,), advise=False))
    plain, half = (one.to_json() for one in found)
    assert half == plain
    assert [(stack.placement, stack.blocks) for stack in found[1].stacks] == [("pre-ln", 4)]
    assert found[1].findings == ()


def test_a_diagnosis_within_autocast_is_one_without_it():
    torch.manual_seed(0)
    model = Usual(None)
    plain = normscope.diagnose(model, (IDS,), advise=False).to_json()
    with torch.autocast("cpu", torch.bfloat16):
        assert normscope.diagnose(model, (IDS,), advise=False).to_json() == plain
        assert torch.is_autocast_enabled("cpu")


def test_the_model_computes_under_autocast_again_afterwards():
    model = Usual(torch.bfloat16)
    before = model(IDS)
    find_stacks(model, (IDS,))
    assert before.dtype == torch.bfloat16
    assert torch.equal(model(IDS), before)


class Casting(nn.Module):
    """What casts its input itself, and without autocast would meet weights of float32."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.first = inner, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(self.first(x.bfloat16())).float()


@pytest.mark.parametrize("around", [False, True])
def test_a_pass_that_cannot_do_without_autocast_is_read_under_it(around):
    model = Model(lambda: Casting(Stack(pre, pre, blocks=3, final=1)))
    if around:
        model.encoder = model.encoder.inner
        model.embedding = model.embedding.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=around):
        found = normscope.diagnose(model, tokens(model), advise=False)
    assert [(stack.placement, stack.blocks) for stack in found.stacks] == [("pre-ln", 3)]
    assert [finding.id for finding in found.findings if finding.severity != "info"] == []


def test_a_pass_that_raises_with_and_without_autocast_is_refused_in_its_own_words():
    class Broken(Model):
        def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                raise KeyError("no such head")

    model = Broken(lambda: Stack(pre, pre, blocks=2, final=1))
    with pytest.raises(ValueError, match="the forward pass raised KeyError: 'no such head'"):
        normscope.diagnose(model, tokens(model), advise=False)


@pytest.mark.sampled(one_in=40)
@pytest.mark.parametrize("name", sorted(CASES))
def test_weights_of_bfloat16_are_looked_at_or_refused_in_a_line(name):
    found = diagnosed(name, "bfloat16")
    assert found.get("stacks") or "\n" not in found["refused"]


class Cast(nn.Module):
    """A matrix in bfloat16, by casts of the model's own."""

    def __init__(self, matrix: nn.Module) -> None:
        super().__init__()
        self.matrix = matrix.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix(x.bfloat16()).float()


def test_what_each_product_casts_for_itself_is_computed_again():
    """A stream of float32, which queries, keys and values each read in another precision."""
    model = Model(lambda: Stack(pre, pre, blocks=3, final=1))
    for block in model.encoder.blocks:
        attention = block.f[0]
        for name in ("query", "key", "value", "last"):
            setattr(attention, name, Cast(getattr(attention, name)))
        block.f[1] = nn.Sequential(Cast(block.f[1][0]), nn.ReLU(), Cast(block.f[1][2]))
    found = normscope.diagnose(model, tokens(model), advise=False)
    assert [one.placement for one in found.stacks] == ["pre-ln"]
    kinds = [one.kind for one in found.stacks[0].sublayers]
    assert kinds == ["attention", "feed_forward"] * 3
