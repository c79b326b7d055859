"""How alike two layers' features are, whatever axes they are written in: linear CKA."""

import torch
from torch import Tensor


def linear_cka(x_ND: Tensor, y_NE: Tensor) -> float:
    """Centred kernel alignment with linear kernels, ‖YᵀX‖²_F / (‖XᵀX‖_F ‖YᵀY‖_F) of centred features, in float64.

    Kornblith et al. 2019 (arXiv:1905.00414, section 3): 1 for features that are a rotation, a shift or a multiple of
    one another, and near 0 for unrelated ones of many rows. Rows are the same tokens. NaN where one side is constant.
    Raises ValueError where the rows differ in number, or are fewer than 2.
    """
    if x_ND.ndim != 2 or y_NE.ndim != 2 or len(x_ND) != len(y_NE) or len(x_ND) < 2:
        raise ValueError(
            f"give two matrices with the same 2 or more rows, got {tuple(x_ND.shape)} and {tuple(y_NE.shape)}"
        )
    x_ND, y_NE = (one.detach().double() - one.detach().double().mean(0) for one in (x_ND, y_NE))
    across = torch.linalg.matrix_norm(y_NE.T @ x_ND).square()
    return float(across / (torch.linalg.matrix_norm(x_ND.T @ x_ND) * torch.linalg.matrix_norm(y_NE.T @ y_NE)))
