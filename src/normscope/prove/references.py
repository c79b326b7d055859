"""Models of ours that are known to learn, which a user's model is held against.

One stack, or an encoder and a decoder, of the same placement, width, depth and heads, between a
table or a projection and a plain head.
"""

# B = sequences, T = tokens, P = patches or steps, D = width, C = classes, F = features

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..doctor.record import Stack as ReadStack
from ..model.context import Context
from ..model.layout import Layout
from ..model.stack import Stack, StackConfig
from ..placement import StackShape, SublayerKind, named

_TWINNED = frozenset({"attention", "cross_attention", "feed_forward"})
_HIDDEN_TIMES = 4
_USUAL = "pre-ln"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSize:
    """The size of a reference."""

    placement: str
    width: int
    heads: int
    encoder_blocks: int = 0
    decoder_blocks: int = 0

    @property
    def words(self) -> str:
        """Returns the model in words, for a sentence."""
        blocks = self.encoder_blocks or self.decoder_blocks
        depth = f"{blocks} block" if blocks == 1 else f"{blocks} blocks"
        if self.encoder_blocks and self.decoder_blocks:
            depth = f"{self.encoder_blocks} + {self.decoder_blocks} blocks"
        return f"{self.placement}, {depth}, width {self.width}"

    def shape(self, kind: Literal["encoder", "decoder"]) -> StackShape:
        return StackShape(
            kind=kind,
            width=self.width,
            ffn_width=_HIDDEN_TIMES * self.width,
            heads=self.heads,
            encoder_blocks=self.encoder_blocks,
            decoder_blocks=self.decoder_blocks,
        )


def reference_size(stacks: Sequence[ReadStack], *, causal: bool) -> ReferenceSize | None:
    """Returns the size of a twin of what the doctor has found; None where our models have no
    sub-layers of its kinds.
    """
    kinds = {one.kind for stack in stacks for one in stack.sublayers}
    if not stacks or not kinds <= _TWINNED or "attention" not in kinds:
        return None
    main = stacks[-1]
    width = main.width + main.width % 2
    placement = main.placement or main.scaled_placement or _USUAL
    crosses = any(one.kind == "cross_attention" for one in main.sublayers)
    encoder = sum(one.blocks for one in stacks[:-1]) if crosses else 0
    blocks = main.blocks if crosses else sum(one.blocks for one in stacks)
    heads = _heads(stacks, width)
    if crosses or causal:
        return ReferenceSize(
            placement=placement,
            width=width,
            heads=heads,
            encoder_blocks=encoder,
            decoder_blocks=blocks,
        )
    return ReferenceSize(placement=placement, width=width, heads=heads, encoder_blocks=blocks)


def _heads(stacks: Sequence[ReadStack], width: int) -> int:
    """Returns as many heads as the model has, where they go with the width; else one."""
    seen = [one.measured.attention for stack in stacks for one in stack.sublayers]
    widths = [one.head_width for one in seen if one is not None and one.head_width > 0]
    heads = max(1, round(width / widths[0])) if widths else 4
    return heads if width % heads == 0 else 1


def usual(size: ReferenceSize) -> ReferenceSize:
    """Returns the same size under Pre-LN, which learns without warm-up at any depth here."""
    return ReferenceSize(
        placement=_USUAL,
        width=size.width,
        heads=size.heads,
        encoder_blocks=size.encoder_blocks,
        decoder_blocks=size.decoder_blocks,
    )


class _Reader(nn.Module):
    """Tokens or vectors into a stream, with a trained position for each place."""

    def __init__(
        self,
        size: ReferenceSize,
        places: int,
        *,
        vocabulary: int = 0,
        features: int = 0,
        deviation: float,
    ) -> None:
        super().__init__()
        self.table: nn.Module = (
            nn.Embedding(vocabulary, size.width) if vocabulary else nn.Linear(features, size.width)
        )
        self.places = nn.Parameter(torch.empty(places, size.width))
        if vocabulary:
            nn.init.normal_(self.table.weight, std=deviation)
        nn.init.normal_(self.places, std=deviation)

    def forward(self, given: Tensor) -> Tensor:
        """Maps (B, T) or (B, T, F) to (B, T, D)."""
        read: Tensor = self.table(given) + self.places[: given.shape[1]]
        return read


_OF_TOKENS = 0.1
"""Deviation of a table's entries, and of places: smaller ones leave the start of a short training
unused."""
_OF_SOURCES = 0.3
_OF_VECTORS = 1.0


def _packed(x_BTD: Tensor) -> tuple[Tensor, Layout]:
    sentences, tokens = x_BTD.shape[:2]
    layout = Layout(torch.full((sentences,), tokens), x_BTD.device)
    return x_BTD.flatten(0, 1), layout


class OneStackReference(nn.Module):
    """A decoder that predicts tokens, or an encoder that fills in tokens or labels a sequence."""

    def __init__(
        self,
        size: ReferenceSize,
        *,
        places: int,
        classes: int,
        vocabulary: int = 0,
        features: int = 0,
        labels_whole: bool = False,
    ) -> None:
        super().__init__()
        self.causal = bool(size.decoder_blocks)
        self.labels_whole = labels_whole
        deviation = _OF_TOKENS if vocabulary else _OF_VECTORS
        self.reader = _Reader(
            size, places, vocabulary=vocabulary, features=features, deviation=deviation
        )
        shape = size.shape("decoder" if self.causal else "encoder")
        kinds: tuple[SublayerKind, ...] = ("attention", "feed_forward")
        self.stack = Stack(named(size.placement)(shape), StackConfig(), kinds)
        self.head = nn.Linear(size.width, classes)
        nn.init.normal_(self.head.weight, std=1 / math.sqrt(size.width))

    def forward(self, given: Tensor) -> Tensor:
        """Maps (B, T) tokens or (B, T, F) vectors to (B, T, C) scores, or (B, C) of the whole."""
        x_BTD = self.reader(given)
        x_ND, layout = _packed(x_BTD)
        y_ND = self.stack(x_ND, Context(layout=layout, causal=self.causal))
        y_BTD = y_ND.view_as(x_BTD)
        if self.labels_whole:
            y_BTD = y_BTD.mean(1)
        scores: Tensor = self.head(y_BTD)
        return scores


class TwoStackReference(nn.Module):
    """An encoder and a decoder that reads it."""

    def __init__(self, size: ReferenceSize, *, places: int, classes: int, vocabulary: int) -> None:
        super().__init__()
        self.source = _Reader(size, places, vocabulary=vocabulary, deviation=_OF_SOURCES)
        self.target = _Reader(size, places, vocabulary=vocabulary, deviation=_OF_SOURCES)
        kinds = named(size.placement)
        self.encoder = Stack(kinds(size.shape("encoder")), StackConfig())
        self.decoder = Stack(kinds(size.shape("decoder")), StackConfig())
        self.head = nn.Linear(size.width, classes)
        nn.init.normal_(self.head.weight, std=1 / math.sqrt(size.width))

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Maps tokens of both to (B, T, C)."""
        memory_MD, memory_layout = _packed(self.source(source_BS))
        memory_MD = self.encoder(memory_MD, Context(layout=memory_layout))
        x_BTD = self.target(target_BT)
        x_ND, layout = _packed(x_BTD)
        context = Context(
            layout=layout, causal=True, memory_MD=memory_MD, memory_layout=memory_layout
        )
        scores: Tensor = self.head(self.decoder(x_ND, context).view_as(x_BTD))
        return scores
