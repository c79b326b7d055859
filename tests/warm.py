"""What the server behind `forked` does once: a process then finds what is slow imported, and the
toy corpus made.
"""

import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import forked  # noqa: F401
import toy
import unsynced
from normscope.data import opening
from normscope.runs import machine, run
from tiny import tiny

toy.share()
unsynced.write()
opening.toy_documents()
machine.fast_matmul = lru_cache(machine.fast_matmul)
for late in (
    "cli.train",
    "cli.trained",
    "cli.doctor",
    "doctor.diagnose",
    "compare.compare",
    "exchange.export",
):
    import_module(f"normscope.{late}")
import_module("matplotlib.backends.backend_svg")
with suppress(ImportError):
    import_module("transformers.models.gpt2.modeling_gpt2")
with tempfile.TemporaryDirectory() as folder:
    run.train_run(tiny("train.duration=1"), Path(folder) / "run")
