"""How much a layer amplifies a small change of its input: the singular values of its Jacobian.

Of a norm layer all of them or the largest; of a large Jacobian, which is never formed, the largest, from a few products
with vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# B = rows, each with a Jacobian of its own, D = width, K = Krylov steps


_SEED = 7_203_441_859
"""Not one that inputs are drawn with: a start along x itself, which the norm takes away, would see next to nothing."""
_LEAST_STEPS = 10
"""A small residual alone may belong to a lesser singular value, while the largest has hardly been seen."""


def layer_norm_jacobian_norm(x_BD: Tensor, gain_D: Tensor | None = None, *, eps: float) -> Tensor:
    """‖J‖₂ of g · (x - mean) / √(variance + eps), exactly; (..., D) to (...), float64.

    J = s diag(g) (I - ŷŷᵀ(1 - c) - 𝟏𝟏ᵀ/D), s = 1/√(variance + eps), c = eps / (variance + eps), ŷ the unit vector of
    x - mean: eq. (28) of Xiong et al. 2020 with eps and a gain. Without a gain that is s. With one it is *not*
    s max|g|, only between that and s times the third largest |g|.
    Raises ValueError for D < 3, or where variance and eps are both 0.
    """
    x_BD = x_BD.detach().double()
    if x_BD.shape[-1] < 3:
        raise ValueError(f"LayerNorm of {x_BD.shape[-1]} coordinates leaves no direction: give 3 or more")
    centred_BD = x_BD - x_BD.mean(-1, keepdim=True)
    ones_BD = torch.ones_like(x_BD) / x_BD.shape[-1] ** 0.5
    return _norm_jacobian_norm(centred_BD, [ones_BD], gain_D, eps)


def rms_norm_jacobian_norm(x_BD: Tensor, gain_D: Tensor | None = None, *, eps: float) -> Tensor:
    """‖J‖₂ of g · x / √(m + eps), m = ‖x‖² / D, exactly; (..., D) to (...), float64.

    Without a gain 1/√(m + eps), which is √D / ‖x‖ for eps = 0. Raises ValueError for D < 2, or where x and eps are 0.
    """
    if x_BD.shape[-1] < 2:
        raise ValueError(f"RMSNorm of {x_BD.shape[-1]} coordinate leaves no direction: give 2 or more")
    return _norm_jacobian_norm(x_BD.detach().double(), [], gain_D, eps)


def norm_jacobian_norm(norm: nn.Module, x_BD: Tensor) -> Tensor:
    """The closed form for an `nn.LayerNorm` or `nn.RMSNorm` over the last dimension, its gain and eps included.

    A subclass of theirs is taken to compute the same. Raises TypeError for another module, for which there is
    `jacobian_norm`; ValueError as the closed forms do.
    """
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm) and len(norm.normalized_shape) == 1:
        # torch's RMSNorm takes the eps of the input's type where it has none.
        eps = torch.finfo(x_BD.dtype).eps if norm.eps is None else norm.eps
        closed = layer_norm_jacobian_norm if isinstance(norm, nn.LayerNorm) else rms_norm_jacobian_norm
        return closed(x_BD, norm.weight, eps=eps)
    raise TypeError(f"no closed form for {type(norm).__name__}; jacobian_norm takes any module")


def jacobian_norm(
    f: Callable[[Tensor], Tensor], x_BD: Tensor, *, tolerance: float = 1e-4, max_steps: int = 100, seed: int = _SEED
) -> Tensor:
    """‖∂f(x)/∂x‖₂ for each row, by autograd: f maps rows (B, D) to rows (B, E), each on its own. Returns (B,).

    Power iteration with memory, that is Lanczos on JᵀJ from a random start: it needs the same products Jv and Jᵀu, but
    tens of them where close singular values, such as a gain's, would cost plain power iteration thousands. f runs
    once, so that dropout keeps one mask; the products differentiate its graph twice. No parameter's `.grad` is
    touched, and torch's own generators are not used.
    A map that mixes rows (attention) is given its whole input as one row: `jacobian_norm(lambda r: f(r.view(N, D))
    .view(1, -1), x.view(1, -1))`.
    The result is a bound from below. tolerance: relative, on the squared norm, as the residual bounds the distance to
    a squared singular value; 1e-4 is what float32 can do.
    Raises ValueError where rows are mixed, or `max_steps` do not reach the tolerance.
    """
    product = _gram_product(f, x_BD)
    generator = torch.Generator().manual_seed(seed)
    v_BD = torch.randn(x_BD.shape, generator=generator, dtype=torch.float64).to(x_BD)
    basis, diagonals, beside = [_unit(v_BD)], list[Tensor](), list[Tensor]()
    for step in range(1, min(max_steps, x_BD.shape[-1]) + 1):
        w_BD = product(basis[-1])
        diagonals.append((w_BD * basis[-1]).sum(-1))
        basis_BKD = torch.stack(basis, 1)
        # Against the whole basis, and twice: rounding would let directions that are found already come back.
        for _ in range(2):
            w_BD = w_BD - torch.einsum("bkd,bk->bd", basis_BKD, torch.einsum("bkd,bd->bk", basis_BKD, w_BD))
        beside.append(w_BD.norm(dim=-1))
        squared_B, residual_B = _largest(diagonals, beside)
        close = step >= _LEAST_STEPS and bool((residual_B <= tolerance * squared_B).all())
        if close or step == x_BD.shape[-1]:
            return squared_B.clamp(min=0).sqrt()
        # Nothing new in a row but rounding: its span is closed, and noise made a unit vector would spoil it.
        new_B = beside[-1] > 100 * torch.finfo(x_BD.dtype).eps * squared_B
        basis.append(torch.where(new_B[:, None], _unit(w_BD), 0.0))
        beside[-1] = torch.where(new_B, beside[-1], 0.0)
    raise ValueError(f"{max_steps} steps do not reach a tolerance of {tolerance}; allow more of either")


def jacobian_singular_values(f: Callable[[Tensor], Tensor], x_D: Tensor) -> Tensor:
    """All singular values of ∂f(x)/∂x at one point, falling, from the full matrix: for small D. f: (D,) to (E,).

    Raises ValueError where x or f(x) is not a vector.
    """
    if x_D.ndim != 1:
        raise ValueError(f"give one point, a vector; got shape {tuple(x_D.shape)}")
    with torch.enable_grad():
        jacobian = torch.autograd.functional.jacobian(f, x_D.detach())  # type: ignore[no-untyped-call]
    if jacobian.ndim != 2:
        raise ValueError(f"f must give a vector, its Jacobian has shape {tuple(jacobian.shape)}")
    values: Tensor = torch.linalg.svdvals(jacobian)
    return values


def _norm_jacobian_norm(y_BD: Tensor, removed: list[Tensor], gain_D: Tensor | None, eps: float) -> Tensor:
    """y: what is divided by √(mean y² + eps); removed: unit vectors that the norm takes away beside y's."""
    power_B = y_BD.square().mean(-1)
    if bool((power_B + eps <= 0).any()):
        raise ValueError("a constant vector has no Jacobian without eps: its norm divides by zero")
    scale_B = (power_B + eps).rsqrt()
    if gain_D is None:
        return scale_B
    gain_D = gain_D.detach().double()
    # 1 - c² of ŷ; y is 0 where the power is.
    lost_B = 1 - (eps / (power_B + eps)).square()
    directions = [gain_D * lost_B.sqrt()[..., None] * _unit(y_BD), *(gain_D * unit_BD for unit_BD in removed)]
    return scale_B * _largest_below(gain_D.square(), torch.stack(directions, -1)).sqrt()


