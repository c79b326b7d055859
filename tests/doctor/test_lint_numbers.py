"""Epsilons, first losses, and optimiser groups."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from doctor.test_lint_values import RULES, patient
from doctor.wired import Model, Stack, post, pre
from normscope.doctor.lint.patient import Loading, Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding


class Written(nn.Module):
    """RMSNorm in the arithmetic of its input."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.gain, self.epsilon = nn.Parameter(torch.ones(16)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.gain


def check(rule: str, of: Patient) -> list[Finding]:
    return list(RULES[rule].check(of))


def small(norm: nn.Module | None = None) -> Model:
    model = Model(lambda: Stack(pre, pre, blocks=2, final=1))
    for block in model.encoder.blocks if norm is not None else ():
        block.norms = nn.ModuleList([norm, norm])
    return model


@pytest.mark.parametrize(
    ("norm", "dtype", "severities"),
    [
        (nn.LayerNorm(16, eps=1e-12), torch.float16, ["info"]),
        (nn.LayerNorm(16, eps=1e-12), torch.bfloat16, []),
        (nn.LayerNorm(16, eps=1e-12), torch.float32, []),
        (nn.LayerNorm(16, eps=1e-6), torch.float16, []),
        (Written(1e-8), torch.float16, ["warning"]),
        (Written(1e-8), torch.float32, []),
        (Written(1e-6), torch.float16, []),
    ],
)
def test_epsilons_that_a_dtype_cannot_hold(norm, dtype, severities):
    # Looked at in float32, as norms behave the same there: what they will be computed in is what
    # the patient says.
    found = check("norm-epsilon", replace(patient(small(norm)), dtype=dtype))
    assert [f.severity for f in found] == severities
    assert all(f"above 0 in {str(dtype).removeprefix('torch.')} is" in f.message for f in found)


def test_float16_loses_what_the_rule_says_it_loses():
    x = torch.zeros(1, 16, dtype=torch.float16)
    assert bool(Written(1e-8).half()(x).isnan().all())
    assert not bool(Written(1e-7).half()(x).isnan().any())


@pytest.mark.parametrize(("deviation", "found"), [(1e-4, 1), (0.002, 1), (0.005, 0), (0.02, 0)])
def test_epsilons_that_swamp_the_stream(deviation, found):
    """With ε = 1e-5 the boundary is at a deviation of √1e-5 = 0.0032."""
    model = small()
    with torch.no_grad():
        nn.init.normal_(model.embedding.weight, std=deviation)
    made = check("norm-epsilon", patient(model))
    assert len(made) == found
    assert all("encoder.blocks.0.f.0" in f.where for f in made)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize(
    ("deviation", "factor", "found"),
    [(1e-3, 1.0, 1), (0.002, 1.0, 1), (0.005, 1.0, 0), (0.02, 1.0, 0), (0.02, 0.1, 0)],
)
def test_epsilons_that_swamp_the_embedding_in_front_of_its_norm(deviation, factor, found):
    """Behind it the stream is as small where it is multiplied: that is no matter of ε."""
    model = Model(lambda: Stack(post, post, blocks=2, first=1))
    model.encoder.first.append(Times(factor))
    with torch.no_grad():
        nn.init.normal_(model.embedding.weight, std=deviation)
    made = check("norm-epsilon", patient(model))
    assert [f.where for f in made] == ["encoder.first.0.weight, encoder.first.0.bias"] * found
    for finding in made:
        square = float(model.embedding.weight.detach().square().mean())
        share = float(finding.message.rpartition("starts at ")[2].partition(" times")[0])
        assert share == pytest.approx(
            (1 + 1e-5 / square) ** -0.5, rel=0.2
        )  # the tokens of the batch are few


def seen(**changes: object) -> Patient:
    model = small()
    stacks, observed = examined(model, (torch.tensor([[1, 2, 3]]),))
    known = {"loss_is_stand_in": False, "classes": 1000, "logit_deviation": 0.5, **changes}
    return Patient(
        model=model, stacks=stacks, observed=replace(observed, **known), dtype=torch.float32
    )


CHANCE = math.log(1000)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (CHANCE, ""),
        (CHANCE + 1.9, ""),
        (CHANCE + 2.1, "2.10 above ln 1000 = 6.91"),
        (CHANCE + 60, "60.00 above"),
        (CHANCE - 0.4, ""),
        (
            CHANCE - 0.6,
            "0.60 below ln 1000 = 6.91: a model that knows nothing yet knows its targets",
        ),
    ],
)
def test_the_first_loss(loss, said):
    found = check("loss-far-from-chance", seen(loss_nats=loss))
    assert len(found) == bool(said)
    assert all(said in f.message for f in found)


@pytest.mark.parametrize(("deviation", "found"), [(None, 0), (1.0, 0), (3.9, 0), (4.1, 1)])
def test_logits_stand_in_for_a_loss_that_was_not_given(deviation, found):
    of = seen(loss_nats=50.0, loss_is_stand_in=True, logit_deviation=deviation)
    assert len(check("loss-far-from-chance", of)) == found


def test_trained_models_may_be_far_from_chance():
    far = seen(loss_nats=1.0)
    assert check("loss-far-from-chance", far)
    assert not check(
        "loss-far-from-chance", replace(far, loading=Loading(missing=(), unexpected=()))
    )
    assert not check("loss-far-from-chance", seen(loss_nats=1.0, classes=None))


def test_a_loss_that_sees_its_target():
    """Tied rows, no shift: the logit of the token itself is by far the largest."""
    model = small()
    with torch.no_grad():
        nn.init.normal_(model.embedding.weight, std=0.3)
    model.projection.weight = model.embedding.weight
    tokens = torch.randint(24, (2, 7), generator=torch.Generator().manual_seed(1))
    stacks, observed = examined(
        model,
        (tokens,),
        lambda logits: nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
    )
    of = Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)
    assert "below ln 24" in check("loss-far-from-chance", of)[0].message


