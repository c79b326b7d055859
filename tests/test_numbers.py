"""Every number that is said of a result stands at its key in the data, and a changed one is
noticed.
"""

import random
from pathlib import Path

import pytest

import numbers_bound
from numbers_bound import (
    ROOT,
    Said,
    agrees,
    at,
    is_measured,
    pages,
    said_in,
    stored,
    unsealed,
    wrong_in,
)

PAGES = pages()


def changed(token: str, by: int) -> str:
    """With another last digit."""
    place = max(place for place, one in enumerate(token) if one.isdigit())
    return f"{token[:place]}{(int(token[place]) + by) % 10}{token[place + 1 :]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_is_that_of_its_key(page: Path) -> None:
    """Where it is not, `python tests/numbers_bound.py` binds what is new and names what it cannot
    bind.
    """
    assert list(wrong_in(said_in(page), stored(page))) == []


def test_changed_digits_are_noticed() -> None:
    """Of a changed text, all; and where its list was changed alike, every measured number by its
    value.
    """
    rng = random.Random(1)
    texts = values = measured = 0
    count = 0
    for page in PAGES:
        said, rows = said_in(page), stored(page)
        for place, one in enumerate(said):
            if not any(map(str.isdigit, one.token)):
                continue
            other = changed(one.token, rng.randint(1, 3))
            count += 1
            texts += [(other, rows[place][1])] != [rows[place]]
            if is_measured(one.token):
                measured += 1
                values += bool(
                    list(wrong_in([one._replace(token=other)], [(other, rows[place][1])]))
                )
    assert count > 2000
    assert measured > 1000
    assert texts == count
    assert values >= 0.98 * measured


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_number_has_changed_unseen(page: Path) -> None:
    """Where one was changed on purpose: `python tests/numbers_bound.py`."""
    assert list(unsealed(page.read_text(encoding="utf-8"), page)) == []


def test_a_changed_digit_breaks_the_seal_wherever_it_stands() -> None:
    rng = random.Random(2)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        places = [place for place, one in enumerate(text) if one.isdecimal()]
        for place in rng.sample(places, min(4, len(places))):
            other = (
                f"{text[:place]}{(int(text[place]) + rng.randint(1, 9)) % 10}{text[place + 1 :]}"
            )
            assert list(unsealed(other, page)) != [], (page, text[max(0, place - 40) : place + 1])
    # A page with numbers under headings.
    page = ROOT / "results/advice/README.md"
    text = page.read_text(encoding="utf-8")
    assert list(unsealed(text + "\n## More\n\n12 more.\n", page)) == [
        "More: 12 is not what was sealed"
    ]
    assert next(unsealed(text.replace("\n## ", "\n## No "), page)).startswith("No ")


def test_signs_whole_numbers_and_words_are_numbers() -> None:
    said = Said(token="", line=1, words=(), before="", after="", folder="optimizers_long")
    key = "claims/name=DeepNorm does without warm-up/conditions#0"
    assert at(numbers_bound.data_of("optimizers_long"), key) == 10
    for token, wrong in (("ten", "twelve"), ("10", "11"), ("Ten", "two")):
        assert list(wrong_in([said._replace(token=token)], [(token, key)])) == []
        assert list(wrong_in([said._replace(token=wrong)], [(wrong, key)])) != []
    assert agrees("−0.5", -0.46)
    assert not agrees("0.5", -0.46)
    assert agrees("2.7e6", 2_712_000.0)
    assert numbers_bound.numbers_in("−0.1 ± 0.25, ten of 1,024; x², 7e-4") == [
        "−0.1",
        "0.25",
        "ten",
        "1,024",
        "7e-4",
    ]


def test_a_measured_number_needs_a_key_and_a_text_its_list() -> None:
    said = Said(token="0.25", line=3, words=(), before="", after="", folder="optimizers_long")
    assert list(wrong_in([said], [("0.25", "")])) == ["line 3: 0.25 has no key"]
    assert list(wrong_in([said], [("0.26", "")])) == ["line 3: 0.25 where 0.26 was bound"]
    assert list(wrong_in([said], [])) == ["1 numbers, of which 0 were bound"]
    assert "which optimizers_long has not" in next(wrong_in([said], [("0.25", "no/such/key")]))
