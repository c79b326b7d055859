"""Configurations: what is written is read back, and what cannot be meant is refused in words that
help.
"""

import dataclasses
import math
import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import given, strategies as st

from kinds import examples
from normscope.compare.grid import DEMO_GRID, demo_config
from normscope.data.opening import DataConfig
from normscope.errors import UserError
from normscope.model import ModelConfig
from normscope.optim import OPTIMIZERS, OptimizerConfig, ScheduleConfig
from normscope.runs import config as configs
from normscope.runs.config import load, replaced, resolve
from normscope.runs.run import train_run
from normscope.settings.files import import_file
from normscope.settings.tables import as_table, differences, to_toml
from normscope.tasks.registry import TASKS, config_of
from normscope.tasks.run_config import RunConfig
from normscope.tasks.translation import TranslationConfig, TranslationRunConfig
from normscope.train import RunFolder, TrainConfig, device
from normscope.train.metrics import remove_end
from tiny import MY_PLACEMENT, SHORT, result, tiny

COUNT = st.integers(1, 10**6)
SHARE = st.floats(0, 1, exclude_max=True, allow_nan=False)
POSITIVE = st.floats(1e-30, 1e30, allow_nan=False)
DURATION = COUNT | COUNT.map("{} epochs".format) | COUNT.map("{} updates".format)
CONFIGS = st.builds(
    TranslationRunConfig,
    seed=st.integers(0, 2**60),
    data=st.builds(DataConfig, corpus=st.text(), toy_pairs=COUNT, max_tokens=COUNT),
    model=st.builds(
        ModelConfig,
        placement=st.sampled_from(["post-ln", "pre-ln", "deepnorm"]),
        heads=st.sampled_from([1, 2, 4]),
        width=st.sampled_from([16, 64, 512]),
        dropout=SHARE,
        norm=st.sampled_from(["layer-norm", "rms-norm"]),
        embeddings=st.sampled_from(["shared", "separate"]),
    ),
    optimizer=st.builds(
        OptimizerConfig, peak_lr=POSITIVE, betas=st.tuples(SHARE, SHARE), weight_decay=SHARE
    ),
    schedule=st.builds(
        ScheduleConfig,
        decay=st.just("steps"),
        decay_at=st.lists(DURATION, min_size=1, max_size=4).map(tuple),
        warmup_updates=st.integers(0, 10**6),
    ),
    train=st.builds(
        TrainConfig,
        duration=DURATION,
        accumulation=COUNT,
        clip_norm=POSITIVE | st.just(math.inf) | COUNT,
        validate_every=DURATION,
        threads=st.just("auto") | COUNT,
        compile=st.booleans(),
    ),
    translation=st.builds(TranslationConfig, label_smoothing=SHARE, bleu_sentences=COUNT),
)


