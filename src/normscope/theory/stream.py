"""A placement's formula over moments: the stream forward through one stack, and gradients back through it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..placement import Placement, Site, StackShape, SublayerKind
from .kernels import Activation
from .moments import Atoms, Coefficients, MomentNorms, Moments, Number, single
from .sublayers import (
    AttentionMap,
    FeedForwardMap,
    Mixing,
    Pair,
    inner_scales,
    pair_of,
    sharpened,
    uniform,
    uniform_causal,
)

WeightStd = Callable[[str, Site], float]
"""Standard deviation of the entries of a weight matrix (query, key, value, output, ffn_in, ffn_out) at a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a prediction needs beside the placement. Tokens are those of one sequence."""

    tokens: int
    weight_std: WeightStd
    activation: Activation = "relu"
    centres: bool = True
    """True for LayerNorm, False for the norms without a mean."""
    memory: Pair | None = None
    """Of an encoder's output, for cross-attention."""
    memory_tokens: int = 0


@dataclass(slots=True)
class Applied:
    """One F as it was applied: its input's coefficients, its map, and the atom that came of it."""

    site: Site
    coefficients: Coefficients
    map: AttentionMap | FeedForwardMap
    atom: int

    @property
    def reads_memory(self) -> bool:
        return self.site.kind == "cross_attention"


class MomentEnd:
    """An end of a stack."""

    def __init__(self, norm: MomentNorms) -> None:
        self.norm = norm

    def parameter(self, name: str, *, initial: float, shape: tuple[int, ...] = ()) -> Number:
        return Number(initial)

    def scheduled(self, name: str, *, initial: float) -> float:
        return initial


@dataclass(slots=True)
class MomentSublayer:
    """F on moments."""

    site: Site
    norm: MomentNorms
    stack: "MomentStack"

    def __call__(self, x: Moments, /, **inside: Callable[[Moments], Moments]) -> Moments:
        return self.stack.apply(self.site, x, inside)

    def parameter(
        self, name: str, *, initial: float, shape: tuple[int, ...] = (), shared_by_block: bool = False
    ) -> Number:
        return Number(self.stack.profiled(name, initial))

    def scheduled(self, name: str, *, initial: float) -> float:
        return initial


