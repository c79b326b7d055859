"""A checkpoint under the wrong flag is found from its weights; under its own flag, and untrained, it is left alone."""

import pytest

from doctor.bugs import both
from doctor.trained_flags import DEEP, NARROW, trained
from doctor.wired import patient, post, pre
from normscope.doctor.lint.alignment import Alignment
from normscope.doctor.lint.linter import asked_rules
from normscope.studies.flag.measure import found_in
from normscope.studies.flag.model import Language


@pytest.mark.parametrize(("trained_pre", "sizes"), [(True, NARROW), (False, DEEP)])
def test_a_checkpoint_under_the_wrong_flag_is_found(trained_pre, sizes):
    model, held_out = trained(pre=trained_pre, **sizes)
    assert found_in(model, held_out, pre=trained_pre) == ()
    (finding,) = found_in(model, held_out, pre=not trained_pre)
    assert finding.severity in ("warning", "error")
    wired, meant = ("Post-LN", "Pre-LN") if trained_pre else ("Pre-LN", "Post-LN")
    assert f"wired as {wired}, but trained as {meant}" in finding.message


@pytest.mark.parametrize("join", [pre, post])
def test_initial_weights_say_nothing_of_a_training(join):
    (asked,) = [rule for rule in asked_rules(patient(both(join)())) if rule.id == "contradicts-training"]
    assert (asked.asked, asked.reason) == (False, "the weights are as they were drawn")


def test_what_was_hardly_trained_is_silent():
    model, held_out = trained(pre=True, width=32, blocks=3, rate=2e-3, updates=2, seed=0)
    assert isinstance(model, Language)
    assert [found_in(model, held_out, pre=flag) for flag in (True, False)] == [(), ()]


def test_the_difference_and_its_standard_error():
    found = Alignment(own=(0.5, 0.7, 0.6), following=(0.0, 0.0, 0.0))
    assert found.difference == pytest.approx(0.6)
    assert found.certainty == pytest.approx(0.6 / (0.1 / 3**0.5))
