"""Histories that no training wrote: explained or refused in a line, never a traceback; and those
that broke at once.
"""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz.ours import sealed
from normscope.doctor.result import Severity
from normscope.errors import UserError
from normscope.history.episodes import EpisodeKind, episodes
from normscope.history.explain import WIDTH, explain, page
from normscope.history.record import History, LoggedSeries
from normscope.history.section import section
from normscope.targets.logs import history_at

NESTED: Any = 1
for _ in range(200):
    NESTED = [NESTED]
ODD = (
    *(math.inf, -math.inf, math.nan, 1e308, -1.0, 0, 0.0, 5e-324, 2**63, 10**400, True, 1.5),
    *(None, "", "12", "NaN", "Infinity", "a\x1b[2J\n", [], [1], {}, {"a": {"b": 1}}, NESTED),
)
NAMES = (
    *("loss", "learning_rate", "grad_norm", "eval_loss", "a\nb", "normscope/recipe/classes"),
    *(f"normscope/recipe/{name}" for name in ("clip_norm", "epsilon", "divides")),
    *(
        f"normscope/s/block_01/attention/{name}"
        for name in ("update_ratio", "update_norm", "gradient_norm", "share")
    ),
    *("normscope/s/end_correlation", "normscope/logit_deviation"),
)
CASES = 60


def entries(draw: random.Random, step: str, odd: float) -> list[dict[str, Any]]:
    """Up to a hundred, each value with the chance `odd` of being none that a training has."""

    def value(usual: Callable[[], float]) -> Any:
        return draw.choice(ODD) if draw.random() < odd else usual()

    names = draw.sample(NAMES, draw.randint(1, len(NAMES)))
    level = draw.choice((1.0, 0.0, 1e-300, 1e300))
    return [
        {name: value(lambda: level * draw.random()) for name in names}
        | {step: value(lambda at=at: at)}
        for at in range(1, draw.randint(1, 100))
    ]


def write(kind: str, folder: Path, draw: random.Random) -> Path:
    odd = draw.choice((0.0, 0.01, 0.2))
    if kind == "trainer_state.json":
        log: Any = entries(draw, "step", odd)
        text = json.dumps(
            draw.choice(
                (
                    log,
                    {"log_history": log},
                    {"log_history": draw.choice(ODD)},
                    {},
                    *[{"log_history": log}] * 9,
                )
            )
        )
    elif kind == "wandb-history.jsonl":
        text = "".join(json.dumps(line) + "\n" for line in entries(draw, "_step", odd))
    else:
        kinds = ("update", "monitor", "validation", "skipped", "non-finite", "finished", None, 3)
        events = [
            {
                "event": draw.choice(kinds if odd else kinds[:5]),
                "loss_nats": one.pop("loss", 1.0),
                "nll_nats": 2.0,
                **one,
            }
            for one in entries(draw, "update", odd)
        ]
        for one in events:
            if draw.random() < odd:
                one.pop(draw.choice(list(one)))
        text = sealed(json.dumps(one) for one in events)
    file = folder / kind
    file.write_text(draw.choice((text, text[: draw.randrange(len(text) + 1)])) if odd else text)
    return file


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("kind", ["trainer_state.json", "wandb-history.jsonl", "metrics.jsonl"])
def test_a_hostile_history_is_explained_or_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    explained = 0
    for number in range(CASES):
        file = write(kind, tmp_path, random.Random(f"{kind} {number}"))
        try:
            found = explain(history_at(file))
        except UserError as error:
            said = str(error)
            assert said.isprintable(), number
            assert len(said) < 1000, number
            continue
        explained += 1
        assert all(len(line) <= WIDTH for line in page(found)), number
        json.dumps(found.to_json(), allow_nan=False)
        if number % 30 == 0:
            section(found)
    assert explained > CASES / 6


@pytest.mark.parametrize("step", ["1e999", "[1]", "null", "{}", '"2"', "true", "-1"])
def test_a_step_that_is_no_number_is_named(step: str, tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(
        f'{{"log_history": [{{"step": {step}, "loss": 1.0}}]}}'
    )
    with pytest.raises(UserError, match=r"trainer_state.json: .* is no number of an update"):
        history_at(tmp_path / "trainer_state.json")


def test_a_metrics_file_without_a_run_is_read_and_an_empty_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text("")
    with pytest.raises(UserError, match=r"metrics.jsonl: .* has no update"):
        history_at(file)
    file.write_text(sealed(['{"event": "update", "update": 1, "loss_nats": 2.0}']))
    assert history_at(file).loss.values == (2.0,)


def history(*losses: float) -> History:
    return History(source="log", loss=LoggedSeries(tuple(range(1, len(losses) + 1)), losses))


@pytest.mark.parametrize(
    ("losses", "onset", "before"),
    [
        ((math.nan,), 1, math.nan),
        ((math.nan,) * 60, 1, math.nan),
        ((3.0, 2.0, math.inf), 3, math.sqrt(6)),
        ((3.0, 2.0, 2.5) + (math.nan,) * 40, 4, 2.5),
        ((4.0, 3.0, 3.2, 9.0, 30.0), 4, 3.0),  # logged every 500 updates
    ],
)
def test_a_training_that_broke_before_a_noise_is_known_is_a_rise(
    losses: tuple[float, ...], onset: int, before: float
) -> None:
    found = explain(history(*losses))
    (one,) = found.episodes
    assert (one.kind, one.onset, found.severity) == (EpisodeKind.RISE, onset, Severity.WARNING)
    assert one.loss_before == pytest.approx(before, nan_ok=True)


def test_few_values_that_scatter_or_come_back_are_no_rise() -> None:
    assert episodes(history(0.5, 0.7, 0.3, 0.65, 0.4)) == []
    assert episodes(history(4.0, 3.0, 9.0, 2.0)) == []
    (one,) = episodes(history(3.0, math.nan, 2.0, 1.9))
    assert (one.kind, one.onset, one.end) == (EpisodeKind.SPIKE, 2, 3)


def test_the_zero_that_the_trainer_writes_for_a_loss_of_nan_is_none(tmp_path: Path) -> None:
    log = [
        {"step": at, "loss": 3.0 if at < 5 else 0.0, "grad_norm": 1.0 if at < 5 else math.nan}
        for at in range(1, 9)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    (one,) = explain(history_at(tmp_path / "trainer_state.json")).to_json()["episodes"]
    assert (one["onset"], one["loss_worst"]) == (5, None)
