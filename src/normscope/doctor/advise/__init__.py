"""Advice on the learning rate."""
