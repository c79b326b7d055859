"""What the tasks have in common where two models are compared on a few sentences."""

import torch
from torch import Tensor

from ..model import Layout

ROWS, LONGEST = 16, 64
"""How many rows are looked at, and how many tokens of each."""
RANDOM_TOKENS = "random tokens (the corpus cannot be reached)"


def layout_of(rows: list[Tensor]) -> Layout:
    """Where rows lie that are packed one after another."""
    return Layout(torch.tensor([len(row) for row in rows]))
