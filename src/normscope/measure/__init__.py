"""What is recorded from any `nn.Module`."""

from .gradients import gradient_norms

__all__ = ["gradient_norms"]
