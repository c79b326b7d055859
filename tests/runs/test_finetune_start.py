"""A fine-tuning is a run as any other: exact resume, refusals, and the weights that it starts from."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from normscope.errors import UserError
from normscope.limits.ours import sealed_lines
from normscope.runs.config import changed, load, resolve
from normscope.runs.run import train_run
from normscope.runs.trained import load_run, load_run_of
from normscope.settings.tables import to_toml
from normscope.tasks.pair_classification import PAIR_CLASSIFICATION, PairRunConfig, open_start
from normscope.tasks.translation import TRANSLATION
from normscope.train import Interrupted, RunFolder
from tiny import result, steps
from tuned import pairs_file, pretrained, tuning

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pre`, a pre-trained run, and `pairs.tsv`; not to be changed."""
    folder = tmp_path_factory.mktemp("desk")
    pretrained(folder / "pre")
    pairs_file(folder / "pairs.tsv", 60)
    return folder


@pytest.fixture(scope="module")
def whole(desk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted fine-tuning: 54 pairs, 7 updates an epoch, 21 in all. Not to be changed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_run(tuning(desk / "pre", desk / "pairs.tsv"), folder)
    return folder


def interrupted(config: PairRunConfig, folder: Path, update: int) -> None:
    """Train up to a SIGINT in that update."""

    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == update:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train_run(config, folder, listeners=[interrupt])


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("update", [3, 7, 16])
def test_a_stopped_fine_tuning_goes_on_to_the_same_bits(desk: Path, whole: Path, tmp_path: Path, update: int) -> None:
    config = tuning(desk / "pre", desk / "pairs.tsv")
    interrupted(config, tmp_path / "run", update)
    assert steps(tmp_path / "run")[-1] == update
    train_run(config, tmp_path / "run")
    assert result(tmp_path / "run", 21) == result(whole, 21)


def test_its_configuration_is_complete_and_trains_the_same_again(whole: Path, tmp_path: Path) -> None:
    kept = load(whole / "config.toml")
    assert isinstance(kept, PairRunConfig)
    assert (whole / "config.toml").read_text() == sealed_lines(to_toml(kept))
    train_run(kept, tmp_path / "again")
    assert result(tmp_path / "again", 21) == result(whole, 21)


def test_what_is_logged(whole: Path) -> None:
    events = RunFolder(whole).events()
    assert [e["update"] for e in events if e["event"] == "validation"] == [7, 14, 21]
    assert {"nll_nats", "accuracy", "f1"} <= next(e for e in events if e["event"] == "validation").keys()
    assert events[-1]["target_tokens"] == 3 * 54
    assert (whole / "vocabularies/labels.json").read_text() == '["other", "same"]\n'


def test_it_starts_from_the_weights_of_the_asked_checkpoint(desk: Path) -> None:
    for which, update in (("2", 2), ("last", 4)):
        config = tuning(desk / "pre", desk / "pairs.tsv", which=which)
        assert config.start.update == update
        ours = PAIR_CLASSIFICATION.assemble(config, CPU).build().state_dict()
        theirs = load_file(desk / "pre" / "checkpoints" / f"step-{update}" / "model.safetensors")
        shared = ours.keys() & theirs.keys()
        assert ours.keys() - shared == {"classifier.weight", "classifier.bias"}
        assert all(torch.equal(ours[name], theirs[name]) for name in shared)
    other = PAIR_CLASSIFICATION.assemble(tuning(desk / "pre", desk / "pairs.tsv", "seed=2"), CPU).build().state_dict()
    assert not torch.equal(ours["classifier.weight"], other["classifier.weight"])
    assert torch.equal(ours["embedding.weight"], other["embedding.weight"])


def test_admin_s_scales_are_not_profiled_again(desk: Path, tmp_path: Path) -> None:
    """They were set by the first batch of the pre-training, and learned since."""
    pretrained(tmp_path / "pre", "model.placement=admin", "train.duration=2")
    config = tuning(tmp_path / "pre", desk / "pairs.tsv", "optimizer.peak_lr=1e-30", "train.duration=1")
    train_run(config, tmp_path / "run")
    before = load_file(tmp_path / "pre/checkpoints/step-2/model.safetensors")
    after = load_file(tmp_path / "run/checkpoints/step-1/model.safetensors")
    names = [name for name in before if ".placed." in name]
    assert names
    for name in names:
        assert torch.equal(before[name], after[name]), name


def test_numbers_that_followed_a_schedule_stay_where_it_had_brought_them(desk: Path, tmp_path: Path) -> None:
    pretrained(tmp_path / "pre", "model.placement=branch-norm", "train.duration=2", "adaptive.over=8")
    train_run(tuning(tmp_path / "pre", desk / "pairs.tsv", "train.duration=3"), tmp_path / "run")
    weights = load_file(tmp_path / "run/checkpoints/step-3/model.safetensors")
    (name,) = [name for name in weights if "schedules" in name]
    assert float(weights[name]) == 2 / 8


def test_a_pretraining_made_anew_is_not_taken_for_the_first_one(desk: Path, tmp_path: Path) -> None:
    shutil.copytree(desk / "pre", tmp_path / "pre")
    config = tuning(tmp_path / "pre", desk / "pairs.tsv")
    shutil.rmtree(tmp_path / "pre")
    pretrained(tmp_path / "pre", "seed=9")
    with pytest.raises(UserError, match="its weights are not those this fine-tuning began from"):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.heads=4", r"model.heads is 4, and 2 in .*pre, whose weights this starts from"),
        ("model.norm_epsilon=1e-3", r"model.norm_epsilon is 0.001, and 'as-placement' in"),
        ("start.update=3", r"has no checkpoint of update 3; it has 2, 4"),
        ("start.run=nowhere", r"nowhere is not a run folder"),
        ("data.corpus=nowhere.tsv", r"nowhere.tsv: no such file"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_folder(
    desk: Path, tmp_path: Path, setting: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train_run(tuning(desk / "pre", desk / "pairs.tsv", setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_dropout_may_be_another_than_in_the_pretraining(desk: Path) -> None:
    config = tuning(desk / "pre", desk / "pairs.tsv", "model.dropout=0.3", "model.attention_dropout=0.0")
    model, pretrained = PAIR_CLASSIFICATION.assemble(config, CPU).build(), open_start(desk / "pre", "best").encoder()
    sublayers = {site: next(m.encoder.sublayers()) for site, m in (("tuned", model), ("pre", pretrained))}
    assert (sublayers["tuned"].dropout.rate, sublayers["tuned"].f.dropout) == (0.3, 0.0)
    assert (sublayers["pre"].dropout.rate, sublayers["pre"].f.dropout) == (0.1, 0.1)
    theirs = pretrained.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.state_dict().items() if name in theirs)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.sequence_length=33", r"data.sequence_length=33 is above model.positions=32"),
        ("data.sequence_length=7", r"sequence_length must be at least 8"),
        ("start.update=-1", r"update must be 0 or more"),
        ("data.valid=x", r"unknown key 'data.valid'; did you mean 'data.valid_file'"),
    ],
)
def test_configurations_that_are_none(desk: Path, setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tuning(desk / "pre", desk / "pairs.tsv", setting)


def test_a_changed_file_of_pairs_is_refused(desk: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(desk, tmp_path / "desk")
    file = tmp_path / "desk/pairs.tsv"
    config = tuning(tmp_path / "desk/pre", file, "train.duration=30")
    interrupted(config, tmp_path / "run", 1)
    file.write_text(file.read_text().replace("same", "equal"))
    with pytest.raises(UserError, match=r"the corpus .*pairs.tsv is not the one the run .* began with"):
        train_run(config, tmp_path / "run")


def test_paths_are_absolute_once_resolved(desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    config = changed(
        tuning(desk / "pre", desk / "pairs.tsv"), ["data.corpus=pairs.tsv", "data.valid_file=dev.tsv", "start.run=pre"]
    )
    found = resolve(config, RunFolder(tmp_path / "run"))
    assert isinstance(found, PairRunConfig)
    assert found.data.corpus == str(desk / "pairs.tsv")
    assert found.data.valid_file == str(desk / "dev.tsv")
    assert found.start.run == str(desk / "pre")


def test_it_is_no_start_itself_and_no_masked_lm_run(whole: Path) -> None:
    with pytest.raises(UserError, match="is a run of task pair-classification; fine-tuning starts from one of task ma"):
        open_start(whole, "last")
    with pytest.raises(
        UserError,
        match="is a run of task pair-classification; this needs one of task translation, masked-lm",
    ):
        load_run(whole, device="cpu")
    with pytest.raises(UserError, match="is a run of task pair-classification; this needs one of task translation"):
        load_run_of(TRANSLATION, whole, device="cpu")
