"""Attention's weights before training, beside softmaxes of drawn logits."""

import numpy as np
import pytest

from normscope.theory.predict import ModelSetting, predict

TOKENS, HEADS = 48, 60


def drawn(
    width: int, head: int, std: float, *, causal: bool, normed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Deviation of logits, Σ w² and entropy of the first block, means over queries, and their
    standard errors.
    """
    generator = np.random.default_rng(width + causal)
    half = width // 2
    angle = np.arange(2, TOKENS + 2)[:, None] * np.exp(
        np.arange(half) * -(np.log(10000) / (half - 1))
    )
    x = generator.normal(size=(TOKENS, width)) + np.concatenate([np.sin(angle), np.cos(angle)], 1)
    if not normed:
        x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    sees = np.tril(np.ones((TOKENS, TOKENS), bool)) if causal else np.ones((TOKENS, TOKENS), bool)
    found = []
    for _ in range(HEADS):
        q, k = (x @ generator.normal(size=(width, head)) * std for _ in range(2))
        if normed:
            q, k = (
                (one - one.mean(1, keepdims=True)) / one.std(1, keepdims=True) for one in (q, k)
            )
        logits = np.where(sees, q @ k.T / head**0.5, -np.inf)
        w = np.exp(logits - logits.max(1, keepdims=True))
        w /= w.sum(1, keepdims=True)
        variance = [
            row[seen].var(ddof=1) for row, seen in zip(logits, sees, strict=True) if seen.sum() > 1
        ]
        entropy = -(w * np.log(np.where(w > 0, w, 1.0))).sum(1)
        found.append((sum(variance) / TOKENS, (w * w).sum(1).mean(), entropy.mean()))
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / HEADS**0.5
    return np.array([mean[0] ** 0.5, *mean[1:]]), np.array(
        [error[0] / mean[0] ** 0.5 / 2, *error[1:]]
    )


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("placement", "width", "heads", "setting", "std"),
    [
        ("pre-ln", 256, 8, "normal-0.02", 0.02),
        ("pre-ln", 256, 8, "normal-by-width", 1 / 16),
        ("pre-ln", 4096, 64, "normal-0.02", 0.02),
        ("hybrid-norm", 256, 8, "normal-by-width", 1 / 16),
    ],
)
def test_as_drawn(
    placement: str, stack: str, width: int, heads: int, setting: str, std: float
) -> None:
    mean, error = drawn(
        width, width // heads, std, causal=stack == "decoder", normed=placement == "hybrid-norm"
    )
    model = ModelSetting(
        stack=stack, blocks=1, width=width, heads=heads, tokens=TOKENS, setting=setting
    )
    weights = predict(placement, model)[stack].attention["attention"]
    found = np.array([weights.deviation[0], weights.square[0], weights.entropy[0]])
    assert (abs(found - mean) < 0.03 * mean + 2.5 * error).all()


def test_of_one_weight_for_all_and_one_weight_alone() -> None:
    model = ModelSetting(stack="decoder", blocks=2, width=64, tokens=5)
    weights = predict("pre-ln", model)["decoder"].attention["attention"]
    assert list(weights.deviation) == [0.0, 0.0]
    seen = np.arange(1, 6)
    np.testing.assert_allclose(weights.square, np.mean(1 / seen), rtol=1e-12)
    np.testing.assert_allclose(weights.entropy, np.mean(np.log(seen)), rtol=1e-12)
    both = predict(
        "post-ln",
        ModelSetting(stack="encoder-decoder", blocks=1, width=64, tokens=5, source_tokens=9),
    )
    assert both["decoder"].attention["cross_attention"].entropy[0] == pytest.approx(
        np.log(9), rel=1e-12
    )
    strong = ModelSetting(blocks=1, width=1 << 20, tokens=5, setting="normal-0.02")
    alone = predict("pre-ln", strong)["encoder"].attention["attention"]
    assert alone.square[0] > 0.85
    assert alone.entropy[0] < 0.3
