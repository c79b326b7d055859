"""The change of a stack by small changes of all weights, and by its Jacobian."""
