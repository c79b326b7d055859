"""The sum of tables, by its formula."""

import pytest
import torch
from torch import nn

from normscope.model.embedding import TextEmbedding
from normscope.placement import StackShape, named

SHAPE = StackShape(kind="encoder", width=8, ffn_width=8, heads=2, encoder_blocks=1)


def table(*, segments: int = 0, norm: nn.Module | None = None) -> TextEmbedding:
    made = TextEmbedding(
        11, 8, named("post-ln")(SHAPE), positions=5, segments=segments, norm=norm
    ).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.tables():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


TOKENS, POSITIONS, SEGMENTS = (
    torch.tensor([3, 3, 10]),
    torch.tensor([0, 4, 1]),
    torch.tensor([0, 1, 1]),
)


def test_rows_of_tokens_positions_and_segments_add_up_before_the_norm() -> None:
    made = table(segments=2, norm=nn.LayerNorm(8))
    rows = torch.stack(
        [
            made.weight[t] + made.positions[p] + made.segments[s]
            for t, p, s in zip(TOKENS, POSITIONS, SEGMENTS, strict=True)
        ]
    )
    wanted = (rows - rows.mean(-1, keepdim=True)) / (
        rows.var(-1, unbiased=False, keepdim=True) + 1e-5
    ).sqrt()
    torch.testing.assert_close(made(TOKENS, POSITIONS, SEGMENTS), wanted, rtol=1e-12, atol=1e-12)


def test_segments_left_out_are_the_first() -> None:
    made = table(segments=2)
    torch.testing.assert_close(
        made(TOKENS, POSITIONS), made(TOKENS, POSITIONS, torch.zeros(3, dtype=torch.int64))
    )
    assert not torch.equal(made(TOKENS, POSITIONS), made(TOKENS, POSITIONS, SEGMENTS))


def test_without_segments_there_is_no_such_table_and_no_norm() -> None:
    made = table()
    assert made.segments is None
    assert [tuple(t.shape) for t in made.tables()] == [(11, 8), (5, 8)]
    torch.testing.assert_close(
        made(TOKENS, POSITIONS), made.weight[TOKENS] + made.positions[POSITIONS]
    )


def test_a_position_beyond_the_table_is_no_silent_row() -> None:
    with pytest.raises(IndexError):
        table()(TOKENS, torch.tensor([0, 1, 5]))
