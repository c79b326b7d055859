"""What results/ holds, and that the demo is that of its results."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from normscope.compare.grid import DEMO_GRID, demo_config
from normscope.report.words import significant

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/results.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_result_has_its_figures_and_no_path_of_a_machine(folder: Path) -> None:
    text = (folder / "results.json").read_text(encoding="utf-8")
    figures = {p.name for p in folder.glob("*.svg")}
    # A comparison of runs has arms; a study has a figure of its own.
    assert figures >= (
        {"valid_loss.svg", "gradient_norms.svg", "learning_rate.svg"}
        if "arms" in json.loads(text)
        else set()
    )
    reading = (folder / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^]]*\]\(([^)]*)\)", reading))
    # Claims of a text measure nothing: they are a table of what other folders found.
    assert shown or folder.name in ("paper", "memo")
    assert shown <= figures
    assert not re.search(r'[ "](/[a-z]+){2,}', text)


def test_the_page_of_the_demo_is_that_of_its_results_and_names_no_machine() -> None:
    page = (RESULTS / "demo/report.html").read_text(encoding="utf-8")
    data = json.loads((RESULTS / "demo/results.json").read_text(encoding="utf-8"))
    text = html.unescape(page)
    assert [
        line for line in (data["title"], *data["conclusion"], *data["commands"]) if line not in text
    ] == []
    assert all(
        f"validation loss {arm['seeds'][0]['valid_loss_nats']:.2f} nats" in text
        for arm in data["arms"]
    )
    assert not re.search(r'[ ">](/[a-z]+){2,}', page.partition("<script")[0])
    assert not re.search(r"(src|href)=.(?!data:)(http|/)", page)
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert "(results/demo/report.png)](results/demo/report.html)" in readme
    assert (RESULTS / "demo/report.png").read_bytes().startswith(b"\x89PNG")


def test_every_result_stands_in_the_index() -> None:
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert {f"{folder.name}/README.md" for folder in FOLDERS} == set(
        re.findall(r"\]\(([^)]*)\)", index)
    )


def test_the_index_says_how_long_processors_worked_for_each_result() -> None:
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| \[([^]]*)\].* \| ([^|]*) \|$", index, re.MULTILINE))
    hours = {
        folder.name: json.loads((folder / "results.json").read_text("utf-8")) for folder in FOLDERS
    }
    assert said == {
        name: significant(data.get("processor_hours"), 3) for name, data in hours.items()
    }


def test_the_results_of_the_demo_are_those_of_the_demo_as_it_is() -> None:
    """And they show what it is there to show."""
    data = json.loads((RESULTS / "demo/results.json").read_text(encoding="utf-8"))
    arms = data["arms"]
    found = [
        (arm["warmup_updates"], arm["peak_lr"], arm["optimizer"], arm["seeds"][0]["updates"])
        for arm in arms
    ]
    updates = demo_config().train.duration
    assert found == [
        (arm.warmup_updates, arm.peak_lr, arm.optimizer, updates) for arm in DEMO_GRID.arms()
    ]
    assert [arm["label"] for arm in arms if not arm["verdict"].startswith("learned")] == [
        "Post-LN, no warm-up"
    ]
    assert data["conclusion"][-1].endswith("these runs agree on Post-LN and Pre-LN.")
    # What a newcomer waits for: at 0.14 seconds of a core for each update, 70 seconds on two of
    # them.
    assert len(arms) * int(updates) <= 1000


def test_the_manual_has_the_figures_that_parts_have_measured_on_a_device() -> None:
    page = (RESULTS.parent / "docs/gpu.md").read_text(encoding="utf-8")
    found = re.findall(
        r"^\| .+ \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) % \| ([\d,]+) \|$", page, re.MULTILINE
    )
    parts = {
        name: _part(name)
        for name in ("step-llama", "step-bert", "step-translation", "decode", "doctor")
    }
    rows = [row for name, part in parts.items() if name.startswith("step") for row in part["rows"]]
    keys = ("tokens/s", "× transformers", "MFU %", "peak MB")
    assert found == [
        tuple(
            f"{row[key]:{form}}"
            for key, form in zip(keys, (",.0f", ".2f", ".1f", ",.0f"), strict=True)
        )
        for row in rows
    ]
    before, now = _part("step-llama-before"), parts["step-llama"]
    (profiled,) = (arm for name, arm in before["arms"].items() if name.startswith("profile"))
    gained = [
        f"{part['rows'][row]['× transformers']:.2f}" for row in (0, 2) for part in (before, now)
    ]
    assert (
        "{} times transformers' rate then, {} now, each beside transformers in its own run; "
        "compiled {} and {}.".format(*gained)
        in page
    )
    ours = parts["decode"]["rows"][0]
    there, here = (
        parts["doctor"]["arms"][f"GPT-2 of transformers{place}"] for place in ("", " on the CPU")
    )
    assert {key: there[key] for key in ("findings", "placements")} == {
        k: here[k] for k in ("findings", "placements")
    }
    assert f"had work {100 * profiled['busy_share']:.0f} % of the time" in page
    assert (
        f"takes {ours['sentences/s']:.0f} sentences/s, {ours['× transformers']:.2f} times" in page
    )
    assert f"in {there['seconds']:.1f} s there and {here['seconds']:.1f} s on the CPU" in page


def _part(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (RESULTS / "gpu" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found
