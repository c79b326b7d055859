"""Operations of formulas that no operator of Python writes. Every reader registers its own kind of value."""

from collections.abc import Callable, Sequence
from functools import singledispatch

from .base import Value


@singledispatch
def mix(query: Value, values: Sequence[Value], key: Callable[[Value], Value]) -> Value:
    """Attention over depth: Σ_i softmax_i(query · key(v_i)) v_i, for every token on its own.

    query: a parameter of the stack's width. Dispatches on it; raises TypeError for a kind of value nobody registered.
    """
    raise TypeError(f"no reader has registered attention over depth for {type(query).__name__}")


@singledispatch
def unit(x: Value) -> Value:
    """x / ‖x‖ along the last dimension. Raises TypeError for a kind of value nobody registered."""
    raise TypeError(f"no reader has registered unit vectors for {type(x).__name__}")
