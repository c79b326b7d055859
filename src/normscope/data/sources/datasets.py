"""Folders that Hugging Face `datasets` saved with `save_to_disk`: which Arrow files they hold, in which order."""

from pathlib import Path

from ...errors import UserError
from ...limits.reading import read_json

STATE = "state.json"
_SPLITS = "dataset_dict.json"


def arrow_files(folder: Path) -> list[Path]:
    """The files of a saved dataset in the order of its rows.

    Raises UserError for another folder, for one of several splits, and for one whose rows are chosen by indices.
    """
    if (folder / _SPLITS).is_file():
        splits = ", ".join(sorted(str(state.parent) for state in folder.glob(f"*/{STATE}")))
        raise UserError(f"{folder}: holds several splits; give one of them: {splits}")
    try:
        state = read_json(folder / STATE)
        names = [Path(entry["filename"]).name for entry in state["_data_files"]]
        unread = state.get("_indices_data_files") or state.get("_indices_files")
    except FileNotFoundError as error:
        raise UserError(
            f"{folder}: no dataset saved by save_to_disk (no {STATE} in it); give files, or the folder of one"
        ) from error
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / STATE}: damaged ({error!r}); save the dataset again") from error
    if unread:
        raise UserError(f"{folder}: its rows are chosen by indices; call flatten_indices() before save_to_disk")
    if not names:
        raise UserError(f"{folder}: a dataset without rows; give one with text")
    return [folder / name for name in names]
