"""What a log costs grows as its lines do: a million are read and explained without a square."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from counting import counted
from normscope.history.beside import beside
from normscope.history.explain import explain, page
from normscope.targets.logs import history_at

SMALL, TIMES = 2_000, 8
"""Lines of the small log, and how many times those the large one has."""


def loss(at: int, lines: int) -> float:
    """Falls, with a spike every 500 updates."""
    return 2 + 3 * math.exp(-4 * at / lines) + (9 if at % 500 == 499 else 0.01 * (-1) ** at)


FORMS: dict[str, Callable[[int, float], str]] = {
    "log.csv": lambda at, value: f"{at},{value:.4f},0.001,1.0\n",
    "log.jsonl": lambda at, value: f'{{"step": {at}, "loss": {value:.4f}, "lr": 0.001}}\n',
    "train.log": lambda at, value: f"iter {at}: loss {value:.4f}, lr 1.0e-03\n",
    "bars.txt": lambda at, value: f"{{'loss': {value:.4f}}}\n 1%| | {at}/99999999 [00:00<00:00]\n",
}
HEADS = {"log.csv": "step,loss,lr,grad_norm\n"}


def steps(name: str, lines: int, folder: Path) -> int:
    file = folder / name
    body = (FORMS[name](at, loss(at, lines)) for at in range(1, lines + 1))
    file.write_text(HEADS.get(name, "") + "".join(body))
    with counted() as found:
        history = history_at(file)
        page(explain(history))
        beside(history, history)
    assert history.last_update == lines
    return found.count


@pytest.mark.parametrize("name", FORMS)
def test_the_work_grows_as_the_lines_do(name: str, tmp_path: Path) -> None:
    small = steps(name, SMALL, tmp_path)
    large = steps(name, TIMES * SMALL, tmp_path)
    assert small > SMALL
    assert large < 1.25 * TIMES * small
