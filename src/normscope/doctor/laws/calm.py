"""Training mode without chance: no dropout, no stochastic depth, no statistics of the batch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_DROPOUTS: tuple[Callable[..., Any], ...] = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
)
_CHANCES = ("drop", "jitter", "mask_time_prob", "mask_feature_prob")
"""The parts of names by which settings that are probabilities are known."""


@contextmanager
def calm_training(model: nn.Module) -> Iterator[None]:
    """Training mode, in which nothing is drawn that is known to be; evaluation mode at the end.

    Chances are set to 0 in modules and in the configurations that they hold, for good: it is a copy
    that is tried.
    """
    for module in model.modules():
        # What keeps running means takes those of the batch in training, by design.
        module.training = "running_mean" not in module._buffers
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        _without_chances(vars(module))
        config = vars(module).get("config")
        if hasattr(config, "__dict__"):
            _without_chances(vars(config))
    try:
        with _NoDropout():
            yield
    finally:
        model.eval()


def _without_chances(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        is_chance = any(part in name.lower() for part in _CHANCES)
        if is_chance and isinstance(value, float) and 0 < value < 1:
            settings[name] = 0.0


class _NoDropout(TorchFunctionMode):
    """Functions of dropout hand on what they are given."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _DROPOUTS:
            x: Tensor = args[0] if args else given["input"]
            return x
        if func is functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            given = {**given, "dropout_p": 0.0} if "dropout_p" in given else given
        return func(*args, **given)
