"""The placement of each sub-layer: observed terms against the formulas of the registry."""
