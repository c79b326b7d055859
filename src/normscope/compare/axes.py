"""The axes of a grid, taken from options and a configuration."""

import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..errors import UserError, option
from ..tasks.run_config import RunConfig


class Axes:
    """The axes of a grid, taken from options and a configuration.

    places: by dotted key, what sets it in the configuration.
    """

    def __init__(self, base: RunConfig, places: Mapping[str, str]) -> None:
        self.base = base
        self.places = places
        self.defaults: list[str] = []
        """Axes that nothing gave, with the values that they have."""

    def values(
        self, title: str, key: str, default: Sequence[Any], **options: Sequence[Any] | None
    ) -> list[Any]:
        """Returns the values of an axis. Raises UserError where two places give it differently.

        key: of the configuration's own value. options: what each gives, None where it does not.
        """
        given = []
        for name, several in options.items():
            if several is not None:
                given.append((f"{option(name)} gives {_listed(several)}", list(several)))
        if key in self.places:
            value = attrgetter(key)(self.base)
            given.append((f"{self.places[key]} gives {key} = {value}", [value]))
        for (one, these), (other, those) in itertools.combinations(given, 2):
            if set(these) != set(those):
                raise UserError(f"{one}, but {other}: leave one of them out")
        if not given:
            self.defaults.append(f"{title} {_listed(default)}")
            return list(default)
        return given[0][1]


def _listed(values: Sequence[Any]) -> str:
    return ",".join(
        f"{value:g}" if isinstance(value, float) else str(value) for value in dict.fromkeys(values)
    )
