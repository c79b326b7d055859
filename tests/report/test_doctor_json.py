"""The manual names every key of a diagnosis as JSON, and none that is not there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import normscope
from normscope.cli.doctor_output import as_text
from normscope.doctor.result import Finding, Severity, verdict_of, worst_of
from report.diagnoses import (
    BETAS,
    DILUTED,
    EXAMPLES,
    FINAL_NORM,
    broken,
    encoder_decoder,
    streams,
    unknown,
)

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
    return re.findall(
        r"^\| `([\w.\[\]]+)` \| .+ \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )


def test_every_key_is_documented_once_and_no_other():
    """One example has findings, predictions and advice, the other several streams: every key that
    there is.
    """
    found = {*keys(encoder_decoder().to_json()), *keys(streams().to_json())}
    assert sorted(documented()) == sorted(found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_keys_are_there_whatever_is_missing(name):
    found = EXAMPLES[name]().to_json()
    sometimes = (
        "findings[]",
        "advice.",
        "learned.",
        "stacks[].predicted.",
        "stacks[].sublayers[].connection.",
    )
    everywhere = {key for key in documented() if not key.startswith(sometimes)}
    assert everywhere <= set(keys(found))
    assert set(keys(found)) <= set(documented())


SCHEMA = json.loads((PAGE.parent / "doctor.schema.json").read_text(encoding="utf-8"))


def test_every_object_fits_the_schema_which_names_every_key_and_no_other() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema (the `dev` extra)")
    checked = jsonschema.Draft202012Validator(SCHEMA)
    checked.check_schema(SCHEMA)
    for build in EXAMPLES.values():
        written = json.loads(as_text(build().to_json()))
        checked.validate(written)
        for place in (written, written["measured"], *written["findings"], *written["stacks"]):
            gone, value = place.popitem()
            assert not checked.is_valid(written), f"without {gone}"
            place[gone] = value
            place["more"] = 1
            assert not checked.is_valid(written), f"with more beside {gone}"
            del place["more"]
    checked.validate(json.loads(as_text({"history": {}})))
    assert not checked.is_valid({"normscope": "0.1.0", "schema": 2})
    assert not checked.is_valid({**written, "schema": 1})


def test_what_is_there_is_json():
    for build in EXAMPLES.values():
        json.dumps(build().to_json(), allow_nan=False)
    assert unknown().to_json()["advice"] is None
    assert unknown().to_json()["stacks"][0]["predicted"] is None


def test_values_are_plain():
    """Enums are written as the words they stand for, and reading the file again gives the same
    values.
    """
    found = broken()
    data = found.to_json()
    assert type(data["verdict"]) is type(data["findings"][0]["severity"]) is str
    assert (data["verdict"], data["findings"][0]["severity"]) == ("errors", "error")
    read = json.loads(json.dumps(data))
    assert [
        Finding(**{**one, "severity": Severity(one["severity"])}) for one in read["findings"]
    ] == [*found.findings]
    first, one = read["stacks"][0]["sublayers"][0], found.stacks[0].sublayers[0]
    assert (first["formula"], first["also"]) == (one.formula, [*one.also])
    assert first["measured"]["gradient_norm"] == one.measured.gradient_norm


def test_the_worst_finding_is_the_verdict():
    kinds = (BETAS, DILUTED, FINAL_NORM)
    assert [worst_of(kinds[:n]) for n in range(4)] == [
        None,
        Severity.INFO,
        Severity.WARNING,
        Severity.ERROR,
    ]
    assert [verdict_of(kinds[:n]) for n in range(4)] == ["healthy", "healthy", "warnings", "errors"]
    assert worst_of(kinds[::-1]) is Severity.ERROR


def test_weights_of_streams_that_were_not_computed_are_null():
    stack = streams().to_json()["stacks"][0]
    assert (stack["streams"], stack["streams_start_equal"]) == (4, True)
    connection = stack["sublayers"][0]["connection"]
    assert connection["read"] == {"made": "token", "total": 1.0, "by_feature": False}
    assert connection["write"] == {"made": "trained", "total": None, "by_feature": True}
    assert (connection["from_doubly_stochastic"], list(connection["unwritten"])) == (2.4e-7, [2])
