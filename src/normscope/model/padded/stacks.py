"""An encoder, a decoder and a whole Transformer under any placement, on ordinary (batch, time,
width) tensors.
"""

# B = sentences, T = longest sentence, S = longest source sentence, D = width
from dataclasses import replace
from typing import Unpack

from torch import Tensor

from ...placement import StackShape
from ...settings.validation import checked
from .modules import Placed, PlacementName, StackOptions, cells, made_stack, run_stack


class Encoder(Placed):
    """A stack of self-attention and feed-forward blocks under a placement, with the weights that
    the placement starts from.

    Vectors come in and vectors go out: embedding, positions and output projection are the caller's,
    and the input is used at the scale at which it comes. One seed draws the same weights, whatever
    the dropout or the norm.

    The stack:
        placement: a name, or a class of your own.
        width: of the stream.
        blocks: how many there are.
        heads: of the attention.
        ffn_width: the inner width of the feed-forward; 4 · width where it is not given.

    What a sub-layer is made of:
        activation: relu, gelu, gelu-tanh, swiglu, geglu or geglu-tanh.
        biases: which matrices have one: all, query-key-value or none.
        attention: heads of keys and values, norms, caps and windows.
        position_encoding: what attention itself tells positions by: none, rotary or alibi; others
            are added to the input by whoever gives it.

    Its norms and weights:
        norm: as-placement (LayerNorm, unless the norm is the placement's very idea), layer-norm,
            rms-norm, scale-norm, sphere-norm, dyt or derf.
        norm_epsilon: as-placement, or a number between 0 and 1.
        initialisation: as-placement (the scheme of the placement's source), or one of
            `normscope.model.SCHEMES`.

    How it trains:
        dropout: on the input and on what every sub-layer gives; 0 by default.
        attention_dropout: on the weights of the attention.
        activation_dropout: on what stands between the matrices of the feed-forward.
        activation_checkpointing: compute every block again in the backward pass instead of keeping
            its activations.

    Raises ValueError for an unknown placement, one that is not defined for an encoder, or sizes
    that do not fit.
    """

    @checked
    def __init__(
        self,
        placement: PlacementName,
        *,
        width: int,
        blocks: int,
        heads: int,
        ffn_width: int | None = None,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__()
        self.width, sizes = (
            width,
            StackShape(kind="encoder", width=width, heads=heads, encoder_blocks=blocks),
        )
        self.stack = made_stack(placement, sizes, ffn_width, **options)
        self.watch()

    def forward(
        self, x: Tensor, *, padding_mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """(B, T, D) -> (B, T, D).

        What is looked at:
            x: (B, T, D).
            padding_mask: (B, T), True where there is no token (torch's key_padding_mask), at the
                end of a sequence, at its beginning or between; nothing there is looked at, and the
                result is 0 there.
            causal: each position sees those up to itself.

        Raises ValueError for other shapes, RuntimeError where `profile` or `attach` has to come
        first.
        """
        self.check()
        into = cells("x", x, padding_mask, self.width, packed=self.profiling)
        return run_stack(self.stack, into, causal=causal)


class Decoder(Placed):
    """A causal stack under a placement: decoder-only, or with cross-attention to an encoder of
    `encoder_blocks` blocks.

    The depth of the encoder is asked for because placements such as DeepNorm weigh a decoder by it.

    The stack:
        placement, width, blocks, heads, ffn_width: as an `Encoder`'s.
        encoder_blocks: blocks of the encoder that it attends to; 0 for decoder-only.
        options: all further keywords, as an `Encoder`'s.
    """

    @checked
    def __init__(
        self,
        placement: PlacementName,
        *,
        width: int,
        blocks: int,
        heads: int,
        ffn_width: int | None = None,
        encoder_blocks: int = 0,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__()
        blocks_of = {"encoder_blocks": encoder_blocks, "decoder_blocks": blocks}
        self.width, sizes = width, StackShape(kind="decoder", width=width, heads=heads, **blocks_of)
        self.stack = made_stack(placement, sizes, ffn_width, **options)
        self.watch()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T, D), and the encoder's output (B, S, D) where there is cross-attention -> (B, T,
        D).

        Each position sees those up to itself and the whole memory. Masks are True at padding, (B,
        T) and (B, S). Raises as `Encoder.forward` does.
        """
        self.check()
        into = cells("x", x, padding_mask, self.width, packed=self.profiling)
        if memory is None:
            return run_stack(self.stack, into, causal=True)
        read = cells("memory", memory, memory_padding_mask, self.width, packed=self.profiling)
        return run_stack(self.stack, into, causal=True, memory=read)


class Transformer(Placed):
    """An encoder and a decoder that attends to it, both under one placement.

    The stacks:
        placement, width, heads, ffn_width: as an `Encoder`'s.
        encoder_blocks: blocks of the encoder.
        decoder_blocks: blocks of the decoder.
        options: all further keywords, as an `Encoder`'s.
    """

    @checked
    def __init__(
        self,
        placement: PlacementName,
        *,
        width: int,
        encoder_blocks: int,
        decoder_blocks: int,
        heads: int,
        ffn_width: int | None = None,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__()
        blocks_of = {"encoder_blocks": encoder_blocks, "decoder_blocks": decoder_blocks}
        self.width, sizes = width, StackShape(kind="encoder", width=width, heads=heads, **blocks_of)
        self.encoder = made_stack(placement, sizes, ffn_width, **options)
        self.decoder = made_stack(placement, replace(sizes, kind="decoder"), ffn_width, **options)
        self.watch()

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, S, D) and (B, T, D) -> the decoder's output (B, T, D).

        Each target position sees those up to itself and the whole source. Masks are True at
        padding, (B, S) and (B, T). Raises as `Encoder.forward` does.
        """
        self.check()
        source_cells = cells(
            "source", source, source_padding_mask, self.width, packed=self.profiling
        )
        target_cells = cells(
            "target", target, target_padding_mask, self.width, packed=self.profiling
        )
        encoded = run_stack(self.encoder, source_cells, causal=False)
        memory = cells("source", encoded, source_padding_mask, self.width, packed=self.profiling)
        return run_stack(self.decoder, target_cells, causal=True, memory=memory)
