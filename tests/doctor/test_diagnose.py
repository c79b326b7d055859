"""The whole diagnosis: everything in one call, and nothing left behind."""

import copy
import json
import random

import numpy as np
import pytest
import torch
from torch import nn

import normscope
from normscope.doctor.lint.patient import Loading

TOKENS = torch.randint(50, (4, 12), generator=torch.Generator().manual_seed(0))


def encoder(*, final_norm: bool) -> nn.Module:
    torch.manual_seed(1)
    layers = [
        nn.TransformerEncoderLayer(32, 4, 64, norm_first=True, batch_first=True) for _ in range(3)
    ]
    return nn.Sequential(
        nn.Embedding(50, 32),
        *layers,
        *([nn.LayerNorm(32)] if final_norm else []),
        nn.Linear(32, 50),
    )


def loss(logits):
    return nn.functional.cross_entropy(logits.mT, TOKENS.roll(1, 1))


def test_a_healthy_model_is_called_so():
    found = normscope.diagnose(encoder(final_norm=True), TOKENS, loss=loss, wanted_rate=6e-3)
    assert found.verdict == "healthy"
    (stack,) = found.stacks
    assert (stack.placement, stack.blocks, stack.final_norm) == ("pre-ln", 3, True)
    assert found.advice is not None
    assert found.advice.wanted_place == "in range"
    assert stack.predicted is not None
    assert len(stack.predicted.stream_square) == len(stack.sublayers) == 6
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["verdict"] == "healthy"


def test_a_missing_norm_is_found_and_can_be_silenced():
    model = encoder(final_norm=False)
    found = normscope.diagnose(model, TOKENS, loss=loss, advise=False)
    assert [finding.id for finding in found.findings if finding.severity != "info"] == [
        "missing-final-norm"
    ]
    assert found.verdict == "warnings"
    assert found.advice is None
    silenced = normscope.diagnose(
        model, TOKENS, loss=loss, advise=False, silenced=["missing-final-norm"]
    )
    assert silenced.verdict == "healthy"
    assert silenced.silenced == ("missing-final-norm",)
    with pytest.raises(ValueError, match="missing-final-norm"):
        normscope.diagnose(model, TOKENS, loss=loss, advise=False, silenced=["missing-final-nrom"])


def test_nothing_of_the_model_or_of_chance_changes():
    model = encoder(final_norm=True)
    model[1].train(False)
    model[0].weight.grad = torch.full_like(model[0].weight, 2.0)
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.5)
    weights, modes = (
        copy.deepcopy(model.state_dict()),
        [module.training for module in model.modules()],
    )
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    normscope.diagnose(model, TOKENS, loss=loss, optimizer=optimizer, wanted_rate=1.0)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert bool((model[0].weight.grad == 2).all())
    assert all(
        weight.grad is None for name, weight in model.named_parameters() if name != "0.weight"
    )
    assert optimizer.state == {}
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert random.getstate() == states[2]


def test_a_configurations_word_and_a_checkpoints_gaps_reach_the_rules():
    model = encoder(final_norm=True)
    for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
        nn.init.normal_(norm.weight, 1.0, 0.1)
    nn.init.ones_(model[4].weight)
    gaps = Loading(missing=("4.weight", "4.bias"), unexpected=())
    found = normscope.diagnose(
        model, TOKENS, loss=loss, advise=False, loading=gaps, wanted_placement="post-ln"
    )
    ids = {finding.id for finding in found.findings}
    assert {"placement-flag-contradicts", "checkpoint-tensors", "untrained-norm"} <= ids
    assert found.verdict == "errors"


def test_theory_of_random_weights_is_left_out_beside_trained_ones():
    model = encoder(final_norm=True)
    fresh = normscope.diagnose(model, TOKENS, loss=loss, advise=False)
    assert not fresh.trained
    assert all(one.predicted is not None for one in fresh.stacks)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):  # after one, every gain has moved by the same
        optimizer.zero_grad()
        loss(model(TOKENS)).backward()
        optimizer.step()
    found = normscope.diagnose(model, TOKENS, loss=loss, advise=False)
    assert found.trained
    assert {one.predicted for one in found.stacks} == {None}


def test_stages_are_told_as_they_begin():
    told: list[str] = []
    normscope.diagnose(
        encoder(final_norm=True),
        TOKENS,
        loss=loss,
        watch=lambda stage, done, total: told.append(stage),
    )
    stages = list(dict.fromkeys(told))
    laws = stages.pop(2)
    assert laws.startswith("a trial on a copy of the model (about ")
    assert stages == ["streams and gradients", "prediction", "rules"]
