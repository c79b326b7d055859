"""Placements with a number that moves while they train, beside their fixed ends."""
