"""Initial weights as a placement wants them, drawn into a model that was not written for it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..doctor.record import Sublayer
from ..model.initialisation import fill
from ..model.padded.foreign import called
from ..model.placed import PlacedParameters
from ..placement import Site, SublayerKind
from ..placement.schemes import SCHEMES, Scheme
from .following import TransplantRefused
from .plan import StackPlan

_Named = tuple[str, str]
"""A matrix's name in the model, and the one that initialisation uses."""


def matrices_in(model: nn.Module, one: StackPlan) -> list[tuple[Site, list[_Named]]]:
    """The weight matrices of every sub-layer by their parts in it.

    Raises TransplantRefused where a part cannot be told and the placement draws parts in different
    ways.
    """
    found = []
    for sublayer in one.found.sublayers:
        if sublayer.block:
            kind: SublayerKind = sublayer.kind if sublayer.kind in one.kinds else "attention"
            site = Site(kind=kind, block=sublayer.block, stack=one.placement.stack)
            found.append((site, _parts(model, one, sublayer, site)))
    return found


def _parts(model: nn.Module, one: StackPlan, sublayer: Sublayer, site: Site) -> list[_Named]:
    matrices = [
        name for name in sublayer.measured.matrices if model.get_parameter(name).dim() in (2, 3)
    ]
    if not matrices:
        raise TransplantRefused(
            f"{sublayer.name}: no weight matrices are found to draw: take initialise='keep'"
        )
    *others, last = matrices
    if site.kind == "feed_forward":
        return [*((name, "ffn_in") for name in others), (last, "ffn_out")]
    parts = [called(name.split(".")[-2]) if "." in name else "" for name in others]
    if sorted(parts) != ["key", "query", "value"]:
        scheme = SCHEMES[one.placement.initialisation]
        alike = {
            (scheme.draws[part], one.placement.gain(part, site))
            for part in ("query", "key", "value")
        }
        packed = len(others) == 1 and 3 * one.found.width in model.get_parameter(others[0]).shape
        if len(alike) > 1 and not packed:
            raise TransplantRefused(
                f"{sublayer.name}: which of {', '.join(others) or last} makes queries, keys and "
                f"values cannot be told, and {one.placement.name} draws them in different ways: "
                "draw them yourself and take initialise='keep'"
            )
        parts = ["query, key, value" if packed else "value"] * len(others)
    return [*zip(others, parts, strict=True), (last, "output")]


@torch.no_grad()
def draw(model: nn.Module, one: StackPlan, matrices: Sequence[tuple[Site, list[_Named]]]) -> None:
    """Draw the matrices of a stack from torch's global generator, and put its norms back to where
    they start.
    """
    scheme = SCHEMES[one.placement.initialisation]
    for site, named in matrices:
        for name, parts in named:
            weight, bias = model.get_parameter(name), _bias(model, name)
            rows = _rows(model, name, weight).chunk(len(parts.split(", ")), -2)
            for part, matrix in zip(parts.split(", "), rows, strict=True):
                _draw(matrix, scheme, part, one.placement.gain(part, site))
            if bias is not None:
                bias.zero_()
    for path in {path for block in one.blocks for path in block.reused.values()}:
        reset(model.get_submodule(path), one.found.width)
    for block in one.blocks:
        for module in model.get_submodule(block.module).modules():
            if isinstance(module, PlacedParameters):
                module.draw(scheme)


def _draw(matrix: Tensor, scheme: Scheme, part: str, gain: float) -> None:
    for one in matrix if matrix.dim() == 3 else [matrix]:  # experts, one after the other
        drawn = torch.empty(one.shape, dtype=one.dtype, device=one.device)
        fill(drawn, scheme.draws[part], gain)
        one.copy_(drawn)


def _rows(model: nn.Module, name: str, weight: Tensor) -> Tensor:
    """The matrix as (out, in): transformers' Conv1D keeps the other order."""
    owner = model.get_submodule(name.rpartition(".")[0])
    return weight.transpose(-1, -2) if type(owner).__name__ == "Conv1D" else weight


def _bias(model: nn.Module, name: str) -> Tensor | None:
    owner, _, own = name.rpartition(".")
    found = getattr(model.get_submodule(owner), own.removesuffix("weight") + "bias", None)
    return found if isinstance(found, Tensor) else None


def marked(norm: nn.Module) -> nn.Module:
    """A norm that transformers does not draw anew when it loads a model."""
    norm._is_hf_initialized = True  # type: ignore[assignment]
    return norm


@torch.no_grad()
def reset(norm: nn.Module, width: int) -> None:
    """Put a layer norm or RMS norm back to where it starts: gains that change nothing, shifts of
    0.
    """
    marked(norm)
    gains = [p for name, p in norm.named_parameters() if "bias" not in name and "beta" not in name]
    for parameter in norm.parameters():
        parameter.zero_()
        parameter._is_hf_initialized = True  # type: ignore[attr-defined]
        parameter.requires_grad_(True)
    if gains and gains[0].is_meta:
        return
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    like = next(iter(norm.parameters()), x)
    # Of w · x / RMS(x), w = 0 gives nothing; of (1 + w) · x / RMS(x) it gives the norm.
    forward = type(norm).original.forward if hasattr(type(norm), "original") else type(norm).forward  # type: ignore[attr-defined]
    if float(forward(norm, x.to(like)).abs().mean()) < 0.1:
        for parameter in gains:
            parameter.fill_(1.0)
