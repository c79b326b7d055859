"""The frame of studies: measurements that are not made twice, settings from the command line, and
what is written.
"""

import json
import math
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from normscope.errors import UserError
from normscope_studies.engine import pieces as pieces_module
from normscope_studies.engine.judging import Verdict
from normscope_studies.engine.page import Claim, Findings, StudyFigure, StudyTable
from normscope_studies.engine.pieces import Pieces, as_json, plain
from normscope_studies.engine.study import Study, configured, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class DiceConfig:
    """Throws of a die."""

    throws: int = 4
    faces: tuple[int, ...] = (6,)
    limit: float = 3.5

    def __post_init__(self) -> None:
        if self.throws < 1:
            raise ValueError(f"throws must be at least 1, got {self.throws}")


def thrown(config: DiceConfig, throw: int) -> dict[str, object]:
    faces = config.faces[0]
    return {"value": (throw * 7919) % faces + 1 + 1 / 3, "none": math.nan}


def worked(seconds: float, pieces: Pieces) -> None:
    """A piece that takes so many processor seconds."""
    pieces.get(str(seconds), {}, busy, seconds)


def busy(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def run(config: DiceConfig, pieces: Pieces) -> Findings:
    values = []
    for throw in range(config.throws):
        pieces.watch("throws", throw, config.throws)
        asked = {"throw": throw, "faces": config.faces}
        values.append(pieces.get(f"throws/{throw}", asked, thrown, config, throw)["value"])
    mean = sum(values) / len(values)
    verdict = Verdict.REPRODUCED if mean <= config.limit else Verdict.CONTRADICTED
    return Findings(
        conditions={"Seeds": "none"},
        claims=[
            Claim(
                name="Mean", statement="small", source="here", found=f"{mean:.2f}", verdict=verdict
            )
        ],
        figures=[
            StudyFigure(
                name="dice", title="Dice", caption="None.", svg="<svg><title>x</title></svg>"
            )
        ],
        tables=[
            StudyTable(
                title="Throws",
                columns=["throw", "value"],
                rows=[[i, v] for i, v in enumerate(values)],
            )
        ],
        data={"mean": mean, "values": np.array(values)},
    )


DICE = Study(
    title="Dice",
    question="How many?",
    help="Dice.",
    scales={"smoke": DiceConfig(), "cpu": DiceConfig(throws=9)},
    run=run,
)


def studied(config: DiceConfig, folder: Path) -> tuple[list[str], dict[str, object]]:
    """Pieces that were made, and results.json without when it was written and how long processors
    worked for it.
    """
    pieces = Pieces(folder)
    run_study(DICE, config, pieces, command="normscope study dice")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    del results["created"], results["processor_hours"]
    return pieces.made, results


class TestPieces:
    def test_what_is_there_is_not_made_again_and_gives_the_same_bits(self, tmp_path):
        made, first = studied(DiceConfig(), tmp_path / "a")
        assert made == [f"throws/{i}" for i in range(4)]
        (tmp_path / "a" / "pieces" / "throws" / "2.json").unlink()
        made, again = studied(DiceConfig(), tmp_path / "a")
        assert made == ["throws/2"]
        assert again == first
        assert studied(DiceConfig(), tmp_path / "a") == ([], first)

    def test_a_piece_with_another_value_is_refused_and_measured_again_once_it_is_removed(
        self, tmp_path
    ):
        _, first = studied(DiceConfig(), tmp_path / "a")
        file = tmp_path / "a" / "pieces" / "throws" / "2.json"
        file.write_text(file.read_text().replace("33", "43", 1))
        with pytest.raises(
            UserError,
            match=r"throws/2\.json is damaged \(its SHA-256 .*\); remove it and try again",
        ):
            studied(DiceConfig(), tmp_path / "a")
        file.unlink()
        assert studied(DiceConfig(), tmp_path / "a") == (["throws/2"], first)

    def test_a_killed_study_goes_on_where_it_was(self, tmp_path, monkeypatch):
        real = thrown

        def dies(config, throw):
            if throw == 2:
                raise KeyboardInterrupt
            return real(config, throw)

        with monkeypatch.context() as patch:
            patch.setitem(globals(), "thrown", dies)
            with pytest.raises(KeyboardInterrupt):
                studied(DiceConfig(), tmp_path / "a")
        assert not (tmp_path / "a" / "results.json").exists()
        made, results = studied(DiceConfig(), tmp_path / "a")
        assert made == ["throws/2", "throws/3"]
        assert results == studied(DiceConfig(), tmp_path / "whole")[1]

    def test_other_settings_are_measured(self, tmp_path):
        studied(DiceConfig(), tmp_path)
        made, results = studied(DiceConfig(faces=(20,)), tmp_path)
        assert len(made) == 4
        assert results["settings"]["faces"] == [20]
        # More of the same asks for the new ones alone, and what no measurement depends on asks for
        # none.
        assert studied(DiceConfig(faces=(20,), throws=6), tmp_path)[0] == ["throws/4", "throws/5"]
        assert studied(DiceConfig(faces=(20,), throws=6, limit=99.0), tmp_path)[0] == []

    def test_another_version_measures_again(self, tmp_path, monkeypatch):
        studied(DiceConfig(), tmp_path)
        monkeypatch.setattr(pieces_module, "__version__", "9.9")
        assert len(studied(DiceConfig(), tmp_path)[0]) == 4

    def test_a_value_is_the_same_whether_it_was_made_or_read(self, tmp_path):
        make = lambda: {"x": 1 / 3, "y": np.arange(2), "z": (math.inf,)}  # noqa: E731
        made = Pieces(tmp_path).get("one", {}, make)
        assert made == (again := Pieces(tmp_path)).get("one", {}, lambda: pytest.fail("made twice"))
        assert again.made == []
        assert made == {"x": 0.333333, "y": [0, 1], "z": [None]}

    def test_a_long_measurement_is_worth_a_line(self, tmp_path, monkeypatch):
        said, clock = [], iter([0.0, 0.2, 10.0, 75.4])
        monkeypatch.setattr(pieces_module.time, "monotonic", lambda: next(clock))
        pieces = Pieces(tmp_path, say=said.append)
        pieces.get("short", {}, lambda: 1)
        pieces.get("long", {}, lambda: 1)
        assert said == ["long: measured in 65 s"]

    def test_processor_hours_are_of_all_pieces_whoever_measured_them(self, tmp_path, monkeypatch):
        clock = iter([0.0, 3600.0, 3600.0, 9000.0])
        with monkeypatch.context() as patch:
            patch.setattr(pieces_module, "processor_seconds", lambda: next(clock))
            pieces = Pieces(tmp_path)
            pieces.get("long", {}, lambda: 1)
            pieces.get("longer", {}, lambda: 2)
        assert (pieces.processor_hours, Pieces(tmp_path).processor_hours) == (2.5, None)
        again = Pieces(tmp_path)
        again.get("longer", {}, lambda: 2)
        again.get("longer", {}, lambda: 2)
        assert again.processor_hours == 1.5
        # A piece that an earlier version made does not say.
        file = tmp_path / "pieces" / "long.json"
        kept = json.loads(file.read_text())
        file.write_text(pieces_module._KIND.text({"asked": kept["asked"], "value": 1}))
        assert again.get("long", {}, lambda: pytest.fail("made twice")) == 1
        assert again.processor_hours is None

    def test_what_other_processes_measured_counts_too(self, tmp_path):
        begun, pieces = pieces_module.processor_seconds(), Pieces(tmp_path)
        pieces_module.side_by_side(worked, [0.2, 0.3], processes=2, pieces=pieces, stage="work")
        assert pieces.processor_seconds.keys() == {"0.2", "0.3"}
        assert all(spent >= float(asked) for asked, spent in pieces.processor_seconds.items())
        # Its own and that of processes that it has waited for, which also imported torch.
        assert pieces_module.processor_seconds() - begun > 3600 * pieces.processor_hours >= 0.5

    def test_a_folder_that_cannot_be_written_is_one_line(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match="writing into"):
            studied(DiceConfig(), tmp_path / "file" / "below")


class TestWritten:
    def test_results_hold_everything_a_reader_needs(self, tmp_path):
        _, results = studied(DiceConfig(), tmp_path)
        assert list(results) == [
            "title",
            "normscope",
            "source_sha256",
            "commit",
            "scale",
            "caution",
            "settings",
            "conditions",
            "claims",
            "mean",
            "values",
            "commands",
            "environment",
        ]
        assert results["settings"] == {"throws": 4, "faces": [6], "limit": 3.5}
        assert results["claims"][0]["found"] == f"{results['mean']:.2f}"
        assert {"torch", "processor", "threads"} <= results["environment"].keys()
        assert (tmp_path / "dice.svg").is_file()
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "Dice" in page
        assert re.search(r'<th scope="row">Processor hours</th><td>[\de.-]+</td>', page)

    @pytest.mark.parametrize(("limit", "verdict"), [(9.0, "reproduced"), (0.5, "contradicted")])
    def test_a_verdict_is_computed(self, tmp_path, limit, verdict):
        _, results = studied(DiceConfig(limit=limit), tmp_path)
        assert results["claims"][0]["verdict"] == verdict

    def test_plain_values(self):
        nested = {
            "a": np.array([[1.0, np.nan]]),
            2: (1, True, None, "x"),
            "c": np.float64(1e-9 / 3),
        }
        assert plain(nested) == {"a": [[1.0, None]], "2": [1, True, None, "x"], "c": 3.33333e-10}

    def test_a_row_of_numbers_is_one_line_and_reads_back(self):
        value = {"rows": [[1.5, None, -2e-07], [3.0]], "words": ["a", "b"], "none": []}
        text = as_json(value)
        assert "[1.5, null, -2e-07]" in text
        assert json.loads(text) == value
        assert text.endswith("}\n")

    def test_conditions_belong_to_one_verdict(self):
        claim = Claim(name="C", statement="s", source="p", found="f", verdict=Verdict.REPRODUCED)
        with pytest.raises(ValueError, match="C: conditions 'only here' do not go with"):
            replace(claim, conditions="only here")
        with pytest.raises(ValueError, match="C: conditions '' do not go with"):
            replace(claim, verdict=Verdict.UNDER_CONDITIONS)
        replace(claim, verdict=Verdict.UNDECIDED)
        replace(claim, verdict=Verdict.UNDECIDED, conditions="not a; undecided: b")


class TestConfigured:
    def test_changes(self):
        config = configured(DiceConfig(), ["throws=9", "faces=[2,3]", "limit=1"])
        assert config == DiceConfig(throws=9, faces=(2, 3), limit=1.0)
        assert configured(DiceConfig(), []) == DiceConfig()

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("throw=9", "unknown key 'throw'; did you mean 'throws'?"),
            ("throws", "got 'throws'"),
            ("throws=0", "throws must be at least 1, got 0"),
            ("throws=many", "throws: Input should be a valid integer"),
            ("faces=6", "faces: Input should be a valid"),
        ],
    )
    def test_mistakes(self, override, message):
        with pytest.raises(UserError) as raised:
            configured(DiceConfig(), [override])
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)
