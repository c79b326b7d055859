"""Models as a user writes them, of two families, each wired as it should be or with a fault."""

# B = sequences, T = tokens, D = width, H = heads, K = width of a head, V = vocabulary
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

SubLayer = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, SubLayer, SubLayer], Tensor]
"""A function from the stream, a sub-layer and its norm to the next stream."""


def _post_ln(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    return norm(x + sublayer(x))


def _pre_ln(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    return x + sublayer(norm(x))


def _without_norms(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    return x + sublayer(x)


def _skip_behind_norm(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    normed = norm(x)
    return normed + sublayer(normed)


def _without_skip(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    return sublayer(norm(x))


def _deepnorm(x: Tensor, sublayer: SubLayer, norm: SubLayer) -> Tensor:
    return norm(DEEPNORM_SKIP * x + sublayer(x))


BLOCKS = 8
DEEPNORM_SKIP = (2 * BLOCKS) ** 0.25
"""The skip factor of a decoder of 8 blocks (Wang et al. 2022, arXiv:2203.00555, table 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The joining of a block's sub-layers with the stream."""

    attention: Join
    feed_forward: Join
    final_norm: bool = False
    mended: str = ""
    """The wiring that was meant; "" for one that is as its author means it."""
    found_by: tuple[str, ...] = ()
    """Rules of the doctor that name this fault."""


WIRINGS: Mapping[str, Wiring] = {
    "post-ln": Wiring(attention=_post_ln, feed_forward=_post_ln),
    "pre-ln": Wiring(attention=_pre_ln, feed_forward=_pre_ln, final_norm=True),
    "deepnorm": Wiring(attention=_deepnorm, feed_forward=_deepnorm),
    "no-norms": Wiring(
        attention=_without_norms,
        feed_forward=_without_norms,
        mended="pre-ln",
        found_by=("no-norm",),
    ),
    "skip-behind-norm": Wiring(
        attention=_skip_behind_norm,
        feed_forward=_skip_behind_norm,
        final_norm=True,
        mended="pre-ln",
        found_by=("misplaced-step", "altered-stream"),
    ),
    "attention-without-skip": Wiring(
        attention=_without_skip,
        feed_forward=_pre_ln,
        final_norm=True,
        mended="pre-ln",
        found_by=("lost-residual",),
    ),
}


class _Attention(nn.Module):
    """Causal attention; rotary_TK is the angle of each place, None without rotations."""

    angles: Tensor | None

    def __init__(self, width: int, heads: int, bias: bool, rotary_TK: Tensor | None) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.register_buffer("angles", rotary_TK, persistent=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        query_BHTK = self._turned(self._by_heads(self.query(x_BTD)))
        key_BHTK = self._turned(self._by_heads(self.key(x_BTD)))
        value_BHTK = self._by_heads(self.value(x_BTD))
        mixed_BHTK = functional.scaled_dot_product_attention(
            query_BHTK, key_BHTK, value_BHTK, is_causal=True
        )
        out_BTD: Tensor = self.out(mixed_BHTK.transpose(1, 2).flatten(2))
        return out_BTD

    def _by_heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.view(*x_BTD.shape[:2], self.heads, -1).transpose(1, 2)

    def _turned(self, x_BHTK: Tensor) -> Tensor:
        if self.angles is None:
            return x_BHTK
        angles_TK = self.angles[: x_BHTK.shape[2]]
        left, right = x_BHTK.chunk(2, dim=-1)
        swapped_BHTK = torch.cat((-right, left), dim=-1)
        return x_BHTK * angles_TK.cos() + swapped_BHTK * angles_TK.sin()


class _Gated(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 8 * width // 3
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        out_BTD: Tensor = self.down(functional.silu(self.gate(x_BTD)) * self.up(x_BTD))
        return out_BTD


def _plain_feed_forward(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The parts of a family's blocks."""

    norm: Callable[[int], nn.Module]
    feed_forward: Callable[[int], nn.Module]
    bias: bool
    rotary: bool
    """True where places are told by rotations, and by a table of positions otherwise."""


FAMILIES: Mapping[str, Family] = {
    "gpt": Family(norm=nn.LayerNorm, feed_forward=_plain_feed_forward, bias=True, rotary=False),
    "llama": Family(norm=nn.RMSNorm, feed_forward=_Gated, bias=False, rotary=True),
}


class _Block(nn.Module):
    def __init__(
        self, family: Family, wiring: Wiring, width: int, heads: int, rotary_TK: Tensor | None
    ) -> None:
        super().__init__()
        self.joins = wiring
        self.attention = _Attention(width, heads, family.bias, rotary_TK)
        self.feed_forward = family.feed_forward(width)
        self.norm1 = nn.Identity() if wiring.attention is _without_norms else family.norm(width)
        self.norm2 = nn.Identity() if wiring.attention is _without_norms else family.norm(width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.joins.attention(x_BTD, self.attention, self.norm1)
        return self.joins.feed_forward(x_BTD, self.feed_forward, self.norm2)


class RescueModel(nn.Module):
    """A decoder of 8 blocks: ids (B, T) in, logits (B, T, V) out. Matrices are Xavier's."""

    def __init__(
        self, family: str, wiring: str, *, vocabulary: int, width: int, heads: int, tokens: int
    ) -> None:
        super().__init__()
        made_of, wired = FAMILIES[family], WIRINGS[wiring]
        rotary_TK = _angles(tokens, width // heads) if made_of.rotary else None
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = None if made_of.rotary else nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(
            _Block(made_of, wired, width, heads, rotary_TK) for _ in range(BLOCKS)
        )
        self.norm = made_of.norm(width) if wired.final_norm else nn.Identity()
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(ids_BT)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(torch.arange(ids_BT.shape[1]))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV: Tensor = self.head(self.norm(x_BTD))
        return logits_BTV


def _angles(tokens: int, head_width: int) -> Tensor:
    """(T, K): place times frequency, each frequency twice (Su et al. 2021, arXiv:2104.09864)."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    half = torch.arange(tokens)[:, None] * frequencies[None, :]
    return torch.cat((half, half), dim=1)
