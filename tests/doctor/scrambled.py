"""A model whose classes and modules have names that say nothing."""

import random
from typing import Any

from torch import nn

_KEEP = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterDict, nn.ParameterList)
"""Containers that find their children by name."""


def scrambled(model: nn.Module, seed: int = 0) -> nn.Module:
    """The same object, every class in it renamed and every child filed under another name; it
    computes as before.
    """
    rng = random.Random(seed)
    for module in list(model.modules()):
        new = (
            {}
            if isinstance(module, _KEEP)
            else {name: f"q{rng.randrange(10**9)}" for name in module._modules}
        )
        children = {new.get(name, name): child for name, child in module._modules.items()}
        module._modules.clear()
        module._modules.update(children)
        module.__class__ = _renamed(type(module), new, f"Z{rng.randrange(10**9)}")
    return model


def _renamed(of: type, new: dict[str, str], name: str) -> type:
    def find(self: nn.Module, wanted: str) -> Any:
        return super(made, self).__getattr__(new.get(wanted, wanted))

    made = type(name, (of,), {"__getattr__": find})
    return made
