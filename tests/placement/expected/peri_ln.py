"""Peri-LN: Sandwich-LN with a norm on the embedding."""

from placement.expectations import Expected, norms

from .sandwich import ADDED, FORMULA, sandwich

EXPECTED = {
    "peri-ln": Expected(
        equations=sandwich(embedding_normed=True),
        formula=f"x ← norm(x); {FORMULA}",
        added=ADDED | norms("start.main"),
        scheme="normal-0.02",
    )
}
