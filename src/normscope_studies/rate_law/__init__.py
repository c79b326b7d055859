"""The distance of a law of learning rates from the best ones of published sweeps."""
