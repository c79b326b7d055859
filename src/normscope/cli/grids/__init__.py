"""Verbs about many runs: train them, write their report; and what the terminal shows of them."""
