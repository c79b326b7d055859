"""What the study of the hidden state measures: draws of one model, plain numbers out."""

from typing import Any

from normscope.theory.settings import ModelSetting

from ..settings.simulation import Simulation


def draws_of(placement: str, model: ModelSetting, draws: int) -> list[dict[str, Any]]:
    """For each draw, seeds counted from 1, and each stack: q, and the squared gradient norms of each matrix."""
    simulation = Simulation(placement, model)
    found = [simulation.draw(seed) for seed in range(1, draws + 1)]
    return [{kind: {"q": one.q, **one.squares} for kind, one in draw.items()} for draw in found]
