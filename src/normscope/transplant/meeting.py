"""Where the queries and keys of an attention meet, and norms on them there: after rotary positions.

Scores are one product of the two, which torch's functions show whoever wrote the attention: its own
fused attention, or a product before a softmax.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .following import TransplantRefused

_FUSED = (nn.functional.scaled_dot_product_attention,)
_SOFTMAXES = (torch.softmax, nn.functional.softmax, Tensor.softmax)
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_FEWEST = 3
"""Dimensions of queries or keys: a product with fewer is one with a weight, or a table's."""

NormOfSide = Callable[[str, Tensor], Tensor]
"""Gives "query" or "key" and (…, features of a head), and gets the same normed."""


class NormedScores(nn.Module):
    """The norms of an attention's queries and keys, over the features of a head."""

    def __init__(self, norms: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleDict(norms)

    def normed(self, side: str, x: Tensor) -> Tensor:
        """(…, features of a head) normed."""
        return self.norms[side](x)  # type: ignore[no-any-return]


class Meeting(TorchFunctionMode):
    """Norms queries and keys in the pass of one attention, wherever they meet in it."""

    def __init__(self, norm: NormOfSide, name: str) -> None:
        """name: of the attention, for messages."""
        super().__init__()
        self._norm = norm
        self._name = name
        self._scored = False
        """Whether scores were made that no softmax has taken yet."""
        self._weighted = False
        """Whether a softmax was made whose weights have met no values yet."""
        self._differentiated = torch.is_grad_enabled()
        self.count = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _FUSED:
            args, given = self._fused(args, given)
        elif func in _SOFTMAXES:
            self._weighted, self._scored = self._scored, False
        elif func in _PRODUCTS and _are_many(args):
            args = self._product(args, (-1, -2), 0)
        elif func is torch.baddbmm and _are_many(args[1:3]):
            args = self._product(args, (-1, -2), 1)
        elif func is torch.einsum and len(args) > 2 and _are_many(args[1:3]):
            args = self._product(args, self._axes(args[0]), 1)
        return func(*args, **given)

    def check(self) -> None:
        """Raise TransplantRefused where nothing was normed in the pass."""
        if not self.count:
            raise TransplantRefused(
                f"{self._name}: its queries and keys met in no operation that torch shows, so that "
                "they could not be normed there: have it use torch's attention "
                "(attn_implementation='sdpa' or 'eager' in transformers), or take norms before "
                "rotary positions (head)"
            )

    def _refuse_hidden(self) -> None:
        """Raise TransplantRefused where autograd would not see the norms."""
        if self._differentiated and not torch.is_grad_enabled():
            raise TransplantRefused(
                f"{self._name}: its scores are made in an autograd function of its own, whose "
                "backward pass would know nothing of norms: take them before rotary positions "
                "(head)"
            )

    def _fused(
        self, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._refuse_hidden()
        for position, side in enumerate(("query", "key")):
            if side in given:
                given[side] = self._norm(side, given[side])
            else:
                one = self._norm(side, args[position])
                args = (*args[:position], one, *args[position + 1 :])
        self.count += 1
        return args, given

    def _product(self, args: tuple[Any, ...], axes: tuple[int, int], first: int) -> tuple[Any, ...]:
        """The same arguments with both sides normed, where they are queries and keys.

        axes: of the features of a head; first: where the queries stand among the arguments.
        """
        if self._weighted:  # weights and values
            self._weighted = False
            return args
        if self._scored:
            raise TransplantRefused(
                f"{self._name}: its scores are a sum of several products, so that norms after "
                "rotary positions have no one place: take them before (head)"
            )
        self._refuse_hidden()
        sides = (args[first], args[first + 1])
        query = self._along(axes[0], "query", sides[0])
        key = self._along(axes[1], "key", sides[1])
        self._scored = True
        self.count += 1
        return (*args[:first], query, key, *args[first + 2 :])

    def _along(self, axis: int, side: str, x: Tensor) -> Tensor:
        if axis == -1:
            return self._norm(side, x)
        return self._norm(side, x.movedim(axis, -1)).movedim(-1, axis)

    def _axes(self, equation: object) -> tuple[int, int]:
        """Of the features in both operands of an einsum, from the last dimension on."""
        if not isinstance(equation, str):
            raise self._not_understood(equation)
        given, _, result = equation.replace(" ", "").partition("->")
        query, _, key = given.partition(",")
        shared = [letter for letter in query if letter in key and letter not in result + "."]
        behind = [operand.rpartition("...")[2] for operand in (query, key)]
        if len(shared) != 1 or not all(shared[0] in letters for letters in behind):
            raise self._not_understood(equation)
        axes = [letters.index(shared[0]) - len(letters) for letters in behind]
        return axes[0], axes[1]

    def _not_understood(self, equation: object) -> TransplantRefused:
        return TransplantRefused(
            f"{self._name}: which features meet in einsum({equation!r}) does not show: write the "
            "scores as q @ k.transpose(-1, -2)"
        )


def _are_many(operands: Sequence[Any]) -> bool:
    """Whether these are two batches of matrices: queries and keys, or weights and values."""
    both = operands[:2]
    return len(both) == 2 and all(isinstance(x, Tensor) and x.ndim >= _FEWEST for x in both)


def query_sizes(
    model: nn.Module, attentions: Sequence[str], run: Callable[[], object]
) -> dict[str, float]:
    """Returns the root mean square of the queries of each attention where they meet its keys, in
    one pass.

    Raises TransplantRefused where they meet in no operation that torch shows.
    """
    sizes: dict[str, float] = {}
    open_modes: dict[str, Meeting] = {}

    def enter(module: nn.Module, args: object, name: str) -> None:
        def note(side: str, x: Tensor) -> Tensor:
            if side == "query":
                sizes[name] = math.sqrt(float(x.detach().double().square().mean()))
            return x

        open_modes[name] = Meeting(note, name)
        open_modes[name].__enter__()  # type: ignore[no-untyped-call]

    def leave(module: nn.Module, args: object, output: object, name: str) -> None:
        mode = open_modes.pop(name)
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        mode.check()

    handles = []
    for name in attentions:
        module = model.get_submodule(name)
        handles.append(module.register_forward_pre_hook(functools.partial(enter, name=name)))
        handles.append(module.register_forward_hook(functools.partial(leave, name=name)))
    try:
        run()
    finally:
        for mode in reversed(open_modes.values()):
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for handle in handles:
            handle.remove()
    return sizes
