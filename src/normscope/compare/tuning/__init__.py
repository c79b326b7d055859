"""Tuning: the best peak rate of each configuration by a stated number of trials, each a run of the grid."""
