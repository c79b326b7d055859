"""Texts as words that are tokenised alike wherever they stand: each is worked on once, however often it occurs.

Counts of the words of any amount of text stay in bounded memory. A tokenizer.json that makes text grow without bound,
or looks for a pattern without end, is refused when it is opened.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ..errors import UserError
from ..limits.reading import parse_json, read_text, shown

_MOST_KNOWN = 2**18
"""Words whose ids are kept: the few that make up most of any text."""
_MOST_IDS = 2**20
"""Of them all, because a word may be as long as a text."""


def words_of(text: str) -> list[str]:
    """The words of a text, each with the blank before it, which joined give the text.

    Both kinds of tokenisers split a text before any single blank, whatever stands around it. Of several in a row they
    do not split each, so that a text with other white space is one word.
    """
    if " ".join(text.split()) != text:
        return [text]
    return text.replace(" ", "\n ").split("\n")


def word_counts(texts: Iterable[str], normalizer: Any, splitter: Any) -> Counter[str]:
    """How often each word of the tokenizers library's own splitting occurs: what its trainers count themselves."""
    spelt = Counter(word for text in texts for word in words_of(text))
    counts: Counter[str] = Counter()
    for word, count in spelt.items():
        for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word)):
            counts[piece] += count
    return counts


class WordEncoder:
    """Ids of texts, put together from those of their words."""

    def __init__(self, encode_many: Callable[[Sequence[str]], list[list[int]]]) -> None:
        """encode_many: ids of each text; what it makes of a text must be what it makes of its words, in a row."""
        self._encode_many = encode_many
        self._forget()

    def _forget(self) -> None:
        self._codes: defaultdict[str, int] = defaultdict()
        self._codes.default_factory = self._codes.__len__
        self._ids = np.empty(0, dtype=np.int64)
        self._begins = np.zeros(1, dtype=np.int64)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of all texts, end to end, and how many are of each."""
        if len(self._codes) > _MOST_KNOWN or len(self._ids) > _MOST_IDS:
            self._forget()
        codes: list[int] = []
        firsts: list[int] = []
        for text in texts:
            firsts.append(len(codes))
            codes.extend(map(self._codes.__getitem__, words_of(text)))
        self._learn()
        if not codes:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        codes_W = np.array(codes)
        lengths_W = np.diff(self._begins)[codes_W]
        ends_W = np.cumsum(lengths_W)
        # Where each id comes from: where its word's ids begin, and how far it is from the first of them.
        places = np.arange(ends_W[-1]) + np.repeat(self._begins[codes_W] - (ends_W - lengths_W), lengths_W)
        return self._ids[places], np.add.reduceat(lengths_W, firsts)

    def _learn(self) -> None:
        """Encode the words that were met for the first time."""
        new = list(self._codes)[len(self._begins) - 1 :]
        if not new:
            return
        encoded = self._encode_many(new)
        self._ids = np.concatenate([self._ids, *(np.array(ids, dtype=np.int64) for ids in encoded)])
        self._begins = np.concatenate([self._begins, self._begins[-1] + np.cumsum([len(ids) for ids in encoded])])


MOST_WORDS = 500_000
"""Different words that a vocabulary is learned from, the most frequent of them. The trainer of the tokenizers library
takes about 0.9 kB for each; text of people has its millionth word where it has some thousand million in all."""
MOST_LEARNED_FROM = 2**27
"""Words of text, repeated ones too, that a vocabulary is learned from; of more text, every n-th part is counted."""


class WordCounts:
    """Counts that are exact up to twice `MOST_WORDS` different words; beyond, the rarest are forgotten."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, counts: Mapping[str, int]) -> None:
        """Equal counts added in the same order give equal results."""
        self._counts.update(counts)
        if len(self._counts) > 2 * MOST_WORDS:
            self._counts = self.most()

    def most(self) -> Counter[str]:
        """The `MOST_WORDS` most frequent words, the first in code points' order among equal ones."""
        if len(self._counts) <= MOST_WORDS:
            return self._counts
        kept = sorted(self._counts, key=lambda word: (-self._counts[word], word))[:MOST_WORDS]
        return Counter({word: self._counts[word] for word in kept})


