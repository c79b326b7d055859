"""The findings of a linear probe in the residual stream over depth, by placement."""
