"""Estimates with their intervals, and the rule by which claims are judged."""
