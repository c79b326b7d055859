"""`wandb-history.jsonl`, a line a step, as older versions of W&B wrote it and as an export of a run's history looks."""

from pathlib import Path

from ...limits.reading import parse_json
from ..record import History
from .rows import Row, history_of, numbers_in

FILE = "wandb-history.jsonl"
_STEPS = ("train/global_step", "trainer/global_step", "global_step", "_step")
"""The framework's own count of updates before W&B's count of calls."""


def of_wandb_lines(file: Path) -> History:
    """Raises ValueError naming the line that is no JSON object, and as `history_of` does."""
    rows: list[dict[str, float]] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(numbers_in(parse_json(line, infinite=True)))
            except (ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"{file}:{number}: this line is no JSON object") from error
    return history_of(str(file), of_steps(rows))


def of_steps(lines: list[dict[str, float]]) -> list[Row]:
    """Each line at the update that it says it is of; one that does not say so is left out."""
    name = next((step for step in _STEPS if any(step in line for line in lines)), None)
    return [(int(line[name]), line) for line in lines if name in line] if name else []
