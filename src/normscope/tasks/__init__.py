"""What a model can learn: a file or folder for each task, and `registry` that lists them."""
