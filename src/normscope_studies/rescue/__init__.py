"""Trainings that fail, and what the remedies that the doctor names do to them."""
