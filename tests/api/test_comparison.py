"""A comparison from Python is that of the command line."""

from pathlib import Path

import pytest

import in_process
import normscope
from normscope.compare import pool
from normscope.placement import Placement, register, registry
from tiny import SETTINGS


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pool's processes have tests of their own.
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)


CONFIG = {
    "model": {"width": 16, "ffn_width": 16, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 1},
    "data": {"toy_pairs": 300, "max_tokens": 512},
    "train": {"threads": 1, "device": "cpu", "duration": 4, "validate_every": 2},
}


def test_the_table_the_figure_and_the_page_say_what_the_runs_recorded(tmp_path: Path) -> None:
    found = normscope.compare(
        CONFIG,
        out=tmp_path / "grid",
        placements=["pre-ln", "Post-LN"],
        warmup_updates=2,
        peak_lr=1e-3,
    )
    assert len(found.runs) == len(found.table) == 2
    assert {row["warmup_updates"] for row in found.table} == {2}
    recorded = {round(float(run.losses["valid"].nats[-1]), 9) for run in found.runs.values()}
    assert {round(row["valid_loss_nats"], 9) for row in found.table} == recorded
    assert {row["status"] for row in found.table} == {"finished"}
    assert found.report == tmp_path / "grid" / "report.html"
    assert found.report.read_text(encoding="utf-8").startswith(("<!doctype", "<!DOCTYPE"))
    assert "Post-LN" in found._repr_html_()
    assert repr(found) == f"Comparison(2 runs; {found.report})"
    drawn = [tuple(line.get_ydata()) for axes in found.plot().axes for line in axes.lines]
    for run in found.runs.values():
        assert any(
            values == pytest.approx(tuple(run.losses["valid"].nats))
            for values in drawn
            if len(values) == 2
        )
    assert found.conclusion


def test_what_the_configuration_gives_is_used_and_not_overridden(tmp_path: Path) -> None:
    with pytest.raises(
        normscope.UserError,
        match=r"peak_lr in Python\) gives 0\.002, but a keyword gives .*0\.001: leave one",
    ):
        normscope.compare(CONFIG, out=tmp_path, peak_lr=2e-3, optimizer__peak_lr=1e-3)
    with pytest.raises(
        normscope.UserError, match=r"\(processes in Python\) must be 0 or more, got -1"
    ):
        normscope.compare(CONFIG, out=tmp_path, processes=-1)
    assert not any(tmp_path.iterdir())


def test_a_placement_of_this_process_alone_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @register
    class Mine(Placement):
        """x + F(x)"""

        name, title, citation, year = "mine", "Mine", "here", 2026

        def join(self, x, sublayer, norm):
            return x + sublayer(x)

    with pytest.raises(normscope.UserError, match="put it into a file"):
        normscope.compare(CONFIG, out=tmp_path / "grid", placements="mine")
    assert not (tmp_path / "grid").exists()


def test_a_configuration_of_values_gives_what_differs_from_its_defaults(tmp_path: Path) -> None:
    from normscope.api.comparison import _given
    from normscope.runs.config import load

    places = _given(load(None, [*SETTINGS, "optimizer.peak_lr=1e-3"])).places
    assert places["optimizer.peak_lr"] == "the configuration"
    assert "model.placement" not in places


def test_a_keyword_that_differs_from_an_axis_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(
        normscope.UserError, match=r"gives 0\.001, but a keyword gives optimizer\.peak_lr = 0\.002"
    ):
        normscope.compare(CONFIG, out=tmp_path / "grid", peak_lr=1e-3, optimizer__peak_lr=2e-3)
