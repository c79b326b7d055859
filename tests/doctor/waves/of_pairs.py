"""Faults of an encoder and a decoder."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault
from doctor.waves.of_pictures import Plain
from doctor.waves.parts import (
    BLOCKS,
    HEAD,
    VOCABULARY,
    WIDTH,
    Attention,
    Block,
    SwiGLU,
    drawn,
    tokens,
)


class Cross(nn.Module):
    """Attention of a decoder to what an encoder made."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def hidden_keys(self, queries: int, real: Tensor) -> Tensor:
        """(batch, 1, queries, keys), of bool. real: (batch, keys)."""
        return ~real[:, None, None].expand(-1, -1, queries, -1)

    def forward(self, x: Tensor, memory: Tensor, real: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in (self.q(x), self.k(memory), self.v(memory))
        )
        scores = q @ k.mT / math.sqrt(HEAD)
        scores = scores.masked_fill(self.hidden_keys(x.shape[1], real), float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class CausalCross(Cross):
    """The decoder's own mask is used for what it reads, too."""

    def hidden_keys(self, queries: int, real: Tensor) -> Tensor:
        later = torch.ones(queries, real.shape[1], dtype=torch.bool).triu(1)
        return super().hidden_keys(queries, real) | later


class UnmaskedCross(Cross):
    """The memory's padding is read."""

    def hidden_keys(self, queries: int, real: Tensor) -> Tensor:
        return torch.zeros_like(super().hidden_keys(queries, real))


class Own(Plain):
    """The encoder's, which hides padding."""

    real: Tensor

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT / math.sqrt(HEAD)
        return scores.masked_fill(~self.real[:, None, None], float("-inf")).softmax(-1)


class Translator(nn.Module):
    """An encoder and a decoder of four blocks each."""

    def __init__(self, cross: type[Cross] = Cross) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.of_source = nn.Embedding(VOCABULARY, WIDTH)
        self.of_target = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(24, WIDTH)
        self.encoder = nn.ModuleList(Block(Own(n), SwiGLU()) for n in range(BLOCKS))
        self.decoder = nn.ModuleList(Block(Attention(n), SwiGLU()) for n in range(BLOCKS))
        self.crosses = nn.ModuleList(cross() for _ in range(BLOCKS))
        self.cross_norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(BLOCKS))
        self.memory_norm, self.norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        drawn(self, BLOCKS)

    def read(self, number: int, x: Tensor, memory: Tensor) -> Tensor:
        return memory

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> Tensor:
        real = attention_mask.bool()
        memory = self.of_source(input_ids) + self.places.weight[: input_ids.shape[1]]
        for block in self.encoder:
            block.mixer.real = real
            memory = block(memory, {})
        memory = self.memory_norm(memory)
        x = self.of_target(decoder_input_ids)
        for number, block in enumerate(self.decoder):
            x = x + block.mixer(block.first_norm(x), {})
            y, norm = self.read(number, x, memory), self.cross_norms[number]
            x = x + self.crosses[number](norm(x), y, real[:, : y.shape[1]])
            x = x + block.feed_forward(block.second_norm(x))
        return self.head(self.norm(x))


class ReadsItself(Translator):
    """The third block's cross-attention is given the decoder's own stream."""

    def read(self, number: int, x: Tensor, memory: Tensor) -> Tensor:
        return self.memory_norm(x) if number == 2 else memory


def translated(model: nn.Module, *, shifted: bool = True) -> Case:
    source, target = tokens(4, 24), tokens(4, 24).flip(0)
    mask = torch.ones_like(source)
    source[1:, 17:], mask[1:, 17:] = 0, 0
    given = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
    wanted = target.flatten()
    return Case(
        model=model,
        inputs={
            "input_ids": source,
            "attention_mask": mask,
            "decoder_input_ids": given if shifted else target,
        },
        loss=lambda logits: functional.cross_entropy(logits.flatten(0, 1), wanted),
    )


def of_translator(title: str, bug: Callable[[], Case], says: str) -> Fault:
    return Fault(title=title, bug=bug, twin=lambda: translated(Translator()), says=says)


FAULTS = [
    of_translator(
        "one block's cross-attention reads its own stream",
        lambda: translated(ReadsItself()),
        r"cross|memory|ahead|later",
    ),
    of_translator(
        "a causal mask over the memory",
        lambda: translated(Translator(CausalCross)),
        r"cross|memory|source",
    ),
    of_translator(
        "the memory's padding is read",
        lambda: translated(Translator(UnmaskedCross)),
        r"padding",
    ),
    of_translator(
        "a decoder that is fed its targets",
        lambda: translated(Translator(), shifted=False),
        r"target|same token|copy",
    ),
]
