"""DenseFormer."""

import torch
from torch import Tensor

from placement.expectations import PRE, Expected, last_matrices_by_depth, number
from reference import Equations, ReferenceStack


def denseformer(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Pagliardini et al. 2024: X_i = B_i(Y_{i-1}), Y_i = Σ_{j ≤ i} α_ij X_j, Y_0 = X_0."""
    outputs = x[None]
    for block in stack.by_block():
        for f in block:
            x = x + f(f.norm(x))
        outputs = torch.cat([outputs, x[None]])
        x = torch.tensordot(block[-1].placed("weights"), outputs, dims=1)
    return stack.final_norm(x)


def in_block(block: int) -> str:
    """A sum of more than three values prints its first and its last."""
    last = f"weights_{block + 1} · (a + feed_forward(norm(a)))"
    between = "" if block == 1 else "weights_2 · v + " if block == 2 else "… + "
    branches = "x + attention(norm(x)) + feed_forward(norm(x + attention(norm(x))))"
    at = f"block {block}: "
    return f"{at}a = x + attention(norm(x)); {at}x ← weights_1 · v + {between}{last}; {at}v ← [v, {branches}]"


EXPECTED = {
    "denseformer": Expected(
        equations=Equations(stack=denseformer),
        formula=f"v ← [x]; {'; '.join(map(in_block, range(1, 7)))}; y = norm(x)",
        added=PRE | number("feed_forward.weights", 2),
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
        first={"0.feed_forward.placed.weights": (0.0, 1.0), "1.feed_forward.placed.weights": (0.0, 0.0, 1.0)},
    )
}
