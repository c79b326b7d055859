"""Runs that are exported to other libraries, imported from them, or converted to another placement."""
