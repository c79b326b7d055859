"""Settings of a study from the command line."""

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.errors import UserError
from normscope.settings.tables import as_table, put, read_override
from normscope.settings.validation import validated


def configured(config: Any, overrides: Sequence[str], given: Mapping[str, Any] | None = None) -> Any:
    """The configuration with KEY=VALUE changes, values as in TOML or plain text. Raises UserError.

    given: changes that came by options of their own; a KEY=VALUE for the same key is refused.
    """
    table = as_table(config) | dict(given or {})
    for override in overrides:
        key, value = read_override(override)
        if key in (given or {}):
            raise UserError(f"{key} is given twice: by an option of its own, and by --set {override}; give it once")
        put(table, key, value)
    return validated(type(config), table)
