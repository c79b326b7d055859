"""Text to batches: cleaning, BPE, binarised corpora, token-budget batches, and the embedded toy
language.
"""
