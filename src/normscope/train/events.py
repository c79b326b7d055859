"""The events that a run may log: their kinds, what each holds, and the order in which they stand.

Anyone can send a run folder, with guards that are right. So every line is held to this page before
anything is made of it, and who reads an event may count on its types: a count is whole and not
True, a number is finite and can be squared and summed, and updates do not go back. Quantities may
be absent, as other versions may log fewer, and may be more, as later ones may log others.
"""

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ..limits.reading import shown

Event = dict[str, Any]

LARGEST = 1e100
"""The largest number, whatever its sign: single precision ends at 3.4e38, and squares and sums of
numbers up to here stay below the 1.8e308 of double precision.
"""
MOST_COUNTED = 2**53
"""The largest count of updates and tokens: up to here double precision holds every whole number."""

LoggedCount = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
LoggedNumber = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
LoggedSize = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
AS_WRITTEN = ConfigDict(strict=True, extra="allow")
"""The strict reading of events: no text for a number, no number for a truth value; and whatever
else stands there.
"""


@with_config(AS_WRITTEN)
class _Initialisation(TypedDict):
    event: Literal["initialisation"]
    update: LoggedCount
    gradient_norms: NotRequired[dict[str, LoggedSize]]


@with_config(AS_WRITTEN)
class _Update(TypedDict):
    event: Literal["update"]
    update: LoggedCount
    epoch: NotRequired[LoggedSize]
    lr: NotRequired[LoggedSize]
    loss_nats: NotRequired[LoggedNumber]
    nll_nats: NotRequired[LoggedNumber]
    gradient_norm: NotRequired[LoggedSize]
    target_tokens: NotRequired[LoggedCount]


@with_config(AS_WRITTEN)
class _Monitor(TypedDict):
    event: Literal["monitor"]
    update: LoggedCount


@with_config(AS_WRITTEN)
class _Validation(TypedDict):
    event: Literal["validation"]
    update: LoggedCount
    epoch: NotRequired[LoggedSize]
    loss_nats: NotRequired[LoggedNumber]
    nll_nats: NotRequired[LoggedNumber]
    bleu: NotRequired[LoggedNumber]


@with_config(AS_WRITTEN)
class _Skipped(TypedDict):
    event: Literal["skipped"]
    update: LoggedCount
    reason: NotRequired[str]


@with_config(AS_WRITTEN)
class _Ended(TypedDict):
    event: Literal["finished", "decided", "non-finite"]
    update: LoggedCount
    reason: NotRequired[str]
    validations: NotRequired[LoggedCount]
    summed_lr: NotRequired[LoggedSize]
    target_tokens: NotRequired[LoggedCount]
    skipped_updates: NotRequired[LoggedCount]
    best_update: NotRequired[LoggedCount]


@with_config(AS_WRITTEN)
class _Other(TypedDict):
    event: str
    update: LoggedCount


_Known = _Initialisation | _Update | _Monitor | _Validation | _Skipped | _Ended
_KNOWN: TypeAdapter[_Known] = TypeAdapter(Annotated[_Known, Field(discriminator="event")])
_OTHER: TypeAdapter[_Other] = TypeAdapter(_Other)
_MEASURED: TypeAdapter[dict[str, float]] = TypeAdapter(
    dict[str, LoggedNumber], config=ConfigDict(strict=True)
)
KINDS = frozenset(
    {
        "initialisation",
        "update",
        "monitor",
        "validation",
        "skipped",
        "finished",
        "decided",
        "non-finite",
    }
)
"""The kinds that this version logs."""
_WORDS = {
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "extra_forbidden": "is not known",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "json_invalid": "is no JSON ({error})",
    "less_than_equal": "at most {le:g}",
    "missing": "is missing",
    "string_type": "text",
    "union_tag_not_found": "does not say which event it is",
}
"""The words for faults, by the names that pydantic gives them."""
_SENTENCES = ("extra_forbidden", "json_invalid", "missing", "union_tag_not_found")
"""The faults whose words say what is, and not what must be."""


def event_of(line: bytes) -> Event:
    """Returns the event that a line of JSON holds, of a kind that we do not know too.

    Raises ValueError that says in words what no run writes.
    """
    try:
        return _checked(line)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def _checked(line: bytes) -> Event:
    """Checks the event of a line, and returns it. Raises ValidationError."""
    try:
        event = cast(Event, _KNOWN.validate_json(line))
    except ValidationError as error:
        if error.errors()[0]["type"] != "union_tag_invalid":
            raise
        return cast(Event, _OTHER.validate_json(line))
    if event["event"] == "monitor":
        measured = {name: value for name, value in event.items() if name != "event"}
        _MEASURED.validate_python(measured)
    return event


def first_fault(error: ValidationError) -> str:
    """Returns in words what is wrong first: "'update.lr' must be a finite number, got nan"."""
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    it = shown(place) if place else "it"
    if problem["type"] not in _WORDS:
        return f"{it}: {problem['msg']}"
    said = _WORDS[problem["type"]].format(**problem.get("ctx", {}))
    if problem["type"] in _SENTENCES:
        return f"{it} {said}"
    return f"{it} must be {said}, got {shown(problem['input'])}"


class EventOrder:
    """Holds the events of a log to their order: updates never go back, and none repeats in a kind.

    An update that was skipped is of the kind of the others: of each number there is one.
    """

    def __init__(self) -> None:
        self._last = 0
        self._last_of: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """The next event. Raises ValueError where it stands behind one that it cannot follow."""
        kind = "update" if event["event"] == "skipped" else event["event"]
        update: int = event["update"]
        if update < self._last:
            raise ValueError(f"update {update} stands behind update {self._last}")
        if kind == "update" and update == 0:
            raise ValueError("updates are counted from 1, got 0")
        if kind in KINDS and update == self._last_of.get(kind):
            raise ValueError(f"update {update} has two events of the kind {kind!r}")
        self._last = self._last_of[kind] = update
