"""Theory for what was found in a model."""
