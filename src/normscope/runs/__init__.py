"""A configuration becomes a run: configuration, assembly, training, evaluation."""
