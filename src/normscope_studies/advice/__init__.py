"""The doctor's advice on rates, judged by what it costs at the end of whole trainings."""
