"""Measurements that are not made twice: each lies in a JSON file with the settings and the source
it was made by.

Many are made side by side, in several processes of one thread each.
"""

import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from normscope import __version__
from normscope.engines.choosing import LOCAL, EngineSettings
from normscope.files import disk_errors, make_folders, write_atomically
from normscope.limits.names import refuse_leading_out
from normscope.limits.ours import SealedJson
from normscope.processes.pool import ending_pool
from normscope.provenance import source_of
from normscope.train.device import available_cores, keep_freed_memory

from .planning import PlanEnds, PlannedRuns


def as_json(value: Any) -> str:
    """Indented text, with a list of numbers on one line; JSON has neither infinity nor NaN, so
    these are null.
    """
    text = json.dumps(plain(value), indent=1, ensure_ascii=False)
    return (
        re.sub(r"\[\s+([-\d.e+,\snul]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
        + "\n"
    )


def plain(value: Any) -> Any:
    """Built-in types alone: arrays become lists, floats get six digits, what is not finite becomes
    None.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_WORTH_A_LINE_SECONDS = 1.0
_KIND = SealedJson(
    format_name="normscope-piece",
    version=1,
    keys=frozenset({"asked", "value"}),
    optional=frozenset({"processor_seconds"}),
    again="remove it and try again: it is measured anew, and nothing else is",
)


def processor_seconds() -> float:
    """Returns the processor time of this process so far, and of the processes that it has started
    and waited for.
    """
    return time.process_time() + sum(os.times()[2:4])


@dataclass(slots=True)
class Pieces:
    """Measurements of a study, each in a file of its own: what a folder holds already is read, not
    made again.
    """

    folder: Path
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None
    say: Callable[[str], None] = lambda line: None
    processes: int = 0
    """Trainings at a time; 0 for one a core, or one on a device."""
    reads_checkpoints: bool = False
    """Whether the study looks at checkpoints of its trainings, and not at what they logged alone.
    """
    engine: EngineSettings = LOCAL
    """The engine on which trainings run; measurements beside them are made here."""
    made: list[str] = field(default_factory=list)
    """Names of those that were made by this call."""
    plan: list[PlannedRuns] | None = None
    """The planned runs, where nothing is to be measured or trained; None otherwise."""
    processor_seconds: dict[str, float | None] = field(default_factory=dict)
    """The processor's seconds of each piece and each run folder that was asked for, whenever it was
    made; None where that is not known.
    """

    @property
    def processor_hours(self) -> float | None:
        """The processor's hours of all that was asked for; None where nothing was, and where they
        are not known of one of them.
        """
        known = [seconds for seconds in self.processor_seconds.values() if seconds is not None]
        return sum(known) / 3600 if known and len(known) == len(self.processor_seconds) else None

    def get(
        self,
        name: str,
        asked: Mapping[str, Any],
        measure: Callable[..., Any],
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Returns the piece of that name, if this very measurement made it; else `measure(...)`,
        kept and returned.

        name: may have one folder in it ("post-ln/seed-1"). asked: every setting that its values
        depend on, as plain values. measure: a function or a bound method of the module that
        measures, since the source of that module and of all it imports is a part of what identifies
        a piece; a function defined beside a page would be measured again whenever the page is
        edited. Raises UserError where the file was damaged or edited, and PlanEnds where one is
        missing that is only to be planned.
        """
        file = self.folder / "pieces" / f"{name}.json"
        for above in itertools.takewhile(lambda one: one != self.folder, file.parents):
            refuse_leading_out(above)
        made_by = {"normscope": __version__, "source_sha256": source_of(measure.__module__)}
        wanted = json.loads(as_json({**asked, **made_by}))
        if file.is_file():
            there = _KIND.read(file)
            if there["asked"] == wanted:
                self.processor_seconds[name] = there.get("processor_seconds")
                return there["value"]
        if self.plan is not None:
            raise PlanEnds("measurements, whose cost is known when they are made")
        started, spent = time.monotonic(), processor_seconds()
        value = json.loads(as_json(measure(*arguments, **options)))
        spent = round(processor_seconds() - spent, 3)
        with disk_errors(f"writing into {self.folder}"):
            make_folders(file.parent)
            write_atomically(
                file, _KIND.text({"asked": wanted, "value": value, "processor_seconds": spent})
            )
        self.made.append(name)
        self.processor_seconds[name] = spent
        if (seconds := time.monotonic() - started) >= _WORTH_A_LINE_SECONDS:
            self.say(f"{name}: measured in {seconds:.0f} s")
        return value

    def each(self, stage: str, items: Sequence[_Item]) -> Iterator[_Item]:
        """The items in turn, while whoever watches sees how many of them are done."""
        for done, item in enumerate(items):
            self.watch(stage, done, len(items))
            yield item
        self.watch(stage, len(items), len(items))


def side_by_side(
    make: Callable[[Any, Pieces], _Made],
    items: Sequence[Any],
    *,
    processes: int,
    pieces: Pieces,
    stage: str,
) -> list[_Made]:
    """`make` of every item, each in one of several processes of one thread; what they measure is
    kept as it is made.

    processes: at a time; 0 for as many as there are cores.
    """
    processes = min(processes or available_cores(), max(1, len(items)))
    if processes == 1 or pieces.plan is not None:
        return _in_turn(make, items, pieces, stage)
    found: list[_Made] = []
    with ending_pool(processes, _prepare) as pool:
        asked = [pool.submit(_made, make, pieces.folder, item) for item in items]
        for future in asked:
            one, spent = future.result()
            found.append(one)
            pieces.processor_seconds |= spent
            pieces.watch(stage, len(found), len(items))
    return found


def _in_turn(
    make: Callable[[Any, Pieces], _Made], items: Sequence[Any], pieces: Pieces, stage: str
) -> list[_Made]:
    threads = torch.get_num_threads()
    _prepare()
    try:
        return [make(item, pieces) for item in pieces.each(stage, items)]
    finally:
        torch.set_num_threads(threads)


def _made(
    make: Callable[[Any, Pieces], _Made], folder: Path, item: Any
) -> tuple[_Made, dict[str, float | None]]:
    return make(item, pieces := Pieces(folder)), pieces.processor_seconds


def _prepare() -> None:
    # One thread gives the same bits wherever a case is measured.
    torch.set_num_threads(1)
    keep_freed_memory()
