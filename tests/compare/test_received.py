"""A report of runs that somebody has sent: whatever a log holds under right guards, it is named in
a line, and the rest is shown.
"""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fuzz.ours import sealed
from normscope.cli import main as cli
from normscope.compare.compare import opened, report
from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.manifest import about, write_manifest
from normscope.compare.page import read
from normscope.data.opening import toy_corpus
from normscope.report.comparison.contents import ComparisonPage
from normscope.runs.trained import SCORES
from normscope.settings.tables import to_toml
from normscope.train import RunFolder
from tiny import resealed, tiny, write_events

NUMBERS = {"nll_nats": 3.0, "lr": 0.1, "epoch": 1.0, "gradient_norm": 1.0, "target_tokens": 8}
Events = list[dict[str, Any]]


def log(*updates: int) -> Events:
    """Of a run that has made these updates and ended."""
    events: Events = [{"event": "update", "update": update} | NUMBERS for update in updates]
    events.append({"event": "validation", "update": updates[-1], "nll_nats": 2.0})
    return [*events, {"event": "finished", "update": updates[-1], "best_update": updates[-1]}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Cell]]:
    """A comparison of two finished runs."""
    folder = tmp_path_factory.mktemp("received")
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0), ("post-ln", 0)),
        peak_lrs=(1e-3,),
        optimizers=("adam",),
        seeds=1,
    )
    cells = grid.cells(tiny("train.duration=4"), folder)
    for cell in cells:
        cell.folder.path.mkdir(parents=True)
        cell.folder.write_config(to_toml(cell.config))
    write_configs(cells)
    manifest = about(cells[0].config, toy_corpus(5)).grown("T", "C", cells)
    write_manifest(folder, manifest)
    return folder, cells


def write_logs(made: tuple[Path, list[Cell]], first: Events | list[str]) -> None:
    """Of the second run one as it should be, of the first one `first`, as values or as lines."""
    odd, whole = made[1]
    write_events(whole.folder, log(1, 2, 3, 4))
    lines = [event if isinstance(event, str) else json.dumps(event) for event in first]
    odd.folder.metrics_file.write_text(sealed(lines), encoding="utf-8")


