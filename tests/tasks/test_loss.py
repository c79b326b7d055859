"""The chunked loss against torch's own log_softmax, finite differences and numbers from fairseq."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from normscope.tasks.loss import plain_chunk, smoothed_cross_entropy


def _reference(
    hidden_MD: Tensor, weight_VD: Tensor, target_M: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """A distribution over the vocabulary for each target, and its cross-entropy: no algebra."""
    log_p_MV = functional.log_softmax(hidden_MD @ weight_VD.T, -1)
    one_hot_MV = functional.one_hot(target_M, len(weight_VD)).to(log_p_MV)
    wanted_MV = one_hot_MV * (1 - smoothing) + (1 - one_hot_MV) * smoothing / (len(weight_VD) - 1)
    return -(wanted_MV * log_p_MV).sum(), -(one_hot_MV * log_p_MV).sum()


def _inputs(dtype: torch.dtype = torch.float64, tokens: int = 37) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = (
        torch.randn(tokens, 8, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    )
    weight = torch.randn(23, 8, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, 23, (tokens,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk_tokens", [1, 10, 37, 1000])
def test_sums_and_gradients_match_log_softmax(smoothing: float, chunk_tokens: int):
    hidden, weight, target = _inputs()
    ours = smoothed_cross_entropy(hidden, weight, target, smoothing, chunk_tokens=chunk_tokens)
    reference = _reference(hidden, weight, target, smoothing)
    torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)
    assert not ours[1].requires_grad
    # A cotangent other than 1, as a trainer divides the sum by its tokens.
    ours_gradients = torch.autograd.grad(ours[0] / 7, (hidden, weight))
    torch.testing.assert_close(
        ours_gradients,
        torch.autograd.grad(reference[0] / 7, (hidden, weight)),
        rtol=1e-12,
        atol=1e-12,
    )


def test_gradients_match_finite_differences():
    hidden, weight, target = _inputs(tokens=5)
    assert torch.autograd.gradcheck(
        lambda h, w: smoothed_cross_entropy(h, w, target, 0.1, chunk_tokens=2)[0], (hidden, weight)
    )


def test_a_frozen_weight_still_passes_a_gradient_to_hidden():
    hidden, weight, target = _inputs()
    loss, _ = smoothed_cross_entropy(hidden, weight.detach(), target, 0.1)
    (gradient,) = torch.autograd.grad(loss, hidden)
    (expected,) = torch.autograd.grad(_reference(hidden, weight, target, 0.1)[0], hidden)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_without_gradients_the_sums_are_the_same():
    hidden, weight, target = _inputs()
    with torch.no_grad():
        ours = smoothed_cross_entropy(hidden, weight, target, 0.1, chunk_tokens=10)
    assert not ours[0].requires_grad
    torch.testing.assert_close(
        ours, _reference(hidden.detach(), weight.detach(), target, 0.1), rtol=1e-12, atol=1e-12
    )


def test_far_logits_do_not_underflow():
    """The target lies 2,000 nats below the best entry: its probability is 0 in every float type,
    its loss is not.
    """
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[2000.0], [0.0], [-3.0]])
    smoothed, nll = smoothed_cross_entropy(hidden, weight, torch.tensor([1]), 0.0)
    assert smoothed == nll == 2000.0


def test_bf16_autocast_is_as_near_float64_as_bf16_products_allow():
    hidden, weight, target = _inputs(torch.float32, tokens=200)
    exact = _reference(hidden.double(), weight.double(), target, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = smoothed_cross_entropy(hidden, weight, target, 0.1, chunk_tokens=64)
    assert ours[0].dtype == ours[1].dtype == torch.float32
    gradients = torch.autograd.grad(ours[0], (hidden, weight))
    assert [g.dtype for g in gradients] == [torch.float32, torch.float32]
    # A factor in bfloat16 errs by 2^-9 of its value; a logit has two of them and is itself rounded.
    torch.testing.assert_close(torch.stack(ours).double(), torch.stack(exact), rtol=2**-8, atol=0)
    for gradient, other in zip(
        gradients, torch.autograd.grad(exact[0], (hidden, weight)), strict=True
    ):
        assert (gradient - other).norm() / other.norm() < 3 * 2**-8


@pytest.mark.parametrize(
    "name", ["post_shared_1", "post_separate_2", "pre_shared_1", "pre_separate_2"]
)
def test_sums_match_fairseq(shared: Path, name: str):
    """The smoothed sum is what fairseq's criterion gave: it works in float32 whatever the model's
    dtype is.
    """
    fixture = np.load(shared / "fixtures" / f"fairseq_{name}.npz")
    target = torch.from_numpy(fixture["tgt"])
    real = target != 1
    logits = torch.from_numpy(fixture["logits"])[real]
    identity = torch.eye(logits.shape[1], dtype=torch.float64)
    smoothed, nll = smoothed_cross_entropy(logits, identity, target[real], 0.1, chunk_tokens=7)
    assert smoothed.item() == pytest.approx(float(fixture["smoothed_loss_sum"]), rel=2**-21)
    assert nll.item() == pytest.approx(float(fixture["nll_sum"]), rel=1e-10)
    assert len(logits) == int(fixture["target_tokens"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_devices_chunk_has_torchs_loss_and_gradient_to_the_last_place(dtype: torch.dtype):
    """Against float64, for targets that are hardly likely and for one that is nearly certain."""
    torch.manual_seed(0)
    logits_CV, target_C = (3 * torch.randn(6, 11)).to(dtype), torch.tensor([0, 10, 3, 3, 7, 2])
    logits_CV[5, 2] = 14.0
    exact_CV = logits_CV.double().requires_grad_()
    nll = functional.cross_entropy(exact_CV, target_C, reduction="sum")
    nll.backward()  # type: ignore[no-untyped-call]
    assert exact_CV.grad is not None
    gradient_CV, sums_2 = plain_chunk(logits_CV, target_C)
    assert gradient_CV.dtype == dtype
    # An element's own rounding; and that of the logarithm of a sum near 1, against 1e-4 of the
    # target nearly certain.
    exact = torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(
        gradient_CV.double(),
        exact_CV.grad,
        rtol=torch.finfo(dtype).eps + 40 * torch.finfo(exact).eps,
        atol=2 * torch.finfo(exact).eps,
    )
    torch.testing.assert_close(sums_2.double(), nll.detach().expand(2), rtol=2e-6, atol=0)
