"""What the model does by hand for speed: rearrangement, dropout and the linear layer, against what
torch defines.
"""

import pytest
import torch
from torch import nn

from normscope.model import Layout
from normscope.model.context import as_factor
from normscope.model.linear import Dropout, Linear
from normscope.model.scores import attend

LENGTHS = torch.tensor([3, 5, 1])


@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor([4, 4])], ids=["ragged", "full"])
def test_rearrangement_has_the_gradient_of_finite_differences(lengths: torch.Tensor):
    layout = Layout(lengths)
    x_ND = torch.randn(layout.tokens, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layout.to_heads(x, 2), (x_ND,))
    x_BHTK = torch.randn(
        layout.sentences, 2, layout.longest, 3, dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(layout.from_heads, (x_BHTK,))


def test_heads_are_slices_of_each_token_and_padding_is_zero():
    layout = Layout(LENGTHS)
    x_ND = torch.randn(9, 6, dtype=torch.float64)
    grid = layout.to_heads(x_ND, 2)
    rows = x_ND.split(LENGTHS.tolist())
    for sentence, row_TD in enumerate(rows):
        for head in range(2):
            cell_TK = grid[sentence, head]
            torch.testing.assert_close(
                cell_TK[: len(row_TD)], row_TD[:, 3 * head : 3 * head + 3], rtol=0, atol=0
            )
            assert not cell_TK[len(row_TD) :].any()
    torch.testing.assert_close(layout.from_heads(grid), x_ND, rtol=0, atol=0)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_dropout_keeps_its_rate_and_the_mean(rate: float):
    torch.manual_seed(0)
    n = 1_000_003  # not a multiple of the four masks that one random number holds
    y = Dropout(rate)(torch.ones(n, dtype=torch.float64))
    kept = (y != 0).double()
    assert (
        abs(kept.mean().item() - (1 - rate)) < 5 * (rate * (1 - rate) / n) ** 0.5
    )  # five standard errors
    assert y.unique().numel() == 2
    assert y.max().item() == pytest.approx(
        1 / (1 - rate), rel=2**-16 / (1 - rate)
    )  # the rate's rounding
    assert abs(y.mean().item() - 1) < 5 * (rate / (1 - rate) / n) ** 0.5


def test_dropout_masks_are_independent():
    """Neighbours share a random number, rows do not; a correlation of n pairs has the standard
    error 1 / √n.
    """
    torch.manual_seed(0)
    drop, n = Dropout(0.3), 400_000
    x = torch.ones(n, dtype=torch.float64)
    first, second = ((drop(x) != 0).double() - 0.7 for _ in range(2))
    for lag in (1, 2, 3, 4, 512):
        assert abs((first[lag:] * first[:-lag]).mean().item() / 0.21) < 5 * n**-0.5
    assert abs((first * second).mean().item() / 0.21) < 5 * n**-0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_repeats_with_its_seed_and_drops_the_gradient_with_the_value(dtype: torch.dtype):
    drop = Dropout(0.3)
    x = torch.ones(7, 13, dtype=dtype, requires_grad=True)
    ys = []
    for _ in range(2):
        torch.manual_seed(3)
        ys.append(drop(x))
    torch.testing.assert_close(ys[0], ys[1], rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(ys[0].sum(), x)
    torch.testing.assert_close(gradient, ys[0], rtol=0, atol=0)
    assert not torch.equal(drop(x), ys[0])
    assert drop.eval()(x) is x


def test_linear_matches_torch():
    torch.manual_seed(0)
    ours = Linear(5, 7).double()
    theirs = nn.Linear(5, 7).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-14, atol=1e-14)
    of_ours = torch.autograd.grad((ours(x) ** 3).sum(), (x, *ours.parameters()))
    of_theirs = torch.autograd.grad((theirs(x) ** 3).sum(), (x, *theirs.parameters()))
    torch.testing.assert_close(of_ours, of_theirs, rtol=1e-12, atol=1e-12)


def test_factors_are_cast_under_autocast_alone():
    x = torch.randn(3)
    assert as_factor(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert as_factor(x).dtype == torch.bfloat16
        assert Linear(3, 2)(as_factor(x)).dtype == torch.bfloat16
        assert (
            as_factor(x.double()).dtype == torch.float64
        )  # as autocast itself leaves float64 alone


@pytest.mark.parametrize("causal", [False, True])
def test_bf16_attention_errs_by_roundings_to_bf16_alone(causal: bool):
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, 9, 16).bfloat16() for _ in range(3))
    scores = query.double() @ key.double().mT / 4
    if causal:
        scores = scores.masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), float("-inf"))
    exact = scores.softmax(-1) @ value.double()
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    mixed = attend(query, key, value, None, causal, 0.0)
    assert mixed.dtype == torch.bfloat16
    # Scaled queries and keys, scores, weights and the result are each rounded, by 2^-9 of their
    # value at most.
    assert (mixed.double() - exact).norm() / exact.norm() < 5 * 2**-9
    assert torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed() == before
