"""A trial by training: what learns is said to learn beside a reference, what cannot is said not to,
and nothing of it stays.
"""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.doctor.diagnose import Diagnosis, diagnose as diagnose_with
from normscope.doctor.learned import NOT_ASKED, Learned
from normscope.prove import learning

TOKENS, WIDTH, LENGTH = 14, 32, 8
IDS = torch.arange(4 * LENGTH).view(4, LENGTH) * 5 % TOKENS
RULES = ("answers-known", "does-not-learn", "learned-in-training-alone", "learns-at-another-rate")


class Block(nn.Module):
    """Pre-LN, with attention that is heard as loudly as `loudness` says."""

    def __init__(self, loudness: float, sees_later: bool) -> None:
        super().__init__()
        self.loudness = loudness
        self.sees_later = sees_later
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(self.first(x)).unflatten(-1, (6, -1)).transpose(1, 2).chunk(3, 1)
        heard = functional.scaled_dot_product_attention(q, k, v, is_causal=not self.sees_later)
        x = x + self.loudness * self.out(heard.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    def __init__(self, *, loudness: float = 1.0, sees_later: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.table.weight, std=0.3)
        nn.init.normal_(self.places.weight, std=0.3)
        self.blocks = nn.Sequential(Block(loudness, sees_later), Block(loudness, sees_later))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class DeafWhenEvaluated(Decoder):
    def eval(self) -> "DeafWhenEvaluated":
        super().eval()
        for block in self.blocks:
            block.loudness = 0.0
        return self


def next_token(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())


def asked(model: nn.Module, **options: object) -> Diagnosis:
    given = {"loss": next_token, "advise": False, "laws": False, "learn": True, **options}
    return normscope.diagnose(model, (IDS,), **given)


def told(found: Diagnosis) -> list[str]:
    return [one.id for one in found.findings if one.id in RULES]


@pytest.fixture(scope="module")
def healthy() -> Diagnosis:
    return asked(Decoder())


@pytest.fixture(scope="module")
def deaf() -> Diagnosis:
    """Of a model whose attention is too quiet to be heard: what stood earlier is not known."""
    return asked(Decoder(loudness=1e-6))


def learned(found: Diagnosis) -> Learned:
    assert found.learned is not None
    return found.learned


def test_a_model_that_copies_is_said_to_learn_beside_a_reference_that_does(
    healthy: Diagnosis,
) -> None:
    seen = learned(healthy)
    assert (seen.verdict, told(healthy)) == ("learns", [])
    assert seen.nats is not None
    assert seen.nats <= learning.LEARNED * seen.chance_nats
    assert [one <= learning.LEARNED * seen.chance_nats for one in seen.references] == [True]
    assert seen.task == "to copy tokens from 4 places earlier"
    # What was drawn by chance costs what an even choice does, but for what a sample varies.
    assert seen.unknowable_nats is not None
    assert seen.unknowable_nats > 0.95 * seen.chance_nats


def test_a_model_that_hears_no_other_token_does_not_learn_what_two_references_learn(
    deaf: Diagnosis,
) -> None:
    seen = learned(deaf)
    assert (seen.verdict, told(deaf)) == ("does not", ["does-not-learn"])
    # The best that it can do is to guess among all tokens of the task.
    assert seen.nats == pytest.approx(seen.chance_nats, rel=0.1)
    assert len(seen.references) == 2
    (finding,) = [one for one in deaf.findings if one.id == "does-not-learn"]
    assert finding.severity == "info"
    assert "where the reference (pre-ln, 2 blocks, width 32) has" in finding.message


def test_a_model_that_sees_what_it_is_asked_for_is_an_error_that_comes_first() -> None:
    found = asked(Decoder(sees_later=True))
    assert found.findings[0].id in ("answers-known", "causal-mask", "reads-ahead")
    assert "answers-known" in told(found)
    seen = learned(found)
    assert seen.unknowable_nats is not None
    assert seen.unknowable_nats < 0.5 * seen.chance_nats


def test_what_is_learned_in_training_and_gone_in_evaluation_is_told() -> None:
    assert told(asked(DeafWhenEvaluated())) == ["learned-in-training-alone"]


def test_the_model_its_modes_and_all_generators_are_as_they_were() -> None:
    model = Decoder().train()
    model.blocks[0].eval()
    next_token(model(IDS)).backward()
    kept = copy.deepcopy(model.state_dict())
    gradients = [weight.grad.clone() for weight in model.parameters()]
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    asked(model)
    torch.testing.assert_close(model.state_dict(), kept, rtol=0, atol=0)
    pairs = zip(model.parameters(), gradients, strict=True)
    assert all(torch.equal(weight.grad, gradient) for weight, gradient in pairs)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert random.getstate() == states[2]


def test_the_same_model_gives_the_same_bits(healthy: Diagnosis) -> None:
    torch.manual_seed(17)  # what the caller drew before is of no matter
    random.seed(17)
    assert learned(asked(Decoder())) == learned(healthy)


def test_without_being_asked_nothing_is_trained_and_its_rules_say_why() -> None:
    found = asked(Decoder(), learn=False)
    assert found.learned is None
    reasons = {one.id: one.reason for one in found.rules if not one.asked}
    assert [reasons[name] for name in RULES] == [NOT_ASKED] * 4
    assert "learning" not in str(found)


def test_a_model_whose_updates_take_too_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MOST_SECONDS_OF_UPDATE", 0.0)
    found = asked(Decoder())
    assert found.learned is None
    (reason,) = {one.reason for one in found.rules if one.id in RULES}
    assert "too large for a trial by training" in reason
    assert f"not tried: {reason}".replace(" ", "") in "".join(str(found).split())


def test_a_model_that_is_mostly_frozen_is_not_asked_to_learn_anew() -> None:
    model = Decoder()
    model.table.requires_grad_(False)
    model.blocks.requires_grad_(False)
    assert "most of its weights are frozen" in asked(model).unlearned


def test_the_users_optimiser_trains_at_its_own_rate_first() -> None:
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    seen = learned(asked(model, optimizer=optimizer))
    assert (seen.verdict, seen.rate, seen.failed_rates) == ("learns", 5e-3, ())
    assert not optimizer.state


def test_the_terminal_the_page_and_the_brief_lines_have_the_answer_and_the_curves(
    healthy: Diagnosis, deaf: Diagnosis
) -> None:
    from normscope.doctor.lint.linter import RULES as ALL_RULES
    from normscope.doctor.report.brief import brief
    from normscope.doctor.report.page import render_doctor

    nats = f"{learned(healthy).nats:.3g}"
    text = " ".join(str(healthy).split())
    assert f"learning learns to copy tokens from 4 places earlier: {nats} after" in text
    assert "reference " in text
    (line,) = [one for one in brief(deaf) if one.startswith("learning: ")]
    assert "does not learn to copy tokens" in line
    page = render_doctor(deaf, ALL_RULES)
    assert "Can it learn?" in page
    assert "Loss at what can be known" in page
    bare = replace(deaf, learned=None, findings=())
    assert "Can it learn?" not in render_doctor(bare, ALL_RULES)


def judged(**changes: object) -> list[str]:
    """What the rules say of an answer that is made up."""
    answer = Learned(
        task="to copy tokens",
        verdict="learns",
        updates=150,
        rate=1e-3,
        chance_nats=3.0,
        nats=0.1,
        training_nats=0.1,
        unknowable_nats=3.1,
        references=(0.01,),
        reference="pre-ln, 2 blocks, width 32",
        wanted_rate=1e-2,
        reference_rate=1e-2,
    )
    made = replace(answer, **changes)
    found = diagnose_with(Decoder(), (IDS,), advise=False, laws=False, learn=lambda learner: made)
    return told(found)


def test_a_rate_at_which_the_reference_alone_learns_is_told() -> None:
    assert judged() == []
    assert judged(failed_rates=(1e-2,)) == ["learns-at-another-rate"]
    # Where the reference has not learned at it either, the rate is not the model's.
    assert judged(failed_rates=(1e-2,), reference_rate=1e-3) == []
    assert judged(failed_rates=(3e-3,)) == []


def test_bounds_are_where_the_manual_has_them() -> None:
    assert judged(unknowable_nats=2.0) == ["answers-known"]
    assert judged(unknowable_nats=2.2) == []
    assert judged(verdict="undecided", nats=2.0, training_nats=2.0, reason="of it") == []
    assert judged(verdict="does not", nats=None, training_nats=None) == ["does-not-learn"]
