"""Wirings against the figures of the papers, and what must hold for the wiring of every
placement.
"""

import pytest

from normscope.placement import Placement, StackShape, named, registered
from normscope.placement.reading import read
from normscope.placement.wiring import Box, Wire, Wiring, wirings

SHAPES = {
    "encoder-decoder's encoder": StackShape(
        kind="encoder", width=8, heads=2, encoder_blocks=3, decoder_blocks=3
    ),
    "encoder-decoder's decoder": StackShape(
        kind="decoder", width=8, heads=2, encoder_blocks=3, decoder_blocks=3
    ),
    "encoder": StackShape(kind="encoder", width=8, heads=2, encoder_blocks=8),
    "decoder": StackShape(kind="decoder", width=8, heads=2, decoder_blocks=8),
}


def drawn(placement: type[Placement], blocks: int = 6) -> dict[str, Wiring]:
    stack = StackShape(kind="encoder", width=8, ffn_width=16, heads=2, encoder_blocks=blocks)
    return {wiring.title: wiring for wiring in wirings(placement(stack))}


def written(wiring: Wiring) -> list[str]:
    """A line a node: its label and the numbers of what feeds it, "-3" for what is taken off."""
    lines = []
    for index, node in enumerate(wiring.boxes):
        feeds = [
            f"-{e.source}" if e.subtracted else f"{e.source}"
            for e in wiring.wires
            if e.target == index
        ]
        lines.append(" ".join([f"{index} {node.label}", *feeds]))
    return lines


def test_post_ln_has_its_norm_on_the_trunk():
    (wiring,) = drawn(named("post-ln")).values()
    assert written(wiring) == [
        "0 x",
        "1 attention 0",
        "2 + 0 1",
        "3 norm 2",
        "4 feed-forward 3",
        "5 + 3 4",
        "6 norm 5",
        "7 x 6",
    ]


def test_pre_ln_has_its_norm_inside_the_branch_and_one_at_the_end():
    found = drawn(named("pre-ln"))
    assert list(found) == ["every block", "output"]
    assert written(found["every block"])[:4] == ["0 x", "1 norm 0", "2 attention 1", "3 + 0 2"]
    assert written(found["output"]) == ["0 x", "1 norm 0", "2 y 1"]


def test_residual_computes_a_branch_once_for_both_of_its_streams():
    found = drawn(named("residual"))
    assert written(found["embedding"]) == ["0 x", "1 x 0", "2 r 0"]
    block = written(found["every block"])
    assert [line for line in block if "attention" in line] == ["2 attention 0"]
    assert {"3 + 0 2", "9 + 1 2", "10 + 9 5"} <= set(block)
    assert written(found["output"]) == ["0 x", "1 r", "2 norm 1", "3 + 0 2", "4 y 3"]


def test_b2t_carries_the_blocks_input_to_its_top():
    (wiring,) = drawn(named("b2t")).values()
    assert [edge.target for edge in wiring.wires if edge.source == 0] == [1, 2, 4]
    assert written(wiring)[4:] == ["4 + 0 3", "5 feed-forward 3", "6 + 4 5", "7 norm 6", "8 x 7"]


def test_attention_residuals_read_the_history_as_far_as_it_has_grown():
    found = drawn(named("attn-res"))
    assert written(found["every block"]) == [
        "0 v",
        "1 mix 0",
        "2 norm 1",
        "3 attention 2",
        "4 append 0 3",
        "5 mix 4",
        "6 norm 5",
        "7 feed-forward 6",
        "8 append 4 7",
        "9 v 8",
    ]
    assert found["every block"].boxes[1].details == ("query: query", "keys: norm_key(v)")
    assert list(found) == [
        "every block",
        "output",
    ]  # the embedding is v_0 as it is, and h is never read


def test_attention_residuals_in_groups_read_the_sum_so_far_beside_the_groups_before():
    stack = StackShape(kind="encoder", width=8, encoder_blocks=16)  # 4 sub-layers a group: 2 blocks
    first, second = [
        w for w in wirings(named("attn-res-block")(stack)) if w.title.startswith("blocks")
    ]
    assert first.title.startswith("blocks 1, 3, 5")
    assert "4 mix 0 3" in written(first)
    assert [node.label for node in second.boxes if node.kind == "append"] == ["replace the last"]


def test_ngpt_takes_the_stream_off_the_normed_branch():
    block = written(drawn(named("ngpt"))["every block"])
    assert block[1:6] == [
        "1 attention 0",
        "2 norm_branch 1",
        "3 - 2 -0",
        "4 × 0.05√d · step 3",
        "5 + 0 4",
    ]


def test_what_is_applied_inside_f_stands_in_its_box():
    attention, feed_forward = (
        n for n in drawn(named("hybrid-norm"))["every block"].boxes if n.kind == "sublayer"
    )
    assert attention.details == ("norm_query(query)", "norm_key(key)", "norm_value(value)")
    assert feed_forward.details == ()


@pytest.mark.parametrize(
    ("name", "blocks", "titles"),
    [
        ("hybrid-norm-star", 6, ["block 1", "blocks 2-6", "output"]),
        ("keel-pre-first", 3, ["block 1", "blocks 2-3"]),
        ("mix-ln", 8, ["blocks 1-2", "blocks 3-8", "output"]),
        ("mix-ln", 3, ["every block", "output"]),
        ("peri-ln", 2, ["embedding", "every block", "output"]),
        ("ds-init", 4, ["every block"]),
    ],
)
def test_every_kind_of_block_with_the_blocks_it_holds_for(name, blocks, titles):
    assert list(drawn(named(name), blocks)) == titles


