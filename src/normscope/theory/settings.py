"""The two settings predictions are made in: initial weights and embedding, as numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..placement import Placement, Site
from .products import Products
from .stream import Parts, WeightStd


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """How often two places have the same entry of the vocabulary; 0 where all tokens differ and targets are random."""

    same_within: float = 0.0
    """Both read it: two places of one sequence."""
    same_apart: float = 0.0
    """Two places of two sequences."""
    asked_within: float = 0.0
    """One reads what the other is to predict, as the next place of a text does: two places of one sequence."""
    asked_apart: float = 0.0
    """Two places of two sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """What a setting says of a model before the first update."""

    title: str
    weight_std: Callable[[Placement], WeightStd]
    embedding: Callable[[Placement, int, Text], Parts]
    """From the placement, the tokens of a sequence, and what they repeat."""
    tied: bool
    """True where the first part of the embedding is √d times the row of an output projection that could be tied."""


def _theory_std(placement: Placement) -> WeightStd:
    """Xiong et al. 2020, section 3.3: W_Q = W_K = 0, no W_O, all else from N(0, 1 / fan-in)."""

    def std(weight: str, site: Site) -> float:
        if weight in ("query", "key"):
            return 0.0
        fan_in = site.stack.ffn_width if weight == "ffn_out" else site.stack.width
        # The identity in place of W_O leaves second moments as a matrix from N(0, 1/d) does.
        return placement.gain(weight, site) / math.sqrt(fan_in)

    return std


def _paper_std(placement: Placement) -> WeightStd:
    """fairseq 0.7 to 0.8: Glorot uniform, on the packed (3d, d) matrix for queries, keys and values."""

    def std(weight: str, site: Site) -> float:
        d, f = site.stack.width, site.stack.ffn_width
        if weight in placement.unit_vectors:
            shape = {"ffn_in": (f, d), "ffn_out": (d, f)}.get(weight, (d, d))
            return float(shape[placement.unit_vectors[weight]] ** -0.5)
        variance = {"output": 1 / d, "ffn_in": 2 / (d + f), "ffn_out": 2 / (d + f)}.get(weight, 1 / (2 * d))
        return placement.gain(weight, site) * math.sqrt(variance)

    return std


def _theory_embedding(placement: Placement, tokens: int, text: Text) -> Parts:
    """E‖x_0‖² = d; two tokens have nothing in common unless they are the same entry."""
    return [(Products(1.0, text.same_within, text.same_apart), True)]


def _paper_embedding(placement: Placement, tokens: int, text: Text) -> Parts:
    """√d times rows of N(0, 1/d), and sinusoids: half of a row's square, alike from place to place."""
    rows = Products(1.0, text.same_within, text.same_apart).scaled(placement.embedding_gain() ** 2)
    return [(rows, True), *_sinusoids(placement.stack.width, tokens)]


@lru_cache(maxsize=32)
def _sinusoids(width: int, tokens: int) -> Parts:
    """What differs from feature to feature, and the mean over features."""
    half = width // 2
    frequency = np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    angle = np.arange(2, tokens + 2)[:, None] * frequency
    positions = np.concatenate([np.sin(angle), np.cos(angle)], 1)
    mean = positions.mean(1)
    centred = positions - mean[:, None]
    return [
        (_products(centred @ centred.T / width), True),
        (_products(np.outer(mean, mean)), False),
    ]


def _products(places: NDArray[np.float64]) -> Products:
    """Of inner products of all places of a sequence; another sequence has the same ones."""
    tokens = len(places)
    diagonal, every = float(np.trace(places)), float(places.sum())
    rest = (every - diagonal) / (tokens * (tokens - 1)) if tokens > 1 else 0.0
    return Products(diagonal / tokens, rest, every / tokens**2)


SETTINGS: dict[str, InitialState] = {
    "theory": InitialState(
        title="Xiong et al. 2020, section 3.3", weight_std=_theory_std, embedding=_theory_embedding, tied=False
    ),
    "paper": InitialState(
        title="fairseq 0.7 to 0.8, as Xiong et al. 2020 ran it",
        weight_std=_paper_std,
        embedding=_paper_embedding,
        tied=True,
    ),
}
