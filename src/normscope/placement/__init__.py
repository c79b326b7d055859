"""The subject: one file a placement. Every module of this folder is imported: adding a placement is adding a file."""

import importlib
import pkgutil

from .base import (
    Constant,
    End,
    Norms,
    Placement,
    Site,
    StackShape,
    Sublayer,
    SublayerKind,
    Value,
    named,
    register,
    registered,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Constant",
    "End",
    "Norms",
    "Placement",
    "Site",
    "StackShape",
    "Sublayer",
    "SublayerKind",
    "Value",
    "named",
    "register",
    "registered",
]
