"""The history of a training, made of values by update and name, whatever wrote them."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from ..limits.reading import parse_json, read_json, read_text, shown
from ..optim.groups import epsilon_of
from ..report.words import short_name


@dataclass(frozen=True, slots=True)
class LoggedSeries:
    """A quantity at some of the updates, which rise."""

    updates: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """NaN or infinite where the log says so."""

    def __bool__(self) -> bool:
        return bool(self.updates)

    @property
    def spacing(self) -> int:
        """Updates from one value to the next, as most of them are apart; 1 for fewer than two."""
        gaps = sorted(b - a for a, b in zip(self.updates, self.updates[1:], strict=False))
        return gaps[len(gaps) // 2] if gaps else 1

    def before(self, update: int) -> "LoggedSeries":
        """What was recorded before that update."""
        count = bisect_left(self.updates, update)
        return LoggedSeries(self.updates[:count], self.values[:count])

    def since(self, update: int) -> "LoggedSeries":
        """What was recorded at that update and later."""
        first = bisect_left(self.updates, update)
        return LoggedSeries(self.updates[first:], self.values[first:])

    def at(self, update: int) -> float | None:
        """The last value up to that update; None where there is none yet."""
        count = bisect_right(self.updates, update)
        return self.values[count - 1] if count else None

    def finite(self) -> "LoggedSeries":
        """Without what is not finite."""
        return LoggedSeries.of(
            {u: v for u, v in zip(self.updates, self.values, strict=True) if math.isfinite(v)}
        )

    @classmethod
    def of(cls, values: Mapping[int, float]) -> "LoggedSeries":
        """Of values by update, in whatever order."""
        updates = sorted(values)
        return cls(tuple(updates), tuple(values[update] for update in updates))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """Settings of a training that tell patterns apart. None for what its log does not say."""

    clip_norm: float | None = None
    """Largest norm that an update's gradient keeps; inf for no clipping."""
    epsilon: float | None = None
    """Of an optimiser that divides by the gradient's own size, such as Adam; 0 for one that divides
    without.
    """
    divides: bool | None = None
    """Whether the optimiser divides by the gradient's own size, as Adam and Lion do and SGD does
    not.
    """
    classes: int | None = None
    """Entries of the vocabulary, or classes."""
    unigram_nats: float | None = None
    """Loss of a model that knows how frequent tokens are, and nothing else."""
    unigram_counted: str = ""
    """What that was counted over, in words; "" where it was not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was recorded of a training, by update, counted from 1. What was not recorded is an empty
    series.
    """

    source: str
    """What was read: a file or a folder."""
    loss: LoggedSeries
    """Of the training's batches, in nats."""
    validation_loss: LoggedSeries = LoggedSeries()
    rate: LoggedSeries = LoggedSeries()
    gradient_norm: LoggedSeries = LoggedSeries()
    """Of the whole gradient, before it is clipped."""
    sublayers: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """By sub-layer, such as `encoder.layers/block_03/attention`, in the order of the log; then by
    quantity.
    """
    stacks: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """By stack, then by quantity."""
    attentions: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """By attention, as its path has it; then query, key and value, the norm of each or of what
    makes it, and logit.
    """
    logit_deviation: LoggedSeries = LoggedSeries()
    recipe: TrainingRecipe = TrainingRecipe()

    @property
    def last_update(self) -> int:
        """The last one with a loss; 0 without any."""
        return self.loss.updates[-1] if self.loss else 0

    def of_sublayers(self, quantity: str) -> dict[str, LoggedSeries]:
        """One quantity of every sub-layer that has it."""
        return {
            place: found[quantity] for place, found in self.sublayers.items() if quantity in found
        }

    def until(self, update: int) -> "History":
        """What was known then: all that was recorded up to that update."""

        def known(of: Any) -> Any:
            if isinstance(of, Mapping):
                return {name: known(one) for name, one in of.items()}
            return of.before(update + 1) if isinstance(of, LoggedSeries) else of

        return replace(self, **{one.name: known(getattr(self, one.name)) for one in fields(self)})


_LoggedValues = tuple[int, Mapping[str, float]]
"""An update, counted from 1, and what was recorded of it."""

