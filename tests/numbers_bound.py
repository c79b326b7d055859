"""Every number that the repository says of its results, bound to the key of the data that it comes
from.

Beside a reading lies `numbers.tsv`: a line for each of its numbers in order, with a tab and a key
of `results.json`, or none where the number is not a result, such as a year. The index, the README
and the manual, as far as they speak of a folder of results, share `results/numbers.tsv`. So the
text stays text, and a result that changes fails the test at the sentence that it belongs to. After
a change of either: `python tests/numbers_bound.py`, which keeps what still holds, looks for keys of
what is new, and says what it could not bind.

All other numbers of these pages, settings in examples, references, years, have no data that they
could be held against. They are sealed: `numbers_sealed.tsv` lists every number by page and section
as it was last written on purpose, so that none changes unseen. The same command seals what stands
there now.

A key is a path, `arms/3/seeds/0/bleu`; `*` stands for every entry, `|mean`, `|min` and `|max` for
what is made of them, `|100` for per cent, a minus before it for the other sign.
`claims/NAME/found#2` is the third number of a sentence.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (
    "results/README.md",
    "README.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md")),
)
WRITTEN_BY_CODE = ("docs/choosing.md", "docs/choosing-tables.md", "docs/placements.md")
"""Pages that have tests of their own."""
_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen"
)
WORDS = {word: number for number, word in enumerate([*_WORDS.split(), "nineteen", "twenty"], 2)}
_NUMBER = r"[−-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[−-]?\d+)?"
_TOKEN = re.compile(
    rf"(?<![\w.,^_/]){_NUMBER}(?![\w/]|[.,]\d)|\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE
)
_HIDDEN = re.compile(
    r"```.*?^```|`[^`\n]*`"
    r"|!\[[^]]*\]\([^)]*\)|(?<=\])\([^)]*\)"
    r"|<abbr title=.*?</abbr>|<[^>\n]+>|<!--.*?-->"
    r"|arXiv:[\d.]+|\b(?:19|20)\d\d\b"
    r"|\b(?:section|eq\.|figure|table|appendix|lemma|theorem)s? \(?[\d.]+",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
SEALED = Path(__file__).with_name("numbers_sealed.tsv")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_STRINGS = ("found", "conditions", "statement")
_LEAST_SCORE = 4.0
"""How well a key's words must go with those about a whole number, which is in the data by
chance.
"""


class Said(NamedTuple):
    """A number in a text."""

    token: str
    line: int
    words: tuple[tuple[str, float], ...]
    """What stands about it, with its weight: the row's and the column's name, the sentence."""
    before: str
    after: str
    folder: str
    """The result that is spoken of."""


def value_of(token: str) -> float:
    """A number as it is written, or a word."""
    if (word := token.lower()) in WORDS:
        return float(WORDS[word])
    return float(token.replace("−", "-").replace(",", ""))


def agrees(token: str, value: float) -> bool:
    """Whether the value is written so: rounded to as many decimals, with its sign."""
    return math.isfinite(value) and float(format(value, form_of(token))) == value_of(token)


def is_measured(token: str) -> bool:
    """Whether it has two decimals or more: a number that is not a setting, and must have a key."""
    return "e" not in token and len(token.partition(".")[2]) >= 2


def numbers_in(text: str) -> list[str]:
    """Of a sentence of the data."""
    return [match[0] for match in _TOKEN.finditer(text)]


def at(data: Any, key: str) -> float:
    """What the key leads to. Raises LookupError, ValueError or TypeError where there is nothing of
    the kind.
    """
    sign, key = (-1, key[1:]) if key.startswith("-") else (1, key)
    path, *ops = key.split("|")
    path, _, place = path.partition("#")
    found = _walk(data, path.split("/"))
    if place:
        return sign * value_of(numbers_in(str(found[0]))[int(place)])
    values = [float(one) for one in found if one is not None]
    if not ops or ops == ["100"]:
        (value,) = values
    else:
        value = {
            "mean": lambda: math.fsum(values) / len(values),
            "min": lambda: min(values),
            "max": lambda: max(values),
        }[ops[0]]()
    return sign * value * (100 if "100" in ops else 1)


def _walk(data: Any, parts: Sequence[str]) -> list[Any]:
    found = [data]
    for part in parts:
        part = part.replace("~1", "/").replace("~2", "|").replace("~3", "#")
        if part == "*":
            found = [
                one for some in found for one in (some.values() if isinstance(some, dict) else some)
            ]
        elif part.startswith("name="):
            found = [one for some in found for one in some if one["name"] == part[5:]]
        else:
            found = [some[int(part)] if isinstance(some, list) else some[part] for some in found]
    return found


def _escaped(part: str) -> str:
    return part.replace("/", "~1").replace("|", "~2").replace("#", "~3")


@cache
def data_of(folder: str) -> Any:
    """A result's."""
    return json.loads((RESULTS / folder / "results.json").read_text(encoding="utf-8"))


