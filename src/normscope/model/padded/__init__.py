"""Stacks on ordinary (batch, time, width) tensors, and modules of the user's own joined by a
placement's formula.
"""
