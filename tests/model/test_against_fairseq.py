"""Our model with fairseq's weights against fairseq's logits, loss and gradients
(shared/fixtures/README.md).
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fairseq_weights import load, renamed
from normscope.model import Layout, sublayers as attention
from normscope.tasks.loss import smoothed_cross_entropy

NAMES = ["post_shared_1", "post_separate_2", "pre_shared_1", "pre_separate_2"]
PAD = 1
SMOOTHING = 0.1
SAME_ROUNDINGS = torch.backends.cpu.get_cpu_capability() == "AVX512"
"""Whether this machine's float32 exponential rounds as the one's that fairseq ran on."""
TOLERANCE = 1e-12 if SAME_ROUNDINGS else 4 * 2**-23
"""Otherwise a few roundings of float32, as wherever it cannot be imitated."""


@pytest.fixture(autouse=True)
def _as_fairseq_attends(monkeypatch):
    """fairseq's cross-attention returns its weights, and on that path the softmax runs in float32
    even in a float64 model. Its numbers carry that rounding, 1e-8 of the logits; with the same
    rounding here all else agrees to 1e-12.
    """
    cross = False
    forward = attention.Attention.forward

    def noting_its_kind(module: attention.Attention, *arguments: object) -> Tensor:
        nonlocal cross
        cross = module.cross
        return forward(module, *arguments)

    def attend(
        query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool, dropout: float
    ) -> Tensor:
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if keep is not None:
            scores = scores.masked_fill(~keep, -torch.inf)
        if causal:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
        return (
            scores.softmax(-1, dtype=torch.float32 if cross else scores.dtype).to(value.dtype)
            @ value
        )

    monkeypatch.setattr(attention.Attention, "forward", noting_its_kind)
    monkeypatch.setattr(attention, "attend", attend)


class Fixture:
    """A model with fairseq's weights, its packed hidden states, and fairseq's numbers."""

    def __init__(self, path: Path) -> None:
        self.model, self.arrays = load(path)
        source, previous, target = (
            torch.from_numpy(self.arrays[n]) for n in ("src", "prev", "tgt")
        )
        source_layout, layout = Layout((source != PAD).sum(1)), Layout((target != PAD).sum(1))
        self.hidden = self.model(
            source_layout.pack(source), source_layout, layout.pack(previous), layout
        )
        self.target, self.logits = (
            layout.pack(target),
            layout.pack(torch.from_numpy(self.arrays["logits"])),
        )
        assert layout.tokens == self.arrays["target_tokens"]

    def assert_gradients(self, tolerance: float) -> None:
        theirs = renamed(
            {n[2:]: torch.from_numpy(a) for n, a in self.arrays.items() if n.startswith("g:")}
        )
        if (
            self.model.config.embeddings == "shared"
        ):  # fairseq lists the shared table under the encoder's name
            theirs["target_embedding.weight"] = theirs.pop("source_embedding.weight")
        ours = {n: p.grad for n, p in self.model.named_parameters()}
        assert ours.keys() == theirs.keys()
        for name, gradient in ours.items():
            torch.testing.assert_close(
                gradient,
                theirs[name],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda m, n=name: f"{n}: {m}",
            )


@pytest.fixture(params=NAMES)
def fixture(request, shared) -> Fixture:
    return Fixture(shared / f"fixtures/fairseq_{request.param}.npz")


def test_logits(fixture):
    torch.testing.assert_close(
        fixture.model.logits(fixture.hidden), fixture.logits, rtol=TOLERANCE, atol=TOLERANCE
    )


def test_every_gradient(fixture):
    """Of fairseq's own loss, whose log-softmax is in float32 too."""
    log_p = fixture.model.logits(fixture.hidden).log_softmax(-1, dtype=torch.float32)
    each = SMOOTHING / (log_p.shape[1] - 1)
    nll = -log_p.gather(1, fixture.target[:, None]).sum()
    ((1 - SMOOTHING - each) * nll - each * log_p.sum()).div(len(fixture.target)).backward()
    fixture.assert_gradients(TOLERANCE)


def test_our_loss(fixture):
    """In float64, so a few roundings of float32 from fairseq's: of its sums, and of the gradients
    that leave them.
    """
    smoothed, nll = smoothed_cross_entropy(
        fixture.hidden, fixture.model.target_embedding.weight, fixture.target, SMOOTHING
    )
    assert smoothed.item() == pytest.approx(
        float(fixture.arrays["smoothed_loss_sum"]), rel=4 * 2**-23
    )
    assert nll.item() == pytest.approx(float(fixture.arrays["nll_sum"]), rel=4 * 2**-23)
    (smoothed / len(fixture.target)).backward()
    fixture.assert_gradients(4 * 2**-23)
