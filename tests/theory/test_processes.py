"""Placements that processes share out are predicted as one by one, refusals included."""

import os
import sys

import numpy as np
import pytest

from normscope.placement import registered
from normscope.theory import predict as predicting
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, predict, predict_many, predict_or_refuse
from placement.expected import expected

MODEL = ModelSetting(blocks=2, width=64, ffn_width=64, tokens=6, vocabulary=100)
NAMES = ["pre-ln", "post-ln", "deepnorm"]
# Read before other tests register placements of their own.
REFUSED = next(name for name in registered() if expected(name).refused_by_theory)


@pytest.fixture
def own_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Predictions that this process makes, on a machine of two cores for which two blocks are
    much.
    """
    called: list[str] = []

    def noted(placement: str, *arguments, **settings):
        called.append(placement)
        return predict(placement, *arguments, **settings)

    monkeypatch.setattr(predicting, "predict", noted)
    monkeypatch.setattr(predicting, "_WORTH_PROCESSES", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    return called


@pytest.mark.skipif(sys.platform != "linux", reason="only there processes are forked")
def test_what_processes_predict_is_what_one_does(own_calls: list[str]) -> None:
    found = predict_many(NAMES, MODEL)
    assert own_calls == []
    assert list(found) == NAMES
    for name in NAMES:
        (one,), (other,) = predict(name, MODEL).values(), found[name].values()
        np.testing.assert_array_equal(one.q, other.q)
        assert one.gradient_norm.keys() == other.gradient_norm.keys()
        assert all(
            np.array_equal(one.gradient_norm[weight], norms)
            for weight, norms in other.gradient_norm.items()
        )


def test_what_theory_does_not_follow_is_told_beside_the_others(own_calls: list[str]) -> None:
    wide = ModelSetting(blocks=2)
    found, reasons = predict_or_refuse([*NAMES, REFUSED], wide)
    assert (list(found), list(reasons)) == (NAMES, [REFUSED])
    with pytest.raises(Unpredictable, match=expected(REFUSED).refused_by_theory):
        predict_many([*NAMES, REFUSED], wide)
