"""Transformers from their papers' equations, on padded grids and with explicit matrices: what our modules compare with.

Nothing of ours is imported. Weights come as a dict of tensors under the names that our modules give them.
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


@dataclass
class ReferenceNorms:
    w: dict[str, Tensor]
    at: str
    kind: str
    epsilon: float

    def named(self, name: str, x: Tensor) -> Tensor:
        weight = self.w[f"{self.at}{name}.weight"]
        if self.kind == "rms-norm":
            return x / ((x * x).mean(-1, keepdim=True) + self.epsilon).sqrt() * weight
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / (variance + self.epsilon).sqrt() * weight + self.w[f"{self.at}{name}.bias"]

    def __call__(self, x: Tensor) -> Tensor:
        return self.named("main", x)


@dataclass
class ReferenceSublayer:
    """F(x) of one kind in one block (counted from 1), with its norms and the prefix of its weights."""

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

    def affine(self, matrix: str, x: Tensor) -> Tensor:
        return x @ self.stack.w[f"{self.at}f.{matrix}.weight"].T + self.stack.w[f"{self.at}f.{matrix}.bias"]

    def __call__(self, x: Tensor, **inside: Function) -> Tensor:
        def within(place: str, y: Tensor) -> Tensor:
            return inside[place](y) if place in inside else y

        if self.kind == "feed_forward":
            return self.affine("ffn_out", within("output", self.affine("ffn_in", x).clamp(min=0)))
        cross = self.kind == "cross_attention"
        keys = self.stack.memory if cross else x
        keep = self.stack.memory_keep if cross else self.stack.keep
        query, key, value = (within(n, self.affine(n, y)) for n, y in (("query", x), ("key", keys), ("value", keys)))
        size, mixed = x.shape[-1] // self.stack.heads, []
        for head in range(self.stack.heads):
            part = slice(head * size, (head + 1) * size)
            scores = torch.einsum("btk,bsk->bts", query[..., part], key[..., part]) / math.sqrt(size)
            weights = torch.where(keep, scores.exp(), 0.0)
            mixed.append(weights / weights.sum(-1, keepdim=True) @ value[..., part])
        return self.affine("output", within("output", torch.cat(mixed, -1)))


@dataclass
class ReferenceStack:
    """What the equations of one stack need. `at`: the prefix of its weights' names; `keep`: of its self-attention."""

    w: dict[str, Tensor]
    at: str
    blocks: int
    heads: int
    keep: Tensor
    kinds: tuple[str, ...] = ("attention", "feed_forward")
    norm: str = "layer-norm"
    epsilon: float = 1e-5
    memory: Tensor = field(default_factory=lambda: torch.empty(0))
    memory_keep: Tensor = field(default_factory=lambda: torch.empty(0))

    def by_block(self) -> Iterator[list[ReferenceSublayer]]:
        for block in range(1, self.blocks + 1):
            yield [ReferenceSublayer(self, block, kind) for kind in self.kinds]

    def sublayers(self) -> Iterator[ReferenceSublayer]:
        for block in self.by_block():
            yield from block

    @property
    def final_norm(self) -> ReferenceNorms:
        return ReferenceNorms(self.w, f"{self.at}finish.norm.", self.norm, self.epsilon)
