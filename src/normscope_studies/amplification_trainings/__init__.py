"""Whether how far one update moves a model foretells which of its trainings fail."""