@dataclass(slots=True)
class MomentStack:
    """One stack under one placement: everything that was computed, kept for the way back."""

    placement: Placement
    setting: Setting
    atoms: Atoms = field(init=False)
    applied: list[Applied] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    """Of every branch so far, over all its elements: its mean over features is 0."""
    input_variance: float = 1.0
    """The same of the embedding."""
    depths: list[Pair] = field(default_factory=list)
    """q and p of the stream after so many blocks, from the embedding on."""
    last: Moments = field(init=False)
    """The stream after the last block."""
    output: Moments = field(init=False)

    def __post_init__(self) -> None:
        self.atoms = Atoms(self.placement.stack.width)

    def forward(self, parts: Sequence[tuple[Pair, bool]]) -> Moments:
        """The stack's output for an embedding that is a sum of parts: moments, and False if all features share it."""
        indices = [self.atoms.add(pair.one, pair.two, centred=centred) for pair, centred in parts]
        embedding = Moments(self.atoms, np.ones(len(indices)))
        n = self.setting.tokens
        squared_mean = math.fsum((pair.one + (n - 1) * pair.two) / n for pair, centred in parts if not centred)
        self.input_variance = embedding.q - squared_mean
        placement, shape = self.placement, self.placement.stack
        norm = MomentNorms(placement.norm_epsilon, centres=self.setting.centres)
        end = MomentEnd(norm)
        state = placement.start(embedding, end)
        self.depths.append(pair_of(placement.hidden(state)))
        for block in range(1, shape.blocks + 1):
            sublayers = [MomentSublayer(_site(shape, kind, block), norm, self) for kind in shape.kinds]
            state = placement.block(state, sublayers)
            self.depths.append(pair_of(placement.hidden(state)))
        self.last = placement.hidden(state)
        self.output = placement.finish(state, end)
        return self.output

    def shares(self) -> dict[str, list[float]]:
        """What each part is of the last stream's q: by kind of sub-layer and block, and "embedding"."""
        q = self.atoms.q
        squares = self.last.coefficients**2
        parts = np.zeros(len(q))
        parts[: len(squares)] = squares * q[: len(squares)]
        total = parts.sum()
        found = {"embedding": [float(parts[: self.applied[0].atom].sum() / total)]} if self.applied else {}
        for applied in self.applied:
            found.setdefault(applied.site.kind, []).append(float(parts[applied.atom] / total))
        return found

    def apply(self, site: Site, x: Moments, inside: dict[str, Callable[[Moments], Moments]]) -> Moments:
        done = self._feed_forward(site, x, inside) if site.kind == "feed_forward" else self._attention(site, x, inside)
        moments = done.output()
        atom = self.atoms.add(moments.one, moments.two)
        self.variances.append(moments.one)
        self.applied.append(Applied(site, x.coefficients, done, atom))
        return single(self.atoms, atom)

    def profiled(self, name: str, initial: float) -> float:
        """A parameter that the placement sets from the variances of the branches before it."""
        if not self.applied:
            return initial
        return self.placement.profiled(self.variances, self.input_variance).get(name, initial)

    def _feed_forward(self, site: Site, x: Moments, inside: dict[str, Callable[[Moments], Moments]]) -> FeedForwardMap:
        std, shape, pair = self.setting.weight_std, site.stack, pair_of(x)
        pre = pair.scaled(shape.width * std("ffn_in", site) ** 2)
        plain = FeedForwardMap(
            width=shape.width,
            ffn_width=shape.ffn_width,
            tokens=self.setting.tokens,
            ffn_in_std=std("ffn_in", site),
            ffn_out_std=std("ffn_out", site),
            activation=self.setting.activation,
            input=pair,
            hidden_scale=inner_scales(inside, "hidden", shape.ffn_width, pre)[0],
        )
        if "output" not in inside:
            return plain
        scale, mean_scale = inner_scales(inside, "output", shape.ffn_width, *plain.activated())
        return replace(plain, output_scale=scale, output_mean_scale=mean_scale)

    def _attention(self, site: Site, x: Moments, inside: dict[str, Callable[[Moments], Moments]]) -> AttentionMap:
        std, width, crosses = self.setting.weight_std, site.stack.width, site.kind == "cross_attention"
        pair = pair_of(x)
        source, keys = (self.setting.memory, self.setting.memory_tokens) if crosses else (pair, self.setting.tokens)
        if source is None:
            raise ValueError("cross-attention needs the moments of a memory")

        def projected(weight: str, pair: Pair) -> Pair:
            plain = pair.scaled(width * std(weight, site) ** 2)
            return plain.scaled(inner_scales(inside, weight, width, plain)[0] ** 2)

        causal = site.stack.kind == "decoder" and not crosses
        plain_value = source.scaled(width * std("value", site) ** 2)
        plain_mixing = uniform_causal(keys) if causal else uniform(keys)
        mixing = self._mixing(plain_mixing, projected("query", pair), projected("key", source))
        value_scale = inner_scales(inside, "value", width, plain_value)[0]
        mixed = mixing.forward(plain_value.scaled(value_scale**2))
        return AttentionMap(
            width=width,
            tokens=self.setting.tokens,
            value_std=std("value", site),
            output_std=std("output", site),
            mixing=mixing,
            source=source,
            source_tokens=keys,
            value_scale=value_scale,
            output_scale=inner_scales(inside, "output", width, mixed)[0],
        )

    @staticmethod
    def _mixing(plain: Mixing, query: Pair, key: Pair) -> Mixing:
        # A logit q·k/√K has the variance q_q q_k over random matrices; what all keys share moves no weight.
        return sharpened(plain, query.one * max(0.0, key.one - key.two))


def _site(shape: StackShape, kind: SublayerKind, block: int) -> Site:
    return Site(kind=kind, block=block, stack=shape)
