"""What counts as left behind: work that nobody goes on with, and not an old folder beside the new
one.
"""

import pytest

from faults.verdicts import left_over, without_superseded


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (("corpus", "corpus/corpus.json"), ""),
        ((".replaced-corpus", ".replaced-corpus/corpus.json", "corpus"), ""),
        ((".replaced-corpus", ".replaced-corpus/corpus.json"), ".replaced-corpus"),
        ((".replaced-corpus", ".unfinished-corpus", "corpus"), ".unfinished-corpus"),
        (("runs/.replaced-step-4", "step-4"), "runs/.replaced-step-4"),
    ],
)
def test_an_old_folder_may_stay_where_the_new_one_stands(paths: tuple[str, ...], left: str) -> None:
    assert left_over(without_superseded(tuple((path, None) for path in paths))) == left
