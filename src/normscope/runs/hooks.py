"""What placements ask of the training loop."""

from collections.abc import Callable

from torch import nn

from ..model import profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from ..optim import AdaptiveConfig, adaptive_value
from ..train import Hooks


class PlacementHooks(Hooks):
    """Initial values taken from the first batch, numbers that follow a schedule, and weights kept at length 1."""

    def __init__(self, model: nn.Module, adaptive: AdaptiveConfig, *, drawn: bool) -> None:
        """adaptive: with `over` in updates. drawn: False for weights learned elsewhere, which are not profiled."""
        self.model, self.adaptive, self.drawn = model, adaptive, drawn
        self.scheduled, self.unit_vectors = scheduled_numbers(model), unit_vectors(model)

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        if self.drawn:
            profile(self.model, forward)

    def before_update(self, update: int) -> dict[str, float]:
        value = adaptive_value(self.adaptive, update)
        set_scheduled(self.scheduled, value)
        return dict.fromkeys(self.scheduled, value)

    def after_update(self) -> None:
        renormalise(self.unit_vectors)
