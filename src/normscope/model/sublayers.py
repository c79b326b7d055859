"""The sub-layers F: multi-head attention over packed tokens, and the position-wise feed-forward."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ..placement import AfterPositions, Site
from .context import Context, Inside, SublayerModule, as_factor
from .layout import AttentionConfig, Layout, PaddedLayout, PositionEncoding
from .linear import Dropout, Linear
from .placed import Grouped
from .scores import Rotary, attend, attend_few, changed_scores, slopes

# N = packed tokens of queries, M = packed tokens of keys, D = width, B = sentences, H = heads,
# T / S = longest query / key sentence, K = width per head


_Project = Callable[[str, Tensor], Tensor]


class Attention(SublayerModule):
    """softmax(Q Kᵀ / √K) V over H heads, then the output projection (Vaswani et al. 2017, section
    3.2).

    Positions and windows are of self-attention alone: the tokens of a memory have no distance to
    those that read it.
    make_norm: makes a norm of a width, for queries and for keys, where the configuration asks for
    them. Raises ValueError for heads that do not go with the width.
    """

    def __init__(
        self,
        site: Site,
        config: AttentionConfig | None = None,
        *,
        dropout: float = 0.0,
        position_encoding: PositionEncoding = "none",
        biases: tuple[str, ...] = ("query", "key", "value", "output"),
        make_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        config, shape = config or AttentionConfig(), site.stack
        if shape.query_width % shape.heads:
            raise ValueError(f"width={shape.width} must be a multiple of heads={shape.heads}")
        self.cross = site.kind == "cross_attention"
        self.heads = shape.heads
        self.key_value_heads = shape.heads_of_keys
        self.dropout = dropout
        sizes = {
            "query": (shape.width, shape.query_width),
            "key": (shape.width, shape.key_value_width),
            "value": (shape.width, shape.key_value_width),
            "output": (shape.query_width, shape.width),
        }
        layers = {name: Linear(*size, bias=name in biases) for name, size in sizes.items()}
        self.query, self.key, self.value, self.output = layers.values()
        self.query_norm: Grouped | None = None
        self.key_norm: Grouped | None = None
        if config.query_key_norm != "none" and make_norm is not None:
            by_head = config.query_key_norm == "per-head"
            widths = (
                (shape.width_of_head,) * 2
                if by_head
                else (shape.query_width, shape.key_value_width)
            )
            self.query_norm, self.key_norm = (Grouped(make_norm(width), width) for width in widths)
        self.soft_cap = None if config.soft_cap == "none" else config.soft_cap
        self.window = None if self.cross else config.window(site.block)
        rotates = position_encoding == "rotary" and not self.cross
        self.rotary = (
            Rotary(shape.width_of_head, config.rotary_base, config.rotary_share)
            if rotates
            else None
        )
        falls = position_encoding == "alibi" and not self.cross
        self.register_buffer("slopes_H", slopes(self.heads) if falls else None, persistent=False)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (
            ("query", self.query),
            ("key", self.key),
            ("value", self.value),
            ("output", self.output),
        )

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        apply = self._applier(inside)
        x_ND = as_factor(x_ND)
        cache = context.cache
        query = context.layout.to_heads(apply("query", self.query(x_ND)), self.heads)
        keep, causal = None, False
        if self.cross:
            assert context.memory_layout is not None, "cross-attention needs a memory"
            key, value = self._memory(context, apply, inside)
            keep = context.memory_layout.keep_B11T
        else:
            key = context.layout.to_heads(apply("key", self.key(x_ND)), self.key_value_heads)
            value = context.layout.to_heads(apply("value", self.value(x_ND)), self.key_value_heads)
            if self.rotary is not None:
                first, length = (
                    (0, context.layout.longest) if cache is None else (cache.steps - 1, 1)
                )
                query, key = self.rotary(query, first, length), self.rotary(key, first, length)
            key = _after_positions("key", key, context.layout, inside)
            if cache is not None:
                key, value = cache.extend(self, key, value)
            keep, causal = self._visible(context)
            keep = keep if keep is None else keep[..., : key.shape[2]]
        query = _after_positions("query", query, context.layout, inside)
        mixed = self._attended(query, key, value, keep, causal, cached=cache is not None)
        return self.output(apply("output", context.layout.from_heads(mixed)))  # type: ignore[no-any-return]

    def _applier(self, inside: Inside) -> _Project:
        """Returns the function that applies the formula's norm at a place, or else the norm of the
        configuration.
        """

        def apply(place: str, x: Tensor) -> Tensor:
            if place in inside:
                later = isinstance(inside[place], AfterPositions)
                return x if later else inside[place](x)
            norm = {"query": self.query_norm, "key": self.key_norm}.get(place)
            return x if norm is None else norm(x, x.shape[-1] // norm.width)

        return apply

    def _memory(self, context: Context, apply: _Project, inside: Inside) -> tuple[Tensor, Tensor]:
        if context.cache is not None and self in context.cache.memory:
            return context.cache.memory[self]
        memory, layout = context.memory_MD, context.memory_layout
        assert memory is not None, "cross-attention needs a memory"
        assert layout is not None
        key = layout.to_heads(apply("key", self.key(memory)), self.key_value_heads)
        key = _after_positions("key", key, layout, inside)
        value = layout.to_heads(apply("value", self.value(memory)), self.key_value_heads)
        if context.cache is not None:
            context.cache.memory[self] = key, value
        return key, value

    def _visible(self, context: Context) -> tuple[Tensor | None, bool]:
        """Returns the mask of keys, or the numbers added to scores, and whether later keys are
        hidden beside that.
        """
        cache, layout = context.cache, context.layout
        unchanged = self.window is None and self.slopes_H is None
        if cache is not None:
            if unchanged:
                return cache.keep_B1RS, False
            now = cache.position_BS.new_full((1, 1), cache.steps - 1)
            return self._changed(now, cache.position_BS, cache.keep_B1RS), False
        keep, causal = layout.visible(context.causal)
        # With a cap the scores are written out, which takes a mask.
        if unchanged and not (causal and self.soft_cap is not None):
            return keep, causal
        place_T = torch.arange(layout.longest, device=self.query.weight.device)
        if causal:
            seen = place_T[:, None] >= place_T
            keep = seen if keep is None else keep & seen
        elif keep is not None:
            # Padding far behind its sentence's end would see nothing, and its softmax not be
            # finite.
            keep = keep | (place_T[:, None] == place_T)
        return self._changed(place_T, place_T, keep), False

    def _changed(self, query_at: Tensor, key_at: Tensor, keep: Tensor | None) -> Tensor | None:
        return changed_scores(query_at, key_at, keep, window=self.window, slopes_H=self.slopes_H)

    def _attended(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keep: Tensor | None,
        causal: bool,
        *,
        cached: bool,
    ) -> Tensor:
        if self.key_value_heads != self.heads:
            each = self.heads // self.key_value_heads
            key, value = key.repeat_interleave(each, 1), value.repeat_interleave(each, 1)
        dropout = self.dropout if self.training else 0.0
        if keep is not None and keep.dtype != torch.bool:
            keep = keep.to(query.dtype)
        if self.soft_cap is not None:
            return attend_few(query, key, value, keep, soft_cap=self.soft_cap, dropout=dropout)
        if cached and query.device.type == "cpu":
            return attend_few(query, key, value, keep)
        return attend(query, key, value, keep, causal, dropout)

    slopes_H: Tensor | None


def _after_positions(
    place: str, x: Tensor, layout: Layout | PaddedLayout, inside: Inside
) -> Tensor:
    """(B, H, T, K) queries or keys, with what the formula applies to them where positions have
    turned them; padding is left out of it.
    """
    applied = inside.get(place)
    if not isinstance(applied, AfterPositions):
        return x
    heads = x.shape[1]
    return layout.to_heads(applied(layout.from_heads(x)), heads)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": nn.functional.gelu,
    "gelu-tanh": partial(nn.functional.gelu, approximate="tanh"),
}
"""relu: Vaswani et al. 2017; gelu: Hendrycks & Gimpel 2016, as BERT has it; gelu-tanh: its
approximation, as GPT-2 has it. What is given to one may be overwritten."""


GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": nn.functional.silu,
    "geglu": nn.functional.gelu,
    "geglu-tanh": partial(nn.functional.gelu, approximate="tanh"),
}
"""The curve of the gate (Shazeer 2020, section 2); Llama and most decoders since have swiglu, Gemma
geglu-tanh.
"""


class FeedForward(SublayerModule):
    """φ(x W1 + b1) W2 + b2 on packed tokens (N, D); with φ = ReLU, Vaswani et al. 2017, eq. 2."""

    def __init__(
        self,
        width: int,
        ffn_width: int,
        dropout: float,
        activation: str = "relu",
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.ffn_in, self.ffn_out = (
            Linear(width, ffn_width, bias=bias),
            Linear(ffn_width, width, bias=bias),
        )
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses."""
        yield from (("ffn_in", self.ffn_in), ("ffn_out", self.ffn_out))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        hidden = self.ffn_in(x_ND)
        if "hidden" in inside:
            hidden = inside["hidden"](hidden)
        hidden = self.dropout(self.activation(hidden))
        if "output" in inside:
            hidden = inside["output"](hidden)
        return self.ffn_out(hidden)  # type: ignore[no-any-return]


