"""The engine that a user has asked for, by its name or by a file that says more; without either, this machine's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError, option
from ..settings.tables import read_toml
from ..settings.validation import validated
from .seam import AnyEngine, MakeEngine, Processes, RaySettings, SlurmSettings


def local(at_once: int) -> AnyEngine:
    """Processes of this machine, so many at a time."""
    return Processes(at_once)


TABLE = "engine"
"""Of a TOML file: where its runs are trained, and nothing of what they are."""
NAMES = ("local", RaySettings.name, SlurmSettings.name)


def chosen(asked: str | None, table: Mapping[str, Any] | None = None) -> MakeEngine:
    """The engine of that name, or of the table [engine] in the TOML file that `asked` names.

    asked: None for what `table` names, or local. table: [engine] of the configuration, where it has one. Raises
    UserError as `settings_of` does, and for Slurm where this machine has none.
    """
    settings = settings_of(asked, table)
    if isinstance(settings, RaySettings):
        from .ray import OnRay

        return lambda at_once: OnRay(settings)
    if isinstance(settings, SlurmSettings):
        from .slurm import OnSlurm

        queue = OnSlurm(settings)  # at once: where there is no Slurm, no folder is begun
        return lambda at_once: queue
    return local


def settings_of(asked: str | None, table: Mapping[str, Any] | None = None) -> RaySettings | SlurmSettings | None:
    """What is said of the chosen engine, as of `chosen`; None of the local one, of which there is nothing to say.

    Raises UserError where there is no such engine, or a setting that it does not have.
    """
    source, table = "[engine]", table or {}
    if asked is not None and asked.endswith(".toml"):
        source, table = asked, read_toml(Path(asked)).get(TABLE, {})
        if not isinstance(table, Mapping):
            raise UserError(f'{asked}: {TABLE} is a table, such as [{TABLE}] with a line name = "ray"; got {table!r}')
        asked = None
    named = str(table.get("name", "local"))
    if asked is not None and asked != named:
        table, named = {}, asked  # its settings are another engine's
    if named not in NAMES:
        raise UserError(
            f"{option('engine')} is {', '.join(NAMES)}, or a TOML file with a table [engine] that names one; "
            f"got {named!r}"
        )
    settings = {key: value for key, value in table.items() if key != "name"}
    if named == RaySettings.name:
        return validated(RaySettings, settings, source=source)
    if named == SlurmSettings.name:
        return validated(SlurmSettings, settings, source=source)
    if settings:
        raise UserError(f"{source}: the engine local has no settings, got {', '.join(settings)}")
    return None
