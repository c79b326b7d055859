"""Closed forms and Lanczos against the full Jacobian of autograd."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from normscope.measure import (
    jacobian_norm,
    jacobian_singular_values,
    layer_norm_jacobian_norm,
    norm_jacobian_norm,
    rms_norm_jacobian_norm,
)
from normscope.model.norms import ScaleNorm

WIDTH = 12


def rows(count: int = 5, width: int = WIDTH, mean: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(count, width, generator=generator, dtype=torch.float64) + mean


def full(f, x_BD: Tensor) -> Tensor:
    """Spectral norm of each row's own Jacobian."""
    return torch.stack([torch.linalg.matrix_norm(jacobian(f, x_D), 2) for x_D in x_BD])


def gains() -> dict[str, Tensor]:
    random = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ones = torch.ones(WIDTH, dtype=torch.float64)
    spike, pair, zeros = ones.clone(), ones.clone(), ones.clone()
    spike[3], pair[2:4], zeros[5:] = -7.0, 3.0, 0.0
    return {"ones": ones, "random": random, "spike": spike, "pair": pair, "zeros": zeros, "equal": -2.5 * ones}


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize("gain", gains())
@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.7])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_closed_forms_and_iteration_against_the_full_jacobian(kind, eps, gain):
    norm, x = kind(WIDTH, eps=eps).double(), rows()
    norm.weight.data.copy_(gains()[gain])
    expected = full(norm, x)
    torch.testing.assert_close(norm_jacobian_norm(norm, x), expected, rtol=1e-11, atol=0)
    torch.testing.assert_close(jacobian_norm(norm, x, tolerance=1e-12), expected, rtol=1e-11, atol=0)


def test_without_a_gain_it_is_one_over_the_deviation():
    x = rows()
    bare = nn.LayerNorm(WIDTH, elementwise_affine=False).double()
    torch.testing.assert_close(
        norm_jacobian_norm(bare, x), (x.var(-1, correction=0) + 1e-5).rsqrt(), rtol=1e-14, atol=0
    )
    found = rms_norm_jacobian_norm(x, eps=0.0)
    torch.testing.assert_close(found, WIDTH**0.5 / x.norm(dim=-1), rtol=1e-14, atol=0)
    assert norm_jacobian_norm(bare, x.view(1, 5, WIDTH)).shape == (1, 5)


def test_a_gain_counts_for_less_than_its_largest_entry():
    """A gain of 7 along one axis, and a row along the same axis, which the norm takes away."""
    x = torch.zeros(1, WIDTH, dtype=torch.float64)
    x[0, 3] = 1.0
    gain = gains()["spike"]
    along = rms_norm_jacobian_norm(x, gain, eps=0.0)
    torch.testing.assert_close(along, torch.tensor([WIDTH**0.5], dtype=torch.float64), rtol=1e-12, atol=0)


def test_rows_that_are_constant():
    constant = torch.full((1, WIDTH), 3.0, dtype=torch.float64)
    norm = nn.LayerNorm(WIDTH, eps=0.01).double()
    norm.weight.data.copy_(gains()["random"])
    torch.testing.assert_close(norm_jacobian_norm(norm, constant), full(norm, constant), rtol=1e-11, atol=0)
    with pytest.raises(ValueError, match="constant vector"):
        layer_norm_jacobian_norm(constant, eps=0.0)
    with pytest.raises(ValueError, match="constant vector"):
        rms_norm_jacobian_norm(torch.zeros(1, 4), eps=0.0)
    with pytest.raises(ValueError, match="3 or more"):
        layer_norm_jacobian_norm(torch.ones(1, 2), eps=1.0)
    with pytest.raises(ValueError, match="2 or more"):
        rms_norm_jacobian_norm(torch.ones(1, 1), eps=1.0)


def test_rms_norm_with_the_epsilon_of_its_type():
    """torch takes the type's machine epsilon where eps is None: it matters for rows this small."""
    norm, x = nn.RMSNorm(WIDTH), 1e-4 * rows().float()
    torch.testing.assert_close(norm_jacobian_norm(norm, x), full(norm, x).double(), rtol=1e-5, atol=0)
    assert norm_jacobian_norm(norm, x).max() < 0.5 * rms_norm_jacobian_norm(x, eps=0.0).max()


def test_modules_without_a_closed_form():
    for module in (ScaleNorm(4, 1e-5), nn.LayerNorm((3, 4)), nn.Linear(4, 4)):
        with pytest.raises(TypeError, match="jacobian_norm takes any module"):
            norm_jacobian_norm(module, torch.ones(3, 4))
    norm, x = ScaleNorm(WIDTH, 1e-5).double(), rows()
    expected = norm.weight.detach() / x.norm(dim=-1)
    torch.testing.assert_close(jacobian_norm(norm, x, tolerance=1e-12), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("out", [3, 12, 40])
def test_any_map_of_rows(out):
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(WIDTH, 20), nn.GELU(), nn.Linear(20, out)).double()
    x = rows()
    torch.testing.assert_close(jacobian_norm(f, x, tolerance=1e-12), full(f, x), rtol=1e-11, atol=0)