def said_in(page: Path) -> list[Said]:
    """Every number of a reading; of another page, those of paragraphs that speak of a folder of
    results.
    """
    text = page.read_text(encoding="utf-8")
    own = page.parent.name if page.parent.parent == RESULTS else ""
    bare = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    found: list[Said] = []
    header: list[str] = []
    lines, shown = (one.split("\n") for one in (text, bare))
    for number, kept in enumerate(shown):
        row = kept.startswith("|")
        cells = kept.strip("|").split("|") if row else [kept]
        if row and number + 1 < len(lines) and re.match(r"\|[ :|-]+$", lines[number + 1]):
            header = lines[number].strip("|").split("|")
        folder = own or _folder(lines, number)
        if not folder:
            continue
        for place, cell in enumerate(cells):
            near = cell if row else " ".join(shown[max(0, number - 1) : number + 1])
            for match in _TOKEN.finditer(cell):
                words = [(word, 1.0) for word in _words(near)]
                if row:
                    words += [
                        (word, 3.0) for word in _words(lines[number].strip("|").split("|")[0])
                    ]
                    words += [
                        (word, 2.0) for word in _words(header[place] if place < len(header) else "")
                    ]
                before = (shown[number - 1] + " " if not row and number else "") + cell[
                    : match.start()
                ]
                found.append(
                    Said(match[0], number + 1, tuple(words), before, cell[match.end() :], folder)
                )
    return found


def _folder(lines: Sequence[str], number: int) -> str:
    """Which result the paragraph, or the row, links to; empty for none, or several."""
    first = last = number
    if not lines[number].startswith("|"):
        while (
            first
            and lines[first - 1].strip()
            and not lines[first - 1].startswith(("|", "- ", "#"))
            and not lines[first].startswith("- ")
        ):
            first -= 1
        while (
            last + 1 < len(lines)
            and lines[last + 1].strip()
            and not lines[last + 1].startswith(("|", "- ", "#"))
        ):
            last += 1
    named = re.findall(
        r"\((?:\.\./)?(?:results/)?([a-z0-9_]+)/README\.md\)", "\n".join(lines[first : last + 1])
    )
    there = [name for name in dict.fromkeys(named) if (RESULTS / name / "results.json").is_file()]
    return there[0] if len(there) == 1 else ""


def _words(text: str) -> list[str]:
    return re.findall(
        r"[a-zµ₀-₉]{2,}[\w*]*|\d+(?:\.\d+)?", text.lower().replace("-", " ").replace("_", " ")
    )


class Key(NamedTuple):
    """Where a number stands in the data."""

    key: str
    value: float
    words: frozenset[str]


@cache
def keys_of(folder: str) -> list[Key]:
    """Every number of a result, with the words of its path and of the texts beside it."""
    found: list[Key] = []

    def visit(value: Any, path: str, words: frozenset[str]) -> None:
        if isinstance(value, dict):
            names = [one for one in value.values() if isinstance(one, str) and len(one) < 80]
            words = words | frozenset(word for one in names for word in _words(one))
            for key, one in value.items():
                visit(
                    one,
                    f"{path}/{_escaped(key)}" if path else _escaped(key),
                    words | frozenset(_words(key)),
                )
        elif isinstance(value, list):
            numbers = [
                one for one in value if isinstance(one, int | float) and not isinstance(one, bool)
            ]
            if len(numbers) == len(value) > 1:
                made = {
                    "mean": math.fsum(numbers) / len(numbers),
                    "min": min(numbers),
                    "max": max(numbers),
                }
                found.extend(
                    Key(f"{path}/*|{name}", one, words | {name}) for name, one in made.items()
                )
            if value and all(isinstance(one, dict) for one in value) and path.endswith("seeds"):
                for key in value[0]:
                    own = [one.get(key) for one in value]
                    if all(
                        isinstance(one, int | float) and not isinstance(one, bool) for one in own
                    ):
                        mean = math.fsum(own) / len(own)
                        found.append(
                            Key(
                                f"{path}/*/{_escaped(key)}|mean",
                                mean,
                                words | frozenset(_words(key)),
                            )
                        )
            for place, one in enumerate(value):
                visit(one, f"{path}/{place}", words)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(Key(path, float(value), words))
            found.append(Key(f"{path}|100", 100 * value, words))

    data = data_of(folder)
    visit({key: one for key, one in data.items() if key not in ("claims", "rows")}, "", frozenset())
    for claim in data.get("claims", []):
        for name in _STRINGS:
            text = claim.get(name, "")
            for place, match in enumerate(_TOKEN.finditer(text)):
                near = frozenset(
                    _words(claim["name"]) + _words(text[max(0, match.start() - 60) : match.start()])
                )
                key = f"claims/name={_escaped(claim['name'])}/{name}#{place}"
                found.append(Key(key, value_of(match[0]), near))
    return found


