"""What theory says of a case is computed once a process."""

from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from normscope.choosing import choice
from normscope.choosing.case import ModelToTrain, Theory, theory


@pytest.fixture(scope="package", autouse=True)
def theory_once() -> Iterator[None]:
    once = cache(theory)

    def remembered(case: ModelToTrain, placements: Sequence[str]) -> Theory:
        return once(case, tuple(placements))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "theory", remembered)
        yield
