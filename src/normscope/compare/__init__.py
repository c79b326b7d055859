"""Grids of runs in processes side by side, and the comparison that reads them."""
