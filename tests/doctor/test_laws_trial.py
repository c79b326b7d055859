"""The trial: one copy on a slice of the batch, which costs what was said and leaves no trace."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from doctor.test_laws_movement import IDS, Decoder, adamw, next_token
from normscope import diagnose
from normscope.doctor.laws import trial
from normscope.doctor.laws.slicing import slices
from normscope.doctor.laws.trial import TrialLimits
from normscope.doctor.laws.tried import tried


def test_the_users_model_optimiser_and_generators_are_as_they_were():
    model = Decoder().train()
    model.blocks[0].eval()
    optimizer = adamw(model)
    next_token(model(IDS)).backward()
    optimizer.step()
    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    gradients = [weight.grad.clone() for weight in model.parameters()]
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    diagnose(model, (IDS,), loss=next_token, optimizer=optimizer, advise=False)
    for before, after in zip(kept, (model.state_dict(), optimizer.state_dict()), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(
        torch.equal(weight.grad, gradient)
        for weight, gradient in zip(model.parameters(), gradients, strict=True)
    )
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert random.getstate() == states[2]


def test_weights_that_a_graph_of_the_users_holds_are_not_even_written_to():
    model = Decoder()
    value = next_token(model(IDS))
    found = tried(model, (IDS,), next_token, optimizer=adamw(model), rate=None)
    assert found.movement is not None
    value.backward()  # raises where a weight that it needs has been modified


def reasons(model: nn.Module, **options: object) -> set[str]:
    found = diagnose(
        model, (IDS,), loss=next_token, optimizer=adamw(model), advise=False, **options
    )
    laws = ("stuck-weights", "cut-off-weights", "rounded-updates", "uneven-updates", "modes-differ")
    return {rule.reason for rule in found.rules if rule.id in laws}


def test_without_laws_they_are_listed_as_not_asked():
    assert reasons(Decoder()) == {""}
    assert reasons(Decoder(), laws=False) == {"the trial on a copy was left out"}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (TrialLimits(seconds=1e-9), "the trial may take 1e-09 s here"),
        (TrialLimits(most_bytes=1000), "a copy of the model that is updated takes"),
    ],
)
def test_what_would_take_too_long_or_too_much_memory_is_not_asked(limits, said):
    model = Decoder()
    found = tried(model, (IDS,), next_token, optimizer="adam", rate=None, limits=limits)
    for law in ("reach", "modes", "movement", "uses"):
        assert said in found.lacking(law)


class Counted(Decoder):
    """Each of its passes takes a second of `clock`, by which nothing else takes any time."""

    passes = 0

    def forward(self, ids: Tensor) -> Tensor:
        Counted.passes += 1
        return super().forward(ids)


@pytest.mark.parametrize("passes", [0.5, 1.0, 3.0])
def test_all_laws_together_take_as_many_passes_of_the_batch_as_they_may(passes, monkeypatch):
    monkeypatch.setattr(trial.time, "thread_time", lambda: float(Counted.passes))
    monkeypatch.setattr(trial, "LITTLE_SECONDS", 0.0)
    limits = TrialLimits(passes=passes)
    model, before = Counted(), Counted.passes
    found = tried(model, (IDS,), next_token, optimizer="adam", rate=None, limits=limits)
    made = Counted.passes - before
    # Of the slice, half of the batch, once, and then three forward passes for each of the whole.
    most = passes * 3 * 2
    assert made <= 1 + most
    laws = ("reach", "modes", "movement", "uses")
    refused = [law for law in laws if "s here, three passes" in found.lacking(law)]
    assert bool(refused) == (passes < 3)
    if refused:
        assert f"the trial may take {most:.2g} s here" in found.lacking(refused[0])


def test_the_cost_is_said_before_the_laws_start():
    stages = []
    diagnose(Decoder(), (IDS,), advise=False, watch=lambda stage, done, total: stages.append(stage))
    (said,) = [stage for stage in stages if stage.startswith("a trial")]
    assert "on a copy of the model (about 1 s)" in said


class Closed(nn.Module):
    """Computes with the weights of a model that it holds in a function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Decoder()
        self.run = self.inner.forward
        inner = self.inner
        self.run = lambda ids: inner(ids)

    def forward(self, ids: Tensor) -> Tensor:
        return self.run(ids)


def test_a_copy_that_computes_with_the_models_own_weights_is_not_updated():
    assert "a copy of the model computes with the weights of the model itself" in reasons(Closed())


class Uncopied(Decoder):
    def __deepcopy__(self, memo: dict) -> "Uncopied":
        raise TypeError("locks cannot be copied")


def test_a_model_that_cannot_be_copied_is_diagnosed_all_the_same():
    (reason,) = reasons(Uncopied())
    assert reason == "the model cannot be copied (TypeError: locks cannot be copied)"


def sizes(inputs: object) -> list[list[tuple[int, ...]]]:
    model = nn.Linear(2, 2)
    return [[tuple(one.shape) for one in some.values()] for some in slices(model, inputs)]


def test_a_slice_has_two_sequences_of_64_tokens_and_the_whole_batch_comes_last():
    given = {"ids": torch.zeros(6, 100, dtype=torch.long), "mask": torch.zeros(6, 1, 100, 100)}
    whole = [(6, 100), (6, 1, 100, 100)]
    assert sizes(given) == [
        [(2, 64), (2, 1, 64, 64)],
        [(2, 100), (2, 1, 100, 100)],
        whole,
    ]
    # Where not all tensors agree in their first size nobody knows which counts sequences.
    assert sizes({"ids": torch.zeros(6, 9, dtype=torch.long), "mask": torch.zeros(9, 9)}) == [
        [(6, 9), (9, 9)]
    ]


def test_a_loss_of_targets_for_the_whole_batch_is_taken_of_the_whole_batch():
    seen = []

    def loss(logits: Tensor) -> Tensor:
        seen.append(len(logits))
        return nn.functional.cross_entropy(logits.flatten(0, 1), IDS.flatten())

    found = tried(Decoder(), (IDS,), loss, optimizer="adam", rate=None)
    assert found.movement is not None
    assert seen[0] == 2
    assert set(seen[1:]) == {len(IDS)}
