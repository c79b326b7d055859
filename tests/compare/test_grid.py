"""The axes of a comparison and the names of its runs."""

import errno
import os
import tomllib
import typing
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from normscope.compare.grid import Grid, configurations, write_configs
from normscope.compare.pool import job_of, train_command
from normscope.engines.seam import process_of
from normscope.errors import UserError
from normscope.runs.config import load, replaced
from normscope.runs.run import train_run
from normscope.tasks.registry import config_of
from tiny import tiny


def grid(**changes: object) -> Grid:
    axes: dict[str, object] = {
        "placements_and_warmups": (("post-ln", 0), ("pre-ln", 4)),
        "peak_lrs": (1e-3, 0.5),
        "optimizers": ("adam",),
        "seeds": 2,
    }
    return Grid(**{**axes, **changes})  # type: ignore[arg-type]


def test_cells_are_named_by_all_that_differs_the_first_seed_first(tmp_path: Path) -> None:
    cells = grid().cells(tiny(), tmp_path)
    assert [cell.name for cell in cells] == [
        f"{arm}_lr-{rate}_adam_seed-{seed}"
        for seed in (1, 2)
        for arm in ("post-ln_warmup-0", "pre-ln_warmup-4")
        for rate in ("0.001", "0.5")
    ]
    last = cells[-1]
    assert last.folder.path == tmp_path / "runs" / last.name
    found = last.config
    assert (found.seed, found.model.placement, found.schedule.warmup_updates) == (2, "pre-ln", 4)
    assert (found.optimizer.peak_lr, found.train.threads, found.train.device) == (0.5, 1, "cpu")
    assert not list(tmp_path.iterdir())


def test_rates_that_print_alike_get_folders_of_their_own(tmp_path: Path) -> None:
    cells = grid(peak_lrs=(1e-3, 1.0000001e-3)).cells(tiny(), tmp_path)
    assert len({cell.folder.path for cell in cells}) == len(cells) == 8


def test_the_command_of_a_cell_reads_the_configuration_that_its_process_is_given(
    tmp_path: Path,
) -> None:
    cell = grid().cells(tiny(), tmp_path)[-1]
    write_configs([cell])
    command = train_command(cell, config=Path("/dev/stdin"))
    assert command[:3] == ["-m", "normscope", "train"]
    assert command[4:] == ["--run", str(cell.folder.path)]
    reading = ["-c", "import sys; print(open(sys.argv[1]).read())", command[3]]
    assert process_of(job_of(cell, reading), {}).wait() == 0
    assert load(cell.log_file) == cell.config


def test_all_configurations_are_on_disk_at_once_and_beside_those_of_former_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, synced = grid(seeds=20).cells(tiny(), tmp_path), list[int]()
    write_configs(cells[:1])
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    write_configs(cells[1:])
    # The file, whole, and the folder of its name.
    assert len(synced) == 2
    assert synced[0] == (tmp_path / "cells.json").stat().st_size
    assert configurations(tmp_path) == {cell.name: cell.configuration for cell in cells}
    assert {
        config_of(tomllib.loads(text), source=name).seed
        for name, text in configurations(tmp_path).items()
    } == {*range(1, 21)}
    write_configs(cells)
    assert len(synced) == 2  # nothing is new
    assert {path.name for path in tmp_path.iterdir()} == {"cells.json", "logs"}


@pytest.mark.parametrize("operation", ["os.fsync", "pathlib.Path.replace"])
def test_a_command_that_is_ended_while_it_writes_leaves_the_former_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    first, *others = grid().cells(tiny(), tmp_path)
    write_configs([first])

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(operation, ended)
        with pytest.raises(KeyboardInterrupt):
            write_configs(others)
    assert configurations(tmp_path) == {first.name: first.configuration}
    assert {path.name for path in tmp_path.iterdir()} == {"cells.json", "logs"}


def test_configurations_that_are_not_as_they_were_written_are_refused(tmp_path: Path) -> None:
    cells = grid().cells(tiny(), tmp_path)
    write_configs(cells)
    file = tmp_path / "cells.json"
    whole = file.read_text()
    for text in ("", whole[: len(whole) // 2], whole.replace("width", "with", 1)):
        file.write_text(text)
        with pytest.raises(
            UserError, match=r"cells\.json is damaged .*; remove it and run the same command again"
        ):
            configurations(tmp_path)
    file.unlink()
    cells[0].log_file.write_text("the user's own\n")
    with pytest.raises(UserError, match=r"\.txt holds other text, and stays"):
        write_configs(cells)
    cells[0].folder.path.mkdir(parents=True)
    write_configs(cells)
    assert file.read_text() == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peak_lrs": ()}, "peak lrs: give one or more different values"),
        ({"peak_lrs": (0.1, 0.1)}, "peak lrs: give one or more different values"),
        ({"placements_and_warmups": ()}, "placements and warmups"),
        ({"optimizers": ("adam", "adam")}, "optimizers"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_an_axis_without_values_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        grid(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements_and_warmups": (("sideways", 0),)}, "unknown placement 'sideways'"),
        ({"placements_and_warmups": (("pre-ln", -1),)}, "warmup_updates"),
        ({"peak_lrs": (-1.0,)}, "peak_lr must be positive"),
        ({"optimizers": ("lamb",)}, "optimizer.name"),
    ],
)
def test_a_value_no_run_may_have_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        grid(**changes).cells(tiny(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_comparison_is_refused(tmp_path: Path) -> None:
    single = grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), seeds=1)
    cell = single.cells(tiny("train.duration=1"), tmp_path)[0]
    train_run(cell.config, cell.folder.path)
    assert single.cells(tiny("train.duration=1"), tmp_path)[0].config == cell.config
    with pytest.raises(
        UserError, match=r"another configuration \(model.ffn_width: 16 there, 32 now\).*--out"
    ):
        single.cells(replaced(tiny("train.duration=1"), model__ffn_width=32), tmp_path)


def test_runs_that_differ_in_what_no_folder_is_named_after_are_refused(tmp_path: Path) -> None:
    """Else the second would take the place of the first, and both be read from it."""
    single = grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), seeds=1)
    clipped = [
        cell
        for norm in (1.0, 2.0)
        for cell in single.cells(replaced(tiny(), train__clip_norm=norm), tmp_path)
    ]
    write_configs(clipped[:1] * 2)
    with pytest.raises(
        UserError, match="two runs that differ would be one; give each arm a folder of its own"
    ):
        write_configs(clipped)


@pytest.mark.parametrize(
    ("error", "told"),
    [(OSError(errno.EIO, "Input/output error"), True), (FileNotFoundError(), False)],
)
def test_scores_that_the_disk_does_not_give_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: bool
) -> None:
    (cell, *_) = grid().cells(tiny(), tmp_path)
    cell.folder.path.mkdir(parents=True)
    cell.evaluation_file("valid").write_text("{}")
    assert cell.evaluations() == {}

    def failing(path: Path) -> str:
        raise error

    monkeypatch.setattr("normscope.limits.ours.read_text", failing)
    with pytest.raises(UserError, match="cannot be read") if told else nullcontext():
        assert cell.evaluations() == {}


def test_types_of_configurations_are_read_once_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, read, asked = tiny(), typing.get_type_hints, Counter[str]()

    def counting(made: object, **options: object) -> dict[str, object]:
        asked[str(made)] += 1
        return read(made, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(typing, "get_type_hints", counting)
    assert len(grid(seeds=20).cells(base, tmp_path)) == 80
    assert all(count <= 2 for count in asked.values()), asked
