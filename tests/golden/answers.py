"""How one item answers: by commands, whose words are caught, and by files that hold nothing that
changes by itself.
"""

import hashlib
import importlib
import json
import math
import os
import pkgutil
import re
import runpy
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any

_ORIGIN = (
    "created",
    "normscope",
    "source_sha256",
    "commit",
    "commands",
    "command",
    "environment",
    "made_by",
    "made_from",
    "processor_hours",
)
VOLATILE = frozenset({*_ORIGIN, "version", "python", "torch", "platform", "processor", "cores"})
"""Keys of JSON files whose values tell of the clock, the source or the machine."""
_TIMED = re.compile(r"seconds|per_second|^time|^datetime|worker_id|guard|sha256_of_this_file")
_CLOCKED = re.compile(r"(^|/)(\.lock$|events\.out|logs/|MANIFEST\.sha256$)|\.html$")
"""Files that are never the same twice, pages, which are recorded as words, and sums of other
files.
"""
_STAGES = re.compile(r"^.*( \.\.\.|: \d+ of \d+(, about .*)?)\n", re.MULTILINE)
"""Lines of progress on stderr, which show what takes long enough."""
_HASHES = re.compile(
    r"(# SHA-256 of the lines above: |\bsource |, commit )[0-9a-f]{12,64}\b( \(modified\))?"
)
"""Hashes of a configuration, which names its corpus by a whole path, and of the source."""
_IN_TEXTS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<when>"),
    (r"measured in \d+ s", "measured in <seconds>"),
    (r"(Processor hours:?\s+)[\d.e-]+", r"\1<hours>"),
    (r"(?s)\n(Exact c|C)ommands\n(?!.*\n(Exact c|C)ommands\n).*\nEnvironment\n.*", "\n"),
)
"""What tells of them in texts, and what stands there instead; commands and environment end a
page.
"""


@dataclass(frozen=True)
class Desk:
    """Where an item answers; it stands in an empty temporary folder."""

    tree: Path
    folder: Path

    def json(self, name: str, value: Any) -> None:
        """Values as they are, but for what is volatile."""
        self._write(f"{name}.json", json.dumps(self.plain(value), ensure_ascii=False, indent=1))

    def text(self, name: str, value: str) -> None:
        text = self.unplaced(value)
        for pattern, instead in _IN_TEXTS:
            text = re.sub(pattern, instead, text)
        self._write(f"{name}.txt", text)

    def page(self, name: str, file: Path) -> None:
        """The words of an HTML file."""
        self.text(name, words_of(file.read_text(encoding="utf-8")))

    def bytes_of(self, name: str, files: Iterable[Path], top: Path) -> None:
        """SHA-256 and length of every file that a clock is not in; of JSON files and configurations
        what they say.
        """
        found: dict[str, Any] = {}
        for file in sorted(files):
            if _CLOCKED.search(file.relative_to(top).as_posix()):
                continue
            content = file.read_bytes()
            values = _as_json(file, content)
            sha = hashlib.sha256(content).hexdigest()
            found[file.relative_to(top).as_posix()] = (
                {"sha256": sha, "bytes": len(content)} if values is None else values
            )
        self.json(name, found)

    def normscope(
        self, *words: object, cwd: Path | None = None, stdin: str = ""
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `normscope WORDS`, as `python -m normscope` runs it."""
        texts = [Path.cwd() / f".std-{number}" for number in range(3)]
        texts[0].write_text(stdin, encoding="utf-8")
        child = os.fork()
        if not child:
            _command([str(word) for word in words], cwd or Path.cwd(), texts)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out, err = (text.read_text(encoding="utf-8", errors="replace") for text in texts[1:])
        for text in texts:
            text.unlink()
        return code, out, _STAGES.sub("", err)

    def said(
        self, name: str, *words: object, expected: int = 0, cwd: Path | None = None, stdin: str = ""
    ) -> str:
        """Record the exit code and what was printed; stderr where the code is not the expected one.
        Gives stdout.
        """
        code, out, err = self.normscope(*words, cwd=cwd, stdin=stdin)
        self.text(
            name, f"exit code {code}\n{out}" + (f"stderr:\n{err}" if code != expected else "")
        )
        if code != expected:
            print(f"{self.folder.name}: exit code {code}: {err.strip()[-300:]}", file=sys.stderr)
        return out

    def plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                self.unplaced(str(key)): self.plain(item)
                for key, item in value.items()
                if str(key) not in VOLATILE
                and not _TIMED.search(str(key))
                and not _names_a_path(key, item)
            }
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if hasattr(value, "tolist"):
            return self.plain(value.tolist())
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return self.unplaced(value) if isinstance(value, str) else value

    def unplaced(self, text: str) -> str:
        """Without folders that have other names elsewhere."""
        text = _HASHES.sub(r"\1<hash>", text)
        return re.sub(
            re.escape(gettempdir()) + r"/golden-[^/\s\"',:;)]+",
            "<scratch>",
            text.replace(str(self.tree), "<tree>"),
        )

    def _write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")


@cache
def defined(package: str, name: str) -> Any:
    """A class, function or value by its name, in whichever file of a package it is defined. Raises
    LookupError.
    """
    top = importlib.import_module(package)
    files = pkgutil.walk_packages(getattr(top, "__path__", ()), f"{package}.")
    for module in (top, *(importlib.import_module(file.name) for file in files)):
        found = vars(module).get(name)
        elsewhere = (
            isinstance(found, ModuleType)
            or getattr(found, "__module__", module.__name__) != module.__name__
        )
        if found is not None and not elsewhere:
            return found
    raise LookupError(f"{package} has no {name}")


def _names_a_path(key: object, value: Any) -> bool:
    """Whether it is a run's identity, a hash of its configuration."""
    return key == "run" and bool(re.fullmatch(r"[0-9a-f]{64}", str(value)))


def _command(words: list[str], cwd: Path, texts: list[Path]) -> None:
    """In a process of its own: never comes back."""
    for number, file in enumerate(texts):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.chdir(cwd)
    sys.argv = ["normscope", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(n, mode, encoding="utf-8", closefd=False) for n, mode in enumerate("rww")
    )
    code: Any = 0
    try:
        runpy.run_module("normscope", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else (0 if code is None else 1))


def _as_json(file: Path, content: bytes) -> Any:
    """What a JSON file or a configuration says, so that a difference can be read; None for others
    and large ones.
    """
    if file.suffix not in (".json", ".jsonl", ".toml", ".txt") or len(content) > 200_000:
        return None
    text = content.decode()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if file.suffix == ".toml":
        return tomllib.loads(text) | {
            "# comments": [line for line in text.splitlines() if line.startswith("#")]
        }
    return json.loads(text) if file.suffix == ".json" else text.splitlines()


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in ("script", "style")
        self.found += [
            str(value)
            for name, value in attrs
            if name in ("alt", "title", "aria-label", "d") and value
        ]

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.silent and data.strip():
            self.found.append(" ".join(data.split()))


def words_of(html: str) -> str:
    """Every text of a page and every path of its pictures, a line each."""
    parser = _Words()
    parser.feed(html)
    return "\n".join(parser.found)
