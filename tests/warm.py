"""What the server behind `forked` does once: after it a process finds torch imported and the toy corpus made."""

import tempfile
from functools import lru_cache
from pathlib import Path

import forked  # noqa: F401
from normscope.data.parallel import opening
from normscope.runs import run
from tiny import tiny

opening.toy_corpus = lru_cache(opening.toy_corpus)
with tempfile.TemporaryDirectory() as folder:
    run.train_run(tiny("train.duration=1"), Path(folder) / "run")