def reported(folder: Path, out: Path) -> tuple[ComparisonPage, str]:
    """What a report shows, and its page; every file of it can be read."""
    page, file = report([folder], out)
    for picture in out.glob("*.svg"):
        ET.fromstring(picture.read_bytes())
    json.loads((out / "results.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return page, file.read_text(encoding="utf-8")


def with_line(at: int, **changes: Any) -> Events:
    events = log(1, 2, 3, 4)
    events[at] |= changes
    return events


HUGE = 10**400
REFUSED: dict[str, Events | list[str]] = {
    "text": with_line(1, lr="0.1"),
    "null": with_line(1, gradient_norm=None),
    "a truth value": with_line(1, nll_nats=True),
    "an update that is true": with_line(0, update=True),
    "an update that is no count": with_line(1, update=2.0),
    "a list": with_line(1, nll_nats=[3.0]),
    "a table": with_line(1, target_tokens={"a": 1}),
    "a value that is not finite": with_line(1, nll_nats=float("nan")),
    "an infinite one": with_line(1, lr=float("inf")),
    "a huge one": with_line(1, gradient_norm=1e308),
    "a huge integer": with_line(1, nll_nats=HUGE),
    "a huge count": with_line(1, target_tokens=HUGE),
    "a huge update": with_line(5, update=HUGE),
    "a negative rate": with_line(1, lr=-0.1),
    "an update again": with_line(2, update=2),
    "an update back": with_line(3, update=1),
    "a validation of text": with_line(4, nll_nats="2"),
    "a reason that is none": with_line(5, reason=["a"]),
    "gradients that are no table": [
        {"event": "initialisation", "update": 0, "gradient_norms": [1.0]}
    ],
    "gradients of text": [
        {"event": "initialisation", "update": 0, "gradient_norms": {"h.0.w": "1"}}
    ],
    "measurements of text": [
        {"event": "monitor", "update": 1, "normscope/a/block_1/b/gradient_norm": "1"}
    ],
    "no event": [{"update": 1}],
    "no update": [{"event": "update"}],
    "no table": ["[1]"],
    "no JSON": ["{oh no}"],
    "deep": ['{"event": "update", "update": 1, "a": ' + "[" * 9000 + "]" * 9000 + "}"],
    "half a character": ['{"event": "skipped", "update": 1, "reason": "\\ud800"}'],
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", REFUSED)
def test_a_line_that_no_run_writes_is_named_and_the_rest_is_shown(
    name: str, made: tuple[Path, list[Cell]]
) -> None:
    write_logs(made, REFUSED[name])
    page = read(*opened(made[0]))
    odd, whole = (row.seeds[0] for row in page.configurations)
    assert (odd.status, whole.status, whole.valid_loss_nats) == ("failed", "finished", 2.0)
    message = odd.message
    assert "metrics.jsonl:" in message
    assert "no run writes this line" in message
    assert len(message) < 1000
    assert message.isprintable()


BLOCKS = {f"layers.{'9' * digits}.w": 1.0 for digits in (1, 9, 10, 5000)}
SHOWN: dict[str, tuple[Events, str, str]] = {
    "nothing": ([], "missing", ""),
    "an end alone": ([{"event": "finished", "update": 4}], "finished", ""),
    "updates alone": (log(1, 2)[:2], "unfinished", ""),
    "no rates": (
        [{"event": "update", "update": 1, "nll_nats": 3.0, "gradient_norm": 1.0}],
        "unfinished",
        "no lr of 1 of 1 updates",
    ),
    "no losses": (
        [{"event": "update", "update": 1}, {"event": "validation", "update": 1}],
        "unfinished",
        "no nll_nats of 1 of 1 updates",
    ),
    "an event that is not known": (
        [*log(1, 2), {"event": "of a later version", "update": 2, "a": [{}]}],
        "unfinished",
        "1 event of a kind that is not known here (of a later version)",
    ),
    "a kind that is a status": ([*log(1, 2)[:2], {"event": "missing", "update": 2}], "missing", ""),
    "numbers at the ends": (
        [
            {"event": "update", "update": 1} | dict.fromkeys(NUMBERS, 0) | {"nll_nats": -1e100},
            {"event": "update", "update": 2**53, "nll_nats": 1e100, "target_tokens": 2**53}
            | {"lr": 1e100, "gradient_norm": 1e100, "epoch": 1e-320},
            {"event": "validation", "update": 2**53, "nll_nats": 1e100, "bleu": -1e100},
            {"event": "finished", "update": 2**53},
        ],
        "finished",
        "",
    ),
    "the least numbers": (
        [{"event": "update", "update": 1} | dict.fromkeys(NUMBERS, 0) | {"gradient_norm": 5e-324}],
        "unfinished",
        "",
    ),
    "blocks of many digits": (
        [{"event": "initialisation", "update": 0, "gradient_norms": BLOCKS}],
        "unfinished",
        "",
    ),
    "signs in a name": (
        [{"event": "initialisation", "update": 0, "gradient_norms": {"\x1b]&<$x_$.h.0.w": 1e100}}],
        "unfinished",
        "",
    ),
    "measurements at an end": (
        [{"event": "monitor", "update": 1, "normscope/\x00/block_8/b/gradient_norm": 1e100}],
        "unfinished",
        "",
    ),
    "a reason that steers a terminal": (
        [{"event": "non-finite", "update": 1, "reason": "\x1b[2J</td><script>"}],
        "non-finite",
        "",
    ),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", SHOWN)
def test_a_log_that_is_odd_is_shown_as_far_as_it_goes(
    name: str, made: tuple[Path, list[Cell]], tmp_path: Path
) -> None:
    events, status, told = SHOWN[name]
    write_logs(made, events)
    page, html = reported(made[0], tmp_path)
    odd, whole = (row.seeds[0] for row in page.configurations)
    assert (odd.status, whole.status, whole.valid_loss_nats) == (status, "finished", 2.0)
    assert told in html
    assert not {"\x1b", "\x00"} & set(html)
    assert "<script>" not in html.partition("</main>")[0]


def test_seeds_whose_models_differ_share_no_row_of_another_length(tmp_path: Path) -> None:
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=2
    )
    cells = grid.cells(tiny("train.duration=4"), tmp_path)
    for cell, blocks in zip(cells, (2, 3), strict=True):
        cell.folder.path.mkdir(parents=True)
        cell.folder.write_config(to_toml(cell.config))
        norms = {f"encoder.blocks.{block}.w": 0.5 for block in range(blocks)}
        first = {"event": "initialisation", "update": 0, "gradient_norms": norms}
        write_events(cell.folder, [first, *log(1, 2, 3, 4)])
    write_configs(cells)
    write_manifest(tmp_path, about(cells[0].config, toy_corpus(5)).grown("T", "C", cells))
    page, _ = report([tmp_path], tmp_path / "out")
    (profile,) = page.gradient_profiles
    assert [str(block) for block in profile.blocks] == [f"encoder {n}" for n in (1, 2, 3)]
    rows = [[f"{norm:g}" for norm in row] for row in profile.seeds_norms]
    assert rows == [["0.5", "0.5", "nan"], ["0.5", "0.5", "0.5"]]


@pytest.mark.parametrize(
    "changes",
    [{"bleu": "31"}, {"bleu": float("1e308")}, {"bleu": [1]}, {"update": True}, {"split": 5}],
)
def test_scores_that_no_evaluation_writes_are_none(
    changes: dict[str, Any], made: tuple[Path, list[Cell]], tmp_path: Path
) -> None:
    folder, (cell, other) = made
    for one in (cell, other):
        write_events(one.folder, log(1, 2, 3, 4))
    scores = {"run": "", "update": 4, "split": "test", "bleu": 31.25}
    file = cell.evaluation_file("test")
    file.write_text(SCORES.text(scores), encoding="utf-8")
    page, _ = report([folder], tmp_path)
    assert page.configurations[0].seeds[0].scores == {"BLEU, test": 31.25}
    resealed(file, **changes)
    page, _ = report([folder], tmp_path)
    assert page.configurations[0].seeds[0].scores == {}
    file.unlink()


def test_a_run_by_itself_is_reported_in_a_line_too(
    made: tuple[Path, list[Cell]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, (cell, _) = made
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.write_config(to_toml(cell.config))
    vocabularies = run.path / "vocabularies"
    vocabularies.mkdir()
    toy_corpus(5).codec.save(vocabularies)
    run.metrics_file.write_text(sealed(json.dumps(one) for one in with_line(1, lr=True)))
    monkeypatch.setattr("sys.argv", ["normscope", "report", str(run.path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "did not finish" in said or "failed" in said
    assert "metrics.jsonl:2: no run writes this line" in (
        run.path / "report" / "report.html"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["no-such-placement", "\x1b[2J"])
def test_what_a_placement_takes_that_is_not_registered_is_told_by_its_name(
    name: str, made: tuple[Path, list[Cell]]
) -> None:
    write_logs(made, log(1, 2, 3, 4))
    cost = {"parameters": 1, "memory_bytes": 1, "flops": 1, "seconds": 1}
    before = resealed(made[0] / "comparison.json", costs={name: cost})
    what = dict(read(*opened(made[0])).what)
    resealed(made[0] / "comparison.json", **before)
    (told,) = [row for row in what if row.startswith("Cost of ")]
    assert told.isprintable()
    assert name == "\x1b[2J" or told == f"Cost of {name}"
