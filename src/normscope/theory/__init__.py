"""Numbers in, numbers out: what theory says of norms and gradients at initialisation."""
