"""Optuna: the trials of one search by ask and tell, all of whose state is its journal.

Each line of the journal holds a SHA-256 of itself and the lines before it, so that a changed or lost one is found.
A trial's values depend on the seed, its number and the trials that were told before it was asked for, and on no clock
and no process: whoever asks for it again, after a kill at any moment, gets the same.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, in_one_line, installation
from ..limits.reading import parse_json, shown

_NAME = "normscope"


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Numbers between two ends, sought in the logarithm."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ListAxis:
    """One of several values, in an order that means something."""

    values: tuple[int, ...]


Axis = LogAxis | ListAxis
_TrialValues = Mapping[str, float]


class Search:
    """Trials by number, the first ones given and the others by the tree-structured Parzen estimator (TPE).

    The caller holds the journal's folder for itself.
    """

    def __init__(self, journal: Path, axes: Mapping[str, Axis], *, starts: Sequence[_TrialValues], seed: int) -> None:
        """starts: the values of the first trials. Raises UserError without Optuna, or for a damaged journal."""
        self._axes, self._starts, self._seed = axes, starts, seed
        self._optuna = _optuna()
        try:
            storage = self._optuna.storages.JournalStorage(_SealedJournal(journal))
            self._study = self._optuna.create_study(storage=storage, study_name=_NAME, load_if_exists=True)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"{journal} cannot be read ({in_one_line(error)}); put it back as it was. Or remove it: the same "
                "trials are asked for again, and those whose runs are finished are not trained again"
            ) from error

    def ask(self, number: int) -> dict[str, float]:
        """The values of a trial, counted from 0: all before it have been asked for."""
        trials = self._trials()
        # Every trial draws from a seed of its own: one that continued a stream would depend on who drew before it.
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=self._seed + number, n_startup_trials=0, constant_liar=True
        )
        state = self._optuna.trial.TrialState
        if number < len(trials) and trials[number].state is not state.WAITING:
            if trials[number].state is state.COMPLETE:
                return self._values(trials[number].params)
            trial = self._optuna.trial.Trial(self._study, trials[number]._trial_id)  # asked for by a process that ended
        else:
            if number == len(trials) and number < len(self._starts):
                self._study.enqueue_trial(self._inside(self._starts[number]))
            trial = self._study.ask()
        return self._values({name: self._suggested(trial, name, axis) for name, axis in self._axes.items()})

    def tell(self, number: int, value: float) -> None:
        """What a trial came to, the lower the better; once is enough."""
        trial = self._trials()[number]
        if trial.state is not self._optuna.trial.TrialState.COMPLETE:
            self._study.tell(number, value)

    def _trials(self) -> list[Any]:
        found: list[Any] = self._study.get_trials(deepcopy=False)
        return found

    def _suggested(self, trial: Any, name: str, axis: Axis) -> Any:
        if isinstance(axis, LogAxis):
            return trial.suggest_float(name, axis.low, axis.high, log=True)
        return trial.suggest_int(name, 0, len(axis.values) - 1)

    def _inside(self, point: _TrialValues) -> dict[str, float]:
        """As Optuna keeps it: of a list the place."""
        lists = {name: axis for name, axis in self._axes.items() if isinstance(axis, ListAxis)}
        return {**point, **{name: axis.values.index(int(point[name])) for name, axis in lists.items()}}

    def _values(self, kept: Mapping[str, Any]) -> dict[str, float]:
        lists = {name: axis.values for name, axis in self._axes.items() if isinstance(axis, ListAxis)}
        return {name: lists[name][value] if name in lists else float(value) for name, value in kept.items()}


_SEAL = "seal"


class _SealedJournal:
    """Optuna's journal in a file, each line with a seal of all up to it; whoever has one holds the folder."""

    def __init__(self, file: Path) -> None:
        """Raises OSError, or ValueError naming the first line that is not as it was written."""
        self._file, self._seal, self._logs = file, "", list[dict[str, Any]]()
        content = file.read_bytes() if file.is_file() else b""
        whole, newline, _ = content.rpartition(b"\n")
        if len(whole + newline) < len(content):
            # What a kill left of the line that was being written: it says what will be said again.
            with file.open("r+b") as stream:
                stream.truncate(len(whole + newline))
        for number, line in enumerate(whole.decode().split("\n") if whole else (), 1):
            try:
                log = dict(parse_json(line, infinite=True))
            except (ValueError, TypeError) as error:
                raise ValueError(f"line {number} is damaged: {error}") from error
            given = log.pop(_SEAL, None)
            if line != self._sealed(log):
                raise ValueError(f"line {number} was changed, or a line before it is lost: its seal is {shown(given)}")

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """All from this number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write them down, whole lines each."""
        lines = "".join(self._sealed(log) + "\n" for log in logs)
        with self._file.open("ab") as stream:
            stream.write(lines.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def _sealed(self, log: dict[str, Any]) -> str:
        """The next line of the journal, which is kept as such."""
        self._seal = hashlib.sha256((self._seal + json.dumps(log)).encode()).hexdigest()
        self._logs.append(log)
        return json.dumps(log | {_SEAL: self._seal})


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise UserError(f"to search for the best rate takes Optuna: {installation('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