_LOSS = (
    "loss",
    "train/loss",
    "train_loss",
    "training_loss",
    "train/loss_nats",
    "loss_nats",
    "train/loss_step",
    "loss_step",
)
_VALIDATION = (
    "eval_loss",
    "eval/loss",
    "val_loss",
    "val/loss",
    "valid_loss",
    "validation/loss",
    "validation/nll_nats",
)
_RATE = ("learning_rate", "train/learning_rate", "lr", "train/lr")
_GRADIENT = (
    "grad_norm",
    "train/grad_norm",
    "gradient_norm",
    "train/gradient_norm",
    "grad_norm/total",
    "train/global_grad_norm",
)
_LIGHTNING_RATE = re.compile(r"lr-\w+")
_MEASURED = re.compile(r"(?:^|/)normscope/(?P<rest>.+)$")
_SUBLAYER = re.compile(r"(?P<place>.+/block_\d+/\w+)/(?P<quantity>\w+)")
_HEADS = re.compile(
    r"(?:^|[./])(?:to_|w)?(?P<part>q|k|v|query|key|value)(?:_?(?:proj|norm|lin|layer))*(?:[./]weight)?(?:[./_]\w*norm)?$"
)
_SCORES = re.compile(
    r"[./_]*(?:max_?)?(?:attn|attention)[./_](?:logit|score)s?(?:_?(?:max|std))?(?=[./_]|$)"
)
_PARTS = {"q": "query", "k": "key", "v": "value"}
RECIPE = "normscope/recipe/"
"""What the callbacks write once: `epsilon`, `divides` and `clip_norm`."""


def history_of(
    source: str, rows: Iterable[_LoggedValues], recipe: TrainingRecipe | None = None
) -> History:
    """Raises ValueError where nothing was logged, or no loss of a training is among the names, with
    those there are.
    """
    series = _series(rows)
    if not series:
        raise ValueError(f"{source} has no update: nothing has been logged in it")
    loss = _first(series, _LOSS)
    if not loss:
        raise ValueError(
            f"{source} has no training loss; names that are read: {', '.join(_LOSS)}; it has: "
            f"{_names_in([series])}"
        )
    sublayers: dict[str, dict[str, LoggedSeries]] = {}
    stacks: dict[str, dict[str, LoggedSeries]] = {}
    others: dict[str, LoggedSeries] = {}
    for name, one in series.items():
        if (measured := _MEASURED.search(name)) is None:
            continue
        rest = measured["rest"]
        if inside := _SUBLAYER.fullmatch(rest):
            sublayers.setdefault(inside["place"], {})[inside["quantity"]] = one
        else:
            stack, _, quantity = rest.rpartition("/")
            (stacks.setdefault(stack, {}) if stack and stack != "recipe" else others)[quantity] = (
                one
            )
    return History(
        source=source,
        loss=loss,
        validation_loss=_first(series, _VALIDATION),
        rate=_first(
            series, (*_RATE, *(name for name in series if _LIGHTNING_RATE.fullmatch(name)))
        ),
        gradient_norm=_first(series, _GRADIENT),
        sublayers=sublayers,
        stacks=stacks,
        attentions=_attentions(series),
        logit_deviation=others.pop("logit_deviation", LoggedSeries()),
        recipe=_recipe(recipe or TrainingRecipe(), others),
    )


_MOST_NAMES = 10


def _names_in(tables: Iterable[Mapping[str, Any]]) -> str:
    """The first names of a log's numbers, as an error shows them."""
    names = {name for table in tables for name in table if "normscope/" not in name}
    return ", ".join(map(short_name, sorted(names)[:_MOST_NAMES])) or "none"


def _attentions(series: Mapping[str, LoggedSeries]) -> dict[str, dict[str, LoggedSeries]]:
    """Norms by the usual names of matrices, such as `param_norm/layers.3.self_attn.q_proj.weight`,
    and logits.
    """
    found: dict[str, dict[str, LoggedSeries]] = {}
    for name, one in series.items():
        if "grad" in name.lower():
            continue
        if "norm" in name and (head := _HEADS.search(name)):
            part = head["part"]
            found.setdefault(name[: head.start()] or "attention", {})[_PARTS.get(part, part)] = one
        elif scores := _SCORES.search(name):
            place = (name[: scores.start()] + name[scores.end() :]).strip("./_")
            found.setdefault(place or "attention", {})["logit"] = one
    return found


