"""Transformers from their papers' equations, on padded grids and with explicit matrices: what our
modules compare with.

Nothing of ours is imported. Weights come as a dict of tensors under the names that our modules give
them.
"""

# B = sentences, T / S = longest query / key sentence, D = width
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


def leaves(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's parameters, as leaves of a graph of their own."""
    return {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}


def keep_keys(lengths: list[int], queries: int, *, causal: bool) -> Tensor:
    """(B, T, S): True where a query may look at a key."""
    keep = torch.zeros(len(lengths), queries, max(lengths), dtype=torch.bool)
    for sentence, length in enumerate(lengths):
        for query in range(queries):
            keep[sentence, query, : min(length, query + 1) if causal else length] = True
    return keep


def length(x: Tensor) -> Tensor:
    """‖x‖ of the last dimension, which stays."""
    return (x * x).sum(-1, keepdim=True).sqrt()


@dataclass
class ReferenceNorms:
    """The norms of one sub-layer or end. ε is of LayerNorm and RMSNorm: no vector here is short
    enough for others.
    """

    w: dict[str, Tensor]
    at: str
    kind: str
    epsilon: float

    def named(self, name: str, x: Tensor) -> Tensor:
        if self.kind == "sphere-norm":
            return math.sqrt(x.shape[-1]) * x / length(x)
        weight = self.w[f"{self.at}{name}.weight"]
        if self.kind in ("dyt", "derf"):
            return weight * self.squashed(name, x) + self.w[f"{self.at}{name}.bias"]
        if self.kind == "scale-norm":
            return weight * x / length(x)
        if self.kind == "rms-norm":
            return x / ((x * x).mean(-1, keepdim=True) + self.epsilon).sqrt() * weight
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / (variance + self.epsilon).sqrt() * weight + self.w[f"{self.at}{name}.bias"]

    def squashed(self, name: str, x: Tensor) -> Tensor:
        """By exponentials, and by the share of a normal distribution that lies below."""
        alpha = self.w[f"{self.at}{name}.alpha"]
        if self.kind == "dyt":
            return 1 - 2 / ((2 * alpha * x).exp() + 1)
        below = torch.special.ndtr(math.sqrt(2) * (alpha * x + self.w[f"{self.at}{name}.shift"]))
        return 2 * below - 1

    def __call__(self, x: Tensor) -> Tensor:
        return self.named("main", x)

    def by_head(self, name: str, x: Tensor, heads: int) -> Tensor:
        """Each head on its own, with one gain for all of them."""
        return torch.cat([self.named(f"{name}.each", part) for part in x.chunk(heads, -1)], -1)


@dataclass
class ReferenceSublayer:
    """F(x) of one kind in one block (counted from 1), with its norms and the prefix of its
    weights.
    """

    stack: "ReferenceStack"
    block: int
    kind: str

    @property
    def at(self) -> str:
        return f"{self.stack.at}blocks.{self.block - 1}.{self.kind}."

    @property
    def norm(self) -> ReferenceNorms:
        return ReferenceNorms(self.stack.w, f"{self.at}norm.", self.stack.norm, self.stack.epsilon)

    def placed(self, name: str) -> Tensor:
        return self.stack.w[f"{self.at}placed.{name}"]

    def affine(self, matrix: str, x: Tensor, *, bias: float = 1.0) -> Tensor:
        return (
            x @ self.stack.w[f"{self.at}f.{matrix}.weight"].T
            + bias * self.stack.w[f"{self.at}f.{matrix}.bias"]
        )

    def __call__(self, x: Tensor, **inside: Function) -> Tensor:
        def within(place: str, y: Tensor) -> Tensor:
            return inside[place](y) if place in inside else y

        if self.kind == "feed_forward":
            hidden = within("hidden", self.affine("ffn_in", x)).clamp(min=0)
            return self.affine("ffn_out", within("output", hidden))
        keys = self.stack.memory if self.kind == "cross_attention" else x
        query, key, value = (
            within(n, self.affine(n, y)) for n, y in (("query", x), ("key", keys), ("value", keys))
        )
        scale = 1 / math.sqrt(x.shape[-1] // self.stack.heads)
        return self.affine("output", within("output", self.attend(query, key, value, scale)))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Σ_s softmax_s(scale · query · key_s) value_s, head by head."""
        keep = self.stack.memory_keep if self.kind == "cross_attention" else self.stack.keep
        mixed = []
        for q, k, v in zip(
            *(x.chunk(self.stack.heads, -1) for x in (query, key, value)), strict=True
        ):
            weights = torch.where(keep, (scale * torch.einsum("btk,bsk->bts", q, k)).exp(), 0.0)
            mixed.append(weights / weights.sum(-1, keepdim=True) @ v)
        return torch.cat(mixed, -1)


@dataclass
class ReferenceStack:
    """What the equations of one stack need. `at`: the prefix of its weights' names; `keep`: of its
    self-attention.
    """

    w: dict[str, Tensor]
    at: str
    blocks: int
    heads: int
    keep: Tensor
    kinds: tuple[str, ...] = ("attention", "feed_forward")
    norm: str = "layer-norm"
    epsilon: float = 1e-5
    scheduled: float = math.nan
    """Where every number that follows a schedule stands."""
    memory: Tensor = field(default_factory=lambda: torch.empty(0))
    memory_keep: Tensor = field(default_factory=lambda: torch.empty(0))

    def by_block(self) -> Iterator[list[ReferenceSublayer]]:
        for block in range(1, self.blocks + 1):
            yield [ReferenceSublayer(self, block, kind) for kind in self.kinds]

    def sublayers(self) -> Iterator[ReferenceSublayer]:
        for block in self.by_block():
            yield from block

    def end(self, name: str) -> ReferenceNorms:
        """The norms of the stack's `start` or `finish`."""
        return ReferenceNorms(self.w, f"{self.at}{name}.norm.", self.norm, self.epsilon)

    @property
    def final_norm(self) -> ReferenceNorms:
        return self.end("finish")


def scaled_rows(rows: Tensor) -> Tensor:
    """Vaswani et al. 2017, section 3.4."""
    return math.sqrt(rows.shape[-1]) * rows


def tied_logits(hidden: Tensor, table: Tensor, w: dict[str, Tensor]) -> Tensor:
    return hidden @ table.T


@dataclass(frozen=True, kw_only=True)
class Equations:
    """A placement as its paper writes it, over a whole stack and at both ends of a model."""

    stack: Callable[[Tensor, ReferenceStack], Tensor]
    """(B, T, D) embedding -> (B, T, D) output."""
    rows: Function = scaled_rows
    """Rows of the embedding's table -> what they are before positions are added."""
    logits: Callable[[Tensor, Tensor, dict[str, Tensor]], Tensor] = tied_logits
    """Hidden states, the tied table and all weights -> logits."""
    length: float = 1.0
    """How long our stream is beside the paper's."""
