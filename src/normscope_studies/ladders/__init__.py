"""Runs over a ladder of rates: what studies share that look for each configuration's own best rate."""
