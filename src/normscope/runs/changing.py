"""What of a run's configuration may change while it goes on: its length, its checkpoints, who prepares its batches."""

import dataclasses
from typing import Any

import tomli_w

from ..errors import UserError, option
from ..optim import depends_on_horizon
from ..settings.tables import as_table, differences
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.checkpoint import existing
from ..train.metrics import remove_end
from ..train.run_folder import MAY_CHANGE
from .config import load_run_config

ANOTHER_FOLDER = "choose another folder (--run, or --out of a comparison; run and out in Python)"


def refuse_changes(folder: RunFolder, config: RunConfig) -> None:
    """Raise UserError where the run in `folder` cannot go on as `config` says, and say what differs."""
    there = load_run_config(folder)
    if there == config:
        return
    differing = "; ".join(differences(there, config))
    kept = {name: getattr(there.train, name) for name in MAY_CHANGE}
    if dataclasses.replace(config, train=dataclasses.replace(config.train, **kept)) != there:
        raise UserError(f"{folder.path} holds a run with another configuration ({differing}); {ANOTHER_FOLDER}")
    if _another_length(there, config) and depends_on_horizon(config.schedule):
        raise UserError(
            f"{folder.path} holds a run of another length ({differing}), and it cannot go on as if it "
            f'had been so long from the start: with decay "{config.schedule.decay}" the learning rate of every update '
            f"depends on the length; {ANOTHER_FOLDER}. A run with a decay that does not, such as "
            '"inverse-sqrt", can be made longer'
        )


def refuse_shorter(folder: RunFolder, config: RunConfig, updates: int, from_step: int | None) -> None:
    """Raise UserError where the run has been trained for longer than `updates`, which is what `config` wants."""
    trained = [checkpoint.update for checkpoint in existing(folder.checkpoints)]
    begins = from_step if from_step is not None else max(trained, default=0)
    if begins > updates:
        before = [update for update in trained if update <= updates]
        back = [option("from_step", update) for update in before[-1:]]
        older = f", or go back with {back[0]}, which removes the later checkpoints" if back else ""
        raise UserError(
            f"{folder.path} has been trained for {begins} updates, and train.duration asks for {updates}; give a "
            f"longer duration{older}"
        )


def is_over(folder: RunFolder, config: RunConfig) -> bool:
    """True where the run in `folder` is finished and `config` wants no other length of it."""
    return folder.is_run and not _another_length(load_run_config(folder), config) and folder.is_finished


def change(folder: RunFolder, config: RunConfig) -> None:
    """Write down what has changed, where something has. The caller holds the folder's lock and has refused the rest."""
    table = folder.config_table()
    wanted = as_table(config)["train"]
    changed: dict[str, Any] = {name: wanted[name] for name in MAY_CHANGE if table["train"].get(name) != wanted[name]}
    if not changed:
        return
    if "duration" in changed and folder.is_finished:
        remove_end(folder.metrics_file)  # first: a run is never finished with a length that it does not have
    folder.write_config(tomli_w.dumps(table | {"train": table["train"] | changed}))


def _another_length(there: RunConfig, here: RunConfig) -> bool:
    return there.train.duration != here.train.duration
