"""What a model can learn: a folder for each task, and `registry` that lists them."""
