"""What is read from committed results is what the package holds, and what results say in words."""

import math
import re
from pathlib import Path

import pytest

from choosing.recomputed import RESULTS, result
from normscope.choosing.evidence import FILE, packed, stored
from normscope.errors import UserError
from normscope_studies.manual.grid_sizes import SIZES
from normscope_studies.manual.reading import collect


def test_the_package_holds_what_the_results_say_now() -> None:
    again = "run `python -m normscope_studies.manual docs` and commit what it writes"
    assert packed(collect(RESULTS)) == FILE.read_text(encoding="utf-8"), again


def test_sizes_of_comparisons_are_those_that_their_results_state_in_words() -> None:
    for name, size in SIZES.items():
        what = result(name)["what"]
        assert what["Model"].startswith(f"{size.blocks}+{size.blocks} blocks, width {size.width},")
        assert what["Duration"].startswith(f"{size.updates} updates;")
        limits = [
            int(number) for number in re.findall(r"\d+", what["Duration"].partition("at most")[2])
        ]
        assert math.prod(limits) == size.batch_tokens
        assert what["Corpus"].startswith(size.text)
    tokens = {name: setting.tokens for name, setting in stored().settings.items()}
    assert tokens["optimizers_long"] == 1000 * 2048


def test_results_that_are_not_there_are_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file; .* in a clone"):
        collect(tmp_path)


def test_what_learned_at_no_rate_where_the_baseline_did_is_decided_against() -> None:
    """Post-LN of 16 and 32 blocks, of all rates that were tried; what learned stays undecided."""
    by_depth = [one for one in collect(RESULTS).findings if one.setting.startswith("rate_transfer")]
    against = {one.setting for one in by_depth if one.answer == "contradicted"}
    assert against == {"rate_transfer, 16 blocks", "rate_transfer, 32 blocks"}
    for one in by_depth:
        at_none = "learned at none of" in one.note
        assert (one.placement == "post-ln" and one.setting in against) == at_none
        assert one.answer == ("contradicted" if at_none else "undecided")
