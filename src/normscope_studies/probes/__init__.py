"""What a linear probe finds in the residual stream over depth, by placement."""
