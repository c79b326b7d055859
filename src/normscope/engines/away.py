"""A job on a machine that does not see the folder of its cell: it works on the machine's own disk,
and what is finished goes to a storage.
"""

import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UserError
from ..files import disk_errors
from .carried import CarriedJob
from .seam import Job
from .storage import CellStorage, job_key, moved, place_of

_CELL = "cell"
_LOG = "log.txt"
_FETCHED = "fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwayEnd:
    """The end of a job on another machine."""

    code: int
    said: str
    """Whatever it has said, in lines."""


def run_away(job: Job, url: str) -> AwayEnd:
    """Does a job on this machine's own disk, from what a storage holds of its cell, or from what a
    job that was killed here has left.
    """
    try:
        own = _folder_of(job_key(job))
        return _run_in(own, job, CellStorage(url))
    except UserError as error:
        return AwayEnd(code=1, said=f"error: {error}\n")


def _run_in(own: Path, job: Job, storage: CellStorage) -> AwayEnd:
    folder = own / _CELL
    log = own / _LOG
    place = place_of(job)
    former = storage.stored(place)
    with disk_errors(f"writing into {own}"):
        if not (own / _FETCHED).exists():
            if former is not None:
                folder.mkdir(exist_ok=True)
                storage.fetch(former, folder)
            (own / _FETCHED).touch()
        log.write_text("", encoding="utf-8")
    directory = job.directory if job.directory.is_dir() else own
    here = replace(
        job, words=moved(job, folder), folder=folder, log=log, directory=directory.absolute()
    )
    code = CarriedJob(here).run()
    said = log.read_text(encoding="utf-8", errors="replace")
    if code == 0:
        storage.keep(place, folder, job_key(job), former)
        shutil.rmtree(own, ignore_errors=True)
    return AwayEnd(code=code, said=said)


def _folder_of(key: str) -> Path:
    """Returns a job's folder on the disk of this machine. Raises UserError where somebody else has
    made the one above it, in which anything may stand.
    """
    above = Path(tempfile.gettempdir()) / f"normscope-{os.getuid()}"
    with disk_errors(f"writing into {above}"):
        above.mkdir(mode=0o700, exist_ok=True)
        found = above.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise UserError(
                f"{above} is no folder that this user alone can write into; remove it, or start "
                "Ray on this machine with another TMPDIR"
            )
        (above / key).mkdir(exist_ok=True)
    return above / key
