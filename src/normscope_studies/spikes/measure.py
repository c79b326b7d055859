"""One training, and what the doctor says of its log."""

import math
from typing import Any

from normscope.history.explain import explain

from .cases import BROKEN, HEALTHY
from .config import SpikesConfig
from .loops import TRAINED
from .model import broken_block


def measured(loop: str, name: str, config: SpikesConfig, seed: int) -> dict[str, Any]:
    """The episodes that the doctor finds, what is true, and the curve of the loss."""
    case = (BROKEN | HEALTHY)[name]
    history = TRAINED[loop](case, config, seed)
    found = explain(history)
    block = f"block_{broken_block(config, seed):02}"
    return {
        "onset": None if not case.cause else 1 if case.from_start else config.change_at,
        "cause": case.cause,
        "place": {"block": block, "output": "output layer"}.get(case.place, "no sub-layer"),
        "episodes": found.to_json()["episodes"],
        "loss": [value if math.isfinite(value) else None for value in history.loss.values],
    }
