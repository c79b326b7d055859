"""Advice on learning rate and warm-up."""
