"""The content of `--help`: options as docstrings list them, made into typer's, and laid out."""
