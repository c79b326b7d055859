"""Steps of an optimiser that are kept from being long: clipping of the update, beside that of the gradient."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer


class UpdateClipping:
    """No parameter moves further in one step than `most_rms` times its rate, by the root mean square of its entries.

    Adafactor's clipping (Shazeer & Stern 2018, arXiv:1804.04235, section 6) and StableAdamW's (Wortsman et al. 2023,
    arXiv:2304.13013, section 3.2) with 1, for any optimiser: what is measured is the step that was made, weight decay
    included. It has no state, and takes the memory of one more copy of the parameters during a step.
    """

    def __init__(self, optimizer: Optimizer, most_rms: float) -> None:
        """Raises ValueError where `most_rms` is not positive."""
        if not most_rms > 0:
            raise ValueError(f"a step's largest root mean square must be positive, got {most_rms}")
        self.optimizer, self.most_rms = optimizer, most_rms

    @torch.no_grad()
    def step(self) -> int:
        """One step of the optimiser; returns how many parameters were held back."""
        before = [parameter.clone() for parameter, _ in self._moved()]
        self.optimizer.step()
        clipped = 0
        for (parameter, rate), old in zip(self._moved(), before, strict=True):
            moved = parameter - old
            rms, most = float(moved.square().mean().sqrt()), self.most_rms * rate
            if rms > most:
                parameter.copy_(old + moved * (most / rms))
                clipped += 1
        return clipped

    def _moved(self) -> Iterator[tuple[Tensor, float]]:
        """Every parameter with a gradient, and the rate of its group."""
        for group in self.optimizer.param_groups:
            yield from ((parameter, float(group["lr"])) for parameter in group["params"] if parameter.grad is not None)
