"""A run's whole configuration: from TOML to frozen dataclasses without any `auto`, and the folder
that becomes its run.

Another configuration or corpus is refused there. What may change while a run goes on is its length,
its checkpoints and the processes that prepare its batches.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import tomli_w
import torch

from ..errors import UserError, option
from ..files import clear_unfinished, disk_errors, make_folders, write_atomically
from ..limits.ours import refuse_foreign
from ..optim import depends_on_horizon
from ..settings.files import OwnFile, given_config, run_named
from ..settings.tables import as_table, differences, put, read_overrides, to_toml
from ..tasks.registry import config_of, task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder, TrainConfig
from ..train.checkpoint import existing
from ..train.device import (
    allowed_threads,
    change_of_source,
    changes_of_machine,
    choose_device,
    refuse_precision,
)
from ..train.metrics import remove_end
from ..train.run_folder import MAY_CHANGE

_Config = TypeVar("_Config", bound=RunConfig)


def load(
    path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str | Path] = ()
) -> RunConfig:
    """Returns the configuration that `given_config` reads, validated. Raises UserError naming file
    and key.
    """
    given = given_config(path, overrides, imports)
    return config_of(given.table, source=given.source)


def load_run_config(folder: RunFolder) -> RunConfig:
    """Returns the configuration of the run in a folder. Raises UserError where it is not as it was
    written.
    """
    return config_of(folder.config_table(), source=str(folder.config_file))


def trust_run(path: Path) -> None:
    """Run the Python files that a run names, on the user's word. Raises UserError, also for what
    has changed since.
    """
    folder = RunFolder(path)
    run_named(folder.config_table(), source=str(folder.config_file))


def changed(config: _Config, settings: Iterable[str]) -> _Config:
    """Returns the configuration with `a.b=value` changes, validated again. Raises UserError."""
    return _with(config, read_overrides(settings))


def replaced(config: _Config, **changes: Any) -> _Config:
    """Returns the configuration with some dotted keys changed (`a__b=value`), validated again.
    Raises UserError.
    """
    return _with(config, {key.replace("__", "."): value for key, value in changes.items()})


def _with(config: _Config, changes: Mapping[str, Any]) -> _Config:
    table = as_table(config)
    for key, value in changes.items():
        put(table, key, list(value) if isinstance(value, tuple) else value)
    made = config_of(table, source="configuration")
    if not isinstance(made, type(config)):
        raise UserError(f"task is {config.task!r} and cannot be changed here, got {made.task!r}")
    return made


_OF_THE_MACHINE = ("device", "precision", "threads", "input_workers")
"""Settings of [train] whose `auto` is what the machine that trains has."""
_KEPT = ("device", "precision", "threads")
"""The settings that a run keeps on another machine too."""


def resolve(config: _Config, folder: RunFolder) -> _Config:
    """Returns the configuration with every `auto` replaced, and paths made absolute.

    By what the run in `folder` began with, where there is one: it goes on as it was on a machine
    with more cores, too. Otherwise by what this machine gives. Raises UserError for a device or a
    precision that it does not have, unless the run is over that had that device: what came of it
    can be read anywhere.
    """
    began = load_run_config(folder).train if folder.is_run else None
    train = _as_begun(config.train, began)
    is_over = (
        began is not None
        and train.device == began.device
        and folder.last_event in ("finished", "non-finite")
    )
    device = torch.device(train.device) if is_over else choose_device(train.device)
    precision, threads = train.precision, train.threads
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "fp32"
    refuse_precision(device, precision)
    train = dataclasses.replace(
        train,
        device=str(device),
        precision=precision,
        threads=allowed_threads() if threads == "auto" else threads,
        input_workers=train.input_workers
        if train.input_workers != "auto"
        else (2 if device.type == "cuda" else 0),
    )
    resolved: _Config = task_of(config).with_absolute_paths(
        dataclasses.replace(config, train=train)
    )
    return resolved


def for_another_machine(config: _Config, folder: RunFolder) -> _Config:
    """Returns the configuration for a machine that is not known here: what is `auto` stays so,
    unless the run in `folder` has begun with a value. Paths are made absolute.
    """
    began = load_run_config(folder).train if folder.is_run else None
    train = _as_begun(config.train, began)
    left: _Config = task_of(config).with_absolute_paths(dataclasses.replace(config, train=train))
    return left


def _as_begun(train: TrainConfig, began: TrainConfig | None) -> TrainConfig:
    """Replaces `auto` by what a run that has begun keeps."""
    if began is None:
        return train
    open_ones = [name for name in _KEPT if getattr(train, name) == "auto"]
    return dataclasses.replace(train, **{name: getattr(began, name) for name in open_ones})


def left_open(config: RunConfig) -> list[str]:
    """Returns the dotted keys that are left to the machine which trains the run."""
    return [f"train.{name}" for name in _OF_THE_MACHINE if getattr(config.train, name) == "auto"]


ANOTHER_FOLDER = "choose another folder (--run, or --out of a comparison; run and out in Python)"


def refuse_changes(folder: RunFolder, config: RunConfig) -> None:
    """Raise UserError where the run in `folder` cannot go on as `config` says, and say what
    differs.
    """
    there = load_run_config(folder)
    if there == config:
        return
    refuse_edited(folder, there, config)
    differing = "; ".join(differences(there, config))
    kept = {name: getattr(there.train, name) for name in MAY_CHANGE}
    if dataclasses.replace(config, train=dataclasses.replace(config.train, **kept)) != there:
        raise UserError(
            f"{folder.path} holds a run with another configuration ({differing}); {ANOTHER_FOLDER}"
        )
    if _another_length(there, config) and depends_on_horizon(config.schedule):
        raise UserError(
            f"{folder.path} holds a run of another length ({differing}), and it cannot go on as if "
            "it "
            f'had been so long from the start: with decay "{config.schedule.decay}" the learning '
            "rate of every update "
            f"depends on the length; {ANOTHER_FOLDER}. A run with a decay that does not, such as "
            '"inverse-sqrt", can be made longer'
        )


def refuse_edited(folder: RunFolder, there: RunConfig, config: RunConfig) -> None:
    """Raise UserError where a Python file of the user's is not what the run in `folder` began
    with.
    """
    before = {file.path: file.sha256 for file in map(OwnFile.of, there.imports)}
    for file in map(OwnFile.of, config.imports):
        if before.get(file.path, file.sha256) not in ("", file.sha256):
            raise UserError(
                f"{file.path} was edited, or a file that it imports, since the run {folder.path} "
                f"began (its SHA-256 was {before[file.path][:12]} and is {file.sha256[:12]}); put "
                f"it back as it was, or {ANOTHER_FOLDER}"
            )


def refuse_shorter(
    folder: RunFolder, config: RunConfig, updates: int, from_step: int | None
) -> None:
    """Raise UserError where the run has been trained for longer than `updates`, which is what
    `config` wants.
    """
    trained = [checkpoint.update for checkpoint in existing(folder.checkpoints)]
    begins = from_step if from_step is not None else max(trained, default=0)
    if begins > updates:
        before = [update for update in trained if update <= updates]
        back = [option("from_step", update) for update in before[-1:]]
        older = f", or go back with {back[0]}, which removes the later checkpoints" if back else ""
        raise UserError(
            f"{folder.path} has been trained for {begins} updates, and train.duration asks for "
            f"{updates}; give a longer duration{older}"
        )


def is_over(folder: RunFolder, config: RunConfig) -> bool:
    """True where the run in `folder` is finished and `config` wants no other length of it."""
    return (
        folder.is_run
        and not _another_length(load_run_config(folder), config)
        and folder.is_finished
    )


def change(folder: RunFolder, config: RunConfig) -> None:
    """Write down what has changed, where something has. The caller holds the folder's lock and has
    refused the rest.
    """
    table = folder.config_table()
    wanted = as_table(config)["train"]
    changed: dict[str, Any] = {
        name: wanted[name] for name in MAY_CHANGE if table["train"].get(name) != wanted[name]
    }
    if not changed:
        return
    if "duration" in changed and folder.is_finished:
        # First: a run is never finished with a length that it does not have.
        remove_end(folder.metrics_file)
    folder.write_config(tomli_w.dumps(table | {"train": table["train"] | changed}))


def _another_length(there: RunConfig, here: RunConfig) -> bool:
    return there.train.duration != here.train.duration


def refuse_other_configuration(folder: RunFolder, config: RunConfig) -> None:
    """Raise UserError where `folder` cannot become, or is not, a run of the resolved `config`."""
    if folder.is_run:
        refuse_changes(folder, config)
    elif not folder.is_free:
        what = "is not empty and is not a run" if folder.path.is_dir() else "is a file"
        raise UserError(f"{folder.path} {what}; {ANOTHER_FOLDER}")


def claim(folder: RunFolder, config: RunConfig, save_vocabularies: Callable[[Path], None]) -> None:
    """Make the folder this run's, or check that it is. Raises UserError where it belongs to another
    configuration.

    The caller holds its lock; so what another process made of it in the meantime is seen here.
    """
    refuse_other_configuration(folder, config)
    if folder.is_run:
        change(folder, config)
        return
    with disk_errors(f"creating the run folder {folder.path}"):
        _write_vocabularies(folder, save_vocabularies)
        # Written last: a folder with a configuration is a whole run.
        folder.write_config(to_toml(config))


def _write_vocabularies(folder: RunFolder, save_vocabularies: Callable[[Path], None]) -> None:
    """Write what is missing of them, each file whole or not at all. Raises UserError where another
    file is there.
    """
    with TemporaryDirectory() as made:
        save_vocabularies(Path(made))
        contents = {file.name: file.read_bytes() for file in sorted(Path(made).iterdir())}
    ours = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    make_folders(folder.vocabularies)
    clear_unfinished(folder.vocabularies)
    refuse_foreign(folder.vocabularies, lambda vocabularies: ours)
    for name, content in contents.items():
        write_atomically(folder.vocabularies / name, content)


def keep_environment(
    folder: RunFolder, now: dict[str, Any], corpus: str, say: Callable[[str], None]
) -> None:
    """Write down what the run is made on, or say what has changed since. Raises UserError for
    another corpus.
    """
    before = folder.environment()
    if not before:
        folder.write_environment(now)
        return
    if before["data_fingerprint"] != now["data_fingerprint"]:
        raise UserError(
            f"the corpus {corpus} is not the one the run {folder.path} began with: its fingerprint "
            f"was {before['data_fingerprint']} and is {now['data_fingerprint']}; put it back, or "
            "start in another folder"
        )
    if before["run"] != folder.identity(now["data_fingerprint"]):
        raise UserError(
            f"{folder.config_file} and {folder.environment_file} are not of one run; put back the "
            "one that was replaced, or start in another folder"
        )
    if source := change_of_source(before, now):
        say(
            f"note: the source of NormScope has changed since the run began: {source}; the bits "
            "may differ from here on"
        )
    for change_of_machine in changes_of_machine(before, now):
        say(
            f"note: this machine is not as it was when the run began ({change_of_machine}); the "
            "bits may differ from here on"
        )


def mend_vocabularies(
    folder: RunFolder, save_vocabularies: Callable[[Path], None], say: Callable[[str], None]
) -> None:
    """Write missing vocabularies again, from the run's corpus, which the caller has checked.

    Raises UserError for one that was damaged or edited, which is to be removed first.
    """
    if folder.has_its_vocabularies():
        return
    with disk_errors(f"writing {folder.vocabularies}"):
        _write_vocabularies(folder, save_vocabularies)
    folder.refuse_other_vocabularies()
    say(f"note: {folder.vocabularies} was not whole and has been written again from the corpus")