class _GatedFeedForward(SublayerModule):
    """(φ(x Wg + bg) ⊙ (x W1 + b1)) W2 + b2 on packed tokens (N, D): Shazeer 2020, arXiv:2002.05202,
    with biases.

    Of `ffn_width` it has three matrices where `FeedForward` has two: equal parameters take two
    thirds of it. A formula's `hidden` is applied to x W1 + b1, as nGPT scales it, and its `output`
    to the product.
    """

    def __init__(
        self, width: int, ffn_width: int, dropout: float, activation: str, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = GATED[activation]
        self.ffn_gate = Linear(width, ffn_width, bias=bias)
        self.ffn_in = Linear(width, ffn_width, bias=bias)
        self.ffn_out = Linear(ffn_width, width, bias=bias)
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[tuple[str, Linear]]:
        """Weight matrices by the names that initialisation uses: gate and input are drawn alike."""
        yield from (("ffn_in", self.ffn_gate), ("ffn_in", self.ffn_in), ("ffn_out", self.ffn_out))

    def forward(self, x_ND: Tensor, context: Context, inside: Inside) -> Tensor:
        x_ND = as_factor(x_ND)
        gate, hidden = self.activation(self.ffn_gate(x_ND)), self.ffn_in(x_ND)
        if "hidden" in inside:
            hidden = inside["hidden"](hidden)
        hidden = self.dropout(gate * hidden)
        if "output" in inside:
            hidden = inside["output"](hidden)
        return self.ffn_out(hidden)  # type: ignore[no-any-return]


def feed_forward(
    width: int, ffn_width: int, dropout: float, activation: str, *, bias: bool = True
) -> SublayerModule:
    """Returns the sub-layer of an activation, gated or not. Raises KeyError for an unknown one."""
    kind = _GatedFeedForward if activation in GATED else FeedForward
    return kind(width, ffn_width, dropout, activation, bias=bias)
