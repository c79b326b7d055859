"""The doctor's advice on rates, fitted to short trainings and judged by others."""
