"""Fine-tuning on labelled sentences: one head for every placement, trained by Trainer."""
