"""Training, reading and loading runs from Python."""

from pathlib import Path

import numpy as np
import pytest

import normscope
from normscope.api.runs import Run
from normscope.runs.config import load
from tiny import SHORT, tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return normscope.train(tiny(*SHORT), tmp_path_factory.mktemp("api") / "run")


def test_a_run_is_what_the_command_line_makes_of_the_configuration(
    run: Run, tmp_path: Path
) -> None:
    """The same weights, bit for bit, whether the configuration comes as values or as a file of
    tables.
    """
    import tomllib

    table = tomllib.loads((run.folder / "config.toml").read_text())
    again = normscope.train(table, tmp_path / "again")
    assert again.events == run.events
    assert next(event["event"] for event in run.events) == "initialisation"
    assert run.is_finished
    assert run.config == load(run.folder / "config.toml")


def test_losses_are_the_recorded_ones(run: Run) -> None:
    losses = run.losses
    recorded = [event for event in run.events if event["event"] == "update"]
    assert losses["train"].nats.tolist() == [event["nll_nats"] for event in recorded]
    assert losses["train"].updates.tolist() == list(range(1, len(recorded) + 1))
    assert np.isfinite(losses["valid"].nats).all()
    (axes,) = run.plot().axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert any(np.array_equal(values, losses["valid"].nats) for values in drawn.values())
    assert "<svg" in run._repr_html_()


def test_settings_are_given_as_keywords_and_watched(tmp_path: Path) -> None:
    seen: list[str] = []
    made = normscope.train(
        tiny(*SHORT),
        tmp_path / "run",
        watch=lambda event: seen.append(event["event"]),
        optimizer__peak_lr=1e-5,
    )
    assert made.config.optimizer.peak_lr == 1e-5
    assert seen == [event["event"] for event in made.events]
    with pytest.raises(normscope.UserError, match="peak_lr"):
        normscope.train(None, tmp_path / "other", optimizer__peak_rl=1e-5)
    assert not (tmp_path / "other").exists()


def test_a_loaded_run_translates_as_the_command_line_does(
    run: Run, capsysbinary, monkeypatch
) -> None:
    import io
    import sys

    from normscope.cli.trained import translate

    lines = ["ein hund läuft .", "", "die katze schläft ."]
    loaded = normscope.load_run(run.folder, device="cpu")
    assert loaded.update == run.load("best", device="cpu").update
    assert not loaded.model.training
    found = loaded.translate(lines, beam=2)
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
    )
    translate(run.folder, beam=2, device="cpu")
    assert capsysbinary.readouterr().out.decode().splitlines() == found
    assert found[1] == ""


def test_an_evaluation_has_the_scores(run: Run) -> None:
    scores = run.evaluate("test", beam=1, device="cpu").scores
    assert 0 <= scores["bleu"] <= 100
    with pytest.raises(normscope.UserError, match="tset"):
        run.evaluate("tset")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for read in (normscope.open_run, normscope.load_run):
        with pytest.raises(normscope.UserError, match=r"no config\.toml"):
            read(tmp_path)
