"""What is offered for a training that is flat before it learned: the ways on in their order, and a
command with the user's own values.
"""

import math
import random
import re
import shlex
from dataclasses import replace

import pytest
import torch
from torch import nn

import normscope
from normscope.doctor.report.page import render_doctor
from normscope.doctor.result import Finding, Record, Severity
from normscope.history.explain import Explanation, explain
from normscope.history.joined import COMMAND, first_lines, verdict_lines, verdict_rows
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from normscope.history.section import section
from report.diagnoses import advice

COMPARED = "my_model.py:build"


def stuck(
    *, updates: int = 300, rate: float | None = 1e-3, warmup: int = 0, level: float = 3.4
) -> Explanation:
    """A log that comes to a level within twenty updates, where tokens' frequencies have it."""
    draw = random.Random(0)
    every = max(1, updates // 300)
    steps = tuple(range(every, updates + 1, every))
    losses = tuple(level + 2 * math.exp(-u / 5) + draw.gauss(0, 0.05) for u in steps)
    rates = ()
    if rate is not None:
        rates = tuple(rate * min(1.0, u / warmup) if warmup else rate for u in steps)
    history = History(
        source="log",
        loss=LoggedSeries(steps, losses),
        rate=LoggedSeries(steps if rates else (), rates),
        recipe=TrainingRecipe(unigram_nats=3.4, unigram_counted="9,999 target tokens"),
    )
    return explain(history)


def record(*, norm_first: bool = False, **changes: object) -> Record:
    """The diagnosis of two blocks of torch's own, with an advice of 1e-3."""
    torch.manual_seed(0)
    blocks = [
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0, norm_first=norm_first)
        for _ in range(2)
    ]
    model = nn.Sequential(nn.Embedding(9, 16), *blocks, nn.Linear(16, 9))
    found = normscope.diagnose(model, (torch.randint(9, (2, 8)),), advise=False)
    known = {"advice": advice(best=1e-3), "compared": COMPARED, "findings": ()}
    return replace(found, **(known | changes))  # type: ignore[arg-type]


def command(explanation: Explanation, diagnosis: Record) -> str:
    return dict(verdict_rows(explanation, diagnosis))[COMMAND]


def test_another_placement_lower_rate_and_longer_warm_up_stand_first_in_this_order() -> None:
    rows = verdict_rows(stuck(), record())
    assert rows[0][1] == (
        "train again under another placement "
        "(`normscope transplant my_model.py:build --to pre-ln --out my_model_pre_ln`), with a "
        "lower rate (3.3e-4 instead of 1e-3) or with a longer warm-up (150 updates); the command "
        "below decides"
    )
    assert rows[1] == (
        COMMAND,
        "normscope compare my_model.py:build --placements own,pre-ln --optimizers adamw --peak-lr "
        "3.3e-4,1e-3 --warmup-updates 0,150 --set train.duration=300",
    )
    told = dict(rows)
    assert told["what"].startswith("plateau from update ")
    assert "at 3.40 (over 9,999 target tokens)" in told["why"]
    assert told["rate"] == "3.3e-4: a third of yours; it cured 2 of 4 such failed runs of ours"


def test_the_command_stands_on_a_line_of_its_own_and_is_not_broken() -> None:
    rows = verdict_rows(stuck(), record())
    lines = verdict_lines(rows, 80)
    assert lines.count(dict(rows)[COMMAND]) == 1
    assert first_lines(rows, 80) == lines[: len(first_lines(rows, 80))]
    assert max(len(line) for line in lines if not line.startswith("normscope")) <= 80


def test_on_the_page_the_command_stands_under_what_to_do() -> None:
    explained, diagnosis = stuck(), record()
    rows = verdict_rows(explained, diagnosis)
    page = render_doctor(diagnosis, history=section(explained, rows))
    _, under = page.split("the command below decides</strong></p>\n", 1)
    assert under.startswith(f"<pre>{dict(rows)[COMMAND]}</pre>\n")
    # Markup of the terminal is none of a page's headings.
    assert "`" not in "".join(re.findall(r"<h3>.*?</h3>", page))


def test_the_page_of_a_training_that_went_wrong_has_its_history_first() -> None:
    explained, diagnosis = stuck(), record()
    rows = verdict_rows(explained, diagnosis)
    page = render_doctor(diagnosis, history=section(explained, rows))
    assert "the training went wrong; no error or warning in the model" in page
    assert (
        page.index('id="h-history"')
        < page.index('id="h-advice"')
        < page.index('id="h-findings"')
        < page.index("Sub-layers")
    )


