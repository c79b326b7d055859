"""What a comparison varies: options and configuration are both honoured, and never one against the
other.
"""

from pathlib import Path
from typing import Any

import pytest

from normscope.compare.grid import Grid, grid_of
from normscope.errors import UserError
from normscope.placement import registered
from normscope.runs.config import load
from normscope.settings.files import given_config


def asked_with(
    text: str, tmp_path: Path, settings: tuple[str, ...] = (), **options: Any
) -> tuple[Grid, list[str], Any]:
    """Grid, defaults and configuration of `compare my.toml` with this text, `--set` settings and
    options.
    """
    file = tmp_path / "my.toml"
    file.write_text(text)
    base = load(file, settings)
    return *grid_of(base, given_config(file, settings).places, **options), base


def test_what_nobody_gives_is_the_default_of_compare_and_is_said(tmp_path: Path) -> None:
    grid, defaults, _ = asked_with("", tmp_path)
    assert grid == Grid(
        placements_and_warmups=(("post-ln", 0), ("post-ln", 200), ("pre-ln", 0), ("pre-ln", 200)),
        peak_lrs=(3e-3,),
        optimizers=("adam",),
        seeds=1,
    )
    assert defaults == [
        "placements post-ln,pre-ln",
        "warm-ups in updates 0,200",
        "peak learning rate 0.003",
        "optimiser adam",
    ]


MINE = """
seed = 7
[optimizer]
name = "sgd"
peak_lr = 0.01
[schedule]
warmup_updates = 30
[model]
placement = "Peri-LN"
[train]
threads = 2
"""


def test_what_the_configuration_gives_is_the_axis(tmp_path: Path) -> None:
    grid, defaults, base = asked_with(MINE, tmp_path, seeds=2)
    assert (defaults, grid.threads) == ([], 2)
    cells = grid.cells(base, tmp_path)
    assert [cell.name for cell in cells] == [
        f"peri-ln_warmup-30_lr-0.01_sgd_seed-{seed}" for seed in (7, 8)
    ]
    assert [cell.config.train.threads for cell in cells] == [2, 2]


def test_a_setting_of_the_command_line_counts_as_the_configurations(tmp_path: Path) -> None:
    grid, defaults, _ = asked_with(
        MINE, tmp_path, ("optimizer.peak_lr=1e-3", "schedule={warmup_updates=5}")
    )
    assert (grid.peak_lrs, grid.placements_and_warmups, defaults) == (
        (1e-3,),
        (("peri-ln", 5),),
        [],
    )


def test_a_default_that_is_written_down_is_given(tmp_path: Path) -> None:
    grid, _, _ = asked_with('[optimizer]\npeak_lr = 5e-4\n[train]\nthreads = "auto"', tmp_path)
    assert (grid.peak_lrs, grid.threads) == ((5e-4,), "auto")


def test_options_that_say_the_same_are_no_conflict(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "placements": ["Peri LN"],
        "peak_lrs": [0.01],
        "warmups_updates": [30],
    }
    grid, _, _ = asked_with(MINE, tmp_path, **options, arms=[("periln", 30)])
    assert grid.placements_and_warmups == (("peri-ln", 30),)


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (
            (),
            {"peak_lrs": [3e-3, 0.01]},
            "--peak-lr (peak_lr in Python) gives 0.003,0.01, but {file} gives optimizer.peak_lr = "
            "0.01: leave",
        ),
        (
            ("optimizer.peak_lr=1",),
            {"peak_lrs": [2.0]},
            "--peak-lr (peak_lr in Python) gives 2, but --set gives optimizer.peak_lr = 1",
        ),
        (
            (),
            {"placements": ["pre-ln"]},
            "--placements (placements in Python) gives pre-ln, but {file} gives model.placement = "
            "peri-ln",
        ),
        (
            (),
            {"warmups_updates": [0, 200]},
            "--warmup-updates (warmup_updates in Python) gives 0,200, but {file} gives "
            "schedule.warmup_updates = 30",
        ),
        (
            (),
            {"optimizers": ["adam"]},
            "--optimizers (optimizers in Python) gives adam, but {file} gives optimizer.name = sgd",
        ),
        (
            (),
            {"arms": [("pre-ln", 30)]},
            "--arms (arms in Python) gives pre-ln, but {file} gives model.placement = peri-ln",
        ),
        (
            (),
            {"arms": [("peri-ln", 30)], "placements": ["peri-ln", "pre-ln"]},
            "--arms (arms in Python) gives peri-ln, but --placements (placements in Python) gives "
            "peri-ln,pre-ln: leave one of them out",
        ),
        (
            (),
            {"arms": [("peri-ln", 30)], "warmups_updates": [0]},
            "--arms (arms in Python) gives 30, but --warmup-updates (warmup_updates in Python) "
            "gives 0",
        ),
    ],
)
def test_two_places_that_differ_are_both_named(
    tmp_path: Path, settings: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        asked_with(MINE, tmp_path, settings, **options)
    assert str(error.value).startswith(message.format(file=tmp_path / "my.toml"))


@pytest.mark.parametrize(
    ("task", "model"), [("translation", "encoder-decoder"), ("language-model", "decoder-only")]
)
def test_all_placements_are_those_of_the_tasks_model(tmp_path: Path, task: str, model: str) -> None:
    grid, _, _ = asked_with(f'task = "{task}"', tmp_path, placements=["all"], warmups_updates=[0])
    defined = [name for name, placement in registered().items() if model in placement.models]
    assert [name for name, _ in grid.placements_and_warmups] == defined
    assert 20 < len(defined) < len(registered()) or model == "encoder-decoder"
