"""Norms on queries and keys as an axis of a grid: each placement with every one of them."""

from collections.abc import Sequence

from ..errors import UserError, option, user_errors
from ..placement import beside


def normed(
    placements: Sequence[str], norms: Sequence[str] | None, arms: Sequence[object] | None
) -> list[str]:
    """Returns every placement with every one of the norms, "none" among them; the placements where
    no norms are asked for.

    Raises UserError for norms that there are not, and for norms beside arms, which name their own.
    """
    if norms is None:
        return list(placements)
    if arms is not None:
        raise UserError(
            f"{option('qk_norm')} goes with {option('placements')}: of {option('arms')}, write the "
            "norms behind a placement, as pre-ln+qk-norm:0"
        )
    with user_errors(ValueError):
        return [beside(name, norm) for name in placements for norm in norms]
