"""Whether vectors point in a common direction: their mean cosine."""

import torch
from torch import Tensor


def anisotropy(x_ND: Tensor) -> float:
    """Mean cosine of two different rows: 0 for directions drawn evenly, 1 for one direction.

    Ethayarajh 2019 (arXiv:1909.00512, section 3.4), who draws the pairs; here it is over all of them, by
    (‖Σ u‖² - N) / (N (N - 1)) for unit vectors u. Rows of zeros count as a cosine of 0 with every other.
    Raises ValueError for fewer than 2 rows.
    """
    if x_ND.ndim != 2 or len(x_ND) < 2:
        raise ValueError(f"give a matrix of 2 or more rows, got {tuple(x_ND.shape)}")
    units_ND = torch.nn.functional.normalize(x_ND.detach().double(), dim=-1)
    squares = units_ND.square().sum()
    count = len(units_ND)
    return float((units_ND.sum(0).square().sum() - squares) / (count * (count - 1)))
