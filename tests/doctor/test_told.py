"""What the user told of the training: the optimiser, its scheduler, the log's warm-up."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from doctor.test_laws_movement import IDS, Decoder, next_token
from normscope import diagnose
from normscope.doctor.diagnose import Diagnosis, diagnose as diagnose_with_log
from normscope.doctor.result import Severity
from normscope.optim.courses import UPDATES, course_of


def seen(make: Callable[[nn.Module], Optimizer], **told: Any) -> Diagnosis:
    model = Decoder()
    return diagnose(model, (IDS,), loss=next_token, optimizer=make(model), laws=False, **told)


def of(found: Diagnosis, rule: str) -> list[Any]:
    return [one for one in found.findings if one.id == rule]


def adamw(**numbers: Any) -> Callable[[nn.Module], Optimizer]:
    settings = {"lr": 1e-3, "weight_decay": 0.0} | numbers
    return lambda model: AdamW(model.parameters(), **settings)


def sgd(**numbers: Any) -> Callable[[nn.Module], Optimizer]:
    return lambda model: SGD(model.parameters(), lr=0.1, **numbers)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (adamw(betas=(0.999, 0.9)), "betas are (0.999, 0.9)"),
        (adamw(betas=(0.9, 0.5)), "betas are (0.9, 0.5)"),
        (adamw(betas=(0.9, 0.9999999)), "second beta is 0.9999999"),
        (adamw(weight_decay=10.0), "takes 1 % of every weight away"),
        (adamw(maximize=True), "set to maximize"),
        (sgd(momentum=0.9999), "a sum of about 10,000 gradients"),
    ],
)
def test_numbers_of_the_optimiser_that_cannot_be_meant(make, said):
    (fault,) = of(seen(make), "optimizer-numbers")
    assert fault.severity == "warning"
    assert said in fault.message


@pytest.mark.parametrize(
    "make",
    [
        adamw(),
        adamw(betas=(0.9, 0.95), weight_decay=0.1),
        adamw(betas=(0.0, 0.999), eps=1e-6),
        sgd(momentum=0.9, weight_decay=5e-4),
        lambda model: Adam(model.parameters(), 1e-3, weight_decay=1e-4),
    ],
)
def test_numbers_that_recipes_have_are_silent(make):
    found = seen(make)
    for rule in ("optimizer-numbers", "swamped-gradient", "group-rates-apart"):
        assert of(found, rule) == []


def test_an_epsilon_beside_which_the_gradient_is_nothing():
    (fault,) = of(seen(adamw(eps=1.0)), "swamped-gradient")
    assert "ε of 1 stands beside gradients of" in fault.message
    # A clip makes a gradient as much smaller.
    assert of(seen(adamw(eps=1e-6)), "swamped-gradient") == []
    assert of(seen(adamw(eps=1e-6), clip_norm=1e-6), "swamped-gradient")


def test_a_decay_in_adams_gradient_is_told_and_one_beside_it_is_not():
    make: Callable[[nn.Module], Optimizer] = lambda model: Adam(  # noqa: E731
        model.parameters(), 1e-4, weight_decay=10.0
    )
    (fault,) = of(seen(make), "swamped-gradient")
    assert "adds the weight decay to the gradient" in fault.message
    assert of(seen(adamw(lr=1e-4, weight_decay=10.0)), "swamped-gradient") == []


def head_at(rate: float) -> Callable[[nn.Module], Optimizer]:
    def make(model: nn.Module) -> Optimizer:
        head = model.head.weight
        rest = [weight for weight in model.parameters() if weight is not head]
        return AdamW([{"params": [head], "lr": rate}, {"params": rest}], 1e-3, weight_decay=0.0)

    return make


@pytest.mark.parametrize(("rate", "times"), [(1e-6, "1e+03 times below"), (0.2, "200 times above")])
def test_a_group_outside_of_blocks_at_another_rate(rate, times):
    (fault,) = of(seen(head_at(rate)), "group-rates-apart")
    assert fault.where == "head.weight"
    assert times in fault.message
    assert of(seen(head_at(1e-2)), "group-rates-apart") == []


def scheduled(
    make: Callable[[Optimizer], LRScheduler], rate: float = 1e-3, **told: Any
) -> Diagnosis:
    model = Decoder()
    optimizer = AdamW(model.parameters(), rate, weight_decay=0.0)
    scheduler = make(optimizer)
    return diagnose(
        model, (IDS,), loss=next_token, optimizer=optimizer, scheduler=scheduler, **told
    )


def by(factor: Callable[[int], float]) -> Callable[[Optimizer], LRScheduler]:
    return lambda optimizer: LambdaLR(optimizer, factor)


def noam(step: int) -> float:
    return 16**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)


@pytest.mark.parametrize(
    ("factor", "severity", "said"),
    [
        (lambda _: 0.0, "error", "the rate 0 for each of the first 10,000 updates"),
        (lambda step: -1.0 if step == 5 else 1.0, "error", "below 0 from update 6 on"),
        (lambda step: 1 - step / 1000, "info", "below 0 from update 1002 on"),
        (lambda step: min(1, step // 100), "warning", "the rate 0 for each of the first 100 upd"),
        (lambda step: step / 5000 if step < 1000 else 1.0, "warning", "jump from 2e-4 to 1e-3"),
    ],
)
def test_a_schedule_that_ends_a_training(factor, severity, said):
    (fault,) = of(scheduled(by(factor), laws=False), "schedule-fails")
    assert fault.severity == severity
    assert said in fault.message


@pytest.mark.parametrize(
    "make",
    [
        by(lambda step: min(1.0, (step + 1) / 100)),
        lambda optimizer: CosineAnnealingLR(optimizer, 1000),
        lambda optimizer: CosineAnnealingWarmRestarts(optimizer, 6000),
        lambda optimizer: OneCycleLR(optimizer, 1e-3, total_steps=500),
        lambda optimizer: SequentialLR(
            optimizer,
            [LinearLR(optimizer, 0.01, total_iters=100), CosineAnnealingLR(optimizer, 900)],
            [100],
        ),
    ],
)
def test_schedules_that_are_in_use_are_silent(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR's own
        assert of(scheduled(make, laws=False), "schedule-fails") == []


@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_a_schedule_that_makes_the_rate_is_silent_over_an_optimiser_of_rate_1(rate):
    assert of(scheduled(by(noam), rate=rate, laws=False), "schedule-fails") == []


@pytest.mark.parametrize(
    "factor", [noam, lambda step: 1e-3 * min(1.0, (step + 1) / 100)], ids=["noam", "line"]
)
def test_a_factor_that_is_a_rate_over_an_optimiser_of_a_usual_rate_is_told(factor):
    (fault,) = of(scheduled(by(factor), rate=1e-3, laws=False), "schedule-fails")
    assert fault.severity == "warning"
    assert "optimiser was built with 1e-3" in fault.message


@pytest.mark.parametrize(("length", "times"), [(10, "500 times"), (200, "25 times")])
def test_a_cosine_that_comes_back_every_few_updates_is_told(length, times):
    made = scheduled(lambda optimizer: CosineAnnealingLR(optimizer, length), laws=False)
    (fault,) = of(made, "schedule-fails")
    assert times in fault.message


def test_the_rate_and_the_warm_up_are_those_of_the_scheduler():
    found = scheduled(by(noam), rate=1.0)
    peak = max(noam(step) for step in range(UPDATES))
    assert found.advice.wanted_rate == pytest.approx(peak)
    assert found.advice.wanted_warmup_updates == pytest.approx(4000, abs=10)
    # And its laws try that rate: at the optimiser's own, 1, a copy's loss explodes.
    assert of(found, "nonfinite-update") == []
    judged = of(found, "rate-out-of-range")
    assert [one for one in judged if one.severity is not Severity.INFO] == []


def test_a_scheduler_is_only_read():
    model = Decoder()
    optimizer = AdamW(model.parameters(), 1e-3)
    scheduler = by(lambda step: 0.9**step)(optimizer)
    course = course_of(scheduler, optimizer)
    # Step by step, as torch itself gives them.
    for rate in course.rates[:20]:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-12)
        optimizer.step()
        scheduler.step()
    assert scheduler.last_epoch == 20


def test_a_scheduler_that_waits_for_a_loss_is_a_reason_not_to_ask():
    found = scheduled(lambda optimizer: ReduceLROnPlateau(optimizer), laws=False)
    (asked,) = [one for one in found.rules if one.id == "schedule-fails"]
    assert not asked.asked
    assert "metrics" in asked.reason


@pytest.mark.parametrize(
    ("told", "logged", "finds"),
    [(2000, 20, True), (0, 500, True), (2000, 1900, False), (0, 5, False), (None, 20, False)],
)
def test_a_warm_up_of_the_log_that_is_not_the_one_that_was_told(told, logged, finds):
    model = Decoder()
    found = diagnose_with_log(
        model,
        (IDS,),
        loss=next_token,
        wanted_rate=1e-3,
        wanted_warmup_updates=told,
        logged_warmup_updates=logged,
        laws=False,
    )
    assert bool(of(found, "warmup-unlike-told")) is finds


def test_a_warm_up_of_the_scheduler_that_is_not_the_one_that_was_told():
    (fault,) = of(scheduled(by(noam), wanted_warmup_updates=40, laws=False), "warmup-unlike-told")
    assert "a warm-up of 40 updates was told, and LambdaLR rises over" in fault.message
    assert of(scheduled(by(noam), wanted_warmup_updates=4000, laws=False), fault.id) == []


def test_post_ln_reads_otherwise_with_the_warm_up_of_its_scheduler():
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(256, 4, 64, 0.0, batch_first=True) for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(256, 30))

    def worst(warmup_updates: int) -> list[str]:
        optimizer = AdamW(model.parameters(), 2e-3, weight_decay=0.0)
        scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (warmup_updates + 1)))
        found = diagnose(
            model,
            (torch.randn(2, 6, 256),),
            optimizer=optimizer,
            scheduler=scheduler,
            laws=False,
        )
        return [one.severity for one in of(found, "rate-out-of-range")]

    assert worst(0) == ["warning"]
    assert "warning" not in worst(2000)