def counted_every(words: int) -> int:
    """n, where every n-th part of a text of so many words is counted; 1 for all."""
    return max(1, -(-words // MOST_LEARNED_FROM))


MOST_GROWTH = 64
"""Times as long as a line may become by replacements, all of them together; those in use make spaces of three bytes."""
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_REPETITION = re.compile(r"[*+]|\{\d*,\}")


def refuse_growth(text: str) -> None:
    """Raise ValueError, naming the part, for a tokenizer.json that is no JSON or whose work has no bound.

    Replacements multiply: forty that double a blank make a terabyte of it. A pattern with a repetition inside a
    repeated group, such as (a+)+b, takes a time that is exponential in the length of a line.
    """
    table = parse_json(text, infinite=True)
    if not isinstance(table, Mapping):
        raise ValueError("it is not a table")
    for name in _PARTS:
        growth = 1.0
        for step in _steps(table.get(name)):
            pattern = step.get("pattern")
            kind, sought = next(iter(pattern.items())) if isinstance(pattern, Mapping) and pattern else ("", "")
            if kind == "Regex" and isinstance(sought, str) and _repeats_repetitions(sought):
                raise ValueError(f"the pattern {shown(sought)} of its {name} repeats a repetition; give one without")
            growth *= _growth(step, kind, sought)
            if growth > MOST_GROWTH:
                raise ValueError(f"the replacements of its {name} can make a line over {MOST_GROWTH} times as long")


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part, those of sequences inside one another too, in order."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if not isinstance(step, Mapping):
            continue
        inner = [inner for value in step.values() if isinstance(value, list) for inner in value]
        waiting += reversed(inner)
        yield step


def _growth(step: Mapping[str, Any], kind: str, sought: Any) -> float:
    """How many times as long a step can make a line."""
    content = step.get("content")
    if step.get("type") != "Replace" or not isinstance(content, str) or not isinstance(sought, str):
        # Something put before a line makes one character as many as it has; it is no product of the line's length.
        return 1.0
    # A pattern may match one character, or the place between two.
    length = len(sought) if kind == "String" else 1
    return max(1.0, len(content) / max(1, length)) if length and content else 1.0 + len(content)


def _repeats_repetitions(pattern: str) -> bool:
    """Whether a group that is repeated without bound holds a repetition without bound."""
    repeats: list[bool] = []
    place = 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 1
        elif sign == "[":
            place = _end_of_class(pattern, place)
        elif sign == "(":
            repeats.append(False)
        elif sign == ")" and repeats:
            inside = repeats.pop()
            if inside and _REPETITION.match(pattern, place + 1):
                return True
            if inside and repeats:
                repeats[-1] = True
        elif repeats and _REPETITION.match(pattern, place):
            repeats[-1] = True
        place += 1
    return False


def _end_of_class(pattern: str, place: int) -> int:
    end = place + 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end


class TokenizerFile:
    """A tokenizer of the tokenizers library, which one `tokenizer.json` holds."""

    noun: ClassVar[str]
    unusable: ClassVar[str]
    """What is said of a file that holds none, before and behind the reason."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ValueError for one of another kind."""
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises UserError for a file that is missing, damaged, or of another kind."""
        try:
            text = read_text(path)
            refuse_growth(text)
            return cls(Tokenizer.from_str(text))
        except OSError as error:
            raise UserError(f"{path}: cannot read the {cls.noun} ({error.strerror})") from error
        except Exception as error:  # tokenizers raises bare Exception for malformed JSON
            raise UserError(f"{path}: {cls.unusable.format(error)}") from error

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json`; equal tokenizers give equal bytes."""
        path.write_text(self.to_json(), encoding="utf-8", newline="\n")

    def to_json(self) -> str:
        """What `save` writes."""
        return str(self._tokenizer.to_str(pretty=False))


_WORDS_A_STRING = 1000


def repeated(counts: Mapping[str, int], longest: int | None = None) -> Iterator[str]:
    """Text in which each word stands as often as counted: trainers take text, not counts.

    longest: words stand there in pieces of so many characters, since a trainer's time grows with the square of a
    word's length.
    """
    for word, count in counts.items():
        size = longest or len(word)
        pieces = " ".join(word[at : at + size] for at in range(0, len(word), size)) + " "
        whole, rest = divmod(count, _WORDS_A_STRING)
        for repeats in [*([_WORDS_A_STRING] * whole), rest]:
            yield pieces * repeats