def test_wide_float32_rows_need_few_products():
    torch.manual_seed(0)
    norm = nn.LayerNorm(512)
    nn.init.normal_(norm.weight, 1, 0.2)
    x = torch.randn(8, 512)
    torch.testing.assert_close(jacobian_norm(norm, x).double(), norm_jacobian_norm(norm, x), rtol=1e-5, atol=0)
    with pytest.raises(ValueError, match="11 steps do not reach"):
        jacobian_norm(norm, x, max_steps=11)


def test_a_largest_value_that_hides_among_equal_ones():
    """511 singular values of 1 and one of 1.0002: the first step's residual is small already."""
    scale = torch.ones(512, dtype=torch.float64)
    scale[100] = 1.0002
    found = jacobian_norm(lambda x: x * scale, rows(3, 512))
    torch.testing.assert_close(found, torch.full((3,), 1.0002, dtype=torch.float64), rtol=1e-9, atol=0)


def test_inputs_drawn_from_the_seed_everybody_takes():
    """The random start must not be x itself, which the norm takes away."""
    for seed in (0, 1, 42, 1234):
        x = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        norm = nn.RMSNorm(WIDTH, eps=1e-12).double()
        norm.weight.data.copy_(gains()["zeros"])
        torch.testing.assert_close(
            jacobian_norm(norm, x, tolerance=1e-12), norm_jacobian_norm(norm, x), rtol=1e-11, atol=0
        )


def test_maps_that_are_linear_zero_or_the_identity():
    x = rows(2)
    assert jacobian_norm(lambda r: r, x).tolist() == pytest.approx([1.0, 1.0])
    assert jacobian_norm(lambda r: 0 * r, x).tolist() == [0.0, 0.0]
    assert jacobian_norm(lambda r: r.sum(-1, keepdim=True), x).tolist() == pytest.approx([WIDTH**0.5] * 2)


def test_rows_that_are_mixed_are_refused_unless_they_are_one():
    x = rows(4)
    mix = torch.softmax(rows(4, 4), -1)
    causal = mix.tril()
    for matrix in (mix, causal, causal.mT):
        with pytest.raises(ValueError, match="mixes rows"):
            jacobian_norm(lambda r, m=matrix: m @ r, x)
    as_one = jacobian_norm(lambda r: (mix @ r.view(4, WIDTH)).view(1, -1), x.view(1, -1), tolerance=1e-12)
    torch.testing.assert_close(as_one[0], torch.linalg.matrix_norm(mix, 2), rtol=1e-11, atol=0)


def test_dropout_keeps_one_mask():
    """A mask drawn anew for every product would be no linear map."""
    torch.manual_seed(0)
    f = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH)).double()
    masks: list[Tensor] = []
    f[0].register_forward_hook(lambda _, args, out: masks.append(out.detach() / args[0].detach()))
    found = jacobian_norm(f, rows(2), tolerance=1e-12)
    assert len(masks) == 1
    expected = torch.stack([torch.linalg.matrix_norm(f[1].weight * mask, 2) for mask in masks[0]])
    torch.testing.assert_close(found, expected.detach(), rtol=1e-11, atol=0)


def test_gradients_and_the_generator_stay_as_they_are():
    norm, x = nn.LayerNorm(WIDTH).double(), rows()
    norm.weight.grad = torch.ones(WIDTH).double()
    state = torch.get_rng_state()
    with torch.no_grad():
        jacobian_norm(norm, x)
        jacobian_singular_values(norm, x[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(norm.weight.grad, torch.ones(WIDTH).double())
    assert norm.bias.grad is None
    assert not x.requires_grad


def test_singular_values():
    x = rows(1)[0]
    s = float((x.var(correction=0) + 1e-12).rsqrt())
    bare = nn.LayerNorm(WIDTH, eps=1e-12).double()
    values = jacobian_singular_values(bare, x)
    assert values.tolist() == pytest.approx([s] * (WIDTH - 2) + [0, 0], rel=1e-10, abs=1e-9)
    assert jacobian_singular_values(nn.Linear(4, 2), torch.ones(4)).shape == (2,)
    with pytest.raises(ValueError, match="one point"):
        jacobian_singular_values(bare, rows(2))
    with pytest.raises(ValueError, match="must give a vector"):
        jacobian_singular_values(lambda r: torch.outer(r, r), x)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="give rows"):
        jacobian_norm(nn.Identity(), torch.ones(3))
    with pytest.raises(ValueError, match="rows to rows"):
        jacobian_norm(lambda r: r.sum(), rows())
