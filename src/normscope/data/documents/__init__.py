"""Corpora of documents for language models."""
