"""What theory says of a depth that no evidence reaches: the stream and the gradients at initialisation."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..theory.predict import predict_or_refuse
from ..theory.settings import ModelSetting
from .case import Case

GRADIENT_OF = "ffn_out"
"""The matrix whose gradient is told, the last one of a block."""
_STACKS = {"encoder-only": "encoder", "decoder-only": "decoder", "encoder-decoder": "encoder-decoder"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Of one placement at the case's depth and width."""

    placement: str
    start_square: float
    """E‖x_0‖² / d, of the embedding."""
    end_square: float
    """E‖x_L‖² / d after the last block."""
    first_gradient: float
    last_gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """Before any update; of an encoder-decoder, its decoder."""

    command: str
    """That computes the same curves block by block."""
    foreseen: Sequence[Foreseen]
    refused: Sequence[str]
    """Placements that theory does not follow."""


def theory(case: Case, placements: Sequence[str]) -> Theory:
    """For placements that are defined for the model."""
    model = ModelSetting(
        stack=_STACKS[case.model],  # type: ignore[arg-type]
        blocks=case.blocks,
        width=case.width,
        ffn_width=4 * case.width,
        setting="as-placement",
    )
    found, refused = predict_or_refuse(placements, model)
    foreseen = []
    for name, stacks in found.items():
        last = list(stacks.values())[-1]
        gradient = last.gradient_norm[GRADIENT_OF]
        foreseen.append(
            Foreseen(
                placement=name,
                start_square=float(last.q[0]),
                end_square=float(last.q[-1]),
                first_gradient=float(gradient[0]),
                last_gradient=float(gradient[-1]),
            )
        )
    options = f"--stack {model.stack} --blocks {model.blocks} --width {model.width} --ffn-width {model.ffn_width}"
    return Theory(
        command=f"normscope predict {' '.join(found)} {options} --setting {model.setting}",
        foreseen=foreseen,
        refused=list(refused),
    )
