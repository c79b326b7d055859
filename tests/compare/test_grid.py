"""The axes of a comparison and the names of its runs."""

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from normscope.compare.grid import Grid, write_configs
from normscope.compare.pool import train_command
from normscope.errors import UserError
from normscope.runs.config import load, replaced
from normscope.runs.run import train_run
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


def test_the_command_of_a_cell_names_a_configuration_that_is_the_cells(tmp_path: Path) -> None:
    cells = grid().cells(tiny(), tmp_path)
    write_configs(cells)
    for cell in cells:
        command = train_command(cell)
        assert command[:3] == ["-m", "normscope", "train"]
        assert load(Path(command[3])) == cell.config
        assert command[4:] == ["--run", str(cell.folder.path)]


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
    with pytest.raises(UserError, match=r"another configuration \(model.ffn_width: 16 there, 32 now\).*--out"):
        single.cells(replaced(tiny("train.duration=1"), model__ffn_width=32), tmp_path)


def test_runs_that_differ_in_what_no_folder_is_named_after_are_refused(tmp_path: Path) -> None:
    """Else the second would take the place of the first, and both be read from it."""
    single = grid(placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), seeds=1)
    clipped = [cell for norm in (1.0, 2.0) for cell in single.cells(replaced(tiny(), train__clip_norm=norm), tmp_path)]
    write_configs(clipped[:1] * 2)
    with pytest.raises(UserError, match="two runs that differ would be one; give each arm a folder of its own"):
        write_configs(clipped)


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(errno.EIO, "Input/output error"), True), (FileNotFoundError(), False)]
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
