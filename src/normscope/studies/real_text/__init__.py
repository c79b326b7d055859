"""Hidden states and gradients on real text: predicted and measured."""
