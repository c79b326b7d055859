"""How tightly squared norms of hidden states lie around their mean."""
