"""From a trained encoder-decoder to translations and their BLEU."""
