"""The engines on which the runs of a grid train: this machine, a Ray cluster, or Slurm's queue."""
