"""Corpora of parallel sentences for translation."""
