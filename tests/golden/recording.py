"""Parts and their items: each item answers in a process of its own, forked from one that has torch
imported.
"""

import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from .answers import Desk

Item = Callable[[Desk], None]
Items = Mapping[str, Item]


def parts() -> dict[str, Callable[[Path], Items]]:
    """By name, quick ones first: a function of the tree that gives the items by name."""
    from . import committed, corpora, models, trained, verbs

    return {
        "cli": verbs.helps,
        "predict": verbs.predictions,
        "choose": verbs.choices,
        "corpora": corpora.items,
        "exports": trained.exports,
        "runs": trained.runs,
        "committed": committed.items,
        "doctor": models.items,
        "studies": verbs.studies,
    }


def chosen(tree: Path, asked: Sequence[str]) -> dict[str, dict[str, Item]]:
    """Raises SystemExit for what there is not."""
    found: dict[str, dict[str, Item]] = {}
    known = parts()
    for word in asked or known:
        part, _, wanted = word.partition(":")
        if part not in known:
            raise SystemExit(f"no part {part!r}; there are {', '.join(known)}")
        items = {
            name: item for name, item in known[part](tree).items() if fnmatch(name, wanted or "*")
        }
        if not items:
            raise SystemExit(f"no {wanted!r} in {part}; `list {part}` says what is")
        found.setdefault(part, {}).update(items)
    return found


def record(tree: Path, out: Path, asked: Sequence[str]) -> int:
    """Answers of the items that are asked for, in place of those that `out` holds; 0."""
    begun = time.monotonic()
    took: dict[str, float] = {}
    plan = chosen(tree, asked)
    for part, items in plan.items():
        for name, item in items.items():
            started = time.monotonic()
            shutil.rmtree(out / part / name, ignore_errors=True)
            (out / part / name).mkdir(parents=True)
            failed = _forked(item, Desk(tree, out / part / name))
            seconds = time.monotonic() - started
            took[part] = took.get(part, 0.0) + seconds
            if failed or seconds > 10:
                print(f"{part}:{name}: {seconds:.0f} s{' FAILED' if failed else ''}", flush=True)
    for part, seconds in took.items():
        print(f"{part}: {len(plan[part])} items, {seconds:.0f} s")
    print(f"recorded in {time.monotonic() - begun:.0f} s: {out}")
    return 0


def _forked(item: Item, desk: Desk) -> bool:
    """Let an item answer; True where it raised, which is an answer too and is recorded."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    code = 1
    try:
        with TemporaryDirectory(prefix="golden-") as scratch:
            os.chdir(scratch)
            try:
                item(desk)
                code = 0
            except Exception as error:
                traceback.print_exc()
                desk.text("failed", f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)