def _largest_below(squares_D: Tensor, u_BDR: Tensor) -> Tensor:
    """Largest eigenvalue of diag(squares) - UUᵀ for each row, U of rank R = 1 or 2, by bisection.

    It lies between the largest and the (R+1)-th largest square (Cauchy). By Sylvester's law of inertia, as many
    eigenvalues exceed λ as squares do, less the negative ones among those of I - Uᵀ(diag(squares) - λ)⁻¹U.
    """
    rank = u_BDR.shape[-1]
    top = squares_D.topk(rank + 1).values
    high, low = top[0].expand(u_BDR.shape[:-2]).clone(), top[-1].expand(u_BDR.shape[:-2]).clone()
    identity = torch.eye(rank, dtype=u_BDR.dtype, device=u_BDR.device)
    tiny = torch.finfo(squares_D.dtype).tiny
    for _ in range(60):
        middle = (low + high) / 2
        apart_BD = squares_D - middle[..., None]
        # λ that hits a square exactly is moved off it.
        apart_BD = torch.where(apart_BD == 0, tiny**0.5, apart_BD)
        inner = identity - u_BDR.mT @ (u_BDR / apart_BD[..., None])
        above = (apart_BD > 0).sum(-1) - (torch.linalg.eigvalsh(inner) < 0).sum(-1)
        low, high = torch.where(above > 0, middle, low), torch.where(above > 0, high, middle)
    return (low + high) / 2


def _gram_product(f: Callable[[Tensor], Tensor], x_BD: Tensor) -> Callable[[Tensor], Tensor]:
    """v ↦ JᵀJv, row by row, J = ∂f(x)/∂x. Jv is the derivative by u of Jᵀu, which is linear in u.

    f runs once, and its graph is differentiated twice. Raises ValueError where rows are mixed.
    """
    if x_BD.ndim != 2:
        raise ValueError(f"give rows (B, D), got shape {tuple(x_BD.shape)}")
    with torch.enable_grad():
        x = x_BD.detach().requires_grad_()
        y = f(x)
        if y.ndim != 2 or len(y) != len(x):
            raise ValueError(f"f must map rows to rows; it made shape {tuple(y.shape)} of {tuple(x.shape)}")
        u = torch.zeros_like(y, requires_grad=True)
        (back,) = torch.autograd.grad(y, x, u, create_graph=True)
    for row in (0, -1):
        only = torch.zeros_like(y)
        only[row] = torch.linspace(1, 2, y.shape[1]).to(y)
        (reached,) = torch.autograd.grad(y, x, only, retain_graph=True)
        if bool((reached[1:] if row == 0 else reached[:-1]).any()):
            raise ValueError("f mixes rows; give it the whole input as one row")

    def product(v_BD: Tensor) -> Tensor:
        (forward,) = torch.autograd.grad(back, u, v_BD, retain_graph=True)
        (result,) = torch.autograd.grad(y, x, forward, retain_graph=True)
        return result.detach()

    return product


def _largest(diagonals: list[Tensor], beside: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Largest eigenvalue of the tridiagonal matrix, and how far at most an eigenvalue of JᵀJ is from it."""
    off = torch.stack(beside[:-1], -1) if len(beside) > 1 else diagonals[0].new_zeros(len(diagonals[0]), 0)
    matrix = torch.diag_embed(torch.stack(diagonals, -1))
    if len(beside) > 1:
        matrix = matrix + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    return values[..., -1], beside[-1] * vectors[..., -1, -1].abs()


def _unit(x_BD: Tensor) -> Tensor:
    length = x_BD.norm(dim=-1, keepdim=True)
    return x_BD / torch.where(length > 0, length, 1.0)
