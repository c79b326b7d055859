"""Rows of tables that a pass reads for its tokens."""

# B = sequences, T = tokens

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Lookups(TorchFunctionMode):
    """Notes which rows of tables are read for each token of (B, T), and what is made of them."""

    def __init__(self, ids_BT: Tensor) -> None:
        super().__init__()
        self._ids_BT = ids_BT
        self.rows: list[Tensor] = []
        self.made: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        at = {functional.embedding: 0, Tensor.__getitem__: 1}.get(func)
        index = args[at] if at is not None and len(args) > at else None
        if not isinstance(index, Tensor) or index.shape != self._ids_BT.shape:
            return func(*args, **(kwargs or {}))
        made = func(*args, **(kwargs or {}))
        if index.dtype in (torch.long, torch.int) and isinstance(made, Tensor):
            self.rows.append(index.detach().long())
            # A frozen table asks for no gradient, and its rows are asked for one all the same.
            made = made if made.requires_grad else made.detach().requires_grad_()
            self.made.append(made)
        return made
