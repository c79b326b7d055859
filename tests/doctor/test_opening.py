"""What opens after the first update is no error, and what stays closed is: by gradients, whatever
the reason.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from doctor.bugs_values import BLOCKS, Gated, Twice
from doctor.test_lint_values import RULES, above_info
from doctor.wired import VOCABULARY, WIDTH, Model, Stack, pre, tokens
from normscope import diagnose
from normscope.doctor.lint.patient import Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding


def cross_entropy(logits: Tensor) -> Tensor:
    targets = torch.randint(
        VOCABULARY, logits.shape[:-1], generator=torch.Generator().manual_seed(2)
    )
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def looked_at(model: nn.Module, loss: Callable[[object], Tensor] | None = cross_entropy) -> Patient:
    stacks, observed = examined(model, tokens(model), loss)
    return Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)


def found(of: Patient) -> list[Finding]:
    return above_info(
        finding for rule in ("dead-sublayer", "dead-gate") for finding in RULES[rule].check(of)
    )


def zero_head(model: nn.Module) -> nn.Module:
    """As nanochat and muP draw it."""
    nn.init.zeros_((model.inner if hasattr(model, "inner") else model).projection.weight)
    return model


def after_norm(
    x: Tensor, f: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]
) -> Tensor:
    return x + norm(f(x))


def zero_gains() -> nn.Module:
    """x + norm(F(x)) with gains of 0, as timm's Swin V2 starts."""
    model = Model(lambda: Stack(after_norm, after_norm, final=1))
    for block in model.encoder.blocks:
        for norm in block.norms:
            nn.init.zeros_(norm.weight)
    return model


class Pooled(nn.Module):
    """A head that no label asks for, beside the states that one does, as SigLIP's attention
    pooling.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, final=1))
        self.pooling = Stack(pre, pre, blocks=1, final=1)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        x = self.inner.encoder(self.inner.embedding(source))
        return self.inner.projection(x), self.pooling(x)[:, 0]


@pytest.mark.parametrize(
    "build",
    [
        lambda: zero_head(Model(lambda: Stack(pre, pre, final=1))),
        lambda: zero_head(Gated()),
        zero_gains,
    ],
    ids=["a head of zeros", "gates of zero under a head of zeros", "gains of zero after F"],
)
def test_what_opens_in_the_second_update_or_the_third_is_no_error(build):
    of = looked_at(build())
    first = of.observed.gradient_norms
    sublayers = [s.measured for s in of.stacks[0].sublayers]
    shut = [s for s in sublayers if not any(first[name] for name in s.parameters)]
    assert shut
    assert all(of.observed.opening.intersection(s.parameters) for s in shut)
    assert found(of) == []


def test_what_opens_gets_a_gradient_in_a_real_training():
    """The same three updates with torch's own Adam."""
    model = zero_head(Gated())
    opening = looked_at(model).observed.opening
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    moved: set[str] = set()
    for update in range(3):
        optimizer.zero_grad()
        cross_entropy(model(*tokens(model))).backward()
        if update:
            moved |= {
                name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()
            }
        else:
            at_first = {
                name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()
            }
        optimizer.step()
    assert opening == moved - at_first


@pytest.mark.parametrize("head", [False, True])
def test_two_factors_of_zero_stay_closed_under_a_head_of_zeros_too(head):
    model = Twice(zeros=True)
    if head:
        zero_head(model.gated)
    (finding,) = found(looked_at(model))
    assert (finding.id, finding.severity) == ("dead-gate", "error")


@pytest.mark.parametrize(
    "loss", [None, lambda output: cross_entropy(output[0])], ids=["random targets", "own loss"]
)
def test_a_head_that_the_loss_does_not_ask_for_is_not_judged(loss):
    of = looked_at(Pooled(), loss)
    assert [s.measured.reaches_loss for s in of.sublayers()] == [True] * 8 + [False] * 2
    assert found(of) == []


def test_a_detached_branch_of_what_the_loss_asks_for_is_still_an_error():
    detached = Model(lambda: Stack(lambda x, f, norm: x + f(norm(x)).detach(), pre, final=1))
    (finding,) = found(looked_at(zero_head(detached)))
    assert (finding.id, finding.severity) == ("dead-sublayer", "error")
    assert "4 of 8" in finding.message


def test_the_model_is_left_as_it_was():
    model = zero_head(Gated())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    looked_at(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_more_is_run_where_everything_gets_a_gradient():
    model = Model(lambda: Stack(pre, pre, final=1))
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    assert looked_at(model).observed.opening == frozenset()
    assert len(calls) == 2


class OffsetNorm(nn.Module):
    """LayerNorm whose gain is 1 + w, with w at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (WIDTH,)) * (1 + self.offset)


class OffsetGate(nn.Module):
    """A branch times a gate 1 + w, as x-transformers keeps LayerScale."""

    def __init__(self, f: nn.Module, start: float, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f, self.read = f, read
        self.gate = nn.Parameter(torch.full((WIDTH,), start - 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) * (1 + self.read(self.gate))


def offset_gates(start: float, read: Callable[[Tensor], Tensor] = lambda gate: gate) -> Model:
    """Such gates beside norms whose w is at 0."""
    model = Model(lambda: Stack(pre, pre, blocks=BLOCKS, final=1))
    for block in model.encoder.blocks:
        block.norms = nn.ModuleList(OffsetNorm() for _ in block.norms)
        block.f = nn.ModuleList(OffsetGate(f, start, read) for f in block.f)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gate_of_one_plus_w_that_starts_shut_opens(dtype):
    # Of bfloat16 no number lies between 1e-5 - 1 and -1: what starts almost shut is shut.
    model = offset_gates(1e-5 if dtype == torch.bfloat16 else 0.0).to(dtype)
    of = looked_at(model)
    assert all(one.is_shut_by_gate for one in of.sublayers())
    assert found(of) == []
    cross_entropy(model(*tokens(model)).float()).backward()
    gradients = [f.gate.grad for block in model.encoder.blocks for f in block.f]
    assert all(bool(gradient.any()) for gradient in gradients)


def test_a_gate_of_one_plus_w_that_rounding_holds_shut_is_told_as_rounding():
    """Adam moves w by its rate, and bfloat16 leaves it at -1."""
    model = offset_gates(1e-5).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0)
    told = diagnose(
        model,
        tokens(model),
        loss=lambda logits: cross_entropy(logits.float()),
        optimizer=optimizer,
        advise=False,
    )
    (rounded,) = [one for one in told.findings if one.id == "rounded-updates"]
    assert "blocks.[0–3].f.[0–1].gate" in rounded.where
    assert not [one for one in told.findings if one.severity == "error"]


def test_a_detached_gate_of_one_plus_w_is_an_error():
    model = offset_gates(0.0, read=lambda gate: gate.detach())
    (finding,) = found(looked_at(model))
    assert (finding.id, finding.severity) == ("dead-gate", "error")
    assert f"{2 * BLOCKS}. The gradient of their gates is exactly 0" in finding.message
