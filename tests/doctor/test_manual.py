"""What docs/doctor.md says that running its examples does not show: the rules, the options and the
Action.
"""

import re
from pathlib import Path

import pytest
import torch
import typer.main
from torch import nn

from normscope.cli.main import command_line
from normscope.doctor.lint.linter import RULES
from normscope.history.explain import FLAT_ABOVE
from normscope.history.patterns import LITTLE, PATTERNS
from normscope.monitor import Monitor
from normscope.optim import OPTIMIZERS

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def options() -> set[str]:
    doctor = typer.main.get_command(command_line()).commands["doctor"]  # type: ignore[attr-defined]
    return {name for parameter in doctor.params for name in parameter.opts if name.startswith("--")}


def test_the_table_has_every_rule_in_the_linters_words() -> None:
    rows = [
        f"| `{rule.id}` | {rule.severity} | {rule.title} | {rule.explanation} |" for rule in RULES
    ]
    table = [line for line in section("Rules").splitlines() if line.startswith("| `")]
    told = "\n".join(
        ["docs/doctor.md, Rules: these rows are wanted, each at its rule's place in rules.toml:"]
        + [row for row in rows if row not in table]
        + ["and these are of no rule:", *(row for row in table if row not in rows)]
    )
    assert table == rows, told


def test_the_table_of_causes_has_every_cause_of_what_a_loss_does_in_the_code_s_order() -> None:
    (table,) = re.findall(r"^\| cause \| what speaks.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == _CAUSES


_CAUSES = [*(one.id for one in PATTERNS), LITTLE, FLAT_ABOVE]


def test_every_option_is_told() -> None:
    told = set(re.findall(r"`(--[\w-]+)", section("What can be looked at")))
    assert told == options() - {"--help"}, (
        "docs/doctor.md, What can be looked at: one row for each option"
    )
    named = set(re.findall(r"`(\w+)`", section("What can be looked at")))
    missing = set(OPTIMIZERS) - named
    assert missing == set(), (
        f"docs/doctor.md, What can be looked at: the row of --optimizer must name {missing}"
    )


def test_names_of_measurements_are_those_of_the_code() -> None:
    """Of a small language model, which has every one of them."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Embedding(5, 8), layer, nn.Linear(8, 5))
    ids_BT = torch.tensor([[0, 1, 2], [3, 4, 0]])
    monitor = Monitor(
        model=model, inputs=lambda m: nn.functional.cross_entropy(m(ids_BT).mT, ids_BT)
    )
    nn.functional.cross_entropy(model(ids_BT).mT, ids_BT).backward()
    made = {name.rpartition("/")[2] for name in [*monitor(1), *monitor.stepped(1)]}
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section("While it trains"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == made


def test_the_action_runs_a_command_that_exists() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which the `huggingface` extra brings")
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```$", section("In continuous integration"), re.MULTILINE | re.DOTALL
    )
    steps = yaml.safe_load(text)["jobs"]["doctor"]["steps"]
    (given,) = [
        step["with"] for step in steps if step.get("uses", "").startswith("OWNER/normscope@")
    ]
    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
    assert given.keys() <= action["inputs"].keys()
    assert f"def {given['target'].partition(':')[2]}(" in PAGE
    words = (
        action["runs"]["steps"][-1]["run"]
        .partition("normscope doctor")[2]
        .partition('>"$log"')[0]
        .split()
    )
    assert {word for word in words if word.startswith("--") and word != "--"} <= options()
    # What is kept is what was written.
    written = action["inputs"]["page"]["default"]
    assert [
        step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")
    ] == [written]
