"""How far one update moves a stack's values: the change that moments carry beside the value, to first order."""
