"""What is asked of a command after a fault: it ends in the undisturbed bytes, or says what to do
and that works.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from .bench import Bench
from .disk import Tree
from .notified import Ended
from .works import Work, whole_checkpoints

_PIECES_OF_ADVICE = 4
_UNFINISHED = re.compile(r"(^|/)\.(unfinished|replaced)-")
_REPLACED = re.compile(r"^((?:.*/)?)\.replaced-([^/]+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One fault and what came of it."""

    work: str
    fault: str
    problem: str = ""
    """What is wrong, in words that repeat: "traceback", "stuck", "other result", "lost", "left
    over", "failed".
    """
    detail: str = ""
    """Of which line or file."""
    advice: int = 0
    """Pieces of advice that were followed."""

    def line(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault that is to be judged."""

    fault: str
    """Its name, the same in every call."""
    judged: Callable[[], Verdict]


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many of each kind."""
    count = Counter(verdict.problem or "as undisturbed" for verdict in verdicts)
    return f"{sum(count.values())} faults: " + ", ".join(
        f"{number} {what}" for what, number in count.most_common()
    )


def wrong_end(ended: Ended, logs: Tree, allowed: Iterable[int] = (0, 2)) -> tuple[str, str]:
    """The problem with how a command ended and its detail; two empty words for none."""
    said = ended.said + "".join(
        c.decode(errors="replace") for path, c in logs if c and "/logs/" in path
    )
    if "Traceback (most recent call last)" in said:
        return "traceback", said.strip().splitlines()[-1][:300]
    if ended.code not in allowed:
        return "failed", f"exit code {ended.code}: {said.strip()[-300:]}"
    if ended.code == 2 and "error: " not in said:
        return "failed", f"exit code 2 without an error: {said.strip()[-300:]}"
    return "", ""


def left_over(tree: Tree) -> str:
    """The first file or folder that is not finished; empty for none."""
    return next((path for path, _ in tree if _UNFINISHED.search(path)), "")


def without_superseded(tree: Tree) -> Tree:
    """All but folders that were to be replaced and whose place another one has taken."""
    paths = {path for path, _ in tree}
    return tuple(
        entry
        for entry in tree
        if not ((found := _REPLACED.search(entry[0])) and found[1] + found[2] in paths)
    )


def goes_on(bench: Bench, work: Work, wanted: Tree, fault: str) -> Verdict:
    """Give the same command, and what it advises, until it is done; the folder is as the fault left
    it.
    """
    words: list[str] = []
    if not work.resumes and work.result(bench.state()) == wanted:
        return Verdict(
            work.name, fault
        )  # the fault came when all was done; some commands refuse to do it again
    whole = whole_checkpoints(bench.state())
    for tried in range(_PIECES_OF_ADVICE + 1):
        try:
            ended = bench.do(work, *words)
        except TimeoutError as error:
            return Verdict(work.name, fault, "hangs", str(error)[-300:], tried)
        after = bench.state()
        problem, detail = wrong_end(ended, ())
        if problem:
            return Verdict(work.name, fault, problem, detail, tried)
        if ended.code == 0:
            return Verdict(work.name, fault, *difference(work.result(after), wanted), tried)
        followed = _follow(bench, ended.said, words)
        if followed is None:
            return Verdict(work.name, fault, "stuck", _error(ended), tried)
        words = followed
        if whole_checkpoints(bench.state()) < whole:
            return Verdict(work.name, fault, "lost", f"by its advice: {_error(ended)}", tried)
    return Verdict(work.name, fault, "stuck", _error(ended), _PIECES_OF_ADVICE)


def _error(ended: Ended) -> str:
    return next(
        (line for line in ended.said.splitlines() if line.startswith("error: ")), "no error"
    )[:300]


def difference(found: Tree, wanted: Tree) -> tuple[str, str]:
    differing = sorted({path for path, _ in set(found) ^ set(wanted)})
    if not differing:
        return "", ""
    unfinished = all(map(_UNFINISHED.search, differing))
    return ("left over" if unfinished else "other result"), ", ".join(differing[:4])


def _follow(bench: Bench, said: str, before: list[str]) -> list[str] | None:
    """Do what an error advises; returns the words to add to the command, None where nothing can be
    followed.
    """
    if found := re.search(r"--from-step (\d+)", said):
        words = ["--from-step", found[1]]
        return words if words != before else None
    if "--from-step" in said:  # an older checkpoint, whichever
        steps = {int(m[1]) for path, _ in bench.state() if (m := re.search(r"/step-(\d+)$", path))}
        tried = [int(before[1])] if before else []
        older = sorted(step for step in steps if not tried or step < tried[0])
        return ["--from-step", str(older[-1])] if older else None
    if "remove the run folder" in said:
        shutil.rmtree(bench.work / "run")
        return []
    if found := re.search(r"remove (work/\S+?)[,;.]? ", said + " "):
        path = bench.place / found[1]
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return []
    return [] if "same command again" in said and not before else None
