"""Theorem 1: the gradient of the last feed-forward's second matrix over depth and width."""
