"""Small texts that are the same everywhere: parallel lines and documents."""

import itertools
import random
from pathlib import Path

_WORDS = {
    "de": "der die das Hund Katze läuft schläft nicht heute morgen über Straße Bäume Dr. z.B. "
    "schnell, langsam",
    "en": "the a dog cat runs sleeps isn't today tomorrow across street trees Dr. e.g. quickly, "
    "slowly",
}
_GERMAN, _ENGLISH = (_WORDS[language].split() for language in ("de", "en"))
_SYLLABLES = [
    part.split() for part in ("bra ke lo mi nu ster tal", "dan fi go hu ren sa", "ba den fur gel")
]
_MADE = ["".join(syllables) for syllables in itertools.product(*_SYLLABLES, _SYLLABLES[0])]
"""Words that give a tokeniser something to learn."""


def parallel(folder: Path, **lines: int) -> None:
    """`train.de` and `train.en` and so on, of that many lines."""
    for split, count in lines.items():
        draw = random.Random(f"parallel {split}")
        both = {"de": _GERMAN, "en": _ENGLISH}
        texts: dict[str, list[str]] = {"de": [], "en": []}
        for number in range(count):
            length = draw.randint(3, 9)
            for language, words in both.items():
                texts[language].append(" ".join(draw.choices(words, k=length)) + f" {number}.")
        for language, found in texts.items():
            _write(folder / f"{split}.{language}", found)


def documents(folder: Path, **counts: int) -> None:
    """`train.txt` and so on: paragraphs of a few sentences, a blank line between documents."""
    for split, count in counts.items():
        draw = random.Random(f"documents {split}")
        found: list[str] = []
        for _ in range(count):
            found += [
                " ".join(_sentence(draw) for _ in range(draw.randint(2, 5)))
                for _ in range(draw.randint(1, 3))
            ]
            found.append("")
        _write(folder / f"{split}.txt", found)


def _sentence(draw: random.Random) -> str:
    return (
        " ".join(draw.choices(_ENGLISH + _MADE, k=draw.randint(4, 9))).capitalize().rstrip(",")
        + "."
    )


def _write(file: Path, lines: list[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
