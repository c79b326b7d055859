"""The concentration of squared norms of hidden states around their mean."""