@cache
def _by_text(folder: str, form: str) -> dict[float, list[Key]]:
    """By their size when they are written in that form."""
    found: dict[float, list[Key]] = {}
    for one in keys_of(folder):
        if math.isfinite(one.value) and abs(one.value) < 1e15:
            found.setdefault(abs(float(format(one.value, form))), []).append(one)
    return found


def form_of(token: str) -> str:
    """How a value is written as the token is: with as many decimals, or digits before the power of
    ten.
    """
    if token.lower() in WORDS:
        return ".0f"
    digits, power, _ = token.partition("e")
    return (
        f".{len(re.sub('[^0-9]', '', digits))}g" if power else f".{len(digits.partition('.')[2])}f"
    )


def bound(said: Said, previous: str) -> str:
    """The key whose words go best with those about the number; empty where none goes well
    enough.
    """
    token, value = said.token, value_of(said.token)
    best, most = "", -1.0
    weights: dict[str, float] = {}
    for near, weight in said.words:
        weights[near] = max(weights.get(near, 0.0), weight)
    after = said.before.rstrip().endswith("±")
    margin = re.match(rf" ± ({_NUMBER})", said.after)
    whole = not form_of(token).strip(".0f") and not is_measured(token)
    for one in _by_text(said.folder, form_of(token)).get(abs(value), []):
        if whole and ("|" in one.key or one.value % 1):
            continue
        key = one.key if agrees(token, one.value) else f"-{one.key}"
        if not agrees(token, at(data_of(said.folder), key)):
            continue
        score = math.fsum(weights[near] for near in one.words & weights.keys()) - 0.02 * len(
            one.words
        )
        if key.startswith("claims/") or key.startswith("-claims/"):
            score += 1.0
        if after and _neighbours(previous, key):
            score += 20.0
        if margin and _has_margin(said.folder, key, margin[1]):
            score += 10.0
        if key.startswith("-"):
            score -= 0.5
        if "|" in key:
            score -= 0.3
        if score > most:
            best, most = key, score
    return best if most >= _LEAST_SCORE or is_measured(token) else ""


def _has_margin(folder: str, key: str, margin: str) -> bool:
    """Whether what stands behind the number's ± stands so in the data."""
    path, _, place = key.lstrip("-").partition("#")
    beside = f"{path}#{int(place) + 1}" if place else f"{path.rpartition('/')[0]}/half_width"
    try:
        return agrees(margin, at(data_of(folder), beside))
    except (LookupError, ValueError, TypeError):
        return False


def _neighbours(first: str, second: str) -> bool:
    """Whether one key is of a mean and the other of what stands behind its ±."""
    a, _, i = first.lstrip("-").partition("#")
    b, _, j = second.lstrip("-").partition("#")
    if i and j:
        return a == b and int(j) == int(i) + 1
    return a.rpartition("/")[0] == b.rpartition("/")[0] and b.endswith("half_width")


def kept_in(page: Path) -> Path:
    """Where the keys of a page are."""
    return (page.parent if page.parent.parent == RESULTS else RESULTS) / "numbers.tsv"


def pages() -> list[Path]:
    """Readings, and the pages that speak of them."""
    readings = [file.parent / "README.md" for file in sorted(RESULTS.glob("*/results.json"))]
    return [*readings, *(ROOT / page for page in PAGES if page not in WRITTEN_BY_CODE)]


def stored(page: Path) -> list[tuple[str, str]]:
    """Token and key, in the order of the page."""
    file = kept_in(page)
    if not file.is_file():
        return []
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    if file.parent == RESULTS:
        return [(row[1], row[2]) for row in rows if row[0] == str(page.relative_to(ROOT))]
    return [(row[0], row[1]) for row in rows]


