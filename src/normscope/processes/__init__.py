"""Processes that work together: which one this is. Nothing here imports anything slow."""
