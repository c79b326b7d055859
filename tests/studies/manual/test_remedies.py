"""The package's counts of remedies are those of the committed study."""

import json
from pathlib import Path

from normscope.history.remedies import Remedy, Situation, counted_in
from normscope_studies.manual.remedies import packed

RESULTS = Path(__file__).parents[3] / "results"


def test_where_a_placement_was_tried_every_remedy_is_counted_on_the_same_trainings() -> None:
    counts = counted_in(json.loads(packed(RESULTS)))
    moved = counts[Situation.MOVABLE]
    placement = counts[Situation.NORMED][Remedy.PLACEMENT]
    # One that diverged there would have no loss, as one that was refused has none.
    assert moved[Remedy.PLACEMENT] == placement
    assert {one.of for one in moved.values()} == {placement.of}
    for remedy, cured in moved.items():
        assert cured.count <= counts[Situation.NORMED][remedy].count
