"""A healthy decoder as they are built in 2026: RMSNorm, rotations, grouped queries, normed queries
and keys, SwiGLU. Its parts are methods, so that a fault is one of them written otherwise.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY, BLOCKS = 64, 4, 2, 128, 96, 4
HEAD = WIDTH // HEADS


def tokens(rows: int = 4, length: int = 24) -> Tensor:
    """(rows, length), of none that stands for padding."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, VOCABULARY, (rows, length), generator=generator)


def angles(length: int) -> Tensor:
    """(length, HEAD / 2), as Su et al. 2021 have them."""
    frequencies = 1e4 ** (-torch.arange(0, HEAD, 2) / HEAD)
    return torch.arange(length)[:, None] * frequencies


def turned(x: Tensor, by: Tensor) -> Tensor:
    """x: (…, length, features). by: (length, features / 2), in radians."""
    first, second = x.chunk(2, -1)
    cos, sin = by.cos().to(x), by.sin().to(x)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    """Causal, with grouped queries."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD), nn.RMSNorm(HEAD)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, HEAD)).transpose(1, 2)

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q_norm(q), self.k_norm(k)

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2])
        return turned(q, by), turned(k, by), v

    def spread(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        each = HEADS // GROUPS
        return k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)

    def seen(self, length: int) -> Tensor:
        """(queries, keys), of bool."""
        return torch.ones(length, length, dtype=torch.bool).tril()

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT / math.sqrt(HEAD)
        return scores.masked_fill(~self.seen(q.shape[-2]), float("-inf")).softmax(-1)

    def mixed(self, v: Tensor, first: Tensor | None) -> Tensor:
        """Values, beside those of the first block."""
        return v

    def gated(self, y: Tensor, x: Tensor) -> Tensor:
        return y

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        """memo: what blocks of one pass hand on."""
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        first = memo.setdefault("v", v)
        v = self.mixed(v, None if first is v else first)
        q, k = self.normed(q, k)
        q, k, v = self.placed(q, k, v)
        k, v = self.spread(k, v)
        y = (self.weights(q, k) @ v).transpose(1, 2).flatten(2)
        return self.o(self.gated(y, x))


class SwiGLU(nn.Module):
    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Two of four, weighed by a router whose weights sum to 1."""

    COUNT, TOP = 4, 2

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, self.COUNT, bias=False)
        self.experts = nn.ModuleList(SwiGLU() for _ in range(self.COUNT))

    def scores(self, x: Tensor) -> Tensor:
        return self.router(x).softmax(-1)

    def chosen(self, scores: Tensor) -> Tensor:
        """(…, TOP) numbers of experts."""
        return scores.topk(self.TOP, -1).indices

    def weighed(self, scores: Tensor, chosen: Tensor) -> Tensor:
        weights = scores.gather(-1, chosen)
        return weights / weights.sum(-1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        chosen = self.chosen(scores)
        by_expert = torch.zeros_like(scores).scatter(-1, chosen, self.weighed(scores, chosen))
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).any(-1).nonzero(as_tuple=True)
            if len(rows):
                part = expert(x[rows, places]) * by_expert[rows, places, number, None]
                y = y.index_put((rows, places), part, accumulate=True)
        return y


class Scan(nn.Module):
    """A selective state space as in Mamba (Gu and Dao 2023), token by token."""

    STATES, KERNEL = 8, 4

    def __init__(self, number: int) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, self.KERNEL, groups=WIDTH)
        self.step = nn.Linear(WIDTH, WIDTH)
        self.reads_writes = nn.Linear(WIDTH, 2 * self.STATES, bias=False)
        self.log_rates = nn.Parameter(torch.arange(1.0, self.STATES + 1).log().repeat(WIDTH, 1))
        self.direct = nn.Parameter(torch.ones(WIDTH))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)

    def start(self) -> None:
        """Steps between 0.001 and 0.1, as Mamba draws them."""
        spread = torch.rand(WIDTH) * math.log(100) + math.log(0.001)
        with torch.no_grad():
            self.step.bias.copy_(spread.exp().expm1().log())

    def rates(self) -> Tensor:
        return -self.log_rates.exp()

    def convolved(self, x: Tensor) -> Tensor:
        """x: (batch, features, length), of which each sees itself and the three before it."""
        return self.convolution(functional.pad(x, (self.KERNEL - 1, 0)))

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        u, gate = self.into(x).chunk(2, -1)
        u = functional.silu(self.convolved(u.mT).mT)
        step = functional.softplus(self.step(u))
        write, read = self.reads_writes(u).chunk(2, -1)
        kept = (step[..., None] * self.rates()).exp()
        new = (step * u)[..., None] * write[..., None, :]
        state, outputs = torch.zeros_like(new[:, 0]), []
        for place in range(x.shape[1]):
            state = kept[:, place] * state + new[:, place]
            outputs.append((state * read[:, place, None]).sum(-1))
        y = torch.stack(outputs, 1) + self.direct * u
        return self.o(y * functional.silu(gate))


class Block(nn.Module):
    def __init__(self, mixer: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.mixer, self.feed_forward = mixer, feed_forward

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        x = x + self.mixer(self.first_norm(x), memo)
        return x + self.feed_forward(self.second_norm(x))


Made = Callable[[int], nn.Module]
"""The number of a block, from 0 -> a part of it."""


class Decoder(nn.Module):
    def __init__(
        self, mixer: Made = Attention, feed_forward: Made = SwiGLU, blocks: int = BLOCKS
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(mixer(n), feed_forward(n)) for n in range(blocks))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        drawn(self, blocks)

    def hidden(self, ids: Tensor) -> Tensor:
        x, memo = self.embedding(ids), {}
        for block in self.blocks:
            x = block(x, memo)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.hidden(ids))


def drawn(model: nn.Module, blocks: int) -> None:
    """GPT-2's scheme."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            last = name.rpartition(".")[2] in ("o", "down")
            nn.init.normal_(module.weight, std=0.02 / math.sqrt(2 * blocks) if last else 0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    for module in model.modules():
        if isinstance(module, Scan):
            module.start()
