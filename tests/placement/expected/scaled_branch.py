"""Pre-LN with branches times a constant."""

from collections.abc import Callable

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack


def scaled(divisor: Callable[[int], float]) -> Equations:
    """divisor: of every branch, by the blocks of the stack."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = x + f(f.norm(x)) / divisor(stack.blocks)
        return stack.final_norm(x)

    return Equations(stack=formula)


def described(divisor: Callable[[int], float], printed: str, updates: int = 60) -> Expected:
    return Expected(
        equations=scaled(divisor),
        formula=f"x ← x + {printed} · F(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=updates,
    )


EXPECTED = {
    "completep": described(lambda blocks: blocks, "1/L"),
    "depth-mup": described(lambda blocks: blocks**0.5, "1/√L"),
    "minicpm": described(lambda blocks: (blocks / 1.96) ** 0.5, "1.4/√L", updates=80),
    "granite": described(lambda blocks: 50 / 11, "0.22"),
}
