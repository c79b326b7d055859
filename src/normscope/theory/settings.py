"""The settings of predictions: initial weights and embedding as numbers, and the model they are
for.

The equations are T1, T13 and T22 of docs/theory.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from ..placement import Placement, Site, StackShape
from ..placement.schemes import SCHEMES, embedding_std, weight_std
from .kernels import ACTIVATIONS, Activation
from .mixing import Array, Products
from .moments import Atoms, Moments, single
from .operations import NORMS, Norm
from .places import Differing, Places, of_tokens, repeated
from .stream import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedTokens:
    """Says how often two places have the same entry of the vocabulary; 0 where all tokens differ
    and targets are random.
    """

    same_within: float = 0.0
    """Both read it: two places of one sequence."""
    same_apart: float = 0.0
    """Two places of two sequences."""
    asked_within: float = 0.0
    """One reads what the other is to predict, as the next place of a text does: two places of one
    sequence.
    """
    asked_apart: float = 0.0
    """Two places of two sequences."""


AS_PLACEMENT = "as-placement"
_VECTORS = "theory"
"""The scheme under which vectors of E‖x_0‖² = d come in, without positions; no output projection
could be tied to them.
"""


class InitialState:
    """Says what a setting gives a placement's model before the first update, by the scheme that its
    weights are drawn by.

    name: of a scheme, or `as-placement` for the one that the placement's source uses.
    """

    def __init__(self, name: str, placement: Placement) -> None:
        self.placement = placement
        self.scheme = placement.initialisation if name == AS_PLACEMENT else name
        self._stds: dict[tuple[str, float], float] = {}

    @property
    def output_is_drawn(self) -> bool:
        """Returns False where attention has no last matrix: the identity stands for it, and no
        update moves it.
        """
        return SCHEMES[self.scheme].draws["output"].of != "identity"

    def weight_std(self, weight: str, site: Site) -> float:
        """Returns σ of every matrix; those whose vectors an update would put on the unit sphere
        start there. Equation T22.
        """
        key = weight, self.placement.gain(weight, site)
        if key not in self._stds:
            self._stds[key] = weight_std(self.placement, weight, site, self.scheme)
        return self._stds[key]

    @property
    def row(self) -> float | None:
        """Returns r = E‖E_v‖² of the embedding's rows; None where there are none. Equations T13 and
        T22.
        """
        if self.scheme == _VECTORS:
            return None
        return self.width * embedding_std(self.placement, self.scheme) ** 2

    @property
    def width(self) -> int:
        """Returns d."""
        return self.placement.stack.width

    def parts(
        self, tokens: int | Places, text: RepeatedTokens, *, sinusoidal: bool = True
    ) -> list[Part]:
        """Returns the parts of an embedded sequence: what is looked up, and sinusoids. Equation
        T22.
        """
        row = self.row
        d = self.width
        differing = repeated(text.same_within, d)
        # Two tokens have a row in common as often as they are the same.
        alike = Products(1.0, text.same_within, text.same_apart)
        if row is None:
            return [Part(alike, differing=differing)]
        # A placement may multiply or norm what is looked up: its formula is read over one row.
        atoms = Atoms(d)
        looked_up: Moments = self.placement.input_rows(single(atoms, atoms.add(row / d, 0.0)))
        rows = Part(alike.scaled(looked_up.one), differing=differing)
        return [rows, *_sinusoids(d, tokens)] if sinusoidal else [rows]


@lru_cache(maxsize=32)
def _sinusoids(width: int, tokens: int | Places) -> list[Part]:
    """Returns two parts of sinusoidal positions: what differs from feature to feature, and the mean
    over features. Equation T22.
    """
    count = tokens.total if isinstance(tokens, Places) else tokens
    # As fairseq has them: sines, then cosines, of positions from 2 on, since its 1 is padding.
    half = width // 2
    frequency = np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    angle = np.arange(2, count + 2)[:, None] * frequency
    positions = np.concatenate([np.sin(angle), np.cos(angle)], 1)
    mean = positions.mean(1)
    centred = positions - mean[:, None]
    return [
        Part(_products(centred @ centred.T / width, tokens), differing=of_tokens(centred)),
        Part(
            _products(np.outer(mean, mean), tokens),
            centred=False,
            differing=Differing(float(width)),
        ),
    ]


def _products(gram: Array, places: int | Places) -> Products:
    """Returns moments of the inner products of all tokens of a sequence; two sequences have the
    same ones. Equation T22.
    """
    if isinstance(places, Places):
        return places.gathered(gram)
    tokens = len(gram)
    diagonal = float(np.trace(gram))
    every = float(gram.sum())
    pairs = tokens * (tokens - 1)
    two = (every - diagonal) / pairs if pairs else 0.0
    # Of two sequences every place meets every place, itself among them.
    return Products(diagonal / tokens, two, every / tokens**2)


_ALL_DIFFER = RepeatedTokens()


_MOST_BLOCKS = 100_000
"""Blocks that are predicted in about a minute."""
_MOST_LOOPED = 2000
"""Blocks times squared loops that are predicted in about a minute: every pair of passes has a map.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetting:
    """The model a prediction is for. The loss is the mean cross-entropy per target token, in nats,
    at random targets, over all sequences. The output projection has rows of squared length 1 where
    it is not tied."""

    stack: Literal["encoder", "decoder", "encoder-decoder"] = "encoder"
    """Stack to predict: encoder, decoder or encoder-decoder."""
    blocks: int = 6
    """Number of blocks of each stack."""
    loops: int = 1
    """Number of times that the blocks are run in turn, with the same weights each time."""
    width: int = 512
    """Width of the model."""
    ffn_width: int = 512
    """Inner width of the feed-forward."""
    heads: int = 1
    """Number of attention heads."""
    key_value_heads: int | None = None
    """Number of heads of keys and values, each read by as many heads of queries. By default as many
    as heads."""
    query_key_norm: Literal["none", "per-head", "whole"] = "none"
    """Norms on queries and keys: none, per-head, or whole for all heads together."""
    position_encoding: Literal["sinusoidal", "rotary", "none"] = "sinusoidal"
    """Positions: sinusoidal (added to the embedding, in settings whose embedding has rows), rotary
    (on queries and keys) or none."""
    tokens: int = 16
    """Number of tokens of a sequence: of the target in an encoder-decoder."""
    source_tokens: int | None = None
    """Tokens of a source sequence, where it is not as long as the target."""
    sequences: int = 1
    """Sequences of the batch that the loss is a mean over."""
    vocabulary: int = 10_000
    """Number of rows of the output projection."""
    setting: str = "theory"
    """Initial weights and embedding: theory, paper, another scheme such as normal-0.02, or
    as-placement for each source's own."""
    activation: Activation = "relu"
    """Activation of the feed-forward: relu, gelu or swiglu."""
    norm: Norm = "layer-norm"
    """Norm: layer-norm, rms-norm, dyt or derf."""
    tied: bool = True
    """Whether the output projection is the input's embedding, in settings whose embedding has
    rows.
    """
    dropout: float = 0.0
    """On the embedding and on every F(x)."""
    label_smoothing: float = 0.0
    source: RepeatedTokens = _ALL_DIFFER
    """What the source's tokens repeat, or those of a stack on its own."""
    target: RepeatedTokens = _ALL_DIFFER
    """The same of the target: of the decoder's input in an encoder-decoder, and of what the loss
    asks for.
    """

    def __post_init__(self) -> None:
        for name in ("blocks", "loops", "width", "ffn_width", "heads", "tokens", "sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.blocks > _MOST_BLOCKS:
            raise ValueError(
                f"blocks must be at most {_MOST_BLOCKS:,}, which takes about a minute, got "
                f"{self.blocks:,}"
            )
        if self.loops > 1 and (work := self.blocks * self.loops**2) > _MOST_LOOPED:
            raise ValueError(
                f"blocks · loops² must be at most {_MOST_LOOPED:,}, about a minute's work, got "
                f"{work:,}"
            )
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be at least 2, got {self.vocabulary}")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        shared = self.key_value_heads
        if shared is not None and (shared < 1 or self.heads % shared):
            raise ValueError(
                f"heads={self.heads} must be a multiple of key_value_heads={shared}, which is at "
                "least 1"
            )
        if self.position_encoding == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                "rotary positions turn pairs of features: width / heads must be even, got "
                f"{self.width // self.heads}"
            )
        if self.width < 4 or self.width % 2:
            raise ValueError(
                f"width must be even and at least 4, for its sinusoids, got {self.width}"
            )
        if self.source_tokens is not None and self.source_tokens < 1:
            raise ValueError(f"source_tokens must be at least 1, got {self.source_tokens}")
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        allowed = {
            "setting": (*SCHEMES, AS_PLACEMENT),
            "stack": ("encoder", "decoder", "encoder-decoder"),
            "activation": ACTIVATIONS,
            "norm": NORMS,
            "query_key_norm": ("none", "per-head", "whole"),
            "position_encoding": ("sinusoidal", "rotary", "none"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name} must be one of {', '.join(values)}, got {getattr(self, name)!r}"
                )

    def shape(self, kind: Literal["encoder", "decoder"]) -> StackShape:
        """Returns the shape of one of its stacks."""
        return StackShape(
            kind=kind,
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            key_value_heads=0 if self.key_value_heads == self.heads else self.key_value_heads or 0,
            loops=self.loops,
            encoder_blocks=self.blocks if self.stack != "decoder" else 0,
            decoder_blocks=self.blocks if self.stack != "encoder" else 0,
        )
