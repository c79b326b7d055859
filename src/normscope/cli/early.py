"""What is refused before torch is imported, which takes seconds: missing files, TOML that is none, unknown placements.

The library says the same of what reaches it by another way.
"""

from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError


def refuse_unreadable(config: Path | None, settings: Iterable[str], imports: Iterable[str] = ()) -> None:
    """Raise UserError for a configuration that cannot be read, or whose placement is unknown after `imports`."""
    from ..placement import named
    from ..settings.files import run_imports
    from ..settings.tables import put, read_overrides, read_toml

    table = read_toml(config)
    for key, value in read_overrides(settings).items():
        put(table, key, value)
    source = str(config) if config else "configuration"
    run_imports({"imports": list(imports)}, source=source)
    run_imports(table, source=source)
    model = table.get("model")
    placement = model.get("placement") if isinstance(model, dict) else None
    if isinstance(placement, str):
        try:
            named(placement)
        except ValueError as error:
            raise UserError(f"{source}: model: {error}") from error


def refuse_missing_target(target: str) -> None:
    """Raise UserError for a target of the doctor that names a file which is not there."""
    before, sign, _ = target.partition(":")
    file = Path(before if sign else target).expanduser()
    if file.suffix in (".py", ".toml", ".json") and not file.exists():
        raise UserError(f"no such file: {before}" if sign else f"no such file or folder: {target}")
