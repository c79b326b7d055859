"""A preparation that is killed or interrupted leaves nothing that looks like a corpus, and no
process.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normscope.data.parallel.corpus import Corpus
from normscope.data.parallel.prepare import prepare

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from normscope.data.parallel.preparation import PrepareConfig
from normscope.data.parallel.prepare import prepare

def progress(stage, done, total):
    if stage == sys.argv[2] and done:
        print(Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))

if __name__ == "__main__":
    # A shell that starts us in the background has us ignore SIGINT, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fields = json.loads(sys.argv[1])
    prepare(PrepareConfig(**{**fields, "out": Path(fields["out"]), "splits": {
        name: tuple(map(Path, pair)) for name, pair in fields["splits"].items()}}), progress)
"""


def alive(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.sampled(one_in=3)
@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds the worker processes through /proc"
)
@pytest.mark.parametrize(
    ("stage", "sign"), [("tokenise", "SIGKILL"), ("encode", "SIGKILL"), ("tokenise", "SIGINT")]
)
def test_a_killed_preparation_leaves_no_corpus_and_no_process(
    config, tmp_path, stage, sign, listing
):
    wanted = config(workers=2)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    fields = {
        name: getattr(wanted, name)
        for name in ("source_language", "target_language", "vocabulary_size", "workers")
    }
    fields |= {
        "out": str(wanted.out),
        "splits": {n: [str(p) for p in pair] for n, pair in wanted.splits.items()},
    }
    command = [sys.executable, str(script), json.dumps(fields), stage, sign]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -getattr(signal, sign), ended.stderr
    children = [int(process_id) for process_id in ended.stdout.split()]
    if stage == "tokenise":
        assert len(children) >= 2
    deadline = time.monotonic() + 240
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
    left = listing(wanted.out.parent)
    assert left == ([".unfinished-corpus"] if sign == "SIGKILL" else [])
    report = prepare(config())
    assert not report.unchanged
    assert listing(wanted.out.parent) == ["corpus"]
    assert Corpus.open(wanted.out).fingerprint == report.fingerprint