def test_where_a_path_around_the_norms_is_open_no_placement_is_offered() -> None:
    rows = dict(verdict_rows(stuck(), record(norm_first=True)))
    assert rows["do"].startswith(
        "train again with a lower rate (3.3e-4 instead of 1e-3) or with a longer warm-up (150 "
        "updates);"
    )
    assert "transplant" not in rows["do"]
    assert "--placements own --opt" in rows[COMMAND]


@pytest.mark.parametrize(
    ("updates", "warmup", "wanted"),
    [
        (300, 0, "0,150 --set train.duration=300"),
        (300, 24, "24,150 --set train.duration=300"),
        (300, 140, "140,280 --set train.duration=560"),  # the peak is to be reached
        (60_000, 0, "0,4000 --set train.duration=10000"),
        (60_000, 3_000, "3000,6000 --set train.duration=12000"),
    ],
)
def test_the_longer_warm_up_ends_within_the_comparison(
    updates: int, warmup: int, wanted: str
) -> None:
    asked = stuck(updates=updates, warmup=warmup)
    assert command(asked, record()).endswith(f"--warmup-updates {wanted}")


@pytest.mark.parametrize(
    ("best", "rate", "wanted"),
    [
        (1e-4, 1e-3, "1e-4,1e-3"),  # the usual one is lower than a third
        (1e-2, 1e-3, "3.3e-4,1e-3"),  # what is usual would be higher, and is no way on
        (None, 1e-3, "3.3e-4,1e-3"),
    ],
)
def test_which_other_rate_is_tried(best: float | None, rate: float, wanted: str) -> None:
    known = advice(best=best or 1.0)
    if best is None:
        known = replace(known, best_rate=None, best_interval=None)
    said = dict(verdict_rows(stuck(rate=rate), record(advice=known)))
    assert f"--peak-lr {wanted} " in said[COMMAND]
    assert "with a lower rate" in said["do"]


def test_a_rate_below_the_usual_ones_at_which_the_loss_never_fell_is_raised() -> None:
    """Of a loss that came down to a level a low rate is not the cause."""
    never = stuck().history
    still = replace(never.loss, values=tuple(3.4 + 0.01 * (-1) ** u for u in never.loss.updates))
    said = dict(verdict_rows(explain(replace(never, loss=still)), record(advice=advice(best=1e-2))))
    assert said["do"].startswith(
        "train again with the usual rate (0.01 instead of 1e-3), under another"
    )
    assert "--peak-lr 0.01,1e-3 " in said[COMMAND]


def test_the_rate_that_the_user_names_stands_in_for_one_that_the_log_lacks() -> None:
    known = advice(best=1e-3, wanted=2e-3)
    assert "--peak-lr 6.7e-4,2e-3 " in command(stuck(rate=None), record(advice=known))
    nothing = advice(best=1e-3, wanted=None)
    assert "--peak-lr 1e-3,3e-3 " in command(stuck(rate=None), record(advice=nothing))
    assert "--peak-lr 1e-4:3e-3:4 " in command(stuck(rate=None), record(advice=None))


def test_a_file_that_compare_cannot_take_is_left_to_be_named() -> None:
    said = dict(verdict_rows(stuck(), record(compared="")))
    assert said[COMMAND].startswith("normscope compare FILE.py:build --placements own,pre-ln ")
    assert "`normscope transplant MODEL --to pre-ln --out FOLDER`" in said["do"]


def test_a_file_with_a_space_in_its_name_stays_one_word() -> None:
    compared = shlex.quote("my models/one.py:build")
    said = dict(verdict_rows(stuck(), record(compared=compared)))
    assert shlex.split(said[COMMAND])[2] == "my models/one.py:build"
    assert "--out one_pre_ln`" in said["do"]


def test_an_optimiser_that_compare_does_not_have_is_not_in_its_command() -> None:
    known = replace(advice(best=1e-3), optimizer="adafactor")
    said = dict(verdict_rows(stuck(), record(advice=known)))
    assert "adafactor" not in said[COMMAND]
    assert said["do"].endswith(
        "decides, with adam in the place of adafactor, which it does not have"
    )


def test_an_error_of_the_model_is_mended_before_anything_is_compared() -> None:
    wrong = Finding(
        id="bad-sum", severity=Severity.ERROR, where="a", message="It is.", fix="add x once"
    )
    rows = dict(verdict_rows(stuck(), record(findings=(wrong,))))
    assert rows["do"] == "fix the model first (bad-sum): add x once"
    assert COMMAND not in rows


def test_a_flat_loss_whose_cause_is_not_known_is_what_is_said_first() -> None:
    history = replace(stuck().history, recipe=TrainingRecipe())
    rows = dict(verdict_rows(explain(history), record()))
    assert rows["do"].startswith("flat, cause not known: all may be learned, or nothing; name the")
    assert COMMAND not in rows
