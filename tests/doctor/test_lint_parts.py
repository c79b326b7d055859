"""Parts of rules by themselves: what they compute of numbers, and which of several places they
speak of.
"""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from doctor.rules import WIRING
from doctor.test_lint_numbers import check, seen
from doctor.wired import WIDTH, Block, Model, Stack, patient, post, pre
from normscope.doctor.lint.checks.placements import _other_shapes
from normscope.doctor.lint.checks.sums import _cut
from normscope.doctor.lint.checks.training import _correlation
from normscope.doctor.lint.checks.unused import _beside_what_rests
from normscope.doctor.lint.checks.wiring import _one_kind_bare
from normscope.doctor.measured import OutputMatrix, Table
from normscope.placement import StackShape

ENTRIES = st.lists(st.floats(-100, 100), min_size=5, max_size=5).filter(
    lambda entries: np.std(entries) > 1e-3
)


@given(some=ENTRIES, others=ENTRIES)
def test_a_correlation_is_numpy_s_and_sees_neither_means_nor_sizes(some, others):
    a, b = (torch.tensor(entries, dtype=torch.float64) for entries in (some, others))
    expected = float(np.corrcoef(some, others)[0, 1])
    for other, sign in ((b, 1), (3 * b + 50, 1), (7 - b, -1)):
        assert sign * _correlation(a, other) == pytest.approx(expected, abs=1e-6)
    assert _correlation(a, torch.ones(5)) == 0.0


@pytest.mark.parametrize(
    "shape",
    [
        StackShape(kind="encoder", width=8, heads=2, encoder_blocks=4),
        StackShape(kind="decoder", width=8, heads=2, decoder_blocks=3),
        StackShape(kind="decoder", width=8, heads=2, encoder_blocks=3, decoder_blocks=3),
    ],
)
def test_other_shapes_are_what_is_said_of_them_and_begin_with_the_own_depth_and_kind(shape):
    found = list(_other_shapes(shape))
    assert len({text for text, _ in found if "single" not in text}) * 2 == len(found)
    for text, other in found:
        if single := re.fullmatch(r"a single stack of (\d+) blocks", text):
            assert (other.model, other.blocks) == (f"{other.kind}-only", int(single[1]))
        else:
            side, blocks, same = re.fullmatch(
                r"the (\w+) of an encoder-decoder of (\d+) \+ (\d+) blocks", text
            ).groups()
            assert (other.model, other.kind) == ("encoder-decoder", side)
            assert {other.encoder_blocks, other.decoder_blocks} == {int(blocks), int(same)}
    assert {other.blocks for _, other in found[:4]} == {shape.blocks}
    assert found[0][1].model == shape.model


@pytest.mark.parametrize(
    ("blocks", "odd", "ffn_width", "severity"),
    [
        (8, (3, 4), 32, "warning"),
        (8, (3, 4), 48, "info"),
        (8, (1, 2, 3), 32, "info"),
        (8, (7, 8), 32, "info"),
        (8, (2, 5, 8), 32, "info"),
    ],
    ids=[
        "in the middle",
        "with other matrices",
        "at the beginning",
        "at the end",
        "every so often",
    ],
)
def test_blocks_that_differ_are_a_slip_where_no_design_has_them(blocks, odd, ffn_width, severity):
    torch.manual_seed(0)
    made = [Block((post, post) if number in odd else (pre, pre)) for number in range(1, blocks + 1)]
    for number in odd:
        made[number - 1].f[1] = nn.Sequential(
            nn.Linear(WIDTH, ffn_width), nn.ReLU(), nn.Linear(ffn_width, WIDTH)
        )
    (finding,) = WIRING["mixed-placements"].check(
        patient(Model(lambda: Stack(blocks=made, final=1)))
    )
    assert finding.severity == severity
    assert "wired differently" in finding.message


