"""How near to a value of the paper's a measured one must be to count as equal."""

EQUAL_WITHIN = 0.02
"""A share of the value: its whole interval must be nearer than this."""
PREDICTED_WITHIN = 0.03
"""The same, for values that are predicted."""
BOUND_WITHIN = 0.05
"""By how much ‖J‖ may exceed √d / ‖x‖ and still be called that."""
