"""Numbers and phrases that the terminal and the page share."""

import math
from dataclasses import replace

import pytest

from normscope.doctor.report import words
from normscope.doctor.report.depth import curves, depth_panels, depth_rows, depths, places, together
from normscope.doctor.report.page import pattern
from normscope.doctor.result import AskedRule
from report.diagnoses import (
    advice,
    broken,
    diagnosis,
    encoder_decoder,
    healthy,
    made,
    unknown,
    with_sublayer,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1.0, "1.00"),
        (0.99951, "1.00"),
        (0.012345, "0.0123"),
        (-0.5, "-0.500"),
        (99.96, "100"),
        (12345.6, "12,346"),
        (0.000123456, "1.23e-4"),
        (2e9, "2.00e9"),
        (1234567, "1,234,567"),
        (math.inf, "non-finite"),
        (math.nan, "non-finite"),
    ],
)
def test_figures(value, text):
    assert words.figures(value) == text


def test_blocks():
    assert words.block_span([3, 1, 2, 5, 7, 8]) == "1–3, 5, 7–8"
    assert words.block_span([0, 1]) == "before 1, 1"


def test_ranges():
    assert words.span_of([0.2, 0.1, None]) == "0.100 to 0.200"
    assert words.span_of([0.2, 0.2000001]) == "0.200"
    assert words.span_of([None]) == "–"
    assert words.span_of([1.0, math.nan]) == "non-finite"


def test_paths():
    assert pattern(["h.0.attn", "h.1.attn", "h.2.attn"]) == "h.*.attn"
    assert pattern(["a.0", "b.1.c"]) == "a.0 … b.1.c"
    assert pattern(["a.b"]) == "a.b"


def test_verdicts():
    assert words.verdict_words(healthy()) == "healthy"
    assert words.verdict_words(broken()) == "1 error, 1 warning, 1 note"
    assert words.verdict_words(encoder_decoder()) == "2 warnings, 1 note"
    note = replace(healthy(), findings=broken().findings[2:])
    assert words.verdict_words(note) == "healthy, 1 note"
    left_out = AskedRule(id="other", asked=False, reason="it was silenced")
    some = replace(note, rules=(*healthy().rules, left_out))
    assert (
        words.verdict_words(some)
        == f"healthy, 1 note; {len(some.rules) - 1} of {len(some.rules)} rules checked"
    )
    unknown_wiring = replace(note.findings[0], id="unknown-wiring")
    assert (
        words.verdict_words(replace(note, findings=(unknown_wiring,))) == "unknown wiring, 1 note"
    )


def test_summaries():
    assert words.summary(healthy()) == "post-ln, 12 blocks, LayerNorm, no final norm"
    assert words.summary(unknown()) == "no registered placement, 2 blocks, no norms"
    assert (
        words.summary(diagnosis("m", made("a", blocks=1)))
        == "post-ln, 1 block, LayerNorm, no final norm"
    )
    assert words.summary(diagnosis("m", made("a", blocks=6), made("b", blocks=3))) == (
        "post-ln, 6 + 3 blocks, LayerNorm, no final norm"
    )
    assert words.summary(encoder_decoder()) == (
        "encoder.block: pre-ln, 6 blocks, RMSNorm, final norm; decoder.block: post-ln, 6 blocks, "
        "RMSNorm, no final norm"
    )
    assert words.summary(diagnosis("m")) == "no stack found"


def test_sub_layers_are_collapsed_only_where_they_are_the_same():
    stack = healthy().stacks[0]
    assert words.same_sublayers(stack) == [list(range(0, 24, 2)), list(range(1, 24, 2))]
    stack = with_sublayer(stack, 4, placement="pre-ln")
    assert words.same_sublayers(stack)[1:] == [list(range(1, 24, 2)), [4]]


def test_the_headline_never_calls_healthy_what_is_advised_against():
    safe, high = (replace(healthy(), advice=advice(wanted=rate)) for rate in (4e-4, 0.03))
    assert words.headline(safe) == ("healthy", "your learning rate 4e-4 is in the usual range")
    assert words.headline_severity(safe) is None
    verdict, rate = words.headline(high)
    assert verdict == "no error or warning"
    assert rate == "your learning rate 0.03 is above the usual range"
    assert words.headline_severity(high) == "warning"
    assert (
        words.headline(replace(broken(), advice=advice(wanted=0.03)))[0]
        == "1 error, 1 warning, 1 note"
    )
    assert words.headline_severity(broken()) == "error"
    assert words.headline(healthy()) == ("healthy", "")


