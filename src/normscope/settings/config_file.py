"""The configuration file of a run, by which a folder is known as one; told without torch."""

from pathlib import Path

from ..errors import UserError
from ..files import disk_errors

CONFIG_FILE = "config.toml"


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run folder. Raises UserError where the disk does not say."""
    with disk_errors(f"reading {folder}"):
        return (folder / CONFIG_FILE).is_file()


def refuse_no_run(folder: Path) -> None:
    """Raise UserError where `folder` is no run folder."""
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: it has no {CONFIG_FILE}")
