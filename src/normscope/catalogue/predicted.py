"""What theory says of a placement over depth: the stream and the gradient, beside Pre-LN's and Post-LN's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..placement import Placement
from ..report.curves_svg import DepthCurve, curves_svg
from ..report.words import significant
from ..theory.predict import ModelSetting, Stacks, predict_or_refuse

BLOCKS = 24
COMPARED = ("pre-ln", "post-ln")
"""Whose curves are drawn beside each other one."""
GRADIENT_OF = "ffn_out"
_STREAM, _GRADIENT = "hidden state, E‖x‖² / d", "gradient norm of W2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """`picture` is "" where theory does not follow the placement, and `told` says why."""

    command: str
    told: list[str]
    picture: str = ""


def predictions(placements: Mapping[str, type[Placement]]) -> dict[str, Predicted]:
    """Of each, in an encoder where it is defined for one."""
    found: dict[str, Predicted] = {}
    for stack in ("encoder", "encoder-decoder"):
        names = [name for name, placement in placements.items() if _stack(placement) == stack]
        model = ModelSetting(stack=stack, blocks=BLOCKS)
        curves, refused = predict_or_refuse([*names, *(n for n in COMPARED if n not in names)], model)
        for name in names:
            others = [other for other in COMPARED if other != name]
            command = _command(name, others, stack)
            if name in refused:
                found[name] = Predicted(command=command, told=[f"Theory does not follow it: {refused[name]}."])
                continue
            drawn = {other: curves[other] for other in (name, *others)}
            title = {other: placements[other].title for other in drawn}
            picture = curves_svg(_panels(drawn, title), title=f"{title[name]} over depth at initialisation, predicted")
            found[name] = Predicted(command=command, told=list(_told(curves[name])), picture=picture)
    return found


def _stack(placement: type[Placement]) -> Literal["encoder", "encoder-decoder"]:
    return "encoder" if "encoder-only" in placement.models else "encoder-decoder"


def _command(name: str, others: Sequence[str], stack: str) -> str:
    where = "" if stack == "encoder" else f" --stack {stack}"
    return f"normscope predict {' '.join([name, *others])} --blocks {BLOCKS}{where}"


def _panels(drawn: Mapping[str, Stacks], titles: Mapping[str, str]) -> list[tuple[str, str, list[DepthCurve]]]:
    streams, gradients = [], []
    for number, (name, stacks) in enumerate(drawn.items()):
        for part, (stack, prediction) in enumerate(stacks.items()):
            label = f"{titles[name]}, {stack}" if len(stacks) > 1 else titles[name]
            if number and part:
                continue  # what it is compared with is one line each
            look = min(part, 1) if number == 0 else COMPARED.index(name) + 2
            gradient = prediction.gradient_norm[GRADIENT_OF].tolist()
            gradients.append(DepthCurve(label=label, look=look, first=1, values=gradient))
            for place, (stream, curve) in enumerate(prediction.streams.items()):
                of = label if place == 0 else f"{label}: {stream}"
                streams.append(DepthCurve(label=of, look=look or min(place, 1), first=0, values=curve.q.tolist()))
    return [("completed blocks", _STREAM, streams), ("block", _GRADIENT, gradients)]


def _told(stacks: Stacks) -> Iterator[str]:
    """The ends of the curves in words."""
    for stack, prediction in stacks.items():
        of = f" of the {stack}" if len(stacks) > 1 else ""
        first, last = (significant(float(prediction.q[place]), 3) for place in (0, -1))
        yield f"The mean square of the hidden state{of}, E‖x‖² / d, goes from {first} to {last}."
        first, last = (significant(float(prediction.gradient_norm[GRADIENT_OF][place]), 3) for place in (0, -1))
        yield f"The {_GRADIENT}{of} goes from {first} in the first block to {last} in the last."
