"""The size of the hidden state over depth, predicted and as drawn."""
