"""Linear probes: what can be read linearly is read, what is not there is not, and the stream's size does not matter."""

import sys

import numpy as np
import pytest

from normscope.errors import UserError

pytest.importorskip("sklearn", reason="needs scikit-learn (the `probes` extra)")

from normscope.adapters.linear_probes import probe_accuracy


def drawn(rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 6))
    return x, (x @ rng.standard_normal((6, 4))).argmax(1)


def accuracy(x: np.ndarray, labels: np.ndarray) -> float:
    return probe_accuracy(x[::2], labels[::2], x[1::2], labels[1::2])


def test_a_linear_rule_is_read_and_shuffled_labels_are_not() -> None:
    x, labels = drawn()
    assert accuracy(x, labels) > 0.9
    shuffled = np.random.default_rng(1).permutation(labels)
    commonest = np.bincount(labels).max() / len(labels)
    # Four standard errors of a share of 450 rows.
    assert accuracy(x, shuffled) < commonest + 4 * 0.5 / 450**0.5


def test_what_no_plane_separates_is_not_read() -> None:
    x, _ = drawn()
    assert accuracy(x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)) < 0.62


def test_scale_shift_and_dead_features_change_nothing() -> None:
    x, labels = drawn()
    changed = np.concatenate([1e4 * x - 3e4, np.full((len(x), 1), 7.0)], 1)
    assert accuracy(changed, labels) == accuracy(x, labels)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    x, labels = drawn(20)
    with pytest.raises(UserError, match=r"linear probes need scikit-learn: .*\[probes\]"):
        accuracy(x, labels)
