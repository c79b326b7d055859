"""Observations around a stream: tables of positions, dropouts, batch norms, and the places that are
read at its end.
"""
