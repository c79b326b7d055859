"""Spikes made on purpose, and whether the doctor finds, dates and explains them."""
