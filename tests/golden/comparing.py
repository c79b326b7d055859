"""Two recordings beside each other: every place where they differ, from what to what."""

import difflib
import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_SHOWN = 40
_WIDEST = 160


def compare(old: Path, new: Path, parts: Sequence[str]) -> int:
    """Print the first differences, those alike once; 1 where there are any, 0 where there are
    none.
    """
    names = sorted({*_files(old, parts), *_files(new, parts)})
    found = [one for name in names for one in _differences(name, old / name, new / name)]
    alike: dict[str, list[str]] = {}
    for place, change in found:
        alike.setdefault(change, []).append(place)
    for change, places in list(alike.items())[:_SHOWN]:
        print(
            f"{places[0]}: {change}"
            + (f" (and so in {len(places) - 1} more places)" if len(places) > 1 else "")
        )
    if len(alike) > _SHOWN:
        print(f"and {len(alike) - _SHOWN} more")
    wrong = {place.partition("#")[0] for place, _ in found}
    print(
        f"compared {len(names)} files: "
        f"{f'{len(found)} differences in {len(wrong)}' if found else 'the same'}"
    )
    return 1 if found or not names else 0


def _files(folder: Path, parts: Sequence[str]) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        part, _, rest = name.partition("/")
        if (
            path.is_file()
            and rest
            and (not parts or any(_is_of(part, rest, asked) for asked in parts))
        ):
            yield name


def _is_of(part: str, rest: str, asked: str) -> bool:
    wanted, _, item = asked.partition(":")
    return part == wanted and (not item or fnmatch(rest.partition("/")[0], item))


def _differences(name: str, old: Path, new: Path) -> Iterator[tuple[str, str]]:
    """Where, and from what to what."""
    for path, other in ((old, "is there now"), (new, "is gone")):
        if not path.is_file():
            yield name, other
            return
    before, after = old.read_text(encoding="utf-8"), new.read_text(encoding="utf-8")
    if before == after:
        return
    if name.endswith(".json"):
        for pointer, a, b in _in_values(json.loads(before), json.loads(after), ""):
            yield f"{name}#{pointer}", f"{_cut(a)} → {_cut(b)}"
        return
    a_lines, b_lines = before.splitlines(), after.splitlines()
    for kind, a, b, c, d in difflib.SequenceMatcher(
        None, a_lines, b_lines, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            change = (_cut("\n".join(lines)) for lines in (a_lines[a:b], b_lines[c:d]))
            yield f"{name}#{a + 1}", " → ".join(change)


_ABSENT = object()


def _in_values(a: Any, b: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _in_values(a.get(key, _ABSENT), b.get(key, _ABSENT), f"{pointer}/{key}")
        if [key for key in a if key in b] != [key for key in b if key in a]:
            yield f"{pointer} (order of keys)", list(a), list(b)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _in_values(x, y, f"{pointer}/{place}")
    elif _ABSENT in (a, b) or json.dumps(a) != json.dumps(b):
        yield pointer, a, b


def _cut(value: Any) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"
