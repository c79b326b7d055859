"""What a placement is expected to be, as its source says it: all that tests over the whole registry
cannot derive.

Nothing of ours is imported but the reference stack: what is compared with a formula is not written
the same way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reference import Equations, ReferenceStack

EVERYWHERE = frozenset({"encoder-only", "decoder-only", "encoder-decoder"})
Shapes = dict[str, tuple[int, ...]]
WIDTH, HEADS, FFN_WIDTH, VOCABULARY = 12, 3, 20, 20
"""Of the small stacks and models that shapes are stated for."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Which matrix a gain is of, in a model of 2 encoder and 2 decoder blocks."""

    stack: str
    """encoder or decoder"""
    kind: str
    """attention, cross_attention or feed_forward"""
    matrix: str
    """query, key, value, output, ffn_in or ffn_out"""
    block: int
    """Counted from 1."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One placement. The first three have to be given; of the others, what differs from a plain
    Post-LN's.
    """

    equations: Equations
    """Its source's equations over plain tensors; outputs and all gradients are compared with them
    to 1e-10.
    """
    formula: str
    """How it prints in the encoder of 6 and 6 blocks."""
    added: Shapes
    """The parameters beside F's matrices in an encoder of one block, read with LayerNorm, and their
    shapes.
    """

    cross: Shapes | None = None
    """What cross-attention adds, where that is not what self-attention adds."""
    head: Shapes = field(default_factory=dict)
    """The parameters over the output projection."""
    models: frozenset[str] = EVERYWHERE
    norm: str = "layer-norm"
    """The norm that it takes where none is asked for."""
    own_norm_equations: Equations | None = None
    """Its equations with that norm, where its source writes them otherwise."""
    norm_epsilon: float = 1e-5
    scheme: str = "paper"
    """The scheme of initial weights that its source uses."""
    gain: Callable[[Gain], float] = lambda of: 1.0
    """What its source multiplies a matrix's initial standard deviation with."""
    embedding_gain: float = 1.0
    """The same of a shared embedding, in a model of 2 and 2 blocks."""
    first: Mapping[str, float | tuple[float, ...] | Callable[[str], list[list[float]]]] = field(
        default_factory=dict
    )
    """Where its own numbers start in a model of width 96 and of 2 and 2 blocks, by the end of their
    full names; a function takes such a name."""
    drawn: Mapping[str, float] = field(default_factory=dict)
    """The standard deviation about 0 of those that are drawn, by name."""
    alone_blocks: int = 3
    """Of the stack alone that shows what it does, and below, of both stacks of a model."""
    encoder_blocks: int = 2
    decoder_blocks: int = 3
    idle: tuple[str, ...] = ()
    """Ends of the names of parameters that no output depends on, beside biases of keys."""
    starts_closed: bool = False
    """True where every branch is multiplied by 0 at first, so that no gradient reaches F's
    matrices.
    """
    same_formula: str = ""
    """The placement whose formula this is, where the two differ in their weights alone."""
    same_in_encoders: str = ""
    """The same in an encoder, where there is no cross-attention."""
    named_for_sure: bool = True
    """False where a model's modules do not show all of the formula, so that its name is never
    sure.
    """
    found_by_doctor: bool = True
    """False where the doctor does not find it in a model yet."""
    has_stream: bool = True
    """False where no sum is carried from block to block, so that the doctor has no stream to
    judge.
    """
    refused_by_theory: str = ""
    """Why it has no prediction in any setting, as the message says; empty where theory follows
    it.
    """
    toy_rate: float = 2e-2
    """A peak rate at which so many updates teach it more than the words' frequencies:"""
    toy_updates: int = 60
    tokens_apart: bool = False
    """True where gradients of queries and keys hang on how a growing stream's tokens lie apart,
    which draws differ in more than in others."""


def norms(*places: str, width: int = WIDTH) -> Shapes:
    """LayerNorms of that width: `attention.main` in the first block, `finish.main` at an end."""
    found: Shapes = {}
    for part, name in (place.split(".", 1) for place in places):
        at = (
            f"{part}.norm.{name}" if part in ("start", "finish") else f"blocks.0.{part}.norm.{name}"
        )
        found |= {f"{at}.weight": (width,), f"{at}.bias": (width,)}
    return found


def number(place: str, *shape: int) -> Shapes:
    """A placement's own parameter, of a sub-layer or an end."""
    part, name = place.split(".")
    return {f"{'' if part == 'finish' else 'blocks.0.'}{part}.placed.{name}": shape}


POST = norms("attention.main", "feed_forward.main")
"""What Post-LN adds: a norm for each sub-layer."""
PRE = POST | norms("finish.main")
"""What Pre-LN adds: those and a final norm."""


def sublayers_of(stack: ReferenceStack) -> int:
    return stack.blocks * len(stack.kinds)


def last_matrices_by_depth(of: Gain) -> float:
    """1/√(sub-layers of the stack) for the last matrix of every F."""
    return (
        (4 if of.stack == "encoder" else 6) ** -0.5 if of.matrix in ("output", "ffn_out") else 1.0
    )