@examples(60)
@given(config=CONFIGS)
def test_what_is_written_is_read_back(
    config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("toml") / "config.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert load(file) == config


def test_the_written_configuration_names_every_setting() -> None:

    table = tomllib.loads(to_toml(TranslationRunConfig()))
    for field in dataclasses.fields(TranslationRunConfig):
        assert field.name in table
        if dataclasses.is_dataclass(field.type):
            assert set(table[field.name]) == {f.name for f in dataclasses.fields(field.type)}


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.widht=64", "unknown key 'model.widht'; did you mean 'model.width'?"),
        ("sede=3", "unknown key 'sede'; did you mean 'seed'?"),
        ("modle.width=64", "unknown key 'modle'; did you mean 'model'?"),
        (
            "optimizer.warmup_updates=4",
            "unknown key 'optimizer.warmup_updates'; did you mean 'schedule.warmup_updates'?",
        ),
        (
            "optimizer.schedule=cosin",
            "unknown key 'optimizer.schedule'; did you mean schedule.decay=cosine?",
        ),
        ("schedule.shape=wds", "unknown key 'schedule.shape'; did you mean schedule.decay=wsd?"),
        ("placement=post-ln", "unknown key 'placement'; did you mean 'model.placement'?"),
        ("lr=0.1", "unknown key 'lr'"),
        (
            "data.zzzzqqqq=0.1",
            "unknown key 'data.zzzzqqqq'; known keys: data.corpus, data.reverse, data.toy_pairs, "
            "data.max_tokens",
        ),
        ("train.duration.unit=3", "train.duration: "),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(override: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        load(None, [override])
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.width='64'", "model.width: Input should be a valid integer, got '64'"),
        ("model.width=64.0", "model.width: Input should be a valid integer, got 64.0"),
        ("model.width=true", "model.width: Input should be a valid integer, got True"),
        ("seed=1.5", "seed: Input should be a valid integer"),
        ("seed=-1", "seed must be 0 or more, got -1"),
        (
            "optimizer.peak_lr='fast'",
            "optimizer.peak_lr: Input should be a valid number, got 'fast'",
        ),
        ("optimizer.peak_lr=true", "optimizer.peak_lr: Input should be a valid number, got True"),
        ("optimizer.peak_lr=-1", "optimizer: peak_lr must be positive"),
        (
            "optimizer.name=lamb",
            f"optimizer.name must be one of {', '.join(OPTIMIZERS)}, got 'lamb'",
        ),
        ("optimizer.betas=[0.9]", "optimizer.betas"),
        ("train.threads=many", "train.threads must be auto or a number, got 'many'"),
        (
            "train.duration=true",
            "train.duration: Input should be a valid integer, or Input should be a valid string",
        ),
        ("train.compile=1", "train.compile: Input should be a valid boolean, got 1"),
        ("train.duration=5 lightyears", "5 lightyears"),
        (
            "model.placement=sideways",
            "unknown placement 'sideways'; `normscope placements` lists all",
        ),
        ("train=5", "train: "),
        ("imports=a.py", "imports: give a list of Python files, got 'a.py'"),
        ("imports=[3]", "imports: give a list of Python files, got [3]"),
        ("task=chess", f"task must be one of {', '.join(TASKS)}, got 'chess'"),
        ("model.width", "--set takes KEY=VALUE"),
        ("=3", "--set takes KEY=VALUE"),
        ("seed.deep.er=3", "seed"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_what_came(override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load(None, [override])
    assert message in str(error.value)


def test_a_run_of_an_earlier_version_goes_on_and_keeps_its_configuration(tmp_path: Path) -> None:
    """Whose configuration has keys that said how several processes train one run; its checkpoints
    are bound to them.
    """
    folder = RunFolder(tmp_path / "earlier")
    settings = (*SHORT, "train.accumulation=3")
    table = as_table(resolve(tiny(*settings), folder))
    folder.path.mkdir()
    folder.write_config(
        tomli_w.dumps(table | {"train": table["train"] | {"reduction": "ordered", "shard": False}})
    )
    written = folder.config_file.read_bytes()
    train_run(tiny(*settings), folder.path)
    assert folder.config_file.read_bytes() == written
    last = folder.checkpoint("last").update
    train_run(tiny(*settings), tmp_path / "now")
    assert result(folder.path, last) == result(tmp_path / "now", last)


@pytest.mark.parametrize("override", ["train.reduction=fast", "train.shard=true"])
def test_what_only_several_processes_could_do_is_refused(override: str) -> None:
    key = override.partition("=")[0].replace(".", r"\.")
    with pytest.raises(
        UserError, match=rf"{key} = .* which NormScope does no more; leave the key out"
    ):
        load(None, [override])


def test_a_key_set_below_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="train is a value, not a section"):
        load(None, ["train=5", "train.duration=3"])


def test_a_key_of_thousands_of_parts_is_refused_by_their_number() -> None:
    with pytest.raises(UserError, match=r"a\.a\.a\.a.*: a key has at most 64 parts, got 3,000"):
        load(None, [".".join(["a"] * 3000) + "=1"])


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("model.placement=post-ln", "model.placement", "post-ln"),
        ('model.placement="post-ln"', "model.placement", "post-ln"),
        ("train.duration=8 epochs", "train.duration", "8 epochs"),
        (" train.duration = 8 ", "train.duration", 8),
        ("train.clip_norm=inf", "train.clip_norm", math.inf),
        ("train.clip_norm=1", "train.clip_norm", 1.0),
        ("optimizer.peak_lr=3e-3", "optimizer.peak_lr", 0.003),
        ("optimizer.betas=[0.8, 0.99]", "optimizer.betas", (0.8, 0.99)),
        ("train.compile=true", "train.compile", True),
        ("data.corpus=/data/a=b", "data.corpus", "/data/a=b"),
        ("data.corpus=C\nmodel.width=3", "data.corpus", "C\nmodel.width=3"),
        ("seed=18446744073709551615", "seed", 2**64 - 1),
    ],
)
def test_the_value_of_an_override_is_toml_or_else_a_string(
    override: str, path: str, value: Any
) -> None:
    found: Any = load(None, [override])
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_later_overrides_win_and_leave_the_file_otherwise_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('seed = 3\n[model]\nwidth = 32\nplacement = "post-ln"\n')
    config = load(file, ["model.width=64", "model.width=128"])
    assert (config.seed, config.model.width, config.model.placement) == (3, 128, "post-ln")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = ", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"a = " + 200 * b"[" + 200 * b"]", "nested more than 64 deep"),
        (b"a." * 2000 + b"b = 1", "nested more than 64 deep"),
        (b"seed = 1" + 30 * b"0", "is an integer beyond 64 bits"),
        (b"#" * 2**19, "it has more than 262,144 bytes"),
        (b"[model]\nencoder_blocks = 1000000000", "encoder_blocks must be at most 1,000"),
        (b"seed = 2020-01-01", "a.toml: seed: Input should be a valid integer"),
        (b"[model]\nwidht = 3", "a.toml: unknown key 'model.widht'"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.toml") as error:
        load(tmp_path / "a.toml")
    assert message in str(error.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cannot read the configuration .*nowhere.toml: No such file"
    ):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(UserError, match=r"cannot read the configuration .*Is a directory"):
        load(tmp_path)


@examples(100)
@given(text=st.text(alphabet=string.printable, max_size=40))
def test_no_override_ends_in_a_traceback(text: str) -> None:
    try:
        outcome = load(None, [text])
    except UserError as error:
        outcome = str(error)
    assert isinstance(outcome, RunConfig) or len(outcome.splitlines()) == 1


def test_replaced_changes_nested_keys_and_checks_again() -> None:
    config = replaced(TranslationRunConfig(), model__width=64, seed=7)
    assert (config.model.width, config.seed, config.model.heads) == (64, 7, 4)
    with pytest.raises(UserError, match="must be even and a multiple of heads"):
        replaced(config, model__width=63)


def test_a_file_of_ones_own_registers_its_placement_once(tmp_path: Path) -> None:
    from normscope.placement import named

    file = tmp_path / "my_own.py"
    file.write_text(MY_PLACEMENT.replace("half-ln", "config-test-ln") + "\nprint('loaded')\n")
    config = load(None, ["model.placement=config-test-ln"], imports=[str(file)])
    load(None, imports=[file])
    assert config.imports == (str(file),)
    assert named("config-test-ln").title == "Half-LN"
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "my_own.py").write_text(file.read_text())
    with pytest.raises(
        UserError, match=r"cannot import .*elsewhere/my_own.py: .*'config-test-ln' is taken"
    ):
        import_file(other / "my_own.py")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.py", None, "no such file; give the path of a Python file"),
        ("notes.txt", "hello", "not a Python file"),
        ("wrong.py", "def (", "SyntaxError"),
        ("raises.py", "raise RuntimeError('a bug of mine')", "RuntimeError: a bug of mine"),
        ("needs.py", "import no_such_package_here", "No module named 'no_such_package_here'"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    for _ in range(2):  # a failure is not remembered as done
        with pytest.raises(UserError) as error:
            import_file(tmp_path / name)
        assert f"cannot import {tmp_path / name}" in str(error.value)
        assert message in str(error.value)


def test_the_demonstration_is_four_arms_that_can_be_run() -> None:
    config = demo_config()
    assert load(None) != config
    assert [(arm.placement, arm.warmup_updates) for arm in DEMO_GRID.arms()] == [
        ("post-ln", 0),
        ("post-ln", 200),
        ("pre-ln", 0),
        ("pre-ln", 200),
    ]
    assert config.data.corpus == "toy"
    assert replaced(config) == config


def test_configurations_of_two_tasks_differ_in_what_both_have() -> None:
    translation = config_of({"seed": 2}, source="one")
    masked = config_of({"task": "masked-lm", "model": {"placement": "peri-ln"}}, source="other")
    found = differences(translation, masked, apart_from=("model.placement", "task"))
    assert "seed: 2 there, 1 now" in found
    assert not [
        line
        for line in found
        if line.startswith(("task", "model.placement", "data.toy_pairs", "masked_lm."))
    ]


def test_a_run_that_is_over_is_read_where_its_device_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("train.duration=2")
    train_run(config, tmp_path)

    def gone(name: str) -> None:
        raise UserError(f"no device {name!r}")

    monkeypatch.setattr(configs, "choose_device", gone)
    folder = RunFolder(tmp_path)
    assert resolve(config, folder).train.device == "cpu"
    # Another device is asked for, and one is needed again where the end is still to come.
    with pytest.raises(UserError, match="no device 'cuda:3'"):
        resolve(tiny("train.duration=2", 'train.device="cuda:3"'), folder)
    remove_end(folder.metrics_file)
    with pytest.raises(UserError, match="no device 'cpu'"):
        resolve(config, folder)


def test_threads_that_nobody_set_are_those_that_the_environment_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "available_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    settings = ("train.duration=2", "train.validate_every=2", 'train.threads="auto"')
    given = tiny(*settings)
    assert resolve(given, RunFolder(tmp_path / "a")).train.threads == 3
    assert resolve(replaced(given, train__threads=5), RunFolder(tmp_path / "a")).train.threads == 5
    run, before = RunFolder(tmp_path / "b"), torch.get_num_threads()
    try:
        train_run(given, run.path)
    finally:
        torch.set_num_threads(before)
    assert run.environment()["threads"] == 3
    # A run goes on in the threads that it began with.
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert resolve(given, run).train.threads == 3
