"""The schemes by which weights are drawn at first, as distributions: a model draws from them, and
theory reads them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .base import Placement, Site, StackShape, SublayerKind


@dataclass(frozen=True, slots=True)
class Draw:
    """A distribution of the entries of a weight matrix (out, in); a placement's gain multiplies
    them.
    """

    size: Callable[[float, int, int], float]
    """The function from the gain and the numbers of rows and columns to the standard deviation, or
    the bound of a uniform one.
    """
    of: Literal["normal", "uniform", "zeros", "identity"] = "normal"

    def std(self, gain: float, rows: int, columns: int) -> float:
        """Returns the root mean square of an entry."""
        size = self.size(gain, rows, columns)
        return 2 * size / math.sqrt(12) if self.of == "uniform" else size


def _glorot_uniform(own: float) -> Draw:
    """Glorot & Bengio 2010, with a gain of its own."""
    return Draw(
        lambda gain, rows, columns: math.sqrt(3) * (own * gain * math.sqrt(2 / (rows + columns))),
        "uniform",
    )


_GLOROT_UNIFORM = _glorot_uniform(1.0)
# Glorot's on a packed (3d, d) matrix has the variance of gain 1/√2 on each of its three parts.
_PACKED = _glorot_uniform(2**-0.5)
_GLOROT_NORMAL = Draw(lambda gain, rows, columns: gain * math.sqrt(2 / (rows + columns)))
_BY_FAN_IN = Draw(lambda gain, rows, columns: gain * columns**-0.5)
_BY_FAN_OUT = Draw(lambda gain, rows, columns: gain * rows**-0.5)
_SMALL = Draw(lambda gain, rows, columns: gain * math.sqrt(2 / (5 * columns)))
_SMALL_BY_FAN_OUT = Draw(lambda gain, rows, columns: gain * math.sqrt(2 / (5 * rows)))
BERT = Draw(lambda gain, rows, columns: gain * 0.02)
"""The draw of tables without a √d and of heads, in BERT and GPT-2 alike, whatever the scheme of the
blocks.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """The initial distributions of all weight matrices, and the biases drawn as torch's default;
    other biases are 0.
    """

    source: str
    draws: Mapping[str, Draw]
    drawn_biases: frozenset[str] = frozenset()
    embedding: Draw = _BY_FAN_IN
    """N(0, 1/d) where the source says nothing to the contrary: with the √d of most placements'
    input rows, all of them start from a stream of the same size. GPT-2 and most models since draw
    N(0, 0.02²) and have no √d."""


_QKV = ("query", "key", "value")
ATTENTION_WEIGHTS = (*_QKV, "output")
FFN_WEIGHTS = ("ffn_in", "ffn_out")
_ALL = (*ATTENTION_WEIGHTS, *FFN_WEIGHTS)

