"""Short trainings of small models, beside which the doctor's advice is judged."""
