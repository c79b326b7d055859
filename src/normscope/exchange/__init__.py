"""Runs that are exported to other libraries, or imported from them."""
