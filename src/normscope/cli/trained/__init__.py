"""The verbs that take a trained run: score it, use it, and give it to other libraries."""
