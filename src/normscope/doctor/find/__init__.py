"""The residual streams in a traced model, and the branches that are added to them."""