def wrong_in(said: Sequence[Said], rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What does not hold: another number than is bound, a number that the data does not have, one
    without a key.
    """
    if [one.token for one in said] != [token for token, _ in rows]:
        for one, (token, _) in zip(said, rows, strict=False):
            if one.token != token:
                yield f"line {one.line}: {one.token} where {token} was bound"
                return
        yield f"{len(said)} numbers, of which {len(rows)} were bound"
        return
    for one, (token, key) in zip(said, rows, strict=True):
        if not key:
            if is_measured(token):
                yield f"line {one.line}: {token} has no key"
            continue
        try:
            value = at(data_of(one.folder), key)
        except (LookupError, ValueError, TypeError):
            yield f"line {one.line}: {token} is bound to {key}, which {one.folder} has not"
            continue
        if not agrees(token, value):
            yield f"line {one.line}: {token} is bound to {key} of {one.folder}, which is {value:g}"


def bind(page: Path) -> list[tuple[str, str]]:
    """Keys of all numbers: those that still hold as they are, others looked for."""
    said, old = said_in(page), stored(page)
    rows: list[tuple[str, str]] = [(one.token, "") for one in said]
    known = [False] * len(said)
    matcher = SequenceMatcher(
        None, [token for token, _ in old], [one.token for one in said], autojunk=False
    )
    for a, b, size in matcher.get_matching_blocks():
        for step in range(size):
            token, key = old[a + step]
            if not list(wrong_in([said[b + step]], [(token, key)])):
                rows[b + step], known[b + step] = (token, key), True
    previous = ""
    for place, one in enumerate(said):
        if not known[place]:
            rows[place] = (one.token, bound(one, previous))
        previous = rows[place][1]
    return rows


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Headings, the text before the first one as "", each with every number that stands under it,
    in order.
    """
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)
    headings = ["", *(heading.lstrip("# ") for heading in parts[1::2])]
    titles = ["", *parts[1::2]]
    found = [_DIGITS.findall(title + body) for title, body in zip(titles, parts[::2], strict=True)]
    return [(heading, numbers) for heading, numbers in zip(headings, found, strict=True) if numbers]


def sealed(page: Path) -> list[tuple[str, list[str]]]:
    """The same as it was last written on purpose."""
    rows = [line.split("\t") for line in SEALED.read_text(encoding="utf-8").splitlines()]
    return [
        (heading, numbers.split(" "))
        for name, heading, numbers in rows
        if name == str(page.relative_to(ROOT))
    ]


def unsealed(text: str, page: Path) -> Iterator[str]:
    """Sections whose numbers have changed since, with the first that is another."""
    now, before = sections(text), sealed(page)
    for heading, numbers in now:
        if (heading, numbers) not in before:
            old = next((kept for name, kept in before if name == heading), [])
            new = next(
                (a for a, b in zip(numbers, [*old, *[""] * len(numbers)], strict=False) if a != b),
                "fewer",
            )
            yield f"{heading or 'the beginning'}: {new} is not what was sealed"
    yield from (
        f"{heading}: its numbers are gone"
        for heading, numbers in before
        if heading not in dict(now)
    )


def main() -> int:
    """Write the keys anew, and the seal; 1 where a number has no key and should."""
    left, shared = 0, []
    kept = [
        "\t".join((str(page.relative_to(ROOT)), heading, " ".join(numbers)))
        for page in pages()
        for heading, numbers in sections(page.read_text(encoding="utf-8"))
    ]
    SEALED.write_text("\n".join(kept) + "\n", encoding="utf-8")
    for page in pages():
        before, rows, said = stored(page), bind(page), said_in(page)
        # A key is looked for by its value and the words about it: whether it is the right one is
        # for a reader to see.
        for (token, key), one in zip(rows, said, strict=True):
            if key and (token, key) not in before:
                print(f"{page.relative_to(ROOT)}, line {one.line}: {token} is taken from {key}")
        for line in wrong_in(said, rows):
            print(f"{page.relative_to(ROOT)}: {line}")
            left = 1
        if page.parent.parent == RESULTS:
            kept_in(page).write_text(
                "".join(f"{token}\t{key}\n" for token, key in rows), encoding="utf-8"
            )
        else:
            shared += [f"{page.relative_to(ROOT)}\t{token}\t{key}\n" for token, key in rows]
    (RESULTS / "numbers.tsv").write_text("".join(shared), encoding="utf-8")
    return left


if __name__ == "__main__":
    sys.exit(main())
