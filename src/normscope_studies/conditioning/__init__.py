"""Whether a placement keeps its gradients well-conditioned throughout a training."""
