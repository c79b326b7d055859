"""NormScope: what the placement of normalisation does to a Transformer, and whether it needs learning-rate warm-up."""

__version__ = "0.1.0"
