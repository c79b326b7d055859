"""The Jacobian of one layer of Pre-LN: eq. (63) and (64) of the paper."""
