"""Branches that do not take part, gates, gradients that overflow, and streams that drown their
blocks.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from doctor.bugs_values import Gated, drawn, embedding_of
from doctor.test_lint_values import RULES, above_info, everything, patient
from doctor.wired import Block, F, Join, Model, Stack, post, pre
from normscope.doctor.lint.patient import Patient
from normscope.doctor.result import Finding


def check(rule: str, of: Patient) -> list[Finding]:
    return list(RULES[rule].check(of))


def blocks(*joins: Join, final: int = 1) -> Callable[[], nn.Module]:
    """One block for each join."""
    return lambda: Model(lambda: Stack(blocks=[Block((join, join)) for join in joins], final=final))


def detached(x: Tensor, f: F, norm: F) -> Tensor:
    return x + f(norm(x)).detach()


class Early(nn.Module):
    """Returns the stream before its last block, and computes that block all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=3, final=1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.inner.embedding(tokens)
        for block in self.inner.encoder.blocks:
            kept, x = x, block(x)
        return self.inner.projection(self.inner.encoder.final_norm(kept)) + 0 * kept.sum()


def test_a_branch_without_gradient():
    (found,) = check("dead-sublayer", patient(blocks(pre, detached, pre)()))
    assert found.severity == "error"
    assert found.where == "encoder.blocks.1.f.0, encoder.blocks.1.f.1"
    assert "gradient of exactly 0 for all of their trainable weights: 2 of 6" in found.message


class Rounded(nn.Module):
    """What the blocks say is rounded before it is read, as durations of sounds are."""

    def __init__(self, *, straight_through: bool) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=3, final=1))
        self.straight_through = straight_through

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.inner.encoder(self.inner.embedding(tokens))
        rounded = torch.round(4 * x) / 4
        return self.inner.projection(
            x + (rounded - x).detach() if self.straight_through else rounded
        )


def test_branches_whose_words_are_rounded_may_have_a_loss_of_their_own():
    (found,) = check("dead-sublayer", patient(Rounded(straight_through=False)))
    assert found.severity == "warning"
    assert "6 of 6. What they give is rounded (round) on its way to the loss" in found.message
    assert check("dead-sublayer", patient(Rounded(straight_through=True))) == []


def test_frozen_blocks_have_no_gradient_on_purpose():
    model = blocks(pre, pre, pre)()
    model.encoder.blocks[1].requires_grad_(False)
    assert check("dead-sublayer", patient(model)) == []


def test_branches_that_the_output_does_not_depend_on():
    found = check("dead-sublayer", patient(Early()))
    assert [(f.severity, "2 of 6" in f.message) for f in found] == [("warning", True)]
    assert "encoder.blocks.2.f.0" in found[0].where


def zero_last(model: nn.Module) -> None:
    for attention, ffn in (block.f for block in model.encoder.blocks):
        for linear in (attention.last, ffn[2]):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)


def zero_two(model: nn.Module) -> None:
    zero_last(model)
    for attention, ffn in (block.f for block in model.encoder.blocks):
        for linear in (attention.value, ffn[0], attention.last, ffn[2]):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
            linear.bias.requires_grad_(False)


def test_a_last_matrix_of_zeros_starts_closed_and_opens():
    (found,) = check("dead-sublayer", patient(drawn(pre, zero_last, final=1)()))
    assert (found.severity, "8 of 8" in found.message) == ("info", True)


def test_two_factors_of_zero_in_a_row_stay_closed():
    (found,) = check("dead-sublayer", patient(drawn(pre, zero_two, final=1)()))
    assert (found.severity, "8 of 8. They stay as they are" in found.message) == ("error", True)


def test_an_encoder_waits_for_a_decoder_that_starts_closed():
    model = Model(
        lambda: Stack(pre, pre, blocks=2, final=1), lambda: Stack(pre, pre, pre, blocks=2, final=1)
    )
    with torch.no_grad():
        for block in model.decoder.blocks:
            for attention in block.f[:2]:
                nn.init.zeros_(attention.last.weight)
                nn.init.zeros_(attention.last.bias)
    seen = patient(model)
    assert {s.measured.gradient_norm for s in seen.stacks[0].sublayers} == {0.0}
    assert above_info(everything(seen)) == []


def test_gradients_that_overflow():
    seen = patient(blocks(pre, pre)())
    norms = {**seen.observed.gradient_norms, "projection.weight": math.inf}
    assert check("nonfinite-gradient", seen) == []
    (found,) = check(
        "nonfinite-gradient", replace(seen, observed=replace(seen.observed, gradient_norms=norms))
    )
    assert (found.severity, found.where) == ("error", "projection.weight")


@pytest.mark.parametrize(("deviation", "found"), [(1.0, 0), (8.0, 0), (32.0, 1)])
def test_large_embeddings_drown_blocks_of_pre_ln(deviation, found):
    assert (
        len(
            check(
                "embedding-swamps-blocks", patient(drawn(pre, embedding_of(deviation), final=1)())
            )
        )
        == found
    )


def test_large_embeddings_are_normed_away_in_post_ln():
    assert check("embedding-swamps-blocks", patient(drawn(post, embedding_of(1000.0))())) == []


def test_gates_that_start_closed_are_told_apart_from_dead_ones():
    (found,) = check("dead-gate", patient(Gated()))
    assert (found.severity, "at first" in found.message) == ("info", True)
    assert check("dead-sublayer", patient(Gated())) == []


def test_an_optimiser_that_holds_all_gates_or_some():
    model = Gated()

    def told(gates: list[nn.Parameter]) -> list[Finding]:
        optimizer = torch.optim.Adam([*model.inner.parameters(), *gates])
        return above_info(check("dead-gate", patient(model, optimizer=optimizer)))

    gates = list(model.gates)
    assert told(gates) == []
    (found,) = told(gates[3:])
    assert "6. The optimiser does not hold their gates" in found.message
    assert found.where == "inner.encoder.blocks.[0–2].f.[0–1]"


def test_no_optimiser_holds_any_gate():
    model = Gated()
    (found,) = check(
        "dead-gate", patient(model, optimizer=torch.optim.Adam(model.inner.parameters()))
    )
    assert "8. The optimiser does not hold their gates" in found.message


@pytest.mark.parametrize(("size", "found"), [(0.5, 0), (9.0, 0), (50.0, 1)])
def test_saturated_gates(size, found):
    model = Gated()
    with torch.no_grad():
        model.gates[3].fill_(size)
    made = check("saturated-gate", patient(model))
    assert len(made) == found
    assert all("up to 50" in f.message for f in made)
