"""The paper's Figure 5: BERT pre-trained and fine-tuned."""
