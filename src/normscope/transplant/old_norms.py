"""Norms of the model that belong to its old placement: the module of each, and the part that it has
at its sub-layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ..doctor.find.segments import Segment
from ..doctor.find.terms import Term, ordered
from ..doctor.measured import NormUse
from ..doctor.record import Stack, Sublayer
from ..placement import SublayerKind
from .following import TransplantRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class OldNorm:
    """A norm of the model that belongs to its old placement."""

    module: str
    kind: SublayerKind
    """The sub-layer that it stands at."""
    role: str
    """before F, after F, or outer, of the sum."""
    inner: bool
    """True where nothing but F reads the norm."""


def norms_of(model: nn.Module, found: Stack, row: Sequence[Sublayer]) -> list[OldNorm]:
    """Returns the norms of a block's sub-layers by their part, those without a module of their own
    under the name "".
    """
    uses = {use.at: use for use in found.norm_uses}
    norms = []
    for sublayer in row:
        segment, kind = sublayer.formula.segment, sublayer.kind
        for term in segment.terms:
            if term.kind == "norm" and term.at in uses:
                role = _role(term, segment)
                module = _module_of(model, uses[term.at], role)
                named_kind: SublayerKind = (
                    kind if kind in ("feed_forward", "cross_attention") else "attention"
                )
                read = any(term in one.arguments for one in segment.terms if one.kind != "branch")
                inner = role == "before" and not read
                norms.append(OldNorm(module=module, kind=named_kind, role=role, inner=inner))
    return norms


def _role(norm: Term, segment: Segment) -> str:
    inner = norm.arguments[0]
    while inner.kind == "scale":
        inner = inner.arguments[0]
    branches = {id(branch) for branch in segment.branches}
    if id(inner) in branches:
        return "after"
    return (
        "outer" if any(id(term) in branches for term in ordered(inner, segment.start)) else "before"
    )


def _module_of(model: nn.Module, use: NormUse, role: str) -> str:
    """Returns the module that is the norm and nothing else; "" for one without parameters, which
    may be called as a function.

    Raises TransplantRefused where it cannot be passed over.
    """
    if not use.parameters:
        if role == "after":
            raise TransplantRefused(
                "a norm after a sub-layer has no parameters, and cannot be told from others"
            )
        return ""
    path = use.parameters[0].rpartition(".")[0]
    own = {f"{path}.{name}" for name, _ in model.get_submodule(path).named_parameters()}
    if not own <= set(use.parameters):
        raise TransplantRefused(
            f"{path or 'the model'}: the norm with {use.parameters[0]} is computed within a "
            "forward that does more than that, such as a fused sum and norm; make it a module of "
            "its own"
        )
    return path


def final_norm(found: Stack) -> str | None:
    """Returns the module of the norm after the stack, where it has one that the blocks do not."""
    inside = {
        term.at
        for one in found.sublayers
        for term in one.formula.segment.terms
        if term.kind == "norm"
    }
    if not found.final_norm or not found.norm_uses:
        return None
    last = found.norm_uses[-1]
    if last.at in inside or not last.parameters:
        return None
    return last.parameters[0].rpartition(".")[0]


def is_frozen(model: nn.Module, norm: OldNorm) -> bool:
    parameters = model.get_submodule(norm.module).parameters() if norm.module else ()
    return not all(one.requires_grad for one in parameters)
