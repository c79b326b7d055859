"""The embedded toy language."""
