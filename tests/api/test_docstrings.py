"""Docstrings of the public functions list every parameter once, below a heading."""

import inspect
import typing
from typing import Any

import pytest
from torch import nn

import normscope
from normscope.api.runs import Run
from normscope.cli.help.docstrings import listed_options

SINGLE = {"compare_runs": "folder", "open_run": "folder", "untransplant": "model"}
"""Functions of one parameter, of which the first sentence speaks."""
PUBLIC = {
    name: getattr(normscope, name)
    for name in normscope.__all__
    if inspect.isfunction(getattr(normscope, name))
    or issubclass(getattr(normscope, name), nn.Module)
}
OPTIONED: dict[str, Any] = {
    **{name: found for name, found in PUBLIC.items() if name not in SINGLE},
    "Run.evaluate": Run.evaluate,
    "Encoder.forward": normscope.Encoder.forward,
}


def parameters_of(function: Any) -> set[str]:
    """Names of parameters; those of a typed dictionary that keywords are taken from."""
    made = function.__init__ if isinstance(function, type) else function
    found = set()
    for name, one in inspect.signature(function).parameters.items():
        keywords = typing.get_type_hints(inspect.unwrap(made)).get(name)
        if one.kind is inspect.Parameter.VAR_KEYWORD and typing.get_origin(keywords):
            found |= {*typing.get_type_hints(typing.get_args(keywords)[0])}
        else:
            found.add(name)
    return found - {"self"}


@pytest.mark.parametrize("name", OPTIONED)
def test_every_parameter_is_listed_once_with_words(name: str) -> None:
    listed = listed_options(inspect.getdoc(OPTIONED[name]) or "")
    assert all(one.words for one in listed.values())
    wanted = parameters_of(OPTIONED[name])
    if "options" in listed:
        # As another's, which lists them.
        wanted = {*inspect.signature(OPTIONED[name]).parameters}
    assert set(listed) == wanted


@pytest.mark.parametrize("name", OPTIONED)
def test_no_line_of_a_docstring_is_wider_than_a_page(name: str) -> None:
    lines = (inspect.getdoc(OPTIONED[name]) or "").splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", SINGLE)
def test_functions_without_lists_have_one_parameter(name: str) -> None:
    assert list(inspect.signature(PUBLIC[name]).parameters) == [SINGLE[name]]
