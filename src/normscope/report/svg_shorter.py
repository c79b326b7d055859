"""Shorter text of matplotlib's SVG: a page holds many pictures, and most of their text is digits that nobody sees."""

import re

_PATH = re.compile(r'(?<=\sd=")[^"]+(?=")')
_PLACE = re.compile(r'(?<=\s)([xy])="(-?\d+\.\d+)"')
_STEP = re.compile(r"([MLz])(?:\s+(\S+)\s+(\S+))?\s*")
_FINE = re.compile(r"-?\d+\.\d+")
_MARKERS = re.compile(r"<g([^<>]*)>((?:\s*<use [^<>]*/>)+)\s*</g>")
_STYLE = re.compile(r'\sstyle="([^"]*)"')


def shortened(svg: str) -> str:
    """The same picture, said once: lines are in steps of a tenth of a point, which no screen or printer tells apart.

    Curved paths, as of round markers, are to a hundredth. Groups lose their names, which nothing reads.
    """
    svg = _PATH.sub(lambda found: _relative(found[0]), svg)
    svg = _PLACE.sub(lambda found: f'{found[1]}="{_number(round(float(found[2]) * 10))}"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r"\n\s+(?=<)", "\n", svg.replace(" stroke-dashoffset: 0;", ""))
    return _renamed(_MARKERS.sub(_styled_once, _without_idle_groups(svg)))


def _without_idle_groups(svg: str) -> str:
    """Groups without an attribute change nothing of what they hold, and a group of nothing draws nothing."""
    svg = re.sub(r"<g\b[^<>]*/>\n?", "", svg)
    parts, idle = list[str](), list[bool]()
    for part in re.split(r"(<g\b[^<>]*>\n?|</g>\n?)", svg):
        if part.startswith("</g>"):
            parts += [] if idle.pop() else [part]
        elif part.startswith("<g"):
            idle.append(part.strip() == "<g>")
            parts += [] if idle[-1] else [part]
        else:
            parts.append(part)
    return "".join(parts)


def _renamed(svg: str) -> str:
    """Markers and clips by number: matplotlib names them by hashes."""
    names = [name for name in dict.fromkeys(re.findall(r'\sid="([^"]+)"', svg)) if name not in ("title", "desc")]
    short = {name: f"i{number}" for number, name in enumerate(names)}
    found = re.compile(r'(\sid="|xlink:href="#|url\(#)([^")]+)')
    return found.sub(lambda one: one[1] + short.get(one[2], one[2]), svg)


def _styled_once(found: re.Match[str]) -> str:
    """Markers of one style in a group: the group has it, and they inherit it."""
    styles = set(_STYLE.findall(found[2]))
    if len(styles) != 1 or len(_STYLE.findall(found[2])) != found[2].count("<use "):
        return found[0]
    return f'<g{found[1]} style="{styles.pop()}">{_STYLE.sub("", found[2])}</g>'


def _relative(path: str) -> str:
    """Absolute steps become relative ones: the difference of two rounded places, so that no error adds up."""
    steps = _STEP.findall(path)
    if len(steps) < 3 or len(steps) != len(re.findall("[A-Za-z]", path)):
        return " ".join(_FINE.sub(lambda found: f"{float(found[0]):.2f}", path).split())
    parts, x, y, before = list[str](), 0, 0, ""
    for letter, across, down in steps:
        if letter == "z":
            parts.append("z")
        else:
            place = round(float(across) * 10), round(float(down) * 10)
            if letter == "L" and place == (x, y):
                continue
            text = _pair(*place) if letter == "M" else _pair(place[0] - x, place[1] - y)
            # A further step of the same kind needs no letter, and before a minus sign no blank.
            gap = "" if text.startswith("-") else " "
            parts.append(f"M{text}" if letter == "M" else f"{gap if before == 'L' else 'l'}{text}")
            x, y = place
        before = letter
    return "".join(parts)


def _pair(one: int, other: int) -> str:
    second = _number(other)
    return f"{_number(one)}{'' if second.startswith('-') else ' '}{second}"


def _number(tenths: int) -> str:
    """Tenths as a decimal number without zeros that say nothing: "1.5", "-.3", "12"."""
    whole, tenth = divmod(abs(tenths), 10)
    digits = f"{whole or ''}{f'.{tenth}' if tenth else ''}" or "0"
    return f"-{digits}" if tenths < 0 else digits
