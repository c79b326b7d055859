"""Runs small enough to be repeated dozens of times, and what is compared between them."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.runs.config import load
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import RunFolder
from normscope.train.metrics import Event, LogMark, MetricsLog

if TYPE_CHECKING:
    from forked import Forked

SETTINGS = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.encoder_blocks=1",
    "model.decoder_blocks=1",
    "data.toy_pairs=300",
    "data.max_tokens=512",
    "train.threads=1",
    'train.device="cpu"',
)
"""1+1 blocks of width 16, dropout 0.1, on 300 sentences of the toy language, in one thread."""

RUN = (
    "train.accumulation=3",
    "train.duration=30",
    "train.validate_every=10",
    "train.checkpoint_every=4",
)
"""30 updates of three batches: several epochs, 3 validations, 9 checkpoints, and a batch order that
matters.
"""

SHORT = (
    "train.duration=12",
    "train.validate_every=5",
    "train.checkpoint_every=4",
    "train.keep_checkpoints=5",
)

MY_PLACEMENT = '''"""A placement nobody ships."""

from normscope.placement import Placement, register


@register
class HalfLN(Placement):
    """x ← LN(x / 2 + F(x))"""

    name = "half-ln"
    title = "Half-LN"
    citation = "this test"
    year = 2026

    def join(self, x, sublayer, norm):
        return norm(0.5 * x + sublayer(x))
'''


def tiny(*settings: str) -> TranslationRunConfig:
    config = load(None, [*SETTINGS, *settings])
    assert isinstance(config, TranslationRunConfig)
    return config


def options(*settings: str) -> list[str]:
    """The same as `tiny`, for a command line."""
    return [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]


def result(folder: Path, update: int) -> tuple[str, bytes]:
    """What two runs must share to the bit: the SHA-256 of the weights after `update`, and every
    line of the metrics.
    """
    weights = (folder / "checkpoints" / f"step-{update}" / "model.safetensors").read_bytes()
    return hashlib.sha256(weights).hexdigest(), (folder / "metrics.jsonl").read_bytes()


def write_events(folder: RunFolder, events: Iterable[Event]) -> None:
    """Make a run's metrics of these events, whatever they were before."""
    folder.path.mkdir(parents=True, exist_ok=True)
    log = MetricsLog(folder.metrics_file, LogMark())
    for event in events:
        log.append(event)
    log.close()


def steps(folder: Path) -> list[int]:
    return sorted(
        int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*")
    )


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.rglob(".unfinished-*"))


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def resealed(file: Path, **changes: Any) -> dict[str, Any]:
    """Change a JSON file as one that knows of its seal would, None for a key that goes; what it
    held before.
    """
    before: dict[str, Any] = json.loads(file.read_text())
    changed = before | {"sha256_of_this_file": None} | changes
    table = {key: value for key, value in changed.items() if value is not None}
    table["sha256_of_this_file"] = hashlib.sha256(json.dumps(table, indent=1).encode()).hexdigest()
    file.write_text(json.dumps(table, indent=1) + "\n")
    return before


def start(*arguments: str, cwd: Path | None = None, program: str = "") -> "subprocess.Popen[bytes]":
    """`normscope ARGUMENTS` as a process of its own; program: code that calls it, where more comes
    before.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *(("-c", program) if program else ("-m", "normscope")), *arguments]
    return subprocess.Popen(command, cwd=cwd, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes)


def finish(process: "subprocess.Popen[bytes] | Forked", stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(stdin, timeout=240)
    return process.returncode, out.decode(), err.decode()
