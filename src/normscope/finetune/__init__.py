"""Fine-tuning over a grid of settings and seeds."""
