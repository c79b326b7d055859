"""The models whose trainings the doctor's advice is fitted to and judged by, in families."""
