"""A part of the benchmarks: arms that are measured one after another, each kept at once, and none
measured twice.
"""

import gc
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from normscope.files import write_atomically
from normscope.provenance import provenance
from normscope.train.device import prepare_cuda

Measured = dict[str, Any]
Arm = Callable[[], Measured]
Row = dict[str, str | float | None]
LIBRARIES = ("torch", "transformers", "x-transformers")


@dataclass(frozen=True, kw_only=True)
class Where:
    """What is measured on, and at which size."""

    device: torch.device
    quick: bool = False
    """Sizes at which a CPU goes through the whole part in seconds; what comes out says nothing."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Arms, and what they say together."""

    arms: Callable[[Where], Mapping[str, Arm]]
    """By name, what matters most first: where time runs out, the last ones are left over."""
    rows: Callable[[Mapping[str, Measured]], Iterable[Row]]
    """Of the table that is printed and kept: figures beside each other, of the arms that there
    are.
    """


class NotInstalled(Exception):
    """A peer's library is not there, so there is nothing to measure."""


def run(name: str, part: Part, where: Where, *, folder: Path, budget_seconds: float) -> bool:
    """Measure what `folder/NAME.json` does not hold yet, for so long; True where nothing failed.

    An arm is begun if one as long as the longest yet would end within the budget. What was measured
    of other source, by other versions, at another size or on another device is thrown away first.
    """
    file, started, longest = folder / f"{name}.json", time.monotonic(), 0.0
    identity = _identity(where)
    measured = _kept(file, identity)
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    arms = part.arms(where)
    for arm, measure in arms.items():
        begun = time.monotonic()
        if arm in measured or begun - started + longest > budget_seconds:
            continue
        print(f"{name}: {arm}", flush=True)
        try:
            measured[arm] = measure()
        except NotInstalled as error:
            missing[arm] = str(error)
        except Exception as error:
            # One arm's end is not the others': what it was is kept, printed, and an exit code.
            failed[arm] = f"{type(error).__name__}: {error}"
        _tidy(where)
        longest = max(longest, time.monotonic() - begun)
        _keep(
            file,
            identity,
            part,
            {one: measured[one] for one in arms if one in measured},
            missing,
            failed,
        )
    left = [arm for arm in arms if arm not in measured and arm not in missing and arm not in failed]
    _show(name, part.rows(measured), missing | failed)
    if left:
        print(f"{name}: no time was left for {', '.join(left)}; the same command goes on with them")
    return not failed


def _identity(where: Where) -> dict[str, Any]:
    """What two measurements have in common that stand beside each other."""
    own = sorted(Path(__file__).parent.rglob("*.py"))
    cuda = where.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(where.device) if cuda else platform.machine(),
        "cuda": torch.version.cuda if cuda else None,
        "quick": where.quick,
        "versions": {library: _version(library) for library in LIBRARIES},
        "source_sha256": provenance()["source_sha256"],
        "benchmark_sha256": hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest(),
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _kept(file: Path, identity: dict[str, Any]) -> dict[str, Measured]:
    if not file.is_file():
        return {}
    table = json.loads(file.read_text(encoding="utf-8"))
    return dict(table["arms"]) if table["identity"] == identity else {}


def _keep(
    file: Path,
    identity: dict[str, Any],
    part: Part,
    measured: dict[str, Measured],
    missing: dict[str, str],
    failed: dict[str, str],
) -> None:
    table = {
        "identity": identity,
        "commit": provenance()["commit"],
        "python": platform.python_version(),
        "rows": list(part.rows(measured)),
        "arms": measured,
        "not_installed": missing,
        "failed": failed,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(table, indent=1) + "\n")


def _tidy(where: Where) -> None:
    """As it was before the arm: nothing of its model in memory, nothing of its settings in
    force.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if where.device.type == "cuda":
        prepare_cuda("fp32", deterministic=False)
        torch.cuda.empty_cache()


def _show(name: str, rows: Iterable[Row], without: Mapping[str, str]) -> None:
    table = [{key: _written(value) for key, value in row.items()} for row in rows]
    keys = list(dict.fromkeys(key for row in table for key in row))
    widths = {key: max(len(key), *(len(row.get(key, "")) for row in table)) for key in keys}
    for line in ({key: key for key in keys}, *table) if table else ():
        print(
            "  ".join(
                f"{line.get(key, ''):{'<' if key == keys[0] else '>'}{widths[key]}}" for key in keys
            ).rstrip()
        )
    for arm, reason in without.items():
        print(f"{name}: {arm} was not measured: {reason}")


def _written(value: str | float | None) -> str:
    if value is None:
        return ""
    return (
        value
        if isinstance(value, str)
        else f"{value:,.4g}"
        if abs(value) < 1000
        else f"{value:,.0f}"
    )
