"""Labelled pairs of sentences for fine-tuning."""
