"""The way from a trained encoder-decoder to translations and their BLEU."""