class Odd(Placement):
    """Everything that no shipped placement does: numbers on every side, a product, a history that
    is thrown away.
    """

    name, title, citation, year = "odd", "Odd", "nobody", 2026
    streams = ("x", "old")

    def start(self, x, end):
        return x, (x, x * 2)

    def join(self, x, sublayer, norm):
        stream, (*_, last) = x
        share = sublayer.parameter("share", initial=0.5)
        return (1 - stream * sublayer(stream)) / (share + 1) + 3, (last / 2, last / 4)

    def finish(self, state, end):
        return state[0] - state[1][-1]


def test_numbers_stand_on_the_side_they_are_written():
    labels = [node.label for node in drawn(Odd)["every block"].boxes]
    assert [
        label for label in labels if label not in ("x", "old", "attention", "feed-forward")
    ] == [
        *("·", "1 -", "÷ (share + 1)", "+ 3") * 2,
        *("÷ 4", "÷ 2", "÷ 4", "append"),  # of attention, and what the feed-forward makes of it
    ]


DEFINED = [
    (name, shape)
    for name, p in registered().items()
    for shape, s in SHAPES.items()
    if s.model in p.models
]


@pytest.mark.parametrize(("name", "shape"), DEFINED)
def test_every_placement(name, shape):
    stack = SHAPES[shape]
    placement = named(name)(stack)
    found = wirings(placement)
    for wiring in found:
        assert all(edge.source < edge.target for edge in wiring.wires)
        fed = {edge.target for edge in wiring.wires}
        assert {i for i, node in enumerate(wiring.boxes) if node.kind != "input"} == fed
    blocks = [wiring for wiring in found if wiring.title not in ("embedding", "output")]
    for wiring in blocks:
        kinds = [node.label for node in wiring.boxes if node.kind == "sublayer"]
        assert kinds == [kind.replace("_", "-") for kind in stack.kinds]
    # Norms drawn, as boxes or as words inside a box, are those the formula applies.
    if any(" from norm" in str(wiring.boxes) for wiring in blocks):
        # What numbers of a token are read from is named once, whichever stream it is applied to.
        asked = {
            f"norm_{name}"
            for block in read(placement).blocks
            for s in block
            for name in s.norm.widths
        } - {"norm_main"}
        assert all(name in str(wiring.boxes) for wiring in blocks for name in asked)
        return
    applied = [sum(sublayer.norm.uses for sublayer in block) for block in read(placement).blocks]
    shown = [str(w.boxes).count("norm") - str(w.boxes).count("kind='norm'") for w in blocks]
    assert set(shown) == set(applied)


def test_what_is_handed_on_is_read_only_where_that_counts():
    """x is normed to x; r is an output as it comes; nothing has to do with h."""
    boxes = (
        *(Box("input", name) for name in "xrh"),
        Box("norm", "norm"),
        Box("output", "x"),
        Box("output", "r"),
    )
    wiring = Wiring("every block", boxes, (Wire(0, 3), Wire(3, 4), Wire(1, 5)))
    assert wiring.reads(handed_on=False) == {"x"}
    assert wiring.reads(handed_on=True) == {"x", "r"}


KINDS = {
    "mix": "mix",
    "weighted sum": "mix",
    "weighted sums": "mix",
    "append": "append",
    "replace the last": "append",
}
KINDS |= {
    "attention": "sublayer",
    "cross-attention": "sublayer",
    "feed-forward": "sublayer",
    "·": "product",
}
KINDS |= {"+": "sum", "-": "sum"}


@pytest.mark.parametrize("name", registered())
def test_a_box_has_the_kind_that_its_label_says(name):
    """The page draws each kind in its own way."""
    shape = next(shape for shape in SHAPES.values() if shape.model in named(name).models)
    check_kinds(box for wiring in wirings(named(name)(shape)) for box in wiring.boxes)


def test_so_has_a_box_that_no_placement_of_ours_has_and_a_sum_names_its_weights():
    boxes = [box for wiring in drawn(Odd).values() for box in wiring.boxes]
    assert "product" in {box.kind for box in boxes}
    check_kinds(boxes)
    static = drawn(named("hyper-connections-static"))["every block"].boxes
    assert all(
        box.details and all("beta" in text or "alpha" in text for text in box.details)
        for box in static
        if box.kind == "mix"
    )


def check_kinds(boxes):
    for box in boxes:
        if box.label in KINDS:
            assert box.kind == KINDS[box.label]
        elif box.kind not in ("input", "output"):
            assert box.kind == (
                "scale" if box.label[0] in "×÷+-" or box.label[-1] in "-÷" else "norm"
            )


def test_a_mixture_is_told_from_sums_by_its_kind():
    """Attention residuals mix; the page draws them as what they are."""
    kinds = {
        node.label: node.kind
        for wiring in drawn(named("attn-res")).values()
        for node in wiring.boxes
    }
    assert kinds["mix"] == "mix"
    assert "mix" not in {
        node.kind for wiring in drawn(named("pre-ln")).values() for node in wiring.boxes
    }
