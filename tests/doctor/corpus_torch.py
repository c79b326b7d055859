"""torch's own encoders, decoders and Transformer with random weights, and what each of their
sub-layers is.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from doctor.corpus import BLOCKS, DECODER, Case, post, pre

WIDTH, HEADS, FFN_WIDTH = 16, 2, 24


def encoder(*, norm_first: bool, final: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, FFN_WIDTH, batch_first=True, norm_first=norm_first
        )
        norm = nn.LayerNorm(WIDTH) if final else None
        return nn.TransformerEncoder(layer, BLOCKS, norm=norm, enable_nested_tensor=False)

    return build


def transformer(*, norm_first: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "enable_nested_tensor is True")
            return nn.Transformer(
                WIDTH, HEADS, BLOCKS, BLOCKS, FFN_WIDTH, norm_first=norm_first, batch_first=True
            )

    return build


def decoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerDecoder(
        nn.TransformerDecoderLayer(WIDTH, HEADS, FFN_WIDTH, batch_first=True), BLOCKS
    )


def hidden(*names: str) -> Callable[[], dict[str, Tensor]]:
    def inputs() -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1)
        return {
            name: torch.randn(2, 5 - n, WIDTH, generator=generator) for n, name in enumerate(names)
        }

    return inputs


TORCH: dict[str, Case] = {
    f"TransformerEncoder, {kind.__name__}{', norm' * final}": Case(
        build=encoder(norm_first=kind is pre, final=final),
        inputs=hidden("src"),
        stacks=(kind(final_norm=final),),
    )
    for kind in (pre, post)
    for final in (False, True)
}
TORCH |= {
    # After Post-LN its final norms are second ones, which torch keeps for backward compatibility.
    f"Transformer, {kind.__name__}": Case(
        build=transformer(norm_first=kind is pre),
        inputs=hidden("src", "tgt"),
        stacks=(kind(final_norm=True), kind(kinds=DECODER, final_norm=True)),
    )
    for kind in (pre, post)
}
TORCH["TransformerDecoder"] = Case(
    build=decoder, inputs=hidden("tgt", "memory"), stacks=(post(kinds=DECODER),)
)
