"""A diagnosis on a terminal: what stands where, and that it fits."""

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from normscope.doctor.report.text import sparkline, terminal_page
from normscope.doctor.result import Record
from report.diagnoses import (
    BETAS,
    DILUTED,
    EXAMPLES,
    FINAL_NORM,
    advice,
    diagnosis,
    encoder_decoder,
    healthy,
    made,
    with_sublayer,
)


def printed(found: Record, width: int = 100, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, highlight=False).print(terminal_page(found))
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def row_of(text: str, name: str) -> list[str]:
    """The numbers of a row of the first table over depth that has it."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return [word for word in line.replace(name, "").split() if re.fullmatch(r"[-\d.e]+", word)]


@pytest.mark.parametrize("width", [20, 50, 80, 100, 140])
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_line_is_wider_than_the_console(name, width):
    lines = printed(EXAMPLES[name](), width).splitlines()
    assert max(map(len, lines)) <= width


def test_what_to_do_is_the_first_line_and_the_verdict_the_second():
    starts = {name: printed(build()).splitlines()[:2] for name, build in EXAMPLES.items()}
    try_it = (
        "compare learning rates first: `normscope compare` with `--optimizers sgd --peak-lr "
        "around:3e-4`"
    )
    compare = (
        "compare the formulas below with what you meant: no registered placement computes them"
    )
    assert starts == {
        "healthy": ["nothing to do", "healthy — post-ln, 12 blocks, LayerNorm, no final norm"],
        "broken": [
            "fix missing-final-norm of model.layers: add a LayerNorm between the last block and "
            "the output ",
            "projection",
        ],
        "encoder-decoder": [
            f"check diluted-sublayers: {DILUTED.fix}",
            starts["encoder-decoder"][1],
        ],
        "streams": ["nothing to do", "healthy — mhc, 12 blocks, LayerNorm, final norm"],
        "unknown": [
            "check unknown-placement of <b>block</b> & more: no registered placement computes "
            "a1 < x",
            "1 warning — no registered placement, 2 blocks, no norms",
        ],
        "foreign": [try_it, "healthy — whether your learning rate 3e-4 is good is unknown"],
    }
    assert starts["encoder-decoder"][1].startswith(
        "2 warnings, 1 note — your learning rate 6e-3 is above the usual range"
    )
    unnamed = replace(EXAMPLES["unknown"](), findings=())
    assert printed(unnamed).splitlines()[0] == compare


def test_a_model_whose_training_diverged_is_not_called_healthy():
    file = io.StringIO()
    Console(file=file, width=80).print(
        terminal_page(healthy(), first="go back to before update 60")
    )
    assert file.getvalue().splitlines()[0].startswith("no error or warning in the model — post-ln")
    assert "healthy" not in file.getvalue()


def test_a_finding_is_whole_its_fix_said_once_and_its_reason_where_there_is_room():
    found = replace(FINAL_NORM, message="seen " * 40, where="a", fix="mend " * 40)
    for seen in (40, 400):
        file = io.StringIO()
        found = replace(found, message="seen " * seen)
        page = terminal_page(diagnosis("m", made("a"), findings=(found,)), {found.id: "because"})
        Console(file=file, width=80).print(page)
        text = file.getvalue()
        assert "…" not in text
        assert (text.count("seen"), text.count("mend "), text.count("  where a ")) == (seen, 80, 1)
        first, details = text.split("\ndetails ")
        assert (first.count("because"), details.count(f"  why   {found.id}: because")) == (
            (1, 0) if seen == 40 else (0, 1)
        )
    assert first.startswith("fix missing-final-norm of a: mend mend ")


def test_the_rate_and_what_matters_come_before_the_evidence():
    text = printed(encoder_decoder())
    order = [
        "2 warnings",
        "warning diluted-sublayers",
        "usual learning rate      ",
        "warm-up  ",
        "details",
        "token similarity",
        "and 1 note more",
    ]
    assert sorted(order, key=text.index) == order
    alone = printed(diagnosis("m", made("a"), findings=(DILUTED, BETAS)))
    order = [DILUTED.id, "details", "token similarity", BETAS.id, "1 rule checked"]
    assert sorted(order, key=alone.index) == order


def test_two_stacks_three_findings_and_advice_are_one_screen():
    text = printed(replace(encoder_decoder(), learned=None))
    assert len(text.splitlines()) <= 49
    assert text.count("  fix ") == 1  # the first one's is on the first line
    flowing = " ".join(text.split())  # lines may be wrapped
    assert (
        "T5ForConditionalGeneration · 60,506,624 parameters · loss 10.4 nats per token, 10.3 for "
        "uni" in flowing
    )
    assert (
        "decoder.block  post-ln · 6 blocks · width 512 · RMSNorm ε 1e-6 · no final norm · "
        "embedding norm" in text
    )
    assert (
        "usual learning rate 2e-4 to 8.2e-4 2e-4 with 32k, 4.1e-4 with 128k, 8.2e-4 with 512k "
        "tokens a batch; name yours by --batch-tokens rate of recipes 2e-4 what" in flowing
    )
    assert "your learning rate 6e-3 above the usual range" in flowing
    assert (
        "70 % of the updates: `normscope compare` with `--optimizers adamw --peak-lr "
        "around:4.1e-4`" in flowing
    )
    assert "1 rule checked, 1 not: --html and --json say why" in text
    assert "\nnot checked: 1 rule, as " in text.partition("\n\n")[0]


@pytest.mark.parametrize("width", [80, 100])
def test_first_middle_and_last_block(width):
    stack = encoder_decoder().stacks[0]
    text = printed(encoder_decoder(), width)
    blocks = [
        [one.measured for one in stack.sublayers if one.block == block] for block in (1, 3, 6)
    ]
    theory = stack.predicted
    assert theory is not None
    stream, gradient, share = (
        row_of(text, name) for name in ("stream E‖x‖²/d", "gradient norm", "energy ratio F(x)")
    )
    assert [float(x) for x in stream[::2]] == pytest.approx(
        [b[0].stream_square for b in blocks], rel=6e-3
    )
    assert [float(x) for x in stream[1::2]] == pytest.approx(
        [theory.stream_square[i] for i in (0, 4, 10)], rel=6e-3
    )
    norms = [math.hypot(*(one.gradient_norm for one in block)) for block in blocks]
    assert [float(x) for x in gradient[::2]] == pytest.approx(norms, rel=6e-3)
    assert len(share) == 3  # theory says nothing of it
    assert "block 1  theory  block 3  theory  block 6  theory" in text


def test_a_narrow_terminal_has_the_ends_alone():
    text = printed(encoder_decoder(), 62)
    assert "block 1  theory  block 6  theory" in text
    assert "block 3" not in text


def test_notes_that_find_no_room_are_counted_and_every_warning_is_shown():
    many = (FINAL_NORM, *[DILUTED] * 20, *[BETAS] * 9)
    stacks = [made(name, theory=True) for name in ("encoder", "decoder", "third")]
    text = printed(diagnosis("m", *stacks, findings=many, advice=advice()))
    assert text.count("  fix ") == 20  # the error's is on the first line
    assert "and 9 notes more, which --html and --json show" in text
    # Where there is some room, some of the notes are shown.
    some = (FINAL_NORM, *[DILUTED] * 2, *[BETAS] * 9)
    alone = printed(diagnosis("m", made("encoder"), findings=some))
    notes = alone.count("  fix ") - 2
    assert 0 < notes < 9
    assert f"and {9 - notes} notes more" in alone
    assert len(alone.splitlines()) <= 42


def test_sub_layers_that_are_not_what_the_stack_is():
    found = encoder_decoder()
    stack = with_sublayer(found.stacks[0], 0, placement="peri-ln")
    stack = with_sublayer(stack, 1, confidence="unsure", also=("gpt2",))
    text = printed(replace(found, stacks=(stack, found.stacks[1])), 140)
    assert "attention, block 1: peri-ln" in text
    assert (
        "feed-forward, block 1: pre-ln or gpt2 (unsure), observed x ← x + feed_forward(norm(x))"
        in text
    )
    assert "attention, block 2" not in text
    for number, placement in enumerate(("peri-ln", "sandwich", "res-post", "pre-post"), 2):
        stack = with_sublayer(stack, number, placement=placement)
    assert "and 2 more kinds of sub-layers" in printed(
        replace(found, stacks=(stack, found.stacks[1])), 140
    )
    stack = with_sublayer(stack, 5, placement=stack.placement)
    assert "and 1 more kind of sub-layers" in printed(
        replace(found, stacks=(stack, found.stacks[1])), 140
    )
    unknown = printed(EXAMPLES["unknown"]())
    formula = "a1 = x + attention(x); x ← norm(a1) - trained * a1"
    assert f"attention, block 1–2: unnamed, observed {formula}" in unknown


def test_what_was_not_measured_is_left_out():
    text = printed(EXAMPLES["unknown"]())
    assert "no loss, so no gradients" in text
    assert "gradient norm" not in text
    assert "learning rate" not in text
    assert "theory" not in text


@pytest.mark.parametrize("blocks", [1, 2, 3, 100])
@pytest.mark.parametrize("stacks", [1, 2, 3])
def test_any_number_of_blocks_and_stacks(blocks, stacks):
    found = diagnosis("m", *[made(f"stack{i}", blocks=blocks, growth=0.1) for i in range(stacks)])
    text = printed(found)
    assert text.count("token similarity") == stacks
    assert len(text.splitlines()) <= 42
    assert f"block {blocks}" in text or (blocks == 1 and "sub-layer 2" in text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_plain_letters_where_the_terminal_has_no_others(name):
    text = printed(EXAMPLES[name](), encoding="ascii")
    assert "?" not in text  # rich's and our own last resort
    assert (
        0 <= len(text.splitlines()) - len(printed(EXAMPLES[name]()).splitlines()) <= 1
    )  # x^2 is longer than x²
    assert ("<-" in text) == (name == "unknown")


def test_names_are_no_markup_and_no_colour_is_needed():
    found = diagnosis("[bold]x[/bold] :smile:", made("a"), findings=(FINAL_NORM, DILUTED, BETAS))
    text = printed(found)
    assert "[bold]x[/bold] :smile:" in text
    assert "\x1b" not in text
    assert [
        line.split()[0] for line in text.splitlines() if line[:1] in "ewi" and line.strip()
    ] == [
        "error",
        "warning",
        "info",
    ]


def test_advice_without_a_wanted_rate_and_without_an_answer():
    assert "your learning rate" not in printed(
        diagnosis("m", made("a"), advice=advice(wanted=None))
    )
    flowing = " ".join(printed(EXAMPLES["foreign"]()).split())
    assert (
        "usual learning rate unknown neither recipes nor trainings of ours with this optimiser"
        in flowing
    )
    assert "to check: train with half of your rate, with it and with twice it" in flowing


def level(values: list[float | None], *, logarithmic: bool = True, count: int | None = None) -> str:
    return sparkline(values, "01234567", count or len(values), logarithmic)


def test_sparklines():
    assert level([1.0, 10.0, 100.0]) == "047"  # a middle of 3.5 goes to the even neighbour
    assert level([2.0**i for i in range(8)]) == "01234567"
    assert level([1.0, 1.01, 0.99]) == "333"
    assert level([1.0, None, math.inf, 4.0]) == "0  7"
    assert level([0.0, 0.5, 1.0, 0.13], logarithmic=False) == "0471"
    assert level([float(2**i) for i in range(100)], count=8) == "01234567"
    assert level([None, None]) == "  "


def test_names_do_not_steer_the_terminal():
    found = healthy()
    stack = replace(found.stacks[0], name="model\x1b[2J\u202elayers")
    shown = printed(replace(found, target="Evil\x1b[31m\u0007", stacks=(stack,)))
    assert "Evil\ufffd[31m\ufffd" in shown
    assert not {"\x1b", "\u0007", "\u202e"} & set(shown)
