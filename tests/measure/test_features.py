"""What is said of features: linear CKA, anisotropy and control tasks, against what they must be."""

import numpy as np
import pytest
import torch
from torch import Tensor

from normscope.measure.features import anisotropy, control_labels, linear_cka


def features(rows: int = 200, width: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_cka_of_rotated_shifted_and_scaled_features_is_one() -> None:
    x = features()
    rotation, _ = torch.linalg.qr(features(8, 8, seed=1))
    assert linear_cka(x, -3 * x @ rotation + 5) == pytest.approx(1, abs=1e-12)


def test_cka_is_that_of_the_centred_kernels_themselves() -> None:
    """Kornblith et al. 2019, eq. (1) to (3), over N × N kernels."""
    x, y = features(seed=2), features(width=5, seed=3) + features(width=5, seed=2)
    centring = torch.eye(200, dtype=torch.float64) - 1 / 200
    kernels = [centring @ one @ one.T @ centring for one in (x, y)]
    hsic = [[float((a * b).sum()) for a in kernels] for b in kernels]
    assert linear_cka(x, y) == pytest.approx(hsic[0][1] / (hsic[0][0] * hsic[1][1]) ** 0.5, rel=1e-10)


def test_cka_of_unrelated_features_falls_with_the_rows() -> None:
    few, many = (linear_cka(features(n), features(n, seed=1)) for n in (20, 5000))
    assert many < 0.01 < few


def test_cka_sees_what_an_anisotropic_change_does_and_refuses_other_rows() -> None:
    x = features()
    stretched = x * torch.tensor([100.0, *[1.0] * 7], dtype=torch.float64)
    assert linear_cka(x, stretched) < 0.7
    with pytest.raises(ValueError, match="same 2 or more rows"):
        linear_cka(x, x[:10])


def test_anisotropy_is_the_mean_of_all_pairs_cosines() -> None:
    x = features(30) + 0.5
    pairs = [torch.cosine_similarity(x[i], x[j], dim=0) for i in range(30) for j in range(30) if i != j]
    assert anisotropy(x) == pytest.approx(float(torch.stack(pairs).mean()), abs=1e-12)


def test_anisotropy_of_one_direction_is_one_and_of_even_ones_nothing() -> None:
    scales = torch.rand(50, 1, dtype=torch.float64) + 0.1
    assert anisotropy(scales * features(1)) == pytest.approx(1, abs=1e-12)
    assert abs(anisotropy(features(4000))) < 0.002
    assert anisotropy(torch.cat([features(50), -features(50)])) == pytest.approx(-1 / 99, abs=1e-12)
    with pytest.raises(ValueError, match="2 or more rows"):
        anisotropy(features(1))


def test_control_labels_are_of_the_word_alone_and_as_frequent_as_the_task_s() -> None:
    rng = np.random.default_rng(0)
    words, labels = rng.integers(0, 3000, 20_000), rng.choice(3, 20_000, p=[0.6, 0.3, 0.1])
    made = control_labels(words, labels, seed=1)
    by_word: dict[int, set[int]] = {}
    for word, label in zip(words.tolist(), made.tolist(), strict=True):
        by_word.setdefault(word, set()).add(label)
    assert {len(found) for found in by_word.values()} == {1}
    # 3,000 words are drawn: the standard error of a share is at most 0.009.
    assert np.bincount(made) / 20_000 == pytest.approx([0.6, 0.3, 0.1], abs=0.04)
    assert (made == control_labels(words, labels, seed=1)).all()
    assert (made != control_labels(words, labels, seed=2)).any()
    with pytest.raises(ValueError, match="a word and a label"):
        control_labels(words[:0], labels[:0], seed=1)
