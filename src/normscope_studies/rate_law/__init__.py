"""How near a law of learning rates comes to the best ones of published ladders."""
