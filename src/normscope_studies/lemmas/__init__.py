"""Lemmas 1 to 3 of the paper."""
