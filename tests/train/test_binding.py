"""The files of a run belong together: a damaged one, or one of another run, is refused by name."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.errors import UserError
from normscope.limits.kinds import sealed_lines
from normscope.runs import run
from normscope.runs.trained import load_run
from normscope.train import RunFolder
from tiny import SHORT, flip, resealed, result, tiny


@pytest.mark.parametrize("name", ["environment.json", "config.toml"])
def test_a_flipped_bit_of_any_byte_is_refused_by_name(copy: Path, name: str, stride: int) -> None:
    file, folder = copy / name, RunFolder(copy)
    read = folder.environment if name == "environment.json" else folder.config_table
    read()
    dice = random.Random(name)
    for bit in (8 * byte + dice.randrange(8) for byte in range(0, file.stat().st_size, stride)):
        flip(file, bit)
        with pytest.raises(UserError, match=f"{file} is damaged"):
            read()
        flip(file, bit)


@pytest.mark.parametrize("name", ["environment.json", "config.toml"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe{}", b"[" * 100_000, b'{"sha256": 3}', b"seed = 1\n"]
)
def test_what_is_not_ours_at_all_is_one_line(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{copy / name} is damaged") as error:
        run.train_run(tiny(*SHORT), copy)
    assert "\n" not in str(error.value)


def test_keys_more_or_less_are_of_another_version(copy: Path) -> None:
    file = copy / "environment.json"
    resealed(file, torhc=1, torch=None)
    with pytest.raises(
        UserError,
        match=r"written by another version: it lacks 'torch', has the unknown 'torhc'; put",
    ):
        RunFolder(copy).environment()


def test_a_lost_environment_is_written_again_and_still_binds(
    unfinished: Callable[..., Path], short: Path
) -> None:
    folder = unfinished(6)
    before = (folder / "environment.json").read_bytes()
    (folder / "environment.json").unlink()
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)
    assert (folder / "environment.json").read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused_and_those_of_this_one_offered(
    unfinished: Callable[..., Path], short: Path, tmp_path: Path
) -> None:
    folder = unfinished(6)
    other = tmp_path / "other"
    run.train_run(tiny(*SHORT, "seed=2"), other)
    shutil.copytree(other / "checkpoints/step-8", folder / "checkpoints/step-8")
    with pytest.raises(
        UserError, match=r"step-8 is not a checkpoint of this run.*first: step-6, .*--from-step 6 "
    ):
        run.train_run(tiny(*SHORT), folder)
    with pytest.raises(UserError, match=r"step-8 is not a checkpoint of this run.*--checkpoint 6 "):
        load_run(folder, which="last", device="cpu")
    shutil.rmtree(folder / "checkpoints/step-8")  # as the message says
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)


def test_another_runs_configuration_or_environment_does_not_fit(
    unfinished: Callable[..., Path],
) -> None:
    folder = unfinished(6)
    text = (folder / "config.toml").read_text().rpartition("# SHA-256")[0]
    (folder / "config.toml").write_text(sealed_lines(text.replace("seed = 1", "seed = 2")))
    with pytest.raises(UserError, match=r"config.toml and .*environment.json are not of one run"):
        run.train_run(tiny(*SHORT, "seed=2"), folder)


def test_damaged_vocabularies_are_refused_and_written_again_from_the_corpus(
    unfinished: Callable[..., Path], short: Path
) -> None:
    folder = unfinished(6)
    file = next(path for path in sorted((folder / "vocabularies").rglob("*")) if path.is_file())
    whole = file.read_bytes()
    flip(file, 333)
    with pytest.raises(
        UserError, match=r"vocabularies is damaged: .*writes the vocabularies again"
    ):
        load_run(folder, device="cpu")
    notes = list[str]()
    with pytest.raises(
        UserError,
        match=f"{file} is not as NormScope wrote it, edited or damaged; remove {file} and",
    ):
        run.train_run(tiny(*SHORT), folder, say=notes.append)
    file.unlink()
    run.train_run(tiny(*SHORT), folder, say=notes.append)
    assert notes == [
        f"note: {folder / 'vocabularies'} was not whole and has been written again from the corpus"
    ]
    assert file.read_bytes() == whole
    assert result(folder, 12) == result(short, 12)
