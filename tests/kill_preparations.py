"""Kill preparations of corpora again and again with SIGKILL, and compare what comes of them with
ones left alone.

Run: PYTHONPATH=src:tests python tests/kill_preparations.py [KILLS]; 40 take about a minute of a
core. Half of the kills come at a random file operation in the corpus's folder, of a single process
that kills itself there (`sys.addaudithook` sees opening, renaming, removing …); the others at a
random moment, of two processes at once.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from normscope.data import work
from normscope.data.documents.prepare import DocumentsConfig, prepare_documents
from normscope.data.parallel.prepare import PrepareConfig, prepare

PART_CHARACTERS = 1500
"""So that a small text has many parts."""
FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
WORDS = [
    "red",
    "house",
    "stands",
    "runs",
    "horse",
    "there",
    "here",
    "today",
    "not",
    "under",
    "bridge",
]

Make = Callable[[Path, int], object]
"""Prepares a corpus at a path by so many processes."""


def documents(folder: Path, count: int = 120) -> Make:
    """Of text that is written into the folder."""
    draw = random.Random(1)
    text = folder / "text.txt"
    paragraphs = (
        " ".join(
            f"{' '.join(draw.choices(WORDS, k=6)).capitalize()} {number}."
            for _ in range(1 + draw.randrange(4))
        )
        + "\n" * (1 + draw.randrange(2))
        for number in range(count)
    )
    text.write_text("".join(paragraphs), encoding="utf-8")
    splits = {"train": (text,)}
    return lambda out, processes: prepare_documents(
        DocumentsConfig(
            out=out, splits=splits, tokeniser="bpe", vocabulary_size=300, processes=processes
        )
    )


def pairs(folder: Path, count: int = 300) -> Make:
    """Of lines that are written into the folder."""
    draw = random.Random(2)
    files = folder / "source.txt", folder / "target.txt"
    for file in files:
        lines = (f"{' '.join(draw.choices(WORDS, k=5))} {number}.\n" for number in range(count))
        file.write_text("".join(lines), encoding="utf-8")
    return lambda out, processes: prepare(
        PrepareConfig(
            out=out,
            source_language="de",
            target_language="en",
            splits={"train": files},
            vocabulary_size=100,
            joint=True,
            workers=processes,
        )
    )


def stored(out: Path) -> dict[str, bytes]:
    """Every file of a corpus."""
    return {path.name: path.read_bytes() for path in out.iterdir()}


def child(make: Make, out: Path, processes: int = 1, *, kill_at: int | None = None) -> int:
    """Begin or go on with a preparation in a forked child; returns its process id. kill_at: an
    operation, from 1.
    """
    pid = os.fork()
    if pid:
        return pid
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in FILE_OPERATIONS and arguments and out.name in str(arguments[0]):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        work.PART_CHARACTERS = PART_CHARACTERS
        sys.addaudithook(count)
        make(out, processes)
        (out.parent / "operations").write_text(str(seen))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int) -> bool:
    """Wait for a child; True where it came to its end, False where it was killed. Anything else is
    a failure.
    """
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, (
            f"a preparation died of signal {os.WTERMSIG(status)}"
        )
        return False
    assert os.WEXITSTATUS(status) == 0, (
        "a preparation that went on after a kill failed; see the traceback above"
    )
    return True


def undisturbed(make: Make, out: Path) -> tuple[dict[str, bytes], int]:
    """The corpus of a preparation left alone, and its file operations."""
    assert ended(child(make, out))
    wanted, operations = stored(out), int((out.parent / "operations").read_text())
    shutil.rmtree(out)
    return wanted, operations


def main(kills: int) -> None:
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        for kind in (documents, pairs):
            folder = Path(temporary) / kind.__name__
            folder.mkdir()
            make, out = kind(folder), folder / "corpus"
            wanted, operations = undisturbed(make, out)
            began = time.monotonic()
            assert ended(child(make, out, 2))
            seconds = time.monotonic() - began
            assert stored(out) == wanted, "two processes make other bytes than one"
            for processes in (1, 2):
                killed = whole = went_on = 0
                while killed < kills // 4:
                    if processes == 1:
                        pid = child(make, out, kill_at=1 + draw.randrange(operations))
                    else:
                        pid = child(make, out, processes)
                        timer = threading.Timer(draw.uniform(0.1, 1) * seconds, _kill, [pid])
                        timer.start()
                    if ended(pid):
                        whole += 1
                        assert stored(out) == wanted, "other bytes after kills"
                        assert (
                            sorted(one.name for one in folder.iterdir() if one.name.startswith("."))
                            == []
                        )
                        shutil.rmtree(out)
                    else:
                        killed += 1
                        went_on += any(folder.glob(".unfinished-corpus/parts/train-*"))
                print(f"{kind.__name__}, {processes} processes: {killed} kills", end="")
                print(
                    f" ({went_on} with parts to go on from), {whole} whole corpora of the same "
                    "bytes",
                    flush=True,
                )


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
