"""The entropy of a model's targets is counted over its own batches: how many, and when it is not
known.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope.settings.files import import_file
from normscope.targets.frequencies import TargetFrequencies, counted_in, frequencies_of
from normscope.tasks.own_functions import ModelFile

Counts = Callable[[str], TargetFrequencies | None]


@pytest.fixture
def counted(tmp_path: Path) -> Counts:
    """What is counted in a file with these functions."""

    def of(functions: str) -> TargetFrequencies | None:
        file = tmp_path / "my_model.py"
        file.write_text(f"import torch\n\n{functions}\n")
        import_file(file)
        return counted_in(ModelFile(file, "build"))

    return of


def test_a_list_is_counted_once_and_padding_is_not(counted: Counts) -> None:
    """Seven targets of which four are 5: the entropy of 4/7 and 3/7, in closed form."""
    batches = "[(None, torch.tensor([[5, 5, 9, -100]])), (None, torch.tensor([5, 5, 9, 9]))]"
    found = counted(f"def batches(): return {batches}")
    assert found is not None
    assert found.over == "7 target tokens in 2 batches"
    assert found.nats == pytest.approx(-(4 / 7) * math.log(4 / 7) - (3 / 7) * math.log(3 / 7))


def test_what_has_no_end_is_counted_up_to_a_bound(counted: Counts) -> None:
    pair = "torch.zeros(4, 8), torch.randint(16, (4, 8))"
    found = counted(f"def batches(number): return {pair}")
    assert found is not None
    assert found.over == "8,192 target tokens in 256 batches"
    # The plug-in entropy of n draws from k equal classes is about (k - 1) / 2n too small.
    assert found.nats == pytest.approx(math.log(16), abs=4 * 15 / (2 * 8_192))
    long = counted("def batches(number): return {'labels': torch.arange(150_000) % 7}")
    assert long is not None
    assert long.over == "300,000 target tokens in 2 batches"


def test_random_numbers_are_left_as_they_were(counted: Counts) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    counted("def batches(number): return None, torch.randint(4, (9,))")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    "functions",
    [
        "def batches(): return [torch.zeros(2, 3)]",
        "def batches(): return [(None, torch.zeros(2, 3))]",
        "def batches(): return [(None, torch.full((2,), -100))]",
        "def loss(model, batch): return 0\n\ndef batches(): return [(None, torch.tensor([1, 2]))]",
    ],
    ids=["no labels", "labels that are no classes", "nothing but padding", "a loss of their own"],
)
def test_what_has_no_cross_entropy_of_labels_has_no_entropy_to_reach(
    functions: str, counted: Counts
) -> None:
    assert counted(functions) is None


def test_targets_of_which_too_many_are_seen_once_do_not_tell_their_entropy() -> None:
    """A thousand draws from a hundred thousand words are 6.9 nats apart, and the words 11.5."""
    draw = np.random.default_rng(0)
    few = frequencies_of(draw.integers(100_000, size=1_000), 1)
    assert few.nats is None
    assert few.over.startswith("1,000 target tokens in 1 batch, of which 9")
    many = frequencies_of(draw.integers(100, size=10_000), 3)
    assert many.nats == pytest.approx(math.log(100), abs=0.02)


def test_labels_may_be_any_whole_numbers() -> None:
    """Their places are counted, so that a large one takes no memory."""
    found = frequencies_of(np.array([10**15, 10**15, -7, -7] * 10), 1)
    assert found.nats == pytest.approx(math.log(2))
