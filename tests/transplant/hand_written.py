"""A GPT in a hundred ways that people write one, and its forward under other placements written by
hand.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, BLOCKS = 32, 4, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


class Block(nn.Module):
    """As nanoGPT writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), feed_forward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class InPlace(Block):
    """With sums written into the stream."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x += self.attn(self.ln_1(x))
        x.add_(self.mlp(self.ln_2(x)))
        return x


class Kept(Block):
    """With the residual kept under a name, flattened tokens, and a tuple that goes through."""

    def forward(self, hidden_states: Tensor, scale: float = 1.0) -> tuple[Tensor, float]:
        shape = hidden_states.shape
        residual = hidden_states
        hidden_states = residual + self.attn(self.ln_1(hidden_states))
        hidden_states = hidden_states.reshape(-1, WIDTH)
        residual = hidden_states
        hidden_states = (self.mlp(self.ln_2(hidden_states)) + residual).view(shape)
        return hidden_states, scale


class PostBlock(Block):
    """Post-LN, written out."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(torch.add(self.mlp(x), x))


class GPT(nn.Module):
    def __init__(
        self, block: type[nn.Module] = Block, *, final: bool = True, blocks: int = BLOCKS
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(17, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))
        self.final = nn.LayerNorm(WIDTH) if final else nn.Identity()
        self.head = nn.Linear(WIDTH, 17, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(self.final(x))


def ids() -> Tensor:
    return torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(1))


def perturb(model: nn.Module) -> nn.Module:
    """Every weight off its initial value, gains and gates too, so that a norm in another's place
    would show.
    """
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(
                    0.1 * torch.randn(parameter.shape, generator=generator).to(parameter)
                )
    return model


def by_hand(model: GPT, placement: str, tokens: Tensor | None = None) -> Tensor:
    """The forward of a model that was Pre-LN, under a placement, from its modules and what was
    added to them.
    """
    x = model.table(ids() if tokens is None else tokens)
    count = len(model.blocks)
    if placement == "peri-ln":
        x = model.blocks[0].placed.start.norms.main(x)
    for number, block in enumerate(model.blocks, 1):
        old = [type(norm).original.forward.__get__(norm) for norm in (block.ln_1, block.ln_2)]
        for norm, f, place in zip(
            old, (block.attn, block.mlp), ("attention", "feed_forward"), strict=True
        ):
            added = getattr(block.placed, place, None)
            match placement:
                case "pre-ln":
                    x = x + f(norm(x))
                case "post-ln":
                    x = norm(x + f(x))
                case "peri-ln" | "sandwich":
                    x = x + added.norms.after(f(norm(x)))
                case "deepnorm":
                    x = norm((2 * count) ** 0.25 * x + f(x))
                case "lns":
                    x = x + f(norm(x) / math.sqrt(number))
                case "rezero":
                    x = x + block.placed.block.numbers.gate * f(x)
                case "reordered":
                    x = x + norm(f(x))
                case "keel":
                    x = added.norms.outer(2.0 * count * x + f(norm(x)))
                case "layer-scale":
                    x = x + added.numbers.layer_scale * f(norm(x))
    final = model.final
    if placement not in ("post-ln", "deepnorm", "rezero", "keel"):
        x = final(x)
    return model.head(x)
