"""Options as docstrings list them."""

import pytest

from normscope.cli.help.docstrings import ListedOption, listed_options, without_lists

DOCSTRING = """Do it. Note: this is no list.

    What is drawn:
        rate, ends: rates
            of x: two.
        seeds: how many.
        trust, imports
        lambdas: such as `lambda:
            x`.

    For example:

        seeds: code

    Where:
        out: folder.

    Raises ValueError for 0.
    """


def test_an_option_has_its_heading_and_the_words_of_all_its_lines() -> None:
    assert dict(listed_options(DOCSTRING)) == {
        "rate": ListedOption("What is drawn", "rates of x: two."),
        "ends": ListedOption("What is drawn", "rates of x: two."),
        "seeds": ListedOption("What is drawn", "how many."),
        "trust": ListedOption("What is drawn", ""),
        "imports": ListedOption("What is drawn", ""),
        "lambdas": ListedOption("What is drawn", "such as `lambda: x`."),
        "out": ListedOption("Where", "folder."),
    }
    assert list(listed_options(DOCSTRING))[-1] == "out"


def test_what_is_no_list_stays() -> None:
    assert without_lists(DOCSTRING) == (
        "Do it. Note: this is no list.\n\nFor example:\n\n    seeds: code\n\n"
        "Raises ValueError for 0."
    )
    assert listed_options("") == {}
    assert without_lists("") == ""


def test_an_option_in_two_lists_is_refused() -> None:
    with pytest.raises(ValueError, match="seeds is listed twice"):
        listed_options("A:\n    seeds: 1\n\nB:\n    seeds: 2")
