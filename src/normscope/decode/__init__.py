"""From a trained encoder-decoder to translations and their BLEU."""

from .search import BeamConfig, Hypothesis, beam_search
from .translate import LineTranslation, corpus_bleu, tokenised_bleu4, translate_lines

__all__ = [
    "BeamConfig",
    "Hypothesis",
    "LineTranslation",
    "beam_search",
    "corpus_bleu",
    "tokenised_bleu4",
    "translate_lines",
]