def _recipe(known: TrainingRecipe, written: Mapping[str, LoggedSeries]) -> TrainingRecipe:
    """What the callbacks wrote, in place of what is not known otherwise."""
    values = {name: one.values[-1] for name, one in written.items()}
    if "clip_norm" in values:
        known = replace(known, clip_norm=values["clip_norm"] or math.inf)
    if "divides" in values:
        known = replace(known, divides=bool(values["divides"]), epsilon=values.get("epsilon"))
    if 1 < values.get("classes", 0) < math.inf:
        known = replace(known, classes=int(values["classes"]))
    return known


def _first(series: Mapping[str, LoggedSeries], names: Sequence[str]) -> LoggedSeries:
    return next((series[name] for name in names if name in series), LoggedSeries())


def _series(rows: Iterable[_LoggedValues]) -> dict[str, LoggedSeries]:
    """By name, updates rising. What was written twice counts as it was last; a resumed training
    repeats updates.
    """
    found: dict[str, dict[int, float]] = {}
    for update, values in rows:
        for name, value in values.items():
            found.setdefault(name, {})[update] = value
    return {name: LoggedSeries.of(one) for name, one in found.items()}


_MOST_UPDATES = 2**53
"""Beyond it a float does not tell neighbours apart."""


def update_in(value: object) -> int:
    """The number of an update, as a log has it. Raises ValueError for what is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MOST_UPDATES
    ):
        raise ValueError(f"{shown(value)} is no number of an update")
    return int(value)


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers; strings that JSON's writers use for what is not finite
    are.
    """
    found = {}
    for name, value in values.items():
        if value in ("NaN", "Infinity", "-Infinity") or (
            isinstance(value, int | float) and not isinstance(value, bool)
        ):
            try:
                found[name] = float(value)
            except OverflowError:  # an integer of more digits than a float holds
                found[name] = math.inf if value > 0 else -math.inf
    return found


def recipe_values(optimizer: Optimizer, clip_norm: float | None) -> dict[str, float]:
    """`normscope/recipe/…`: whether the optimiser divides by the gradient's size, its ε, and the
    clip, 0 for none.
    """
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    epsilon = epsilon_of(group)
    clip = clip_norm if clip_norm and math.isfinite(clip_norm) else 0.0
    found = {f"{RECIPE}divides": float(epsilon is not None), f"{RECIPE}clip_norm": float(clip)}
    return (
        found
        if epsilon in (None, math.inf)
        else found | {f"{RECIPE}epsilon": float(epsilon or 0.0)}
    )


EVENT_FILES = "events.out.tfevents."
_ALL = 0
"""Of TensorBoard's reader: keep every value, where it would keep a sample."""


def of_event_files(path: Path) -> History:
    """An event file, or a folder with some. Raises ValueError as `history_of` does, and where there
    is no scalar.

    TensorBoard leaves what was torn at the end out, and hides what a resumed training wrote beyond
    its checkpoint.
    """
    from tensorboard.backend.event_processing.event_accumulator import (
        SCALARS,
        TENSORS,
        EventAccumulator,
    )
    from tensorboard.util.tensor_util import make_ndarray

    reader = EventAccumulator(str(path), size_guidance={SCALARS: _ALL, TENSORS: _ALL})
    reader.Reload()
    rows: list[_LoggedValues] = []
    for tag in reader.Tags()["scalars"]:
        rows += [(int(one.step), {tag: float(one.value)}) for one in reader.Scalars(tag)]
    for tag in reader.Tags()["tensors"]:
        # Newer writers keep scalars as tensors without a dimension.
        for one in reader.Tensors(tag):
            array = make_ndarray(one.tensor_proto)
            if array.ndim == 0 and array.dtype.kind in "fi":
                rows.append((int(one.step), {tag: float(array)}))
    if not rows:
        raise ValueError(f"{path} holds no scalar")
    return history_of(str(path), rows)


