"""`--brief`: what a program reads of a diagnosis, forty lines at most."""

from dataclasses import replace

import pytest

from normscope.doctor.report.brief import MOST_LINES, brief
from normscope.doctor.result import Finding, Record, Severity
from normscope.doctor.trace.code_places import CodePlace
from report.diagnoses import advice, healthy


def findings(count: int) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            id=f"rule-{number}",
            severity=Severity.ERROR if number == 0 else Severity.WARNING,
            where=f"layers.{number}",
            message=f"seen {number},\n  and more",
            fix=f"mend {number}",
        )
        for number in range(count)
    )


@pytest.fixture(name="record")
def of_healthy() -> Record:
    return replace(healthy(), advice=advice())


@pytest.mark.parametrize("count", [0, 1, 2, 14, 15, 16, 17, 18, 40, 200])
def test_no_model_takes_more_than_forty_lines_and_none_is_lost_without_a_word(
    count: int, record: Record
) -> None:
    lines = brief(replace(record, findings=findings(count)))
    assert len(lines) <= MOST_LINES
    shown = [line for line in lines if line.startswith(("error ", "warning "))]
    fixed = [line for line in lines if line.startswith("fix ")]
    assert len(shown) == len(fixed)
    left = [line for line in lines if line.startswith("and ")]
    counted = int(left[0].split()[1]) if left else 0
    assert len(shown) + counted == count


def test_a_finding_says_what_where_and_how_to_mend_it_each_in_one_line(record: Record) -> None:
    lines = brief(replace(record, findings=findings(1)))
    assert "error rule-0 at layers.0: seen 0, and more" in lines
    assert "fix rule-0: mend 0" in lines


def test_a_finding_says_at_which_line_of_the_users_code_it_was_built_else_called(
    record: Record,
) -> None:
    built, called = (CodePlace(file=f"{name}.py", line=7) for name in ("built", "called"))
    (plain,) = findings(1)
    for one, shown in (
        (replace(plain, built_at=built, called_at=called), "built.py:7"),
        (replace(plain, called_at=called), "called.py:7"),
    ):
        lines = brief(replace(record, findings=(one,)))
        assert f"error rule-0 at layers.0 ({shown}): seen 0, and more" in lines


def test_what_a_training_says_goes_first_and_the_model_is_not_called_healthy(
    record: Record,
) -> None:
    rows = [("do", "train anew"), ("command", "normscope compare x"), ("cost", "8 runs")]
    lines = brief(record, rows)
    assert lines[1:4] == ["do: train anew", "command: normscope compare x", "cost: 8 runs"]
    assert not any("healthy" in line for line in lines)


def test_signs_that_drive_a_terminal_are_shown_and_not_sent(record: Record) -> None:
    wrong = replace(findings(1)[0], where="layers.\x1b[31m")
    assert not any("\x1b" in line for line in brief(replace(record, findings=(wrong,))))
