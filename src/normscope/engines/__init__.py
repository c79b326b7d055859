"""Where the runs of a grid train: on this machine, on a Ray cluster, or in Slurm's queue."""