def test_the_two_findings_that_matter_most_lead_and_notes_never_do():
    found = broken()
    assert words.leading_findings(found) == found.findings[:2]
    assert words.further_findings(found) == found.findings[2:]
    notes = replace(found, findings=found.findings[2:])
    assert words.leading_findings(notes) == ()
    assert words.further_findings(notes) == notes.findings


def test_rules_not_asked_are_counted_by_their_reason():
    rules = [
        AskedRule(id=f"rule-{n}", asked=n < 4, reason="" if n < 4 else "no optimiser was given")
        for n in range(7)
    ]
    rules.append(AskedRule(id="other", asked=False, reason="it was silenced"))
    assert words.rules_words(replace(healthy(), rules=tuple(rules))) == (
        "4 rules checked; not checked: 3 rules, as no optimiser was given; other, as it was "
        "silenced"
    )


def test_the_commonest_reason_is_told_at_the_top():
    reasons = ["no optimiser was given", "it was silenced"] * 2 + ["no optimiser was given"]
    rules = [
        AskedRule(id=f"rule-{number}", asked=False, reason=reason)
        for number, reason in enumerate(reasons)
    ]
    assert words.unasked(replace(healthy(), rules=tuple(rules))) == (
        "not checked: 3 rules, as no optimiser was given; 2 for other reasons"
    )
    assert words.unasked(replace(healthy(), rules=tuple(rules[:1]))) == (
        "not checked: 1 rule, as no optimiser was given"
    )
    asked = AskedRule(id="asked", asked=True, reason="")
    assert words.unasked(replace(healthy(), rules=(asked,))) == ""


def test_the_loss_and_what_guessing_costs():
    measured = encoder_decoder().measured
    # ln 30,522
    assert words.loss_words(measured) == "loss 10.4 nats per token, 10.3 for uniform guessing"
    assert words.loss_words(broken().measured).startswith("loss on random targets 10.4")
    assert words.loss_words(unknown().measured) == "no loss, so no gradients"


def test_blocks_are_places_and_so_are_the_sub_layers_of_a_single_block():
    assert list(places(healthy().stacks[0]).values())[:2] == [[0, 1], [2, 3]]
    single = diagnosis(
        "m", made("a", blocks=1, kinds=("attention", "cross_attention", "feed_forward"))
    ).stacks[0]
    assert list(places(single)) == ["sub-layer 1", "sub-layer 2", "sub-layer 3"]
    assert depths(single) == [0.0, 1.0, 2.0]


def test_depths_count_completed_blocks():
    stack = diagnosis(
        "m", made("a", blocks=2, kinds=("attention", "cross_attention", "feed_forward"))
    ).stacks[0]
    assert depths(stack) == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3])
    stack = with_sublayer(stack, 0, block=0)
    assert depths(stack)[:3] == [None, 0, 1 / 2]
    assert list(places(stack).values()) == [[1, 2], [3, 4, 5]]


def test_parallel_sub_layers_read_at_one_place():
    assert depths(unknown().stacks[0]) == [0, 0, 1, 1]


def test_several_of_a_kind_in_a_block_are_curves_of_their_own():
    """A shared expert beside the others, both added at once: no curve has two values at one
    place.
    """
    kinds = ("attention", "feed_forward", "feed_forward")
    stack = diagnosis("m", made("a", blocks=3, kinds=kinds)).stacks[0]
    for i in (1, 2, 4, 5, 7, 8):
        stack = with_sublayer(stack, i, parallel=True)
    expected = {"attention": [0, 3, 6], "feed-forward 1": [1, 4, 7], "feed-forward 2": [2, 5, 8]}
    assert curves(stack) == expected
    panels = depth_panels(stack)
    for name in ("share", "gradient"):
        assert [series.label for series in panels[name].series] == [*expected]
    for panel in panels.values():
        for series in panel.series:
            assert len(set(series.x)) == len(series.x)
    single = diagnosis("m", made("a", blocks=1, kinds=kinds)).stacks[0]
    assert curves(single) == {"attention": [0], "feed-forward": [1, 2]}


def test_the_numbers_of_a_block():
    stack = broken().stacks[0]
    stream, correlation, share, gradient = depth_rows(stack)
    fifth = [sublayer.measured for sublayer in stack.sublayers if sublayer.block == 5]
    assert stream.measured[4] == fifth[0].stream_square
    assert correlation.measured[4] == fifth[0].correlation
    assert share.measured[4] == pytest.approx((fifth[0].share + fifth[1].share) / 2)
    assert gradient.measured[4] ** 2 == pytest.approx(sum(one.gradient_norm**2 for one in fifth))
    assert {row.predicted for row in (stream, correlation, share, gradient)} == {None}
    assert together([1.0, None]) is None
