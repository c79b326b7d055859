"""Norms on the queries and keys of a model that exists, where they meet: after rotary positions."""

from collections.abc import Callable

from torch import nn

from ...doctor.attended import AttentionMeasurements
from ...doctor.record import Stack, Sublayer
from ...placement import QueryKeyNorm
from ..following import TransplantRefused
from ..meeting import NormedScores, query_sizes
from ..passes import Passes
from ..placed import ATTENTION, SCORES, swap
from ..weights import part_of
from .attending import SIDES, Attending, take_norms, understood
from .made import made_norm, sharpness


def put_after(
    passes: Passes, attending: Attending, norm: QueryKeyNorm, undo: Callable[..., object]
) -> list[str]:
    """Norm queries and keys where they meet."""
    model = passes.model
    found: dict[str, tuple[Stack, AttentionMeasurements]] = {}
    for stack, sublayer in attending:
        seen = understood(stack, sublayer)
        path = _attention_of(model, sublayer)
        if path in found:
            raise TransplantRefused(f"{path} holds several attentions: which one does not show")
        found[path] = stack, seen
    for path in found:
        if within := [one for one in found if one.startswith(f"{path}.")]:
            raise TransplantRefused(f"{path} holds an attention and {within[0]}, which is another")
    sizes = query_sizes(model, list(found), passes.outputs)
    for path, (stack, seen) in found.items():
        if path not in sizes:
            raise TransplantRefused(f"{path}: it was not called on this batch")
        # What queries are multiplied with before they meet keys is lost in the norm.
        before = sizes[path] / seen.query_size if seen.query_size > 0 else 1.0
        scale = None if seen.scale is None else seen.scale / before
        factor = sharpness(scale, seen.head_width)
        norms = {
            "query": made_norm(model, stack, norm, seen.head_width, factor),
            "key": made_norm(model, stack, norm, seen.head_width, 1.0),
        }
        module = model.get_submodule(path)
        if hasattr(module, SCORES):
            raise TransplantRefused(f"{path} has something called {SCORES!r} already")
        like = next(module.parameters())
        swap(module, ATTENTION)
        module.add_module(SCORES, NormedScores(norms).to(like.device, like.dtype))
        undo(take_norms, module)
    return list(found)


def _attention_of(model: nn.Module, sublayer: Sublayer) -> str:
    """Returns the path of the module that holds what makes queries and what makes keys. Raises
    TransplantRefused where that does not show.
    """
    where = sublayer.name or "the model"
    owners = [
        use.parameter.rpartition(".")[0]
        for use in sublayer.measured.uses
        if (use.part or part_of(use.parameter)) in SIDES
    ]
    if not owners:
        owners = [sublayer.name]
    shared = []
    for names in zip(*(owner.split(".") for owner in owners), strict=False):
        if len({*names}) > 1:
            break
        shared.append(names[0])
    path = ".".join(shared)
    while path in owners and _is_product_alone(model, path):
        path = path.rpartition(".")[0]
    if not path or path not in dict(model.named_modules()):
        raise TransplantRefused(
            f"{where}: no module of its own makes its queries and keys and has them meet: put "
            "attention into an nn.Module, which its block calls"
        )
    return path


def _is_product_alone(model: nn.Module, path: str) -> bool:
    """Whether a module is a matrix and no more, as one that makes queries, keys and values."""
    module = model.get_submodule(path)
    return {name for name, _ in module.named_parameters()} <= {"weight", "bias"}
