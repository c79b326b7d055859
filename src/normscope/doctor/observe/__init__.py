"""Numbers of a model at work: streams, branches, gradients and the loss."""
