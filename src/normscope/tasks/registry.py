"""The tasks by their names, and models of public families by theirs (presets), sizes apart."""

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..settings.tables import check_choice
from ..settings.validation import validated
from .language_model import LANGUAGE_MODEL
from .masked_lm import MASKED_LM
from .own import OWN
from .protocol import Task
from .run_config import RunConfig, let_stand_in, without_earlier
from .translation import TRANSLATION

KEY = "preset"


PRESETS = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
"""Name -> `task`, `source`, and `settings` of `[model]`, nested as the table is; a user's own stand
before them.
"""


def with_preset(table: Mapping[str, Any], *, source: str) -> Mapping[str, Any]:
    """Returns a run's table with the settings of the preset that its [model] names, which are then
    as if they were written.

    What the table sets itself stands before the preset's, and a table without a task gets the
    preset's. Raises UserError for a name that is none, and for a preset of another task.
    """
    model = table.get("model")
    if not isinstance(model, Mapping) or KEY not in model:
        return table
    name = model[KEY]
    try:
        check_choice(f"model.{KEY}", name, PRESETS)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    of_task = PRESETS[name]["task"]
    task = table.get("task", of_task)
    if task != of_task:
        fitting = ", ".join(other for other, one in PRESETS.items() if one["task"] == task)
        raise UserError(
            f"{source}: model.{KEY} = {name} is a model of task {of_task}, and the task is {task!r}"
            + (f"; of that task are {fitting}" if fitting else "")
        )
    own = {key: value for key, value in model.items() if key != KEY}
    return {**table, "task": task, "model": _merged(PRESETS[name]["settings"], own)}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested tables, the second one's values first."""
    merged: dict[str, Any] = dict(deepcopy(dict(below)))
    for key, value in above.items():
        there = merged.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(there, value) if both else value  # type: ignore[arg-type]
    return merged


TASKS: dict[str, Task] = {task.name: task for task in (TRANSLATION, MASKED_LM, LANGUAGE_MODEL, OWN)}


def task_of(config: RunConfig) -> Task:
    """Returns the task of a configuration."""
    return TASKS[config.task]


def config_of(table: Mapping[str, Any], *, source: str) -> RunConfig:
    """Returns the configuration in a nested table, of the class of its task. Raises UserError
    naming `source` and the key.

    The files that it imports are not run: where they have not been, a placement may be unknown, and
    no model is built.
    """
    table = with_preset(without_earlier(table, source=source), source=source)
    let_stand_in(table, source=source)
    name = table.get("task", TRANSLATION.name)
    if not isinstance(name, str) or name not in TASKS:
        raise UserError(f"{source}: task must be one of {', '.join(TASKS)}, got {name!r}")
    config: RunConfig = validated(TASKS[name].config, table, source=source)
    return config
