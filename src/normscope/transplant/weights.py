"""Initial weights as a placement wants them, drawn into a model that was not written for it.

Drawn are the plain matrices of attention and feed-forward, and with them their biases are 0. All
else has a start of its own, which is kept: routers and gates, convolutions, state-space mixers,
numbers that matrices are multiplied with, and whatever is frozen.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..doctor.attended import AttentionMeasurements
from ..doctor.measured import MatrixPart, MatrixUse
from ..doctor.record import Sublayer
from ..doctor.trace.forward import joined
from ..model.initialisation import fill
from ..model.padded.foreign import called
from ..model.placed import PlacedParameters
from ..placement import Site
from ..placement.schemes import SCHEMES, Scheme
from .following import TransplantRefused
from .placed import PLACED
from .plan import BlockPlan, StackPlan
from .trained import is_even

_ATTENTION: tuple[MatrixPart, ...] = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A matrix, or some rows of one, that is to be drawn."""

    site: Site
    use: MatrixUse
    scale: float = 1.0
    """The factor of its entries beside the placement's gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMatrix:
    """A matrix, or some rows of one, that was drawn."""

    parameter: str
    part: str
    """query, key, value, output, ffn_in or ffn_out."""
    before: float
    """Root mean square of its entries until then."""
    after: float


def drawings(model: nn.Module, one: StackPlan, *, scaled: bool = True) -> list[Drawing]:
    """Lists the weights of a stack that are to be drawn, in the order of its sub-layers.

    scaled: whether queries' matrices make up for what attention multiplies its logits with.
    Raises TransplantRefused where there is nothing, or where parts cannot be told that the
    placement draws in different ways.
    """
    found: list[Drawing] = []
    for sublayer in one.found.sublayers:
        if sublayer.block and sublayer.kind in one.kinds:
            site = Site(kind=sublayer.kind, block=sublayer.block, stack=one.placement.stack)
            scales = _scales(sublayer.measured.attention if scaled else None)
            for use in _uses(model, one, sublayer, site):
                if model.get_parameter(use.parameter).requires_grad:
                    scale = scales.get(use.part, 1.0)
                    found.append(Drawing(site=site, use=use, scale=scale))
    if not found:
        raise TransplantRefused(
            f"{one.found.name or 'the model'}: no weight matrix is found to draw that is not "
            "frozen: take initialise='keep' (--initialise keep)"
        )
    return found


def _scales(seen: AttentionMeasurements | None) -> dict[MatrixPart, float]:
    """Returns the factor for the queries' matrix, or the keys' where queries have a norm, with
    which logits vary as they do where attention multiplies them by 1/√d, d a head's width.

    Every scheme of ours is of such attention; T5's multiplies them with 1, and Granite's with other
    numbers. Nothing where that number is not known, and where norms make the size of both.
    """
    if seen is None or not seen.scale:
        return {}
    scale = 1 / (abs(seen.scale) * math.sqrt(seen.head_width))
    if abs(scale - 1) < 1e-3:
        return {}
    sides: dict[str, MatrixPart] = {"queries": "query", "keys": "key"}
    free = [part for side, part in sides.items() if side not in seen.normed]
    return {free[0]: scale} if free else {}


def _uses(model: nn.Module, one: StackPlan, sublayer: Sublayer, site: Site) -> list[MatrixUse]:
    """Returns the matrices of a sub-layer whose part is known, by the recorded pass or else by
    their names.
    """
    plain = [*sublayer.measured.uses]
    if site.kind == "feed_forward":
        told = [use for use in plain if use.part]
        return told if any(use.part == "ffn_out" for use in told) else _in_order(plain)
    known = {use.part for use in plain}
    if "output" not in known:
        plain = [*plain[:-1], *(replace(use, part=use.part or "output") for use in plain[-1:])]
    found, left = [], list[MatrixUse]()
    for use in plain:
        by_name = use.part or part_of(use.parameter)
        if use.part or (by_name and by_name not in known):
            found.append(replace(use, part=by_name))
        else:
            left.append(use)
    parts = {use.part for use in found}
    missing = [part for part in _ATTENTION if part not in parts]
    if not missing or not left:
        return found
    _refuse_unlike(one, sublayer, site, missing, left)
    # Where none is told, it does not matter which is which; else what is left may be a gate.
    return found + (
        [replace(use, part="value") for use in left] if len(missing) == len(_ATTENTION) else []
    )


def _in_order(plain: Sequence[MatrixUse]) -> list[MatrixUse]:
    """Names the parts of a feed-forward whose last product does not show: the last matrix makes its
    output.
    """
    into = [replace(use, part="ffn_in") for use in plain[:-1]]
    return into + [replace(use, part="ffn_out") for use in plain[-1:]]


def part_of(parameter: str) -> MatrixPart:
    """Returns what a matrix is for by the name of its module; "" where that does not tell."""
    around = parameter.split(".")
    found: MatrixPart = called(around[-2]) if len(around) > 1 else ""  # type: ignore[assignment]
    return found


def _refuse_unlike(
    one: StackPlan,
    sublayer: Sublayer,
    site: Site,
    missing: Sequence[MatrixPart],
    left: Sequence[MatrixUse],
) -> None:
    """Raise TransplantRefused where the placement draws what makes queries, keys and values in
    different ways, and which does so cannot be told.
    """
    scheme = SCHEMES[one.placement.initialisation]
    ways = {(scheme.draws[part], one.placement.gain(part, site)) for part in _ATTENTION}
    own = [part for part in missing if one.placement.gain(part, site) != 1]
    if len(ways) > 1 and (own or len(missing) == len(_ATTENTION)):
        raise TransplantRefused(
            f"{sublayer.name}: which of {', '.join(use.parameter for use in left)} makes queries, "
            f"keys and values cannot be told, and {one.placement.name} draws them in different "
            "ways: draw them yourself and take initialise='keep'"
        )


@torch.no_grad()
def draw(model: nn.Module, one: StackPlan, wanted: Sequence[Drawing]) -> list[DrawnMatrix]:
    """Draw the matrices of a stack from torch's global generator, and put norms back to where they
    start that take another part than they had, or have been trained.
    """
    scheme = SCHEMES[one.placement.initialisation]
    drawn = [_drawn(model, one, scheme, drawing) for drawing in wanted]
    for block in one.blocks:
        for path in _started_anew(model, block):
            reset(model.get_submodule(path), one.found.width)
        for module in model.get_submodule(block.module).modules():
            if isinstance(module, PlacedParameters):
                module.draw(scheme)
    return drawn


def _drawn(model: nn.Module, one: StackPlan, scheme: Scheme, drawing: Drawing) -> DrawnMatrix:
    use = drawing.use
    weight, bias = model.get_parameter(use.parameter), _bias(model, use.parameter)
    matrix = weight.mT if use.outputs_last else weight
    rows = list(use.rows) or slice(None)
    before = matrix[..., rows, :]
    after = torch.empty_like(before, memory_format=torch.contiguous_format)
    gain = one.placement.gain(use.part, drawing.site)
    for part in after if after.ndim == 3 else [after]:  # experts, one after the other
        fill(part, scheme.draws[use.part], gain)
    after.mul_(drawing.scale)
    sizes = {"before": _size(before), "after": _size(after)}
    matrix[..., rows, :] = after
    if bias is not None and bias.requires_grad:
        bias[..., rows] = 0.0
    return DrawnMatrix(parameter=use.parameter, part=use.part, **sizes)


def _size(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def _bias(model: nn.Module, name: str) -> Tensor | None:
    owner, _, own = name.rpartition(".")
    module = model.get_submodule(owner)
    # Experts of transformers are called gate_up_proj, and their biases gate_up_proj_bias.
    named = (own.removesuffix("weight") + "bias", f"{own}_bias")
    beside = (getattr(module, key, None) for key in named)
    return next((one for one in beside if isinstance(one, Tensor)), None)


def _started_anew(model: nn.Module, block: BlockPlan) -> list[str]:
    """Returns the norms of a block that are put back to where they start: a gain of its own start
    that stays in its part is kept, as one of 0 is.
    """
    found = []
    for path in dict.fromkeys(block.reused.values()):
        parameters = [*model.get_submodule(path).parameters()]
        if not all(one.requires_grad for one in parameters):
            continue
        if path in block.moved or not all(map(is_even, parameters)):
            found.append(path)
    return found


def written_by(model: nn.Module, one: StackPlan, wanted: Sequence[Drawing]) -> list[Tensor]:
    """Returns all parameters that `draw` may write into."""
    found: dict[int, Tensor] = {}
    for drawing in wanted:
        name = drawing.use.parameter
        pair = (model.get_parameter(name), _bias(model, name))
        found |= {id(tensor): tensor for tensor in pair if tensor is not None}
    for path in (path for block in one.blocks for path in _started_anew(model, block)):
        found |= {id(parameter): parameter for parameter in model.get_submodule(path).parameters()}
    return list(found.values())


def kept_by(model: nn.Module, one: StackPlan, wanted: Sequence[Drawing]) -> list[str]:
    """Names of the parameters of the blocks that drawing leaves as they are, norms of the placement
    apart, and of those of which it leaves some rows.
    """
    whole = [drawing.use.parameter for drawing in wanted]
    written = {id(parameter) for parameter in written_by(model, one, wanted)}
    norms = {id(p) for path in one.all_norms for p in model.get_submodule(path).parameters()}
    kept = []
    for block in one.blocks:
        for name, parameter in model.get_submodule(block.module).named_parameters():
            full = joined(block.module, name)
            if id(parameter) not in written | norms and PLACED not in name.split("."):
                kept.append(full)
            elif full in whole and _has_other_rows(parameter, full, wanted):
                kept.append(f"{full} (other rows)")
    return kept


def _has_other_rows(parameter: Tensor, name: str, wanted: Sequence[Drawing]) -> bool:
    uses = [drawing.use for drawing in wanted if drawing.use.parameter == name]
    rows = {row for use in uses for row in use.rows}
    outputs = parameter.shape[-1 if uses[0].outputs_last else -2]
    return all(use.rows for use in uses) and len(rows) < outputs


def patterns(names: Sequence[str]) -> list[str]:
    """Names with a star for the numbers in them, each once."""
    return list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "*", name) for name in names))


def marked(norm: nn.Module) -> nn.Module:
    """Returns a norm that transformers does not draw anew when it loads a model."""
    norm._is_hf_initialized = True  # type: ignore[assignment]
    return norm


@torch.no_grad()
def reset(norm: nn.Module, width: int) -> None:
    """Resets a layer norm or RMS norm to its start: gains that change nothing, shifts of 0."""
    gains = [p for name, p in norm.named_parameters() if "bias" not in name and "beta" not in name]
    for parameter in norm.parameters():
        parameter.zero_()
    if gains and gains[0].is_meta:
        return
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    like = next(iter(norm.parameters()), x)
    # Of w · x / RMS(x), w = 0 gives nothing; of (1 + w) · x / RMS(x) it gives the norm.
    forward = type(norm).original.forward if hasattr(type(norm), "original") else type(norm).forward  # type: ignore[attr-defined]
    if float(forward(norm, x.to(like)).abs().mean()) < 0.1:
        for parameter in gains:
            parameter.fill_(1.0)
