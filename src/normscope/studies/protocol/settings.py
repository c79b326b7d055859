"""Settings of a study from the command line."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ...errors import UserError


def configured(config: Any, overrides: Sequence[str], given: Mapping[str, Any] | None = None) -> Any:
    """The configuration with KEY=VALUE changes, values as in JSON or plain text. Raises UserError.

    given: changes that came by options of their own; a KEY=VALUE for the same key is refused.
    """
    table = json.loads(json.dumps(dataclasses.asdict(config)))
    table |= given or {}
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or key not in table:
            raise UserError(f"--set takes KEY=VALUE with a key of {', '.join(table)}; got {override!r}")
        if key in (given or {}):
            raise UserError(f"{key} is given twice: by an option of its own, and by --set {override}; give it once")
        try:
            table[key] = json.loads(text)
        except ValueError:
            table[key] = text
    try:
        return TypeAdapter(type(config)).validate_json(json.dumps(table))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise UserError(f"{where + ': ' if where else ''}{problem['msg'].removeprefix('Value error, ')}") from None
