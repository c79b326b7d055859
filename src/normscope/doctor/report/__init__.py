"""A diagnosis as text, pictures and a page."""
