"""Lines that a trainer printed, as they stand in a terminal or in a job's output: of nanoGPT,
Hugging Face's Trainer, Megatron-LM, torchtitan, and loops that print in the same way.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...report.words import counted
from ..names import LoggedValues, history_of, update_in
from ..record import History, TrainingRecipe

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NAMES = {
    "step": ("global_step", "global step", "step", "iteration", "iter", "update"),
    "loss": (
        "train_loss_step",
        "train_loss",
        "train loss",
        "training loss",
        "lm loss",
        "loss",
        "train/loss",
        "lm_loss",
    ),
    "validation_loss": (
        "eval_loss",
        "val_loss",
        "val loss",
        "valid loss",
        "validation loss",
        "lm loss value",
        "eval/loss",
        "val/loss",
    ),
    "learning_rate": ("learning_rate", "learning rate", "lr"),
    "grad_norm": ("grad_norm", "grad norm", "gradient norm", "gnorm", "| norm"),
    "epoch": ("epoch",),
}
"""The quantities that are read of a line, each with the names that trainers print."""
_QUANTITY = {name: quantity for quantity, names in _NAMES.items() for name in names}
_VALUE = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)"
_PAIR = re.compile(
    r"(?<![\w/.])['\"]?"
    rf"(?P<name>{'|'.join(map(re.escape, sorted(_QUANTITY, key=len, reverse=True)))})"
    rf"['\"]?\s*[:=]?\s*['\"]?(?P<value>{_VALUE})(?![\w.]*[A-Za-z(])(?:\s*/\s*(?P<of>\d+))?",
    re.IGNORECASE,
)
_BAR = re.compile(r"(?P<done>\d+)/(?P<of>\d+) \[")
"""A progress bar of tqdm's, which says how many updates are done."""
_SUMMARY = re.compile(r"\btrain_runtime\b")
"""The sign of the Trainer's last line."""
_OF_VALIDATION = re.compile(r"\b(?:validat|eval)", re.IGNORECASE)
_EXAMPLES = (
    "`iter 10: loss 3.4` (nanoGPT), `{'loss': 3.4, 'learning_rate': 1e-4}` (Trainer), "
    "`iteration 10/ 100 | lm loss: 3.4E+00 |` (Megatron-LM) and `step: 10  loss: 3.4` (torchtitan)"
)
_MOST_LETTERS = 4096
"""The letters of a line that are examined: a trainer's line is not longer, and a page of text is
none.
"""