def of_events(
    source: str, events: Iterable[Mapping[str, Any]], config: Mapping[str, Any]
) -> History:
    """The history of a run. config: the table of its config.toml. Raises ValueError for a run
    without an update.
    """
    return history_of(
        source, [row for event in events for row in _event_rows(event)], _config_recipe(config)
    )


def _event_rows(event: Mapping[str, Any]) -> Iterable[_LoggedValues]:
    update = update_in(event.get("update"))
    match event.get("event"):
        case "update" | "monitor":
            yield (
                update,
                numbers_in({name: value for name, value in event.items() if name != "update"}),
            )
        case "validation":
            yield update, numbers_in({"validation/nll_nats": event.get("nll_nats")})
        case "skipped" | "non-finite":
            yield update, {"loss_nats": math.nan}


def _config_recipe(config: Mapping[str, Any]) -> TrainingRecipe:
    """From what a resolved configuration holds."""
    tables = (config.get(name) for name in ("optimizer", "train"))
    optimizer, train = (table if isinstance(table, Mapping) else {} for table in tables)
    divides = optimizer.get("name") != "sgd" if "name" in optimizer else None
    epsilon = optimizer.get("epsilon") if divides else None
    known = numbers_in({"clip_norm": train.get("clip_norm", math.inf), "epsilon": epsilon})
    return TrainingRecipe(
        clip_norm=known.get("clip_norm"), divides=divides, epsilon=known.get("epsilon")
    )


TRAINER_STATE = "trainer_state.json"


def of_trainer_state(file: Path) -> History:
    """Raises ValueError for a file that holds no log history, and as `history_of` does."""
    table = read_json(file, infinite=True)
    log = table.get("log_history") if isinstance(table, dict) else None
    if not isinstance(log, list) or not all(
        isinstance(entry, dict) and "step" in entry for entry in log
    ):
        raise ValueError(
            f"{file} has no `log_history` with a `step` in every entry: is it a {TRAINER_STATE}?"
        )
    rows = []
    for entry in log:
        # The last entry tells the mean loss of the whole training, which is no loss of its update.
        values = numbers_in(
            {
                name: value
                for name, value in entry.items()
                if name not in ("step", "epoch", "train_loss")
            }
        )
        # The Trainer writes a loss of exactly 0 in place of NaN (`logging_nan_inf_filter`).
        if values.get("loss") == 0 and not math.isfinite(values.get("grad_norm", 0.0)):
            values["loss"] = math.nan
        rows.append((update_in(entry["step"]), values))
    return history_of(
        str(file), rows, TrainingRecipe(classes=_classes(file.parent / "config.json"))
    )


def _classes(config: Path) -> int | None:
    """The vocabulary of the model that lies beside it."""
    try:
        size = parse_json(read_text(config)).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 1 else None


WANDB_LINES = "wandb-history.jsonl"
STEPS = (
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "_step",
    "step",
    "train/step",
    "steps",
    "current_steps",
    "iteration",
    "train/iteration",
    "iter",
    "update",
    "updates",
    "num_updates",
)
"""Names of the count of updates, the first that a log has: the framework's own before W&B's count
of calls, and that before words which anybody may use for something else."""


def of_lines(file: Path) -> History:
    """Lines of JSON, each with a count of updates, as W&B and many loops of one's own write them.

    Raises ValueError naming the line that is no JSON object, where none has a count, with the names
    that are read, and as `history_of` does.
    """
    rows: list[dict[str, float]] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(numbers_in(parse_json(line, infinite=True)))
            except (ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"{file}:{number}: this line is no JSON object") from error
    found = of_steps(rows)
    if rows and not found:
        raise ValueError(
            f"{file} has no count of updates in its lines; names that are read: "
            f"{', '.join(STEPS)}; it has: {_names_in(rows)}"
        )
    return history_of(str(file), found)


def of_steps(lines: list[dict[str, float]]) -> list[_LoggedValues]:
    """Each line at the update that it says it is of; one that does not say so is left out."""
    name = next((step for step in STEPS if any(step in line for line in lines)), None)
    if name is None:
        return []
    found: list[_LoggedValues] = []
    for line in lines:
        if name in line:
            found.append((update_in(line[name]), line))
    return found
