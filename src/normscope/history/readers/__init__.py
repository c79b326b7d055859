"""Histories out of the files of trainings: one file a format."""
