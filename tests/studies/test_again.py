"""Committed results judged anew: their claims are what today's rules make of their numbers."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope_studies.engine.again import judge_again, judged_again
from normscope_studies.engine.pieces import as_json

RESULTS = Path(__file__).parents[2] / "results"


def data_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ["figure2", "figure3", "figure3_warm_up", "figure4", "figure6"])
def test_committed_claims_are_those_of_the_committed_numbers(name: str) -> None:
    """Where they are not: `python -m normscope_studies.engine.again results/NAME`, and its
    reading.
    """
    folder = RESULTS / name
    data = data_of(folder)
    found = judged_again(data, folder)
    assert [dataclasses.asdict(claim) for claim in found.claims] == data["claims"]
    assert set(found.data) <= set(data)


def test_numbers_stay_and_the_claims_are_made_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "figure6"
    shutil.copytree(RESULTS / "figure6", folder)
    before = data_of(folder)
    old = [{**claim, "found": "something else"} for claim in before["claims"][:1]]
    (folder / "results.json").write_text(as_json({**before, "claims": old}), "utf-8")
    lines = judge_again(folder)
    after = data_of(folder)
    assert lines == [f"{folder}: {one['name']}: {one['verdict']}" for one in before["claims"]]
    made_by = after.pop("judged")
    assert made_by["source_sha256"]
    assert made_by["created"] > before["created"]
    before.pop("judged", None)
    assert after == before
    assert judge_again(folder) == []


def test_a_run_that_ends_otherwise_turns_its_claim(tmp_path: Path) -> None:
    """The small fixed rate of figure 6 ends above the large one, in every seed."""
    folder = tmp_path / "figure6"
    shutil.copytree(RESULTS / "figure6", folder)
    data = data_of(folder)
    small = next(one for one in data["configurations"] if "fixed rate" in one["title"])
    for seed in small["seeds"]:
        seed["nll_nats"] = [8.0] * len(seed["nll_nats"])
    (folder / "results.json").write_text(as_json(data), "utf-8")
    judge_again(folder)
    verdicts = {claim["name"]: claim["verdict"] for claim in data_of(folder)["claims"]}
    better = "a small fixed rate does better than a large one without warm-up"
    assert verdicts[better] == "contradicted"


def test_what_cannot_be_judged_anew_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no results\.json in .*name a folder"):
        judge_again(tmp_path)
    shutil.copy(RESULTS / "lemmas/results.json", tmp_path)
    with pytest.raises(UserError, match=r"do not hold all that was measured.* normscope study lem"):
        judge_again(tmp_path)
    (tmp_path / "results.json").write_text('{"title": "Odd"}', "utf-8")
    with pytest.raises(UserError, match="no study is called 'Odd'"):
        judge_again(tmp_path)


def test_the_command_judges_the_folders_that_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "figure6"
    shutil.copytree(RESULTS / "figure6", folder)
    command = [sys.executable, "-m", "normscope_studies.engine.again"]
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "judged" in data_of(folder)
    gone = subprocess.run([*command, tmp_path / "no"], capture_output=True, text=True, check=False)
    assert gone.returncode
    assert gone.stderr.startswith("error: no results.json in ")
