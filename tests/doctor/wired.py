"""Small Transformers whose blocks are wired by the functions they are given, for tests of what is
found in them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from normscope.doctor.lint.patient import Loading, Patient
from normscope.doctor.observe.examine import examined

WIDTH, VOCABULARY = 16, 24
F = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, F, F], Tensor]
"""x, a sub-layer and a norm -> the stream after it."""


class Attention(nn.Module):
    """Single-head attention to x itself, or to a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        read = x if memory is None else memory
        weights = (self.query(x) @ self.key(read).mT / WIDTH**0.5).softmax(-1)
        return self.last(weights @ self.value(read))


class Block(nn.Module):
    """One block; a join for each of its sub-layers."""

    def __init__(self, joins: Sequence[Join]) -> None:
        super().__init__()
        self.joins = list(joins)
        self.f = nn.ModuleList([Attention() for _ in joins[1:]])
        self.f.append(nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH)))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in joins)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        for number, (join, norm) in enumerate(zip(self.joins, self.norms, strict=True)):
            f = self.f[number]
            crosses = memory is not None and number == 1
            x = join(x, (lambda y, f=f: f(y, memory)) if crosses else f, norm)
        return x


class Stack(nn.Module):
    """Blocks in a row; the same joins in each, or the blocks themselves. final: how many norms
    follow.
    """

    def __init__(
        self, *joins: Join, blocks: int | Sequence[nn.Module] = 4, final: int = 0, first: int = 0
    ) -> None:
        super().__init__()
        made = [Block(joins) for _ in range(blocks)] if isinstance(blocks, int) else list(blocks)
        self.blocks = nn.ModuleList(made)
        self.first = nn.Sequential(*(nn.LayerNorm(WIDTH) for _ in range(first)))
        self.final_norm = nn.Sequential(*(nn.LayerNorm(WIDTH) for _ in range(final)))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if memory is None else block(x, memory)
        return self.final_norm(x)


class Model(nn.Module):
    """Embedding, stack and output projection; with a decoder, an encoder-decoder."""

    def __init__(
        self, encoder: Callable[[], nn.Module], decoder: Callable[[], nn.Module] | None = None
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = encoder()
        self.decoder = decoder() if decoder else None
        self.projection = nn.Linear(WIDTH, VOCABULARY, bias=False)
        with torch.no_grad():
            self.projection.weight.mul_(0.2)

    def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        x = self.encoder(self.embedding(source))
        if self.decoder is not None and target is not None:
            x = self.decoder(self.embedding(target), x)
        return self.projection(x)


def post(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(x + f(x))


def pre(x: Tensor, f: F, norm: F) -> Tensor:
    return x + f(norm(x))


def tokens(model: nn.Module) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(VOCABULARY, (2, 7), generator=generator)
    target = torch.randint(VOCABULARY, (2, 5), generator=generator)
    return (source, target) if getattr(model, "decoder", None) is not None else (source,)


def patient(
    model: nn.Module, *, loading: Loading | None = None, wanted_placement: str | None = None
) -> Patient:
    """The model as rules see it, with the doctor's own loss."""
    stacks, observed = examined(model, tokens(model))
    return Patient(
        model=model,
        stacks=stacks,
        observed=observed,
        dtype=torch.float32,
        loading=loading,
        wanted_placement=wanted_placement,
    )
