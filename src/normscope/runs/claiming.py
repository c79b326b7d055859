"""A folder becomes the run of one configuration, and stays it: another configuration or corpus is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import disk_errors, whole_folder
from ..settings.tables import to_toml
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.environment import change_of_source, changes_of_machine
from .changing import ANOTHER_FOLDER, change, refuse_changes


def refuse_other_configuration(folder: RunFolder, config: RunConfig) -> None:
    """Raise UserError where `folder` cannot become, or is not, a run of the resolved `config`."""
    if folder.is_run:
        refuse_changes(folder, config)
    elif not folder.is_free:
        what = "is not empty and is not a run" if folder.path.is_dir() else "is a file"
        raise UserError(f"{folder.path} {what}; {ANOTHER_FOLDER}")


def claim(folder: RunFolder, config: RunConfig, save_vocabularies: Callable[[Path], None]) -> None:
    """Make the folder this run's, or check that it is. Raises UserError where it belongs to another configuration.

    The caller holds its lock; so what another process made of it in the meantime is seen here.
    """
    refuse_other_configuration(folder, config)
    if folder.is_run:
        change(folder, config)
        return
    with disk_errors(f"creating the run folder {folder.path}"):
        with whole_folder(folder.vocabularies) as vocabularies:
            save_vocabularies(vocabularies)
        # Written last: a folder with a configuration is a whole run.
        folder.write_config(to_toml(config))


def keep_environment(folder: RunFolder, now: dict[str, Any], corpus: str, say: Callable[[str], None]) -> None:
    """Write down what the run is made on, or say what has changed since. Raises UserError for another corpus."""
    before = folder.environment()
    if not before:
        folder.write_environment(now)
        return
    if before["data_fingerprint"] != now["data_fingerprint"]:
        raise UserError(
            f"the corpus {corpus} is not the one the run {folder.path} began with: its fingerprint was "
            f"{before['data_fingerprint']} and is {now['data_fingerprint']}; put it back, or start in another folder"
        )
    if before["run"] != folder.identity(now["data_fingerprint"]):
        raise UserError(
            f"{folder.config_file} and {folder.environment_file} are not of one run; put back the one that was "
            "replaced, or start in another folder"
        )
    if source := change_of_source(before, now):
        say(
            f"note: the source of NormScope has changed since the run began: {source}; the bits may differ from here on"
        )
    for change_of_machine in changes_of_machine(before, now):
        say(
            f"note: this machine is not as it was when the run began ({change_of_machine}); the bits may differ from "
            "here on"
        )


def mend_vocabularies(folder: RunFolder, save_vocabularies: Callable[[Path], None], say: Callable[[str], None]) -> None:
    """Write damaged vocabularies again, from the run's corpus, which the caller has checked."""
    if folder.has_its_vocabularies():
        return
    with disk_errors(f"writing {folder.vocabularies}"), whole_folder(folder.vocabularies) as vocabularies:
        save_vocabularies(vocabularies)
    folder.refuse_other_vocabularies()
    say(f"note: {folder.vocabularies} was damaged and has been written again from the corpus")
