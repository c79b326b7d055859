"""Initial weights: one function, and the table it reads.

The standard deviations that weights are drawn with are read off the very functions that draw them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..placement import Placement, Site, StackShape, SublayerKind

Draw = Callable[[Tensor, float], None]
"""Fills a weight matrix (out, in); the number multiplies its standard deviation."""


def _xavier_uniform(gain: float) -> Draw:
    def draw(weight: Tensor, extra: float) -> None:
        nn.init.xavier_uniform_(weight, gain=gain * extra)

    return draw


def _xavier_normal(weight: Tensor, gain: float) -> None:
    nn.init.xavier_normal_(weight, gain=gain)


def _normal(std: Callable[[int, int], float]) -> Draw:
    """std: of the numbers of rows and of columns."""

    def draw(weight: Tensor, gain: float) -> None:
        nn.init.normal_(weight, std=gain * std(*weight.shape))

    return draw


def _uniform(bound: Callable[[int, int], float]) -> Draw:
    """bound: of the numbers of rows and of columns."""

    def draw(weight: Tensor, gain: float) -> None:
        largest = gain * bound(*weight.shape)
        nn.init.uniform_(weight, -largest, largest)

    return draw


_normal_by_fan_in = _normal(lambda rows, columns: columns**-0.5)
_small = _normal(lambda rows, columns: math.sqrt(2 / (5 * columns)))
_normal_by_fan_out = _normal(lambda rows, columns: rows**-0.5)
_small_by_fan_out = _normal(lambda rows, columns: math.sqrt(2 / (5 * rows)))
_bert = _normal(lambda rows, columns: BERT_STD)


def _zeros(weight: Tensor, gain: float) -> None:
    nn.init.zeros_(weight)


def _identity(weight: Tensor, gain: float) -> None:
    nn.init.eye_(weight)
    weight.mul_(gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How every weight matrix is drawn, and which of them have a bias drawn as torch's default; other biases are 0."""

    source: str
    draws: Mapping[str, Draw]
    drawn_biases: frozenset[str] = frozenset()
    embedding: Draw = _normal_by_fan_in
    """N(0, 1/d) where the source says nothing to the contrary: with the √d of most placements' input rows, all of them
    start from a stream of the same size. GPT-2 and most models since draw N(0, 0.02²) and have no √d."""


BERT_STD = 0.02
"""Of tables without a √d and of heads, in BERT and GPT-2 alike, whatever the scheme of the blocks."""


class Drawable(nn.Module):
    """A module that says how a scheme draws its weights, and which of them its placement keeps at length 1."""

    def draw(self, scheme: Scheme) -> None:
        """Draw every weight of its own from torch's global generator."""
        raise NotImplementedError

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        """Weights whose vectors the placement keeps at length 1, and the dimension along which they lie."""
        yield from ()


# xavier_uniform on a packed (3d, d) matrix has the variance of gain 1/√2 on each of its three parts.
_PACKED = _xavier_uniform(2**-0.5)
_QKV = ("query", "key", "value")
_ALL = (*_QKV, "output", "ffn_in", "ffn_out")

SCHEMES: dict[str, Scheme] = {
    "paper": Scheme(
        source="fairseq 0.7 to 0.8, as Xiong et al. 2020 ran it",
        draws=dict.fromkeys(_QKV, _PACKED) | dict.fromkeys(("output", "ffn_in", "ffn_out"), _xavier_uniform(1.0)),
    ),
    "fairseq-0.10": Scheme(
        source="fairseq 0.10 and later: feed-forward as torch.nn.Linear, query, key and value biases drawn",
        draws=dict.fromkeys(_QKV, _PACKED)
        | {"output": _xavier_uniform(1.0)}
        | dict.fromkeys(("ffn_in", "ffn_out"), _uniform(lambda rows, columns: columns**-0.5)),
        drawn_biases=frozenset((*_QKV, "ffn_in", "ffn_out")),
    ),
    "theory": Scheme(
        source="Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, all matrices d × d from N(0, 1/d), no W_O",
        draws={"query": _zeros, "key": _zeros, "output": _identity}
        | dict.fromkeys(("value", "ffn_in", "ffn_out"), _normal_by_fan_in),
    ),
    "xavier-normal": Scheme(
        source="Wang et al. 2022 (DeepNorm): Glorot normal at gain 1 times the placement's gain",
        draws=dict.fromkeys(_ALL, _xavier_normal),
    ),
    "xavier-uniform": Scheme(
        source="Huang et al. 2020 (T-Fixup), Zhang et al. 2019 (DS-Init): Glorot uniform times the placement's gain",
        draws=dict.fromkeys(_ALL, _xavier_uniform(1.0)),
    ),
    "rezero": Scheme(
        source="Bachlechner et al. 2020 (ReZero): Glorot uniform, and the authors' advice of embeddings U(-1/d, 1/d)",
        draws=dict.fromkeys(_ALL, _xavier_uniform(1.0)),
        embedding=_uniform(lambda rows, columns: 1 / columns),
    ),
    "normal-0.02": Scheme(
        source="Radford et al. 2019 (GPT-2) and most decoder-only models since: N(0, 0.02²)",
        draws=dict.fromkeys(_ALL, _bert),
    ),
    "megatron": Scheme(
        source="Shoeybi et al. 2019 as HybridNorm runs it: N(0, 2/(5d)), d the model's width",
        draws=dict.fromkeys((*_QKV, "output", "ffn_in"), _small) | {"ffn_out": _small_by_fan_out},
    ),
    "small-attention": Scheme(
        source="Nguyen & Salazar 2019 (SmallInit): attention N(0, 2/(5d)), feed-forward Glorot normal; embeddings "
        "U(-0.01, 0.01), which FixNorm normalises",
        draws=dict.fromkeys((*_QKV, "output"), _small) | dict.fromkeys(("ffn_in", "ffn_out"), _xavier_normal),
        embedding=_uniform(lambda rows, columns: 0.01),
    ),
    "normal-by-width": Scheme(
        source="Loshchilov et al. 2024 (nGPT): N(0, 1/d), d the model's width",
        draws=dict.fromkeys((*_QKV, "output", "ffn_in"), _normal_by_fan_in) | {"ffn_out": _normal_by_fan_out},
    ),
}


