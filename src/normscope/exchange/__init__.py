"""Trained models as other libraries open them."""
