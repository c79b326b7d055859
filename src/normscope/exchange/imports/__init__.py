"""Checkpoints of Hugging Face transformers as runs of ours: what is read of a folder, and one file a layout."""