def of_printed(file: Path) -> History:
    """Reads what a trainer printed into a file; raises ValueError as `of_printed_lines` does."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return of_printed_lines(str(file), lines)


def of_printed_lines(source: str, lines: Iterable[str]) -> History:
    """Reads the lines that a trainer printed. source: their name.

    A line of the Trainer's has no count of updates: it is taken from the progress bar after it, or
    else each line with a loss counts as one update, which is said. Raises ValueError where no line
    has a loss, and as `history_of` does.
    """
    found = _Printed()
    total = 0
    for number, line in enumerate(lines, 1):
        total = number
        # What a bar wrote over stands in the same line.
        for part in line[:_MOST_LETTERS].split("\r"):
            found.take(_COLOUR.sub("", part), number)
    rows = found.all_rows()
    if not rows:
        raise ValueError(
            f"{source}:1: none of {counted(total, 'line')} has a loss as a trainer prints it; read "
            f"are {_EXAMPLES}, and lines like them"
        )
    return history_of(source, rows, TrainingRecipe(), found.left_out())


_Uncounted = dict[str, float]
"""The values of a line without a count of updates."""


@dataclass
class _Printed:
    """The rows that have been read so far."""

    rows: list[LoggedValues] = field(default_factory=list)
    uncounted: list[_Uncounted] = field(default_factory=list)
    """Lines with a loss that do not say of which update they are."""
    bars: list[tuple[int, int, int]] = field(default_factory=list)
    """The progress bars: the number of lines without a count before each, its progress, and its
    total.
    """
    without_loss: int = 0
    first_without_loss: int = 0
    epoch: float = 0.0
    before: int = 0
    """Updates of the epochs before, where a trainer counts them anew in each."""
    last: int = 0

    def take(self, line: str, number: int) -> None:
        """Reads one line."""
        for bar in _BAR.finditer(line):
            self.bars.append((len(self.uncounted), int(bar["done"]), int(bar["of"])))
        values, steps_of_all = _values(line)
        if _SUMMARY.search(line):
            # The mean loss of the whole training, which is no loss of its update.
            values = {}
        if "loss" not in values and "validation_loss" not in values:
            if line.strip() and not _BAR.search(line):
                self.without_loss += 1
                self.first_without_loss = self.first_without_loss or number
            return
        epoch = values.pop("epoch", self.epoch)
        step = values.pop("step", None)
        if step is None:
            self.uncounted.append(values)
            return
        update = self.before + update_in(step)
        if update < self.last and epoch > self.epoch:
            self.before = max(self.last, self.before + (steps_of_all or 0))
            update = self.before + update_in(step)
        self.epoch = epoch
        self.last = update
        self.rows.append((update, values))

    def all_rows(self) -> list[LoggedValues]:
        """Returns the rows, with those lines that have no update number where no line has one."""
        if self.rows or not self.uncounted:
            return self.rows
        updates = _by_bars(self.bars, self.uncounted) or _by_lines(self.uncounted)
        return list(zip(updates, self.uncounted, strict=True))

    def left_out(self) -> list[str]:
        """Returns what was not read, and how updates were counted where no line says it."""
        words: list[str] = []
        if self.without_loss:
            words.append(
                f"{counted(self.without_loss, 'line')} without a loss, the first is line "
                f"{self.first_without_loss:,}"
            )
        if self.uncounted and self.rows:
            words.append(f"{counted(len(self.uncounted), 'line')} without a count of updates")
        elif self.uncounted and _by_bars(self.bars, self.uncounted) is None:
            words.append(
                "counts of updates, which no line has: each line with a loss counts as one"
            )
        return words


def _by_lines(lines: Sequence[Mapping[str, float]]) -> list[int]:
    """Each line with a training loss as one update; one of validation is of the update before."""
    found: list[int] = []
    last = 0
    for values in lines:
        last += "loss" in values
        found.append(max(1, last))
    return found


_MOST_BARS = 4


def _by_bars(
    bars: Sequence[tuple[int, int, int]], lines: Sequence[Mapping[str, float]]
) -> list[int] | None:
    """Returns the update of each line, from the progress bar that is drawn anew after it; None
    where no bar rises with the lines.

    Of several bars, such as one of the evaluation, the one of most steps in all that fits is taken.
    """
    for of, _ in Counter(one[2] for one in bars).most_common(_MOST_BARS):
        after: dict[int, int] = {}
        for lines_before, done, all_of_it in bars:
            if all_of_it == of:
                after.setdefault(lines_before, done)
        updates: list[int] = []
        for at, values in enumerate(lines, 1):
            least = updates[-1] + ("loss" in values) if updates else 1
            done = after.get(at, -1)
            if done < least:
                # The last line, and one of validation, may stand without a bar after it.
                done = least if at == len(lines) or "loss" not in values else -1
            if done < 0:
                break
            updates.append(done)
        if len(updates) == len(lines):
            return updates
    return None


def _values(line: str) -> tuple[dict[str, float], int | None]:
    """Returns the values of a line by quantity, the first of each; and the total of its steps,
    where it says that.
    """
    values: dict[str, float] = {}
    steps_of_all: int | None = None
    for pair in _PAIR.finditer(line):
        quantity = _QUANTITY[pair["name"].lower()]
        if quantity in values:
            continue
        values[quantity] = float(pair["value"].replace(",", ""))
        if quantity == "step" and pair["of"]:
            steps_of_all = int(pair["of"])
    if "validation_loss" not in values and "loss" in values and _OF_VALIDATION.search(line):
        values["validation_loss"] = values.pop("loss")
    return values, steps_of_all
