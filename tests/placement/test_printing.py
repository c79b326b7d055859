"""Formulas as they print: of every placement, and of the operators they are written with."""

from dataclasses import replace

import pytest

from normscope.placement import Placement, StackShape, named, registered
from normscope.placement.printing import DEFAULT_STACK, brief_lines, formula, lines
from normscope.placement.reading import read
from normscope.placement.symbol import Symbol
from placement.expected import expected

POST, PRE, PLAIN = "x ← norm(x + F(x))", "x ← x + F(norm(x))", "x ← x + F(x)"


class Own(Placement):
    name, title, citation, year = "own", "Own", "nobody", 2026


@pytest.mark.parametrize("name", registered())
def test_printed_from_itself(name):
    assert formula(named(name)) == expected(name).formula


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepnorm", "x ← norm(2.06 · x + F(x))"),
        ("admin-log-n", "x ← norm(2.335 · x + F(x))"),
        ("admin-constant", "x ← norm(4.243 · x + F(x))"),
        ("keel", "x ← norm_outer(18 · x + F(norm_inner(x)))"),
        (
            "b2t",
            "a = norm(x + attention(x)); b = norm(a + cross_attention(a)); x ← norm(x + b + "
            "feed_forward(b))",
        ),
        (
            "sub-ln",
            "attention: x ← x + F(norm(x), norm_inner(output)); cross_attention: x ← x + "
            "F(norm(x)); feed_forward: x ← x + F(norm(x), norm_inner(output)); y = norm(x)",
        ),
        ("sub-ln-cross", expected("sub-ln-cross").formula),
        ("post-ln", POST),
    ],
)
def test_in_a_decoder_that_attends_to_an_encoder(name, text):
    assert formula(named(name), replace(DEFAULT_STACK, kind="decoder")) == text


@pytest.mark.parametrize(
    ("name", "blocks", "text"),
    [
        ("deepnorm", 12, "x ← norm(2.213 · x + F(x))"),
        ("mix-ln", 3, f"{PRE}; y = norm(x)"),
        ("mix-ln", 12, f"blocks 1-3: {POST}; blocks 4-12: {PRE}; y = norm(x)"),
        ("attn-res-block", 4, expected("attn-res-block").formula),
        ("gated-multi-stream", 6, expected("gated-multi-stream").formula),
    ],
)
def test_as_deep_as_the_stack_is(name, blocks, text):
    assert formula(named(name), StackShape(kind="decoder", width=8, decoder_blocks=blocks)) == text


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda x, y, z: x + y + z, "x + y + z"),
        (lambda x, y, z: x + (y + z), "x + y + z"),
        (lambda x, y, z: x - y - z, "x - y - z"),
        (lambda x, y, z: x - (y - z), "x - (y - z)"),
        (lambda x, y, z: x - (y + z), "x - (y + z)"),
        (lambda x, y, z: (x - y) + z, "x - y + z"),
        (lambda x, y, z: x * (y + z), "x · (y + z)"),
        (lambda x, y, z: (x + y) * z, "(x + y) · z"),
        (lambda x, y, z: x * y + z, "x · y + z"),
        (lambda x, y, z: x / y / z, "x / y / z"),
        (lambda x, y, z: x / (y * z), "x / (y · z)"),
        (lambda x, y, z: x / (y / z), "x / (y / z)"),
        (lambda x, y, z: (x * y) / z, "x · y / z"),
        (lambda x, y, z: 2 * x - y / 3, "2 · x - y / 3"),
        (lambda x, y, z: 1 + x + 0.5, "1 + x + 0.5"),
        (lambda x, y, z: (1 - x) * y, "(1 - x) · y"),
        (lambda x, y, z: 1 - (x - 2), "1 - (x - 2)"),
    ],
)
def test_operators_and_brackets(build, text):
    x, y, z = (Symbol(name) for name in "xyz")
    assert str(build(x, y, z)) == text
    # What is printed means what was built: read the text back with numbers.
    numbers = {"x": 1.7, "y": -2.3, "z": 0.9}
    assert eval(text.replace("·", "*"), {}, numbers) == pytest.approx(
        build(*numbers.values()), rel=1e-14
    )


def test_norms_parameters_and_places_are_named():
    class Everything(Own):
        def join(self, x, sublayer, norm):
            gate = sublayer.parameter("a", initial=0.0)
            return (1 - gate) * x + gate * norm.outer(sublayer(norm(x) / 2, output=norm.inner))

        def finish(self, state, end):
            return end.norm(state) - state

    assert formula(Everything) == (
        "x ← (1 - a) · x + a · norm_outer(F(norm(x) / 2, norm_inner(output))); y = norm(x) - x"
    )


def test_kinds_apart_where_they_differ():
    class ByKind(Own):
        def join(self, x, sublayer, norm):
            return norm(x + sublayer(x)) if sublayer.site.kind == "attention" else x + sublayer(x)

    assert formula(ByKind) == f"attention: {POST}; feed_forward: {PLAIN}"
    decoder = StackShape(kind="decoder", width=8, encoder_blocks=1, decoder_blocks=1)
    assert (
        formula(ByKind, decoder)
        == f"attention: {POST}; cross_attention: {PLAIN}; feed_forward: {PLAIN}"
    )


def test_blocks_apart_where_they_differ():
    class Alternating(Own):
        def join(self, x, sublayer, norm):
            return norm(x + sublayer(x)) if sublayer.site.block in (1, 2, 5) else x + sublayer(x)

    assert formula(Alternating) == f"blocks 1-2, 5: {POST}; blocks 3-4, 6: {PLAIN}"


def test_one_norm_at_two_widths_is_refused():
    class TwoWidths(Own):
        def join(self, x, sublayer, norm):
            return x + sublayer(norm(x), output=norm)

    shape = StackShape(kind="encoder", width=8, ffn_width=16, encoder_blocks=1)
    with pytest.raises(
        ValueError, match="norm 'main' is used at widths 8 and 16; give them two names"
    ):
        read(TwoWidths(shape))


def test_groups_must_divide_the_width():
    class Thirds(Own):
        def join(self, x, sublayer, norm):
            return x + sublayer(norm(x, groups=3))

    with pytest.raises(ValueError, match="norm 'main' cannot divide a width of 8 into 3 groups"):
        formula(Thirds, StackShape(kind="encoder", width=8, encoder_blocks=1))


def test_streams_and_parts_of_a_state_must_be_as_many():
    class Unnamed(Own):
        def start(self, x, end):
            return x, x

    with pytest.raises(
        ValueError, match=r"placement 'own' names 1 streams \(x\) and its state has 2 parts"
    ):
        formula(Unnamed)


def test_without_a_formula():
    with pytest.raises(NotImplementedError, match="'own' must define join or block"):
        formula(Own)


@pytest.mark.parametrize("name", registered())
def test_a_list_shows_every_placement_in_a_few_lines(name):
    """Of 48 columns, about what a list on a terminal of 100 leaves a formula."""
    found = brief_lines(registered()[name])
    assert sum(-(-len(line) // 48) for line in found) <= 12
    whole = lines(registered()[name])
    assert found == whole or len("".join(found)) < len("".join(whole))


def test_what_a_brief_formula_leaves_out_is_counted():
    assert brief_lines(named("mhc")) == [
        "x1 ← C_11 · x1 + … + C_41 · x4 + 2 · post_1 · F(norm(pre_1 · x1 + … + pre_4 · x4)); and 3 "
        "streams more",
        "y = norm(head_1 · x1 + … + head_4 · x4)",
    ]
    assert "and 5 more kinds of block" in brief_lines(named("denseformer"))
