"""Text that others have named, as it may stand on a page, in a picture and on a terminal."""

import hashlib
import re

_STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_LONGEST = 200


def printable(text: str) -> str:
    """The text with a sign in place of every character that steers a terminal, or the direction of what follows."""
    return _STEERING.sub("\ufffd", text)


def short_name(text: str) -> str:
    """A printable name; of a long one its beginning, and a number by which it differs from others."""
    text = printable(text)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 10]}… {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:6]}"
