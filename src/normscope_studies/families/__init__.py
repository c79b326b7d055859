"""The model types of Hugging Face transformers at a small size, as the doctor sees them."""
