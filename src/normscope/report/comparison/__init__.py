"""The page of a comparison and its pictures."""
