"""The subject: the protocol, its readings as symbols, and the registry; the formulas have a folder
of their own.
"""

# After the protocol, which every formula is written in: importing them registers placements.
from . import formulas as _formulas  # noqa: F401
from .base import (
    Constant,
    End,
    Norms,
    Placement,
    Profiling,
    Site,
    StackShape,
    Sublayer,
    SublayerKind,
    Value,
)
from .query_key import AfterPositions, QueryKeyNorm, parted
from .registry import AsBuilt, StandIn, beside, named, register, registered, stand_in

__all__ = [
    "AfterPositions",
    "AsBuilt",
    "Constant",
    "End",
    "Norms",
    "Placement",
    "Profiling",
    "QueryKeyNorm",
    "Site",
    "StackShape",
    "StandIn",
    "Sublayer",
    "SublayerKind",
    "Value",
    "beside",
    "named",
    "parted",
    "register",
    "registered",
    "stand_in",
]