def groups(model: nn.Module, *, decay_all: bool) -> list[dict[str, object]]:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.1 * decay_all},
    ]


def decayed(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    found = check("weight-decay-on-norms", patient(model, optimizer=optimizer))
    return [f"{finding.severity}: {finding.message}" for finding in found]


@pytest.mark.parametrize("decay_all", [False, True])
def test_weight_decay_on_norms(decay_all):
    model = Model(lambda: Stack(post, post, blocks=2))
    optimizer = torch.optim.AdamW(groups(model, decay_all=decay_all))
    found = check("weight-decay-on-norms", patient(model, optimizer=optimizer))
    assert [f.severity for f in found] == ["warning"] * decay_all
    if decay_all:
        # Two blocks of two norms, each with a gain and a shift; biases of linear layers are not
        # meant.
        assert "parameter group 1 of AdamW decays 8 gains" in found[0].message
        assert (
            found[0].where
            == "encoder.blocks.[0–1].norms.[0–1].weight, encoder.blocks.[0–1].norms.[0–1].bias"
        )


def test_gains_in_front_of_matrices_may_be_decayed():
    model = small()
    (said,) = decayed(model, torch.optim.AdamW(groups(model, decay_all=True)))
    assert said.startswith("info: ")
    assert "every norm stands in front of a matrix" in said
    # A norm of the embedding makes the stream itself.
    model = Model(lambda: Stack(pre, pre, blocks=2, first=1, final=1))
    (said,) = decayed(model, torch.optim.AdamW(groups(model, decay_all=True)))
    assert said.startswith("warning: ")


def test_a_group_of_norms_alone_is_meant():
    model = Model(lambda: Stack(post, post, blocks=2))
    norms = [p for name, p in model.named_parameters() if "norm" in name]
    others = [p for name, p in model.named_parameters() if "norm" not in name]
    both = [{"params": others, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.01}]
    (said,) = decayed(model, torch.optim.AdamW(both))
    assert said.startswith("info: ")
    assert "a group of their own" in said


class CountedFrom1(nn.Module):
    """RMSNorm with 1 plus a gain that starts at 0, as Gemma's."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + self.gain)


def test_gains_that_are_counted_from_1_are_pulled_to_1():
    model = Model(lambda: Stack(post, post, blocks=2))
    for block in model.encoder.blocks:
        block.norms = nn.ModuleList([CountedFrom1(), CountedFrom1()])
    (said,) = decayed(model, torch.optim.AdamW(model.parameters(), weight_decay=0.1))
    assert said.startswith("info: ")
    assert "pulls them to 1" in said


def test_a_gate_beside_a_matrix_is_looked_after_too():
    model = small()
    model.projection.gate = nn.Parameter(torch.zeros(1))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    of = patient(
        model, optimizer=torch.optim.AdamW([*matrices, model.projection.gate], weight_decay=0.1)
    )
    (decayed,), (unheld,) = (
        check(rule, of) for rule in ("weight-decay-on-norms", "unused-in-optimizer")
    )
    assert decayed.where == "projection.gate"
    assert (
        f"decays 1 gains, shifts or gates of {len(matrices) + 1} parameters by 0.1"
        in decayed.message
    )
    assert "10 of 11 trainable gains, shifts or gates" in unheld.message


def test_no_optimiser_no_findings():
    assert (
        check("weight-decay-on-norms", patient(small()))
        == check("unused-in-optimizer", patient(small()))
        == []
    )


def test_norms_that_no_group_holds():
    model = small()
    matrices = torch.optim.SGD([p for p in model.parameters() if p.ndim > 1], 0.1)
    of_linear = [
        p
        for m in model.modules()
        if isinstance(m, nn.Linear | nn.Embedding)
        for p in m.parameters()
    ]
    for optimizer, severity in [(matrices, "info"), (torch.optim.SGD(of_linear, 0.1), "warning")]:
        (found,) = check("unused-in-optimizer", patient(model, optimizer=optimizer))
        assert (found.severity, "10 of 10 trainable gains" in found.message) == (severity, True)
        # Biases of linear layers have no group either where the optimiser holds matrices alone.
        assert ("other parameters are not either" in found.message) == (severity == "info")
    assert (
        check(
            "unused-in-optimizer",
            patient(model, optimizer=torch.optim.SGD(model.parameters(), 0.1)),
        )
        == []
    )


def test_a_block_that_the_optimiser_treats_otherwise():
    model = Model(lambda: Stack(pre, pre, blocks=4, final=1))
    block = list(model.encoder.blocks[2].parameters())
    inside = set(map(id, block))
    rest = [p for p in model.parameters() if id(p) not in inside]
    for groups, said in [
        ([{"params": rest, "weight_decay": 0.1}], "is in no parameter group"),
        (
            [{"params": rest, "weight_decay": 0.1}, {"params": block, "weight_decay": 0}],
            "is decayed by 0",
        ),
    ]:
        (found,) = check(
            "optimizer-unlike-others", patient(model, optimizer=torch.optim.AdamW(groups))
        )
        assert found.severity == "warning"
        assert "block 3 of 4" in found.message
        assert said in found.message
        assert "most of its counterparts in other blocks are decayed by 0.1" in found.message
    by_shape = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    assert (
        check("optimizer-unlike-others", patient(model, optimizer=torch.optim.AdamW(by_shape)))
        == []
    )


def test_frozen_norms_need_no_optimiser():
    model = small()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" not in name and "final" not in name)
    trained = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    assert check("unused-in-optimizer", patient(model, optimizer=trained)) == []
