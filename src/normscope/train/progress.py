"""Where a run stands, as a checkpoint keeps it."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Progress:
    """Where a run stands; what a checkpoint keeps beside weights and optimiser state."""

    update: int = 0
    target_tokens: int = 0
    summed_lr: float = 0.0
    skipped_updates: int = 0
    best_nll_nats: float = math.inf
    best_update: int = 0

    def to_state(self) -> dict[str, Any]:
        # JSON has no infinity.
        best = self.best_nll_nats if math.isfinite(self.best_nll_nats) else None
        return {name: getattr(self, name) for name in self.__slots__} | {"best_nll_nats": best}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "Progress":
        """Raises KeyError for a state that lacks something."""
        values = {name: state[name] for name in cls.__slots__}
        return cls(
            **values | {"best_nll_nats": math.inf if values["best_nll_nats"] is None else values["best_nll_nats"]}
        )
