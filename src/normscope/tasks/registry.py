"""Every task by its name: the one list of them."""

from collections.abc import Mapping
from typing import Any

from ..errors import UserError
from ..settings.own_files import run_imports
from .language_model import LANGUAGE_MODEL
from .masked_lm import MASKED_LM
from .pair_classification import PAIR_CLASSIFICATION
from .presets import with_preset
from .protocol import Task, TaskFromScratch
from .run_config import RunConfig
from .translation import TRANSLATION

TASKS: dict[str, Task[Any]] = {
    task.name: task for task in (TRANSLATION, MASKED_LM, LANGUAGE_MODEL, PAIR_CLASSIFICATION)
}
_DEFAULT = TRANSLATION.name


def task_of(config: RunConfig) -> Task[Any]:
    """The task of a configuration."""
    return TASKS[config.task]


def task_from_scratch(config: RunConfig, otherwise: str) -> TaskFromScratch[Any, Any, Any, Any]:
    """The task of a configuration whose models begin with drawn weights.

    Raises UserError with the text `otherwise` for a task that starts from weights learned elsewhere.
    """
    task = TASKS[config.task]
    if not isinstance(task, TaskFromScratch):
        raise UserError(otherwise)
    return task


def config_of(table: Mapping[str, Any], *, source: str) -> RunConfig:
    """The configuration in a nested table, of the class of its task. Raises UserError naming `source` and the key."""
    run_imports(table, source=source)
    table = with_preset(table, source=source)
    name = table.get("task", _DEFAULT)
    if not isinstance(name, str) or name not in TASKS:
        raise UserError(f"{source}: task must be one of {', '.join(TASKS)}, got {name!r}")
    config: RunConfig = TASKS[name].config_of(table, source=source)
    return config
