"""The pieces of work that are disturbed: commands that write, small enough to be repeated thousands
of times.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tiny import options

from .disk import Tree

TRAINING = (
    "train.duration=10",
    "train.validate_every=4",
    "train.checkpoint_every=3",
    "train.keep_checkpoints=2",
    "data.max_tokens=128",
    "data.toy_pairs=100",
)
"""10 updates with 3 validations and 6 checkpoints, of which 2 and the best are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A command whose files under `work/` are watched; what it reads lies in `desk/` beside it (see
    `desk.py`).
    """

    name: str
    words: tuple[str, ...]
    start: str = ""
    """Folder that `work/` begins as a copy of; nothing for an empty one."""
    resumes: bool = False
    """It keeps what it has done and goes on from there."""
    stdin: str = ""
    stdout: str = ""

    def needs(self) -> list[str]:
        """Names of what it reads in `desk/`."""
        words = (*self.words, self.start, self.stdin)
        return [word.removeprefix("desk/") for word in words if word.startswith("desk/")]

    def result(self, tree: Tree) -> Tree:
        """What two ends of the command must share: without locks, logs with clocks in them, and
        times.
        """
        return tuple(
            (path, _timeless(path, content))
            for path, content in tree
            if not _NOT_COMPARED.search(path)
        )


# A log of updates that no checkpoint has is kept beside the new one, which the command says.
_NOT_COMPARED = re.compile(
    r"(^|/)(\.lock|\.made-by-normscope|tensorboard|logs|metrics-\d+\.jsonl)(/|$)"
)
_MANIFEST = re.compile(r"^(?!.*\.(unfinished|replaced)-).*/MANIFEST\.sha256$")
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?")
# A journal names the process that wrote a line, which the line's seal holds too, and has a line for
# each opening.
_OF_WRITER = re.compile(rb'"(worker_id|datetime_\w+|seal)": "[^"]*"|{"op_code": 0, .*')


def _timeless(path: str, content: bytes | None) -> bytes | None:
    if content and "/journals/" in path:
        return b"".join(_OF_WRITER.sub(b"", content).split())
    return _TIME.sub(b"", content) if content and path.endswith((".json", ".html")) else content


def whole_checkpoints(tree: Tree) -> int:
    """The last update of a whole checkpoint in any run; -1 for none."""
    found = [PurePosixPath(path).parent.name for path, _ in tree if _MANIFEST.search(path)]
    return max(
        (int(name.removeprefix("step-")) for name in found if name.startswith("step-")), default=-1
    )


def _sets(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _work(name: str, *words: str, **others: Any) -> Work:
    return Work(name=name, words=words, **others)


_MODEL = ("--device", "cpu", "--beam", "1")
_LANGUAGES = ("--train", "desk/train.de", "desk/train.en", "--languages", "de", "en")
_RUNS = (
    "train.duration=3",
    "train.validate_every=2",
    "train.checkpoint_every=1",
    "data.toy_pairs=100",
    "data.max_tokens=128",
)
_GRID = (
    "--arms",
    "post-ln:0,pre-ln:2",
    "--peak-lr",
    "3e-3",
    "--processes",
    "1",
    "--evaluate",
    "valid",
)
_SMALL = ("--vocabulary-size", "120")
_LEMMAS = ("seeds=2", "blocks=2", "width=8", "singular_width=4", "tokens=4", "vectors=5")

WORKS = {
    work.name: work
    for work in (
        _work("training", "train", "--run", "work/run", *options(*TRAINING), resumes=True),
        _work(
            "prepare",
            "data",
            "prepare",
            "work/corpus",
            *_LANGUAGES,
            *_SMALL,
            "--workers",
            "2",
            start="desk/other-corpus",
        ),
        _work("documents", "data", "documents", "work/corpus", "--train", "desk/text.txt", *_SMALL),
        _work("compare", "compare", "--out", "work/out", *_GRID, *options(*_RUNS), resumes=True),
        _work(
            "evaluate",
            "evaluate",
            "desk/run",
            "--save",
            "work/scores",
            "--output",
            "work/lines",
            *_MODEL,
        ),
        _work(
            "translate", "translate", "desk/run", *_MODEL, stdin="desk/few.txt", stdout="work/lines"
        ),
        _work("report", "report", "desk/run", "--out", "work/report"),
        _work("export", "export", "desk/pre", "work/exported"),
        _work(
            "study",
            "study",
            "lemmas",
            "--scale",
            "smoke",
            "--out",
            "work/study",
            *_sets(_LEMMAS),
            resumes=True,
        ),
    )
}
