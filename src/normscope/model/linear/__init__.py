"""Linear layers, and the products that they are made of."""
