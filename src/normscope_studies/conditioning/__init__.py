"""The conditioning of a placement's gradients throughout a training."""
