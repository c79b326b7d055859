"""What the server behind `forked` does once: a process then finds torch imported and the toy corpus made."""

import tempfile
from functools import lru_cache
from pathlib import Path

import forked  # noqa: F401
import toy
import unsynced
from normscope.runs import machine, run
from tiny import tiny

toy.share()
unsynced.write()
machine.fast_matmul = lru_cache(machine.fast_matmul)
with tempfile.TemporaryDirectory() as folder:
    run.train_run(tiny("train.duration=1"), Path(folder) / "run")