SCHEMES: dict[str, Scheme] = {
    "paper": Scheme(
        source="fairseq 0.7 to 0.8, as Xiong et al. 2020 ran it",
        draws=dict.fromkeys(_QKV, _PACKED)
        | dict.fromkeys(("output", *FFN_WEIGHTS), _GLOROT_UNIFORM),
    ),
    "fairseq-0.10": Scheme(
        source=(
            "fairseq 0.10 and later: feed-forward as torch.nn.Linear, query, key and value biases "
            "drawn"
        ),
        draws=dict.fromkeys(_QKV, _PACKED)
        | {"output": _GLOROT_UNIFORM}
        | dict.fromkeys(FFN_WEIGHTS, Draw(_BY_FAN_IN.size, "uniform")),
        drawn_biases=frozenset((*_QKV, *FFN_WEIGHTS)),
    ),
    "theory": Scheme(
        source=(
            "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, all matrices d × d from N(0, "
            "1/d), no W_O"
        ),
        draws=dict.fromkeys(("query", "key"), Draw(lambda gain, rows, columns: 0.0, "zeros"))
        # The identity leaves second moments as a matrix from N(0, 1/d) does.
        | {"output": Draw(_BY_FAN_IN.size, "identity")}
        | dict.fromkeys(("value", *FFN_WEIGHTS), _BY_FAN_IN),
    ),
    "xavier-normal": Scheme(
        source="Wang et al. 2022 (DeepNorm): Glorot normal at gain 1 times the placement's gain",
        draws=dict.fromkeys(_ALL, _GLOROT_NORMAL),
    ),
    "xavier-uniform": Scheme(
        source="Huang et al. 2020 (T-Fixup), Zhang et al. 2019 (DS-Init): Glorot uniform times the "
        "placement's gain",
        draws=dict.fromkeys(_ALL, _GLOROT_UNIFORM),
    ),
    "rezero": Scheme(
        source="Bachlechner et al. 2020 (ReZero): Glorot uniform, and the authors' advice of "
        "embeddings U(-1/d, 1/d)",
        draws=dict.fromkeys(_ALL, _GLOROT_UNIFORM),
        embedding=Draw(lambda gain, rows, columns: gain * (1 / columns), "uniform"),
    ),
    "normal-0.02": Scheme(
        source="Radford et al. 2019 (GPT-2) and most decoder-only models since: N(0, 0.02²)",
        draws=dict.fromkeys(_ALL, BERT),
    ),
    "megatron": Scheme(
        source="Shoeybi et al. 2019 as HybridNorm runs it: N(0, 2/(5d)), d the model's width",
        draws=dict.fromkeys(_ALL, _SMALL) | {"ffn_out": _SMALL_BY_FAN_OUT},
    ),
    "small-attention": Scheme(
        source="Nguyen & Salazar 2019 (SmallInit): attention N(0, 2/(5d)), feed-forward Glorot "
        "normal; embeddings U(-0.01, 0.01), which FixNorm normalises",
        draws=dict.fromkeys(ATTENTION_WEIGHTS, _SMALL) | dict.fromkeys(FFN_WEIGHTS, _GLOROT_NORMAL),
        embedding=Draw(lambda gain, rows, columns: gain * 0.01, "uniform"),
    ),
    "normal-by-width": Scheme(
        source="Loshchilov et al. 2024 (nGPT): N(0, 1/d), d the model's width",
        draws=dict.fromkeys(_ALL, _BY_FAN_IN) | {"ffn_out": _BY_FAN_OUT},
    ),
}


def weights_of(kind: SublayerKind) -> tuple[str, ...]:
    """Returns the weight matrices of a sub-layer, by the names that initialisation uses."""
    return FFN_WEIGHTS if kind == "feed_forward" else ATTENTION_WEIGHTS


def weight_std(placement: Placement, weight: str, site: Site, scheme: str = "") -> float:
    """Returns the standard deviation of the entries of one weight matrix before the first update.

    scheme: a name of SCHEMES; without it, the one of the placement's source.
    """
    draw = SCHEMES[scheme or placement.initialisation].draws[weight]
    return _std(
        draw,
        _shape(weight, site.stack),
        placement.gain(weight, site),
        placement.unit_vectors.get(weight),
    )


def embedding_std(placement: Placement, scheme: str = "") -> float:
    """Returns the standard deviation of the embedding's entries before the first update, before the
    placement scales its rows.
    """
    # No scheme looks at the size of the vocabulary.
    shape = (1000, placement.stack.width)
    draw = SCHEMES[scheme or placement.initialisation].embedding
    return _std(draw, shape, placement.embedding_gain(), placement.unit_vectors.get("embedding"))


def _shape(weight: str, stack: StackShape) -> tuple[int, int]:
    """(out, in) of a weight matrix."""
    if weight in FFN_WEIGHTS:
        return (
            (stack.ffn_width, stack.width) if weight == "ffn_in" else (stack.width, stack.ffn_width)
        )
    inner = stack.query_width if weight in ("query", "output") else stack.key_value_width
    return (stack.width, inner) if weight == "output" else (inner, stack.width)


def _std(draw: Draw, shape: tuple[int, int], gain: float, unit_dimension: int | None) -> float:
    std = draw.std(gain, *shape)
    # Vectors of length 1: their entries' mean square is 1 / their number. Those that are 0 stay so.
    return float(shape[unit_dimension] ** -0.5) if unit_dimension is not None and std else std
