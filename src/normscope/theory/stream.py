"""A placement's formula over moments: the stream forward through one stack, and what the way back
needs.

The equations are T1 to T4 of docs/theory.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..placement import Placement, Site, StackShape
from ..placement.base import Initial, State
from .attending.positions import turning
from .kernels import Activation
from .mixing import Array, Entry, Products, vanishes
from .moments import Atoms, Moments, single
from .operations import InitialNumber, MomentNorms, Norm, first_values, followed, norms_of
from .places import RANDOM, Differing, Places, alike, causal
from .squashing import SquashingNorms
from .sublayers import Map, _InsideF, attention, feed_forward


class Part(NamedTuple):
    """Holds a part of an embedding, independent of its other parts."""

    products: Products
    centred: bool = True
    """False for one that is the same in every feature."""
    differing: Differing = RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSetting:
    """Holds what a prediction needs in addition to the placement."""

    tokens: int
    """Tokens of each sequence."""
    weight_std: Callable[[str, Site], float]
    """Standard deviation of the entries of a matrix (query, key, value, output, ffn_in, ffn_out) at
    a site.
    """
    sequences: int = 1
    """Sequences of the batch that the loss is a mean over."""
    dropout: float = 0.0
    """On the embedding and on every F(x)."""
    activation: Activation = "relu"
    norm: Norm = "layer-norm"
    scatter: bool = True
    """False for the limit of infinite width."""
    angles: tuple[float, ...] = ()
    """The angles of rotary positions, by which attention turns each pair of a head's features from
    one token to the next. Empty where it does not.
    """
    memory: Products | None = None
    """The moments of an encoder's output, for cross-attention."""
    memory_tokens: int = 0
    memory_differing: Differing = RANDOM


@dataclass(slots=True)
class Applied:
    """One F as it was applied: where, to what, its map, and the atom that came of it."""

    site: Site
    input: Moments
    map: Map
    atom: int
    steady: bool
    """True where queries are normed within F."""
    normed_values: bool
    normed_hidden: bool
    """True where what the last matrix reads is normed within F."""


class MomentEnd:
    """Stands for an end of a stack in a formula: where the embedding comes in, and where the output
    leaves.
    """

    def __init__(self, norm: MomentNorms | SquashingNorms) -> None:
        self.norm = norm

    def parameter(
        self, name: str, *, initial: Initial, **spec: Any
    ) -> InitialNumber | tuple[Any, ...]:
        """Returns a parameter at its initial value. Equation T1."""
        return first_values(initial, **spec)

    def scheduled(self, name: str, *, initial: float) -> float:
        """Returns a number that follows a schedule, where it starts. Equation T1."""
        return initial


class _MomentSublayer(MomentEnd):
    """F on moments."""

    def __init__(
        self, norm: MomentNorms | SquashingNorms, site: Site, stack: "MomentStack"
    ) -> None:
        self.norm = norm
        self.site = site
        self.stack = stack

    def __call__(self, x: Moments, /, **inside: Callable[[Moments], Moments]) -> Moments:
        """Returns F(x). Equation T4."""
        return self.stack.apply(self.site, x, inside)

    def parameter(
        self, name: str, *, initial: Initial, shared_by_block: bool = False, **spec: Any
    ) -> InitialNumber | tuple[Any, ...]:
        """Returns a parameter at its initial value; one whose updates are followed is known by its
        name and where it stands. Equation T24.
        """
        value = first_values(self.stack.profiled(name, initial), **spec)
        if not self.stack.follows or not isinstance(value, InitialNumber):
            return value
        return followed(value, (name, self.site.block if shared_by_block else self.site))


