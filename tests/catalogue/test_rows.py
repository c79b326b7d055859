"""Rows of the catalogue against counts made by hand, and the sizes they are stated for."""

import json
from dataclasses import asdict

import pytest

from normscope.catalogue.details import details
from normscope.catalogue.rows import Size, row, rows, sized
from normscope.catalogue.words import short_lines
from normscope.placement import Placement, named, register, registered, registry


def facts(name: str, stack: str = "encoder"):
    return row(named(name), Size()).stacks[stack]


def test_every_placement_has_a_row_and_variants_follow_what_they_vary():
    names = [found.name for found in rows(Size())]
    assert sorted(names) == list(registered())
    for found in rows(Size()):
        if found.variant_of:
            between = names[names.index(found.variant_of) + 1 : names.index(found.name)]
            assert all(named(name).variant_of == found.variant_of for name in between)


@pytest.mark.parametrize("name", ["post-ln", "deepnorm", "rezero", "t-fixup", "keel"])
def test_without_a_final_norm(name):
    assert not facts(name).final_norm


@pytest.mark.parametrize("name", ["pre-ln", "residual", "mix-ln", "attn-res", "pre-to-post"])
def test_with_a_final_norm(name):
    assert facts(name).final_norm


def test_norms_of_every_block():
    assert facts("hybrid-norm-star").norms == [5, 4, 4, 4, 4, 4]
    assert facts("hybrid-norm-star", "decoder").norms == [9, 8, 8, 8, 8, 8]
    assert facts("sub-ln", "decoder").norms == [5] * 6


@pytest.mark.parametrize(
    ("name", "stack", "count"),
    [
        ("pre-ln", "encoder", 0),
        ("admin", "encoder", 2 * 512),
        ("admin", "decoder", 3 * 512),
        ("rezero", "decoder", 1),  # one for all three sub-layers
        ("ngpt", "encoder", 512 + 512 + 512 + 2048),
        ("attn-res", "encoder", 2 * 512),
    ],
)
def test_extra_parameters(name, stack, count):
    assert facts(name, stack).extra_parameters == [count] * 6


def test_cost_is_compared_with_pre_ln_of_the_same_stack():
    assert facts("pre-ln").last_block_cost_ratio == 1
    assert facts("deepnorm").last_block_cost_ratio == 6 / 4
    assert facts("residual", "decoder").last_block_cost_ratio == 9 / 6


def test_a_placement_that_is_not_defined_keeps_its_formula():
    found = row(named("t-fixup"), sized("decoder-only", "4", 64, 128, 2))
    assert found.stacks == {}
    assert found.general_formula == ["x ← x + F(x)"]


def test_sizes():
    both = sized("encoder-decoder", "6+3", 64, 128, 2)
    assert {kind: shape.blocks for kind, shape in both.shapes.items()} == {
        "encoder": 6,
        "decoder": 3,
    }
    assert list(sized("decoder-only", "4", 64, 128, 2).shapes) == ["decoder"]
    assert str(both) == "encoder-decoder, 6+3 blocks, width 64, feed-forward 128, 2 heads"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("both", "6", 64, 128, 2),
            "model must be one of encoder-only, decoder-only, encoder-decoder, got 'both'",
        ),
        (
            ("encoder-decoder", "6+0", 64, 128, 2),
            "blocks must be a number such as 6, or one for each stack",
        ),
        (("encoder-decoder", "six", 64, 128, 2), "got 'six'"),
        (
            ("decoder-only", "6+6", 64, 128, 2),
            "blocks must be one number for decoder-only models, got '6",
        ),
        (
            ("decoder-only", "6", 64, 128, 3),
            "width must be a multiple of heads, got width 64 and 3 heads",
        ),
        (("decoder-only", "6", 64, 0, 2), "ffn-width must be at least 1, got 0"),
    ],
)
def test_sizes_that_are_refused(arguments, message):
    with pytest.raises(ValueError) as caught:
        sized(*arguments)
    assert message in str(caught.value)


def test_details_hold_what_the_papers_state():
    found = details(named("deepnorm"), Size())
    assert found.constants["encoder"] == pytest.approx(
        {"skip_scale": 1.418, "branch_gain": 0.497}, abs=5e-4
    )
    value = next(w for w in found.weights if (w.sublayer, w.weight) == ("cross_attention", "value"))
    assert value.last["decoder"].gain == pytest.approx(0.343, abs=5e-4)
    assert value.last["decoder"].std == pytest.approx(
        0.343 * (2 / 1024) ** 0.5, rel=2e-3
    )  # Glorot, 512 to 512
    assert details(named("scale-norm"), Size()).output_rows == "unit(E)"
    assert details(named("admin"), Size()).profiled
    assert details(named("branch-norm"), Size()).schedules == {"branch_scale": 0.0}
    assert details(named("ds-init"), Size()).constants == {"class": {"exponent": -0.5}}
    places = {
        (p.stack, p.where): p.shape
        for p in details(named("ngpt"), Size()).parameters
        if p.name == "s_z"
    }
    assert places == {("decoder", "output projection"): [10_000, 1]}


@pytest.mark.parametrize("name", registered())
def test_details_of_every_placement_are_json(name):
    placement = named(name)
    size = sized(placement.models[-1], "3", 64, 128, 2)
    written = json.loads(json.dumps(asdict(details(placement, size)), allow_nan=False))
    assert written["row"]["name"] == name
    assert all(sections for sections in written["wiring"].values())


@pytest.mark.parametrize(
    ("typed", "nearest"), [("pots_ln", "post-ln"), ("DeepNrom", "deepnorm"), ("PreLNN", "pre-ln")]
)
def test_an_unknown_name_gets_the_nearest(typed, nearest):
    with pytest.raises(ValueError) as caught:
        named(typed)
    assert str(caught.value).startswith(
        f"unknown placement {typed!r}; did you mean {nearest!r}? `normscope placements`"
    )


def test_a_variant_of_nothing_known_keeps_its_row(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @register
    class Orphan(Placement):
        name, title, citation, year, variant_of = (
            "orphan",
            "Orphan",
            "nobody",
            2026,
            "no-such-placement",
        )

        def join(self, x, sublayer, norm):
            return x + sublayer(x)

    assert "orphan" in [found.name for found in rows(Size())]


def test_the_short_list_says_of_every_placement_in_a_line_of_80_columns_what_no_other_line_says(
    monkeypatch,
):
    lines = list(short_lines(Size(), 80))
    listed = [line.split(maxsplit=2) for line in lines[: lines.index("")]]
    assert sorted(name for name, *_ in listed) == list(registered())
    assert max(map(len, lines)) <= 80
    assert len({said for *_, said in listed}) == len(listed)

    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @register
    class Long(named("mix-ln")):
        name = "long"

    lines = list(short_lines(Size(), 80))
    assert max(map(len, lines)) <= 80
    at = next(i for i, line in enumerate(lines) if line.startswith("long "))
    assert " ".join(line[37:] for line in lines[at : at + 2]) == (
        "block 1: x ← norm(x + F(x)); blocks 2-6: x ← x + F(norm(x)); y = norm(x)"
    )
