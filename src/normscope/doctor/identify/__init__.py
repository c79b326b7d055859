"""Which placement each sub-layer has: observed terms against the formulas of the registry."""
