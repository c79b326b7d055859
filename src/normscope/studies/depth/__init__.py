"""The size of the hidden state over a thousand blocks."""
