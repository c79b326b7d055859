"""Damage: single bits of files that no checkpoint's manifest covers, and the same command after
it.
"""

import itertools
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .bench import Bench
from .operations import Operation
from .places import Place
from .verdicts import Trial, Verdict, difference, wrong_end
from .works import Work

_FILES = ("environment.json", "metrics.jsonl", "corpus.json", "config.toml")
_KILLED = 5  # EIO, which ends the command in the middle


def flips(bench: Bench, work: Work, *, every: int = 1, offset: int = 0) -> Iterator[Trial]:
    """Every `every`th bit, to be judged, in an order by chance, of a command that was ended two
    thirds on its way.
    """
    wanted, before, operations = bench.undisturbed(work)
    bench.lay(before)
    middle, numbers = 2 * len(operations) // 3, itertools.count()

    def decide(place: Place, operation: Operation) -> int | None:
        return _KILLED if next(numbers) >= middle and work.resumes else None

    bench.disturb(work, decide)
    state = bench.state()
    bits = [
        (n, bit)
        for n, (path, content) in enumerate(state)
        if Path(path).name in _FILES
        for bit in _bits(content)
    ]
    random.Random(1).shuffle(bits)

    def judged(place: int, bit: int) -> Verdict:
        path, content = state[place]
        assert content is not None
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        bench.lay((*state[:place], (path, bytes(damaged)), *state[place + 1 :]))
        ended = bench.do(work)
        after = bench.state()
        problem = wrong_end(ended, after)
        if not any(problem) and not ended.code:
            problem = difference(work.result(after), wanted)
        return Verdict(work.name, f"bit {bit} of {path}", *problem)

    for place, bit in bits[offset::every]:
        yield Trial(f"bit {bit} of {state[place][0]}", partial(judged, place, bit))


def _bits(content: bytes | None) -> range:
    return range(8 * len(content or b""))
