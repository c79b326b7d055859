"""Where trainings run: each engine starts commands of ours somewhere and tells how they ended."""
