"""The prediction of failed trainings from how far one update moves a model."""
