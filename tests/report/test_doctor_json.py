"""The manual names every key of a diagnosis as JSON, and none that is not there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import normscope
from report.diagnoses import EXAMPLES, encoder_decoder, unknown

PAGE = Path(normscope.__file__).parents[2] / "docs" / "doctor-json.md"
FREE = {"measured.gradient_norms"}
"""Objects whose keys are names of the model's own."""


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all keys, "stacks[].name"."""
    if isinstance(value, dict) and path not in FREE:
        for name, inner in value.items():
            yield f"{path}.{name}".lstrip(".")
            yield from keys(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from keys(inner, f"{path}[]")


def documented() -> list[str]:
    return re.findall(r"^\| `([\w.\[\]]+)` \| .+ \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_key_is_documented_once_and_no_other():
    """The example has findings, predictions and advice, so it has every key that there is."""
    assert sorted(documented()) == sorted(set(keys(encoder_decoder())))


@pytest.mark.parametrize("name", EXAMPLES)
def test_keys_are_there_whatever_is_missing(name):
    found = EXAMPLES[name]()
    everywhere = {key for key in documented() if not key.startswith(("findings[]", "advice.", "stacks[].predicted."))}
    assert everywhere <= set(keys(found))
    assert set(keys(found)) <= set(documented())


def test_what_is_there_is_json():
    for build in EXAMPLES.values():
        json.dumps(build(), allow_nan=False)
    assert unknown()["advice"] is None
    assert unknown()["stacks"][0]["predicted"] is None
