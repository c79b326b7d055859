"""Grids of runs and what is read from them: the comparison and the demonstration."""