@torch.no_grad()
def initialise(model: nn.Module, scheme: str, placement: type[Placement]) -> None:
    """Draw every weight of `model` from torch's global generator, in the order of its modules.

    scheme: a name of SCHEMES, or `as-placement` for the one the placement's source uses. The padding row of an
    embedding is 0, and norms and the placement's own parameters keep the values they start with. Raises KeyError for a
    name that is neither.
    """
    table = SCHEMES[placement.initialisation if scheme == "as-placement" else scheme]
    for module in model.modules():
        if isinstance(module, Drawable):
            module.draw(table)
    renormalise(unit_vectors(model))


def draw_bert(weight: Tensor, gain: float = 1.0) -> None:
    """N(0, 0.02²), the way tables without a √d and heads are drawn whatever the scheme."""
    _bert(weight, gain)


def unit_vectors(model: nn.Module) -> list[tuple[Tensor, int]]:
    """The weights whose vectors the model's placements keep at length 1, and the dimension along which they lie."""
    return [found for module in model.modules() if isinstance(module, Drawable) for found in module.unit_vectors()]


@torch.no_grad()
def renormalise(vectors: Iterable[tuple[Tensor, int]]) -> None:
    """Put back to length 1 what `unit_vectors` found; it belongs after every update."""
    for weight, dimension in vectors:
        # A row of padding stays 0: it is divided by ε alone.
        weight.copy_(nn.functional.normalize(weight, dim=dimension))


ATTENTION_WEIGHTS = ("query", "key", "value", "output")
FFN_WEIGHTS = ("ffn_in", "ffn_out")


def weights_of(kind: SublayerKind) -> tuple[str, ...]:
    """The weight matrices of a sub-layer, by the names that initialisation uses."""
    return FFN_WEIGHTS if kind == "feed_forward" else ATTENTION_WEIGHTS


def weight_std(placement: Placement, weight: str, site: Site) -> float:
    """Of the entries of one weight matrix before the first update, biases apart."""
    shape = _shape(weight, site.stack)
    draw = SCHEMES[placement.initialisation].draws[weight]
    return _std(draw, shape, placement.gain(weight, site), placement.unit_vectors.get(weight))


def embedding_std(placement: Placement) -> float:
    """Of the entries of the embedding before the first update, before the placement scales its rows."""
    # No scheme looks at the size of the vocabulary.
    shape = (1000, placement.stack.width)
    draw = SCHEMES[placement.initialisation].embedding
    return _std(draw, shape, placement.embedding_gain(), placement.unit_vectors.get("embedding"))


def _shape(weight: str, stack: StackShape) -> tuple[int, int]:
    """(out, in) of a weight matrix."""
    if weight in FFN_WEIGHTS:
        return (stack.ffn_width, stack.width) if weight == "ffn_in" else (stack.width, stack.ffn_width)
    sides = {"query": stack.query_width, "output": stack.query_width}
    inner = sides.get(weight, stack.key_value_width)
    return (stack.width, inner) if weight == "output" else (inner, stack.width)


def _std(draw: Draw, shape: tuple[int, int], gain: float, unit_dimension: int | None) -> float:
    if unit_dimension is not None:
        # Vectors of length 1: their entries' mean square is 1 / their number.
        return float(shape[unit_dimension] ** -0.5)
    with torch.no_grad(), _Asked() as asked:
        # A tensor without memory: what is drawn is not needed, only the distribution that torch is asked for.
        draw(torch.empty(shape, device="meta"), gain)
    if asked.std is not None:
        return float(asked.std)
    with torch.no_grad():
        weight = torch.empty(shape)
        draw(weight, gain)
    return float(weight.std())


class _Asked(TorchFunctionMode):
    """Notes the standard deviation of the random numbers that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.std: float | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.uniform_:
            _, low, high = args
            self.std = (high - low) / math.sqrt(12)
        elif func is nn.init.uniform_:
            self.std = (kwargs["b"] - kwargs["a"]) / math.sqrt(12)
        elif func is Tensor.normal_:
            _, _, self.std = args
        elif func is nn.init.normal_:
            self.std = kwargs["std"]
        return func(*args, **kwargs)
