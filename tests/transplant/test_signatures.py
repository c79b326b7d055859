"""Which argument of a block the residual stream is, where several have its shape."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normscope
from transplant.hand_written import GPT, WIDTH, Block, ids, perturb
from transplant.test_refused import refused


class Second(Block):
    """Takes positions before the stream, which its attention reads."""

    def forward(self, positions: Tensor, x: Tensor) -> Any:
        x = x + self.attn(self.ln_1(x) + positions)
        return x + self.mlp(self.ln_2(x))


class Through(Second):
    """Hands the positions on, before the stream."""

    def forward(self, positions: Tensor, x: Tensor) -> Any:
        return positions, super().forward(positions, x)


class Scores(Second):
    """Returns something of another shape before the stream, and takes all by keyword."""

    def forward(self, *, positions: Tensor, x: Tensor) -> Any:
        return x.mean(-1), super().forward(positions, x)


class Embedded(Second):
    """Takes after the stream what entered the first block, where both are one tensor."""

    def forward(self, x: Tensor, embedded: Tensor) -> Any:
        return super().forward(embedded, x)


class Model(GPT):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__(block, blocks=2)
        self.positions = nn.Parameter(0.1 * torch.randn(2, 9, WIDTH))

    def entering(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.table(ids)
        return x, x if isinstance(self.blocks[0], Embedded) else self.positions

    def forward(self, ids: Tensor) -> Tensor:
        x, beside = self.entering(ids)
        for block in self.blocks:
            match block:
                case Scores():
                    x = block(positions=beside, x=x)[1]
                case Through():
                    beside, x = block(beside, x)
                case Embedded():
                    x = block(x, beside)
                case _:
                    x = block(beside, x)
        return self.head(self.final(x))


def expected(model: Model, placement: str) -> Tensor:
    """By the plain GPT under the same placement, with the positions added to what its attention
    reads.
    """
    x, beside = model.entering(ids())
    twin = normscope.transplant(GPT(blocks=2), placement, inputs=ids())
    twin.table, twin.head, twin.final = nn.Identity(), model.head, model.final
    for ours, theirs in zip(model.blocks, twin.blocks, strict=True):
        theirs.load_state_dict(ours.state_dict())
        theirs.attn.register_forward_pre_hook(lambda _, args: (args[0] + beside,))
    outputs: Tensor = twin(x)
    return outputs


@pytest.mark.parametrize(
    ("style", "placement"), [(Second, "mhc"), (Through, "post-ln"), (Scores, "peri-ln")]
)
def test_the_stream_is_what_goes_from_block_to_block(
    style: type[nn.Module], placement: str
) -> None:
    torch.manual_seed(0)
    model = perturb(normscope.transplant(Model(style), placement, inputs=ids()))
    seats = {block.wiring.seat for block in model.blocks}
    assert [seat.name for seat in seats] == ["x"]
    assert torch.equal(model(ids()), expected(model, placement))


def test_what_entered_the_first_block_is_not_read_later() -> None:
    assert "with skips over sub-layers" in refused(Model(Embedded), "peri-ln")


def test_what_an_encoder_hands_to_its_decoder_is_not_the_decoders_stream() -> None:
    """It comes straight from a block, and has the shape of the stream."""
    sizes = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes), 2, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 2)
    model = nn.Transformer(
        32, 4, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    ).eval()
    normscope.transplant(model, "pre-ln", inputs=(torch.randn(2, 7, 32), torch.randn(2, 7, 32)))
    assert {layer.wiring.seat.name for layer in decoder.layers} == {"tgt"}
