"""Every model type of Hugging Face transformers at a small size, as the doctor sees it."""
