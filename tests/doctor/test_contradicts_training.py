"""A checkpoint under the wrong flag is found from its weights; under its own flag, and untrained,
it is left alone.
"""

from dataclasses import replace

import pytest

from doctor.bugs import both
from doctor.trained_flags import DEEP, NARROW, Language, patient_under, trained
from doctor.wired import patient, post, pre
from normscope.doctor.lint.checks.training import _Alignment, contradicts_training
from normscope.doctor.lint.linter import asked_rules
from normscope.doctor.lint.patient import Loading


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("trained_pre", "sizes"), [(True, NARROW), (False, DEEP)])
def test_a_checkpoint_under_the_wrong_flag_is_found(trained_pre, sizes):
    model, held_out = trained(pre=trained_pre, **sizes)
    wired, meant = ("Post-LN", "Pre-LN") if trained_pre else ("Pre-LN", "Post-LN")
    for by, words in (
        (by_losses, "on this batch the loss is"),
        (by_weights, "as far as the weights tell"),
    ):
        assert by(model, held_out, pre=trained_pre) == []
        (finding,) = by(model, held_out, pre=not trained_pre)
        assert finding.severity == "warning"
        assert f"wired as {wired}, but trained as {meant}" in finding.message
        assert words in finding.message


def by_losses(model, held_out, *, pre):
    return list(contradicts_training.check(patient_under(model, held_out, pre=pre)))


def by_weights(model, held_out, *, pre):
    """As where no batch of the training's is at hand."""
    under = patient_under(model, held_out, pre=pre)
    observed = replace(under.observed, rewired_loss_nats=None)
    return list(contradicts_training.check(replace(under, observed=observed)))


@pytest.mark.parametrize(
    ("loss", "rewired", "said"),
    [
        (2.6, 1.4, ["error"]),
        (2.6, 2.48, ["warning"]),
        (2.6, 2.58, []),  # too near to each other
        (1.4, 2.6, []),
        (3.4, 3.0, []),  # the weights know too little under either
    ],
)
def test_losses_under_both_wirings(loss, rewired, said):
    under = patient(both(post)())
    observed = replace(under.observed, loss_nats=loss, rewired_loss_nats=rewired, classes=24)
    trained_weights = replace(under, observed=observed, loading=Loading(missing=(), unexpected=()))
    found = list(contradicts_training.check(trained_weights))
    assert [finding.severity for finding in found] == said


@pytest.mark.parametrize("join", [pre, post])
def test_initial_weights_say_nothing_of_a_training(join):
    (asked,) = [
        rule for rule in asked_rules(patient(both(join)())) if rule.id == "contradicts-training"
    ]
    assert (asked.asked, asked.reason) == (False, "the weights are as they were drawn")


def test_what_was_hardly_trained_is_silent():
    model, held_out = trained(pre=True, width=32, blocks=3, rate=2e-3, updates=2, seed=0)
    assert isinstance(model, Language)
    for flag in (True, False):
        assert by_losses(model, held_out, pre=flag) == by_weights(model, held_out, pre=flag) == []


def test_the_difference_and_its_standard_error():
    found = _Alignment(own=(0.5, 0.7, 0.6), following=(0.0, 0.0, 0.0), shifts=None)
    assert found.difference == pytest.approx(0.6)
    assert found.certainty == pytest.approx(0.6 / (0.1 / 3**0.5))
