"""What results/ says in words stands in its data: every number of a reading with two or more decimals."""

import html
import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from normscope.compare.grid import DEMO_GRID, demo_config
from normscope.doctor.advise.rule import shipped_early_rule, shipped_rule, to_table

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/results.json"))


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in _numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _means(data: dict[str, Any]) -> list[float]:
    """Means over seeds, which readings quote."""
    means = []
    for arm in data.get("arms", []):
        for key in ("valid_loss_nats", "bleu", "bleu_tokenised", "summed_lr"):
            values = [seed[key] for seed in arm["seeds"] if seed.get(key) is not None]
            if values:
                means.append(math.fsum(values) / len(values))
    return means


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_quoted_number_stands_in_the_data(folder: Path) -> None:
    data = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    found = " ".join(claim["found"] for claim in data.get("claims", []) if "found" in claim)
    known = _numbers(data) + _means(data) + [float(text) for text in re.findall(r"\d+\.\d+", found)]
    reading = (folder / "README.md").read_text(encoding="utf-8")
    # Numbers from elsewhere are marked as such: <abbr title="published">41.02</abbr>.
    ours = re.sub(r"<abbr title=.*?</abbr>", "", reading)
    quoted = re.findall(r"(?<![\d.])\d+\.\d\d+(?![\d.])", ours)
    assert quoted or folder.name == "paper", f"{folder.name}/README.md quotes no number"
    for text in quoted:
        decimals = len(text.partition(".")[2])
        assert any(f"{abs(number):.{decimals}f}" == text for number in known), (
            f"{text} is not in {folder.name}/results.json"
        )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_result_has_its_figures_and_no_path_of_a_machine(folder: Path) -> None:
    text = (folder / "results.json").read_text(encoding="utf-8")
    figures = {p.name for p in folder.glob("*.svg")}
    # A comparison of runs has arms; a study has a figure of its own.
    assert figures >= (
        {"valid_loss.svg", "gradient_norms.svg", "learning_rate.svg"} if "arms" in json.loads(text) else set()
    )
    reading = (folder / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^]]*\]\(([^)]*)\)", reading))
    assert shown
    assert shown <= figures
    assert not re.search(r'[ "](/[a-z]+){2,}', text)


def test_the_page_of_the_demo_is_that_of_its_results_and_names_no_machine() -> None:
    page = (RESULTS / "demo/report.html").read_text(encoding="utf-8")
    data = json.loads((RESULTS / "demo/results.json").read_text(encoding="utf-8"))
    text = html.unescape(page)
    assert [line for line in (data["title"], *data["conclusion"], *data["commands"]) if line not in text] == []
    assert all(f"validation loss {arm['seeds'][0]['valid_loss_nats']:.2f} nats" in text for arm in data["arms"])
    assert not re.search(r'[ ">](/[a-z]+){2,}', page.partition("<script")[0])
    assert not re.search(r"(src|href)=.(?!data:)(http|/)", page)
    assert "data-reload-seconds=" not in page.partition("<script")[0]
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert "(results/demo/report.png)](results/demo/report.html)" in readme
    assert (RESULTS / "demo/report.png").read_bytes().startswith(b"\x89PNG")


def test_every_result_stands_in_the_index() -> None:
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert {f"{folder.name}/README.md" for folder in FOLDERS} == set(re.findall(r"\]\(([^)]*)\)", index))


def test_the_advice_goes_by_the_constants_of_its_study() -> None:
    data = json.loads((RESULTS / "advice" / "results.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(to_table(shipped_rule()))) == data["rule"]


def test_the_chance_to_be_stuck_goes_by_the_constants_of_its_study() -> None:
    data = json.loads((RESULTS / "amplification_trainings" / "results.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(asdict(shipped_early_rule()))) == data["early_rule"]


def test_the_results_of_the_demo_are_those_of_the_demo_as_it_is() -> None:
    """And they show what it is there to show."""
    data = json.loads((RESULTS / "demo/results.json").read_text(encoding="utf-8"))
    arms = data["arms"]
    found = [(arm["warmup_updates"], arm["peak_lr"], arm["optimizer"], arm["seeds"][0]["updates"]) for arm in arms]
    updates = demo_config().train.duration
    assert found == [(arm.warmup_updates, arm.peak_lr, arm.optimizer, updates) for arm in DEMO_GRID.arms()]
    assert [arm["label"] for arm in arms if not arm["verdict"].startswith("learned")] == ["Post-LN, no warm-up"]
    assert data["conclusion"][-1].endswith("these runs agree on Post-LN and Pre-LN.")
    # What a newcomer waits for: at 0.14 seconds of a core for each update, 70 seconds on two of them.
    assert len(arms) * int(updates) <= 1000
