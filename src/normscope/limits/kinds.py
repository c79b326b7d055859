"""The kinds of files that NormScope writes beside those of the user, and how each is known again.

A file of ours begins as the one function that writes its kind begins it. What stands further on in
a file says nothing: a page that was copied, a README with a card in it and a `package.json` with
our name as a key are the user's.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileKind:
    """Files of one purpose, of which the next takes the place of the one before."""

    words: str
    """The noun for such a file, as in "a page"."""
    bears: Callable[[bytes], object]
    """True of the content of one."""


def _beginning(words: str, pattern: bytes) -> FileKind:
    """Returns the kind of file that begins so. pattern: a regular expression."""
    return FileKind(words, re.compile(pattern).match)


_STRING = rb'"(?:[^"\\\n]|\\.)*"'
"""A string of JSON."""

PAGE = _beginning(
    "a page",
    rb'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    rb'<meta name="generator" content="NormScope">\n',
)
CHART = _beginning(  # of `report/svg.py`
    "a picture of curves",
    rb'<svg role="img" aria-labelledby="title desc" stroke-linejoin="round" '
    rb"stroke-linecap=\"butt\" font-family=\"'DejaVu Sans', ",
)
BADGE = _beginning("a badge", rb'<svg xmlns="http://www\.w3\.org/2000/svg" class="badge" ')
WIRING = _beginning(
    "a wiring diagram", rb'<svg xmlns="http://www\.w3\.org/2000/svg" class="wiring" role="img" '
)
DIAGNOSIS = _beginning(
    "the doctor's JSON", rb'\{\n "normscope": ' + _STRING + rb',\n "schema": \d+,\n "'
)
RESULTS = _beginning(
    "results",
    rb'\{\n "title": ' + _STRING + rb',\n "created": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",\n'
    rb' "normscope": ' + _STRING + rb',\n "source_sha256": "[0-9a-f]{64}",\n "commit": ',
)
CLAIMS = _beginning(
    "a page of claims",
    rb"# The (paper|memo)'s claims, one by one\n\nMade by `normscope study \1` ",
)
LOCK = _beginning(
    "a lock",
    # Of one that a power cut came upon, the length may be left without what was in it.
    rb'\{"pid": |\0{1,512}\Z',
)
CHECKPOINT = _beginning("a checkpoint's list", rb"[0-9a-f]{64}  model\.safetensors\n")
TEXT = FileKind("", lambda content: False)
"""Text that nothing is put in front of, such as translations: what is there may be anybody's."""


def sealed_json(format_name: str) -> FileKind:
    """Returns the kind of JSON files of a format, as `SealedJson` writes them."""
    head = f'{{\n "format": {json.dumps(format_name)},\n "version": '.encode()
    return FileKind(f"a {format_name} file", lambda content: content.startswith(head))


SCORES = sealed_json("normscope-scores")

_LAST_LINE = "# SHA-256 of the lines above: "


def sealed_lines(text: str) -> str:
    """Returns lines of text, and a last one with their SHA-256, which is a comment in TOML."""
    return f"{text}{_LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n"


def is_sealed(content: bytes) -> bool:
    """Returns whether a file is, to the last byte, as `sealed_lines` made it."""
    above, mark, _ = content.rpartition(_LAST_LINE.encode())
    try:
        return bool(mark) and sealed_lines(above.decode()).encode() == content
    except UnicodeDecodeError:
        return False


CONFIGURATION = FileKind("a configuration", is_sealed)
"""TOML begins with the user's own settings, so that one of ours is known by its seal alone."""
