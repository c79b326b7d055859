"""Autocast that is left out: entered in vain, noted, given back on demand, and as it was
afterwards.
"""

import pytest
import torch

from normscope.measure.autocast import as_asked_around, give_back, lowered, without_autocast

CPU = torch.device("cpu")
A = torch.ones(2, 2)


def under(dtype: torch.dtype = torch.bfloat16, *, enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype, enabled=enabled)


def test_a_product_is_made_in_its_own_precision():
    with without_autocast(), under():
        assert (A @ A).dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
    with under():
        assert (A @ A).dtype == torch.bfloat16


def test_it_is_known_which_precision_was_asked_for():
    double = torch.float64
    with without_autocast():
        assert lowered(torch.float32, CPU) == torch.float32
        with under(torch.float16):
            assert lowered(torch.float32, CPU) == torch.float16
            assert lowered(double, CPU) == double
            with under(enabled=False):
                assert lowered(torch.float32, CPU) == torch.float32
            assert lowered(torch.float32, CPU) == torch.float16
            assert lowered(torch.float32, torch.device("cuda")) == torch.float32
        assert lowered(torch.float32, CPU) == torch.float32
    assert lowered(torch.float32, CPU) == torch.float32


def test_a_decorated_function_and_one_that_raises_leave_nothing_behind():
    enter, leave = torch.autocast.__enter__, torch.autocast.__exit__

    @under()
    def raising() -> None:
        assert (A @ A).dtype == torch.float32
        raise KeyError

    with pytest.raises(KeyError), without_autocast():
        raising()
    assert (torch.autocast.__enter__, torch.autocast.__exit__) == (enter, leave)
    assert not torch.is_autocast_enabled("cpu")
    assert (A @ A).dtype == torch.float32
    with under():
        assert (A @ A).dtype == torch.bfloat16


def test_autocast_around_all_is_off_within_and_on_again_afterwards():
    with under():
        with without_autocast():
            assert (A @ A).dtype == torch.float32
            assert lowered(torch.float32, CPU) == torch.bfloat16
            with as_asked_around():
                assert (A @ A).dtype == torch.float32
        assert (A @ A).dtype == torch.bfloat16


def test_one_within_another_does_nothing_of_its_own():
    with without_autocast():
        with without_autocast(), under():
            assert (A @ A).dtype == torch.float32
        with under():
            assert (A @ A).dtype == torch.float32


def test_what_was_asked_for_can_be_given_back_until_the_end():
    with without_autocast():
        assert not give_back()
        with under():
            pass
        assert give_back()
        assert not give_back()
        with without_autocast(), under():
            assert (A @ A).dtype == torch.bfloat16
    with without_autocast(), under():
        assert (A @ A).dtype == torch.float32


def test_autocast_around_all_is_given_back_where_it_is_asked_for():
    with under(), without_autocast():
        assert give_back()
        assert (A @ A).dtype == torch.float32
        with as_asked_around():
            assert (A @ A).dtype == torch.bfloat16
