"""The tasks that a model can learn: a file or folder for each, and `registry` that lists them."""