@pytest.mark.parametrize(
    ("before", "cut_by", "after", "found"),
    [
        # Whole blocks on both sides: what lies between may be meant.
        ("feed_forward", "attention", "attention", False),
        ("feed_forward", "feed_forward", "attention", False),
        # The one before lacks its feed-forward, or the one after its attention.
        ("attention", "feed_forward", "attention", True),
        ("feed_forward", "attention", "feed_forward", True),
        ("attention", "attention", "attention", True),
        ("attention", "convolution", "attention", False),
    ],
)
def test_a_stream_is_cut_where_a_sum_of_a_block_is_missing(before, cut_by, after, found):
    def stack(kind: str, **more: object) -> SimpleNamespace:
        return SimpleNamespace(sublayers=[SimpleNamespace(block=1, kind=kind, name=kind)], **more)

    stacks = [stack(before, continues=None, cut_by=None), stack(after, continues=0, cut_by=cut_by)]
    assert len(list(_cut(SimpleNamespace(stacks=stacks)))) == found


@pytest.mark.parametrize(
    ("unread", "rests"), [(["layers.1"], False), (["layers.0", "layers.1"], True), ([], False)]
)
def test_a_norm_rests_with_a_module_none_of_whose_matrices_is_read(unread, rests):
    tower = nn.ModuleDict(
        {"layers": nn.ModuleList(nn.Linear(4, 4) for _ in range(2)), "norm": nn.LayerNorm(4)}
    )
    model = nn.ModuleDict({"tower": tower})
    unused = {f"tower.{path}.weight" for path in unread}
    assert _beside_what_rests(SimpleNamespace(model=model), "tower.norm", unused) is rests


@pytest.mark.parametrize(
    ("tied", "changes", "severity"),
    [
        (True, {}, "info"),
        (False, {}, "warning"),
        (True, {"size": 1.0}, "warning"),
        (True, {"reads_size": 4.0}, "warning"),
    ],
)
def test_a_tied_table_that_answers_itself_is_a_note(tied, changes, severity):
    """Small logits but for each token's own, as its row reads what it wrote."""
    head = OutputMatrix(
        **{
            "name": "projection.weight",
            "size": 0.25,
            "inputs": 16,
            "outputs": 1000,
            "reads_size": 1.0,
            **changes,
        }
    )
    of = seen(loss_nats=12.0, logit_deviation=1.5)
    name = head.name if tied else "embedding.weight"
    table = Table(
        name=name, size=0.02, width=16, factor=1.0, rows_size=0.02, by_place=False, joined_at=-1
    )
    (finding,) = check(
        "loss-far-from-chance",
        replace(of, observed=replace(of.observed, output_matrices=(head,), tables=(table,))),
    )
    assert finding.severity == severity
    assert ("each token's own row answers it" in finding.message) == (severity == "info")


def bare(x, f, norm):
    return x + f(x)


@pytest.mark.parametrize(
    ("joins", "found"),
    [
        ((bare, pre), "attention"),
        # HybridNorm has such a feed-forward too, and no such attention beside it.
        ((pre, bare), "feed-forward"),
        ((pre, pre), ""),
        ((bare, bare), ""),
        # Of two attentions of a block, one or both: that is no rule for a kind, nor a block of one.
        ((bare, pre, pre), ""),
        ((bare, bare, pre), ""),
        # What others read is no norm of the stream.
        ((bare, post), ""),
    ],
)
def test_one_kind_reads_the_stream_as_it_is_in_all_blocks_and_all_others_a_norm_of_it(joins, found):
    (stack,) = patient(Model(lambda: Stack(*joins, final=1))).stacks
    assert [fault.message.partition(" reads")[0] for fault in _one_kind_bare(stack)] == [
        found
    ] * bool(found)


def test_the_sums_of_one_kind_are_not_normed_and_those_of_all_others_are():
    (stack,) = patient(Model(lambda: Stack(post, bare))).stacks
    (fault,) = _one_kind_bare(stack)
    assert fault.message.startswith("the sum of feed-forward is not normalised in 4 of 4 blocks")
    # With a norm at the stack's end the last one's is.
    (stack,) = patient(Model(lambda: Stack(post, bare, final=1))).stacks
    (fault,) = _one_kind_bare(stack)
    assert fault.message.startswith("the sum of feed-forward is not normalised in 3 of 4 blocks")
    (stack,) = patient(Model(lambda: Stack(post, post))).stacks
    assert list(_one_kind_bare(stack)) == []
