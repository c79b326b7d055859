"""The choice of a run from a store of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..limits.reading import shown
from ..report.words import counted

RUN_SIGN = "#"
"""The sign between a store of several runs and the chosen run, as in `mlflow.db#first`."""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of several in a store."""

    key: str
    """The key of the run in its store."""
    name: str


def the_run(store: Path, runs: Sequence[StoredRun], wanted: str) -> StoredRun:
    """Returns the only run, or the one that is wanted. Raises ValueError with the names of those
    there are.
    """
    named = [run for run in runs if run.name == wanted]
    begun = [run for run in runs if wanted and run.key.startswith(wanted)]
    fitting = (named or begun) if wanted else list(runs)
    if len(fitting) == 1:
        return fitting[0]
    if not runs:
        raise ValueError(f"{store} has no run")
    names = ", ".join(_called(run, runs) for run in runs[-_MOST_NAMED:])
    more = f" and {len(runs) - _MOST_NAMED:,} before" if len(runs) > _MOST_NAMED else ""
    asked = f"no single run {shown(wanted)}" if wanted else counted(len(runs), "run")
    raise ValueError(
        f"{store} has {asked}: write which one behind {RUN_SIGN}, such as "
        f"{store.name}{RUN_SIGN}{_called(runs[-1], runs)}; it has {names}{more}"
    )


def _called(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    """Returns a run's name, or its number where others have that name."""
    alone = sum(other.name == run.name for other in runs) == 1
    return run.name if run.name and alone else run.key
