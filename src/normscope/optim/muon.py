"""Muon for matrices and AdamW for everything else, as one optimiser (Jordan 2024, "Muon"; Liu et al. 2025)."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

Rule = Literal["muon", "adamw"]


class Muon(torch.optim.Optimizer):
    """torch's Muon over the groups of rule `muon`, whose parameters are matrices, and its AdamW over all others.

    Muon's step is momentum made orthogonal by five rounds of Newton and Schulz, times 0.2 √max(rows, columns), at which
    it is as large as AdamW's (Liu et al. 2025, arXiv:2502.16982, section 2.2): one rate and one decay serve both.

    params: groups, each with its own `rule`, or parameters for one of rule `muon`. momentum is Muon's, which is
    Nesterov's; betas and eps are AdamW's. Raises ValueError for a parameter of rule muon without two dimensions.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        rule: Rule = "muon",
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "rule": rule, "momentum": momentum, "betas": betas, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay})
        self._parts = [
            part
            for part in (
                self._part("muon", lambda groups: torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw")),
                self._part("adamw", lambda groups: torch.optim.AdamW(groups, fused=True)),
            )
            if part is not None
        ]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update. closure: computes the loss, and its gradients, anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss

    def _part(
        self, rule: Rule, make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
    ) -> torch.optim.Optimizer | None:
        """torch's own over the groups of that rule: the very dictionaries, so that a rate set here is set there."""
        groups = [group for group in self.param_groups if group["rule"] == rule]
        if not groups:
            return None
        part = make(groups)
        # One state for both, by parameter, as a checkpoint reads and writes it.
        part.state = self.state
        return part
