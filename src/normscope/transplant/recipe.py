"""The record of a transplant in files: in a model's configuration and in folders, as it is written
and read.

`save_pretrained` of transformers writes a model's configuration with its weights. Its
`from_pretrained` would build the class that stands there, leave what the placement added aside, and
compute something else without an error. So the configuration also holds quantisation settings
without a method, which every version of transformers from 5.0 on refuses to load, whatever class is
asked, and which nothing that trains or runs a model reads.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from ..errors import UserError, in_one_line
from ..placement import Placement, named

RECIPE = "transplanted"
"""The key of a model's configuration under which transformers keeps what was done."""
GUARD = "quantization_config"
_NOTE = {
    "not_quantised": "these weights are of another placement than the class that is named here",
    "load_with": "normscope.transplant(model, FOLDER), of a new model of this configuration",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The settings that put a model of the same class under the same placement."""

    placement: type[Placement]
    initialise: Literal["draw", "keep"]
    """The treatment of the weights: with "draw", norms may have taken another part than they
    had.
    """
    stack: str | tuple[str, ...] | None

    @classmethod
    def of(cls, table: Any, source: object) -> "Recipe":
        """Reads a recipe from a file's table. Raises UserError for a table that is none, with
        `source` named in its message.
        """
        try:
            if not isinstance(table, Mapping):
                raise TypeError(f"it is {type(table).__name__}, and must be a table")
            missing = [key for key in ("placement", "initialise", "stack") if key not in table]
            if missing:
                raise KeyError(f"it lacks {', '.join(missing)}")
            if not isinstance(table["placement"], str):
                raise TypeError(f"placement must be a name, got {table['placement']!r}")
            if table["initialise"] not in ("draw", "keep"):
                raise ValueError(f"initialise must be draw or keep, got {table['initialise']!r}")
            stack = table["stack"]
            if isinstance(stack, list) and stack and all(isinstance(one, str) for one in stack):
                stack = tuple(stack)
            if not isinstance(stack, str | tuple | None):
                raise TypeError(f"stack must be a name, a list of names or null, got {stack!r}")
            placement = named(table["placement"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{source}: its recipe cannot be read: {in_one_line(error)}") from error
        return cls(placement=placement, initialise=table["initialise"], stack=stack)


def note(model: nn.Module, recipe: Mapping[str, Any]) -> Callable[[], None]:
    """Write what was done into the configuration of a model of transformers, which goes with its
    weights; returns what undoes it.

    The model gets a copy of its configuration, for other models may have been built from the same.
    """
    if not hasattr(getattr(model, "config", None), "to_json_string"):
        return lambda: None
    copies: dict[int, Any] = {}
    copy.deepcopy(model.config, copies)
    changed = []
    for module in model.modules():
        for name, value in vars(module).items():
            if hasattr(value, "to_json_string") and id(value) in copies:
                changed.append((module, name, value))
    for module, name, value in changed:
        setattr(module, name, copies[id(value)])
    config = model.config
    setattr(config, RECIPE, dict(recipe))
    if getattr(config, GUARD, None) is None:
        setattr(config, GUARD, dict(_NOTE))

    def put_back() -> None:
        for module, name, value in changed:
            setattr(module, name, value)

    return put_back


def forget(model: nn.Module) -> None:
    """Take it out again."""
    config = getattr(model, "config", None)
    if hasattr(config, RECIPE):
        delattr(config, RECIPE)
        if getattr(config, GUARD, None) == _NOTE:
            delattr(config, GUARD)


def without_recipe(table: dict[str, Any]) -> dict[str, Any]:
    """Returns the table of a configuration as the model's own code wants it."""
    own = {key: value for key, value in table.items() if key != RECIPE}
    return {key: value for key, value in own.items() if key != GUARD or value != _NOTE}
