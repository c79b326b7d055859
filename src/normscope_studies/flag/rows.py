"""One checkpoint under one flag."""

from dataclasses import dataclass
from typing import Any

NAMES = {True: "Pre-LN", False: "Post-LN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What it is, and what the doctor says of it."""

    trained: str
    loaded: str
    width: int
    blocks: int
    seed: int
    updates: int
    said: str
    """Severity of the finding; "" where nothing is said."""
    said_of_weights: str
    """The same without a batch of the text, from the weights alone."""
    difference: float
    standard_errors: float
    shifts: float
    """Mean correlation of norms' shifts with the biases of their own sub-layers' outputs."""
    loss_nats: float
    rewired_loss_nats: float
    """Under the other flag, as the doctor computes it from the recorded pass."""

    @property
    def flag_is_wrong(self) -> bool:
        return self.trained != self.loaded

    @property
    def words(self) -> str:
        """Names the training and its length."""
        return f"{self.trained} {self.width} × {self.blocks}, seed {self.seed}, {self.updates} updates"


def checkpoint(trained_pre: bool, width: int, blocks: int, seed: int, found: dict[str, Any]) -> Checkpoint:
    """From a row of a piece."""
    rest = {key: value for key, value in found.items() if key != "loaded_pre"}
    trained, loaded = NAMES[trained_pre], NAMES[found["loaded_pre"]]
    return Checkpoint(trained=trained, loaded=loaded, width=width, blocks=blocks, seed=seed, **rest)