@dataclass(slots=True)
class MomentStack:
    """One stack under one placement: everything that was computed, kept for the way back."""

    placement: Placement
    setting: StreamSetting
    atoms: Atoms = field(init=False)
    follows: bool = False
    """True where updates of the formula's own numbers are followed, by parts of their own."""
    applied: list[Applied] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    """The variance of every branch so far, over all its elements: its mean over features is 0."""
    profile: list[float] = field(default_factory=list)
    """The variances that initial values are taken from, of a pass with first values, where the
    placement has one.
    """
    input_variance: float = 1.0
    """The same of the embedding."""
    depths: list[Products] = field(default_factory=list)
    """Moments of the stream that `Placement.hidden` shows, from the embedding on."""
    streams: dict[str, list[Products]] = field(default_factory=dict)
    """The same of every stream under the name that the formula gives it; of a history, its newest
    value.
    """
    states: list[Moments] = field(default_factory=list)
    """The values that `depths` has the products of."""
    last: Moments = field(init=False)
    """The stream after the last block."""
    output: Moments = field(init=False)

    def __post_init__(self) -> None:
        shape = self.placement.stack
        self.atoms = Atoms(
            shape.width,
            scatter_width=shape.width if self.setting.scatter else math.inf,
            places=causal(self.setting.tokens) if shape.kind == "decoder" else None,
        )

    @property
    def tokens(self) -> int | Places:
        """Returns how many tokens each sequence has, and where they stand if that matters."""
        return self.setting.tokens if self.atoms.places is None else self.atoms.places

    def forward(self, parts: Sequence[Part]) -> Moments:
        """Returns the stack's output for an embedding that is a sum of these parts. A placement
        that sets its initial values from a profile is passed twice. Equation T1.
        """
        if self.placement.is_profiled() and not self.placement.profiling.in_order:
            # The first pass is for its variances alone, and leaves no trace in this stack.
            first = MomentStack(self.placement, self.setting)
            first._pass(parts)
            self.profile = first.variances
        return self._pass(parts)

    def _pass(self, parts: Sequence[Part]) -> Moments:
        """Runs the formula once: the embedding, every block, the end. Dropout leaves 1 / (1 −
        dropout) of a square, and products of two tokens as they are. Equation T1.
        """
        # Of what dropout keeps, features are 1 / (1 − dropout) as large: their mean square grows
        # by that factor, and products of two tokens, dropped independently, do not.
        kept = 1 / (1 - self.setting.dropout)
        places = self.atoms.places
        for products, centred, differing in parts:
            self.atoms.add(
                products.one * kept,
                products.two,
                products.apart,
                centred=centred,
                differing=differing,
            )
        if places is not None:
            parts = [part._replace(products=places.mean(part.products)) for part in parts]
        # From here on the placement's own formula runs, on moments in the place of tensors.
        embedding = Moments.sum_of(self.atoms)
        self.input_variance = self._input_variance(parts)
        placement, shape = self.placement, self.placement.stack
        norm = norms_of(self.setting.norm, placement.norm_epsilon)
        end = MomentEnd(norm)
        state = placement.start(embedding, end)
        self._record(state)
        # A loop runs the same sites again, which is how passes through one matrix are known.
        for sites in _sites(shape) * shape.loops:
            state = placement.block(state, [_MomentSublayer(norm, site, self) for site in sites])
            self._record(state)
        self.last = placement.hidden(state)
        self.output = placement.finish(state, end)
        return self.output

    def _input_variance(self, parts: Sequence[Part]) -> float:
        """Returns the variance of an embedding over all its elements: its mean square less its
        squared mean over features and tokens. Equation T22.
        """
        n = self.setting.tokens
        square = math.fsum(part.products.one for part in parts)
        # A part that is the same in every feature is the mean that a variance leaves out.
        constant = [part.products for part in parts if not part.centred]
        squared_mean = math.fsum((part.one + (n - 1) * part.two) / n for part in constant)
        return square * self._measured - squared_mean

    def _record(self, state: State) -> None:
        """Notes the stream, and every stream by its name, after a block. Equation T1."""
        self.states.append(self.placement.hidden(state))
        self.depths.append(self.states[-1].mean)
        # A state is a stream or a tuple of streams and of histories.
        parts = state if isinstance(state, tuple) else (state,)
        for name, part in zip(self.placement.streams, parts, strict=True):
            newest = part[-1] if isinstance(part, tuple) else part
            self.streams.setdefault(name, []).append(newest.mean)

    def shares(self) -> dict[str, Array]:
        """Returns what each part is of the last stream's q: by kind of sub-layer and block, and
        "embedding". Equation T1.
        """
        places = self.atoms.places
        # c_a² q_a of every part a, by place where there are places.
        squares = self.atoms.shares(self.last.coefficients)
        parts = squares if places is None else squares @ places.tokens
        parts = parts / parts.sum()
        by_kind: dict[str, list[int]] = {}
        for applied in self.applied:
            by_kind.setdefault(applied.site.kind, []).append(applied.atom)
        shares = {"embedding": parts[: self.applied[0].atom].sum(keepdims=True)}
        for kind, atoms in by_kind.items():
            shares[kind] = parts[atoms]
        return shares

    def apply(self, site: Site, x: Moments, inside: _InsideF) -> Moments:
        """Applies F to x: F(x) is a part of its own. Its spread is F's own, and what x hands on in
        proportion, spread(x) (q_F / q_x)². Equations T1 and T4.
        """
        # What F makes of these moments; then F(x) joins the stack as a part of its own.
        made = self.map(site, x.products, x.differing, inside)
        one, two, apart = made.output
        spread = made.spread
        if not vanishes(x.spread):
            spread = spread + x.spread * (one / _square_to_divide_by(x)) ** 2
        # Dropout on F(x), as on the embedding.
        dropped = one / (1 - self.setting.dropout)
        atom = self.atoms.add(dropped, two, apart, spread=spread, differing=made.differing)
        places = self.atoms.places
        mean_square = one if places is None else places.mean(made.output).one
        self.variances.append(mean_square * self._measured)
        applied = Applied(
            site=site,
            input=x,
            map=made,
            atom=atom,
            steady="query" in inside,
            normed_values="value" in inside,
            normed_hidden="output" in inside,
        )
        self.applied.append(applied)
        return single(self.atoms, atom)

    def profiled(self, name: str, initial: Initial) -> Initial:
        """Returns an initial value that the placement sets from the variances of the branches
        before it. Equation T1.
        """
        # A profile in order knows the branches before this one; else a whole pass has been made.
        source = self.variances if self.placement.profiling.in_order else self.profile
        before = source[: len(self.applied)]
        if not before:
            return initial
        return self.placement.profiled(before, self.input_variance).get(name, initial)

    @property
    def _measured(self) -> float:
        """Returns what a profile finds of a mean square of 1, which dropout makes larger. Equation
        T1.
        """
        return 1 / (1 - self.setting.dropout) if self.placement.profiling.dropout else 1.0

    def maps(self, applied: Applied) -> list[tuple[int, Map]]:
        """Returns F's map of moments, by F's atom, and of covariances with those of later passes
        through it. Equation T18.
        """
        return [(applied.atom, applied.map)]

    def map(self, site: Site, x: Products, differing: Differing, inside: _InsideF) -> Map:
        """Returns F's map of an input with these moments, or of a covariance in the place of them.
        Equations T5 and T7.
        """
        if site.kind == "feed_forward":
            return self._feed_forward(site, x, differing, inside)
        return self._attention(site, x, differing, inside)

    def _feed_forward(self, site: Site, x: Products, differing: Differing, inside: _InsideF) -> Map:
        """Returns the map of a feed-forward. Equations T5 and T6."""
        std = self.setting.weight_std
        shape = site.stack
        setting = self.setting
        return feed_forward(
            x,
            width=shape.width,
            ffn_width=shape.ffn_width,
            tokens=self.tokens,
            ffn_in_std=std("ffn_in", site),
            ffn_out_std=std("ffn_out", site),
            activation=setting.activation,
            differing=differing,
            inside=inside,
            apart=setting.sequences > 1,
        )

    def _attention(self, site: Site, x: Products, differing: Differing, inside: _InsideF) -> Map:
        """Returns the map of attention, or of cross-attention over the memory. Equations T7 and
        T9.
        """
        setting = self.setting
        crosses = site.kind == "cross_attention"
        places = self.atoms.places
        source = setting.memory if crosses else x
        if source is None:
            raise ValueError("cross-attention needs the moments of a memory")
        # Queries are the stream's tokens, keys those of the memory or the same.
        keys: int | Places = setting.memory_tokens if crosses else setting.tokens
        if places is not None:
            keys = alike(setting.memory_tokens, places.count) if crosses else places
            source = Products(*keys.filled(source))
        turned = None
        if setting.angles and not crosses:
            turned = turning(setting.angles, self.tokens)
        return attention(
            x,
            source,
            width=site.stack.width,
            tokens=self.tokens,
            source_tokens=keys,
            differing=setting.memory_differing if crosses and self.atoms.draws else differing,
            inside=inside,
            turned=turned,
            query_std=setting.weight_std("query", site),
            key_std=setting.weight_std("key", site),
            value_std=setting.weight_std("value", site),
            output_std=setting.weight_std("output", site),
        )


def _square_to_divide_by(x: Moments) -> Entry:
    """Returns E‖x‖² / d, infinite where it is 0: a norm over equal entries is nought, and nothing
    spreads in proportion to it. Equation T4.
    """
    if isinstance(x.one, np.ndarray):
        return np.where(x.one == 0, np.inf, x.one)
    return x.one or math.inf


@lru_cache(maxsize=16)
def _sites(shape: StackShape) -> tuple[tuple[Site, ...], ...]:
    """Returns every block's sub-layers. Kept, since many placements are predicted for one shape."""

    def block_of(block: int) -> tuple[Site, ...]:
        return tuple(Site(kind=kind, block=block, stack=shape) for kind in shape.kinds)

    return tuple(block_of(block) for block in range(1, shape.blocks + 1))
