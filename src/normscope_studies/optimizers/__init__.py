"""Placement, optimiser and warm-up crossed, each at its own best rate: who needs a warm-up under
which optimiser.
"""
