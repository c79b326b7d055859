"""The loss over the rate: every run is one written by hand, and the model is what it was."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope

ENTRIES, WIDTH, UPDATES = 12, 16, 12
RATES = (1e-3, 1e-2, 1e-1, 10.0)


def made() -> nn.Module:
    torch.manual_seed(0)
    inner = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(7), nn.Dropout(0.2)
    return nn.Sequential(nn.Embedding(ENTRIES, WIDTH), *inner, nn.Linear(WIDTH, ENTRIES)).double()


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    start = torch.randint(ENTRIES, (5, 8, 1), generator=generator)
    return list((start + torch.arange(7)) % ENTRIES)  # each id follows from the one before


def loss(logits: Tensor, ids: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.05)


def by_hand(rate_of, state: Tensor) -> list[float]:
    """Plain torch from the same weights and random state."""
    model, ids, losses = made(), batches(), []
    torch.set_rng_state(state)
    optimizer = adamw(model)
    model.train()
    for update in range(1, UPDATES + 1):
        batch = ids[(update - 1) % len(ids)]
        for group in optimizer.param_groups:
            group["lr"] = rate_of(update)
        optimizer.zero_grad()
        value = loss(model(batch), batch)
        losses.append(value.item())
        if not math.isfinite(losses[-1]):
            break
        value.backward()
        optimizer.step()
    return losses


@pytest.fixture(scope="module")
def found():
    model = made().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    curve = normscope.rate_curve(
        model, batches(), loss=loss, optimizer=adamw, rates=RATES, updates=UPDATES, warmup_share=0.25
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    return curve, state


def test_every_run_has_the_losses_of_a_loop_by_hand(found) -> None:
    curve, state = found
    assert curve.warmup_updates == 3
    for run, rate in zip(curve.runs, RATES, strict=True):
        expected = by_hand(lambda update, rate=rate: rate * min(1.0, update / 3), state)
        assert list(run.losses) == pytest.approx(expected, abs=1e-12)
        assert curve.losses[RATES.index(rate)] == pytest.approx(sum(expected[-6:]) / 6, abs=1e-12)


def test_a_finder_is_one_run_of_rising_rate(found) -> None:
    curve, state = found

    def rising(update: int) -> float:
        return 1e-3 * 1e4 ** ((update - 1) / (UPDATES - 1))

    expected = by_hand(rising, state)
    assert list(curve.finder.losses) == pytest.approx(expected, abs=1e-12)
    assert curve.finder_rates == pytest.approx([rising(update) for update in range(1, UPDATES + 1)])
    assert curve.finder_rate == pytest.approx(rising(1 + expected.index(min(expected))) / 10)


def test_what_diverged_is_marked_and_never_the_best(found) -> None:
    curve, _ = found
    assert curve.diverged == (False, False, False, True)
    assert 1e-3 < curve.best_rate < 10
    assert curve.best_interval is None or curve.best_interval.low <= curve.best_rate <= curve.best_interval.high
    rows = dict(line.split() for line in str(curve).splitlines()[2:6])
    assert rows["10"] == "diverged"
    assert float(rows["0.01"]) == pytest.approx(curve.losses[1], rel=1e-3)
    assert curve.plot().axes
    assert "diverged" in curve._repr_html_()
    assert "\n" not in repr(curve)


def test_the_best_rate_is_the_bottom_of_a_parabola_over_its_logarithm() -> None:
    """A quadratic loss under SGD: (1 - rate h)^(2 n) is least at 1 / h, which a fine grid brackets."""

    class Bowl(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, scale: Tensor) -> Tensor:
            return (self.x - 0.01 * scale).square().sum()

    scales = [torch.tensor(float(number)).sin() for number in range(10)]
    rates = [10 ** (power / 8) for power in range(-10, -1)]
    curve = normscope.rate_curve(
        Bowl(), scales, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=1.0), rates=rates, updates=10,
        warmup_share=0.0,
    )  # fmt: skip
    assert not any(curve.diverged)
    at = curve.losses.index(min(curve.losses))
    assert rates[max(0, at - 1)] <= curve.best_rate <= rates[min(len(rates) - 1, at + 1)]


@pytest.mark.parametrize("highest", [1e-4, 3e-4])  # the second is not what its own logarithm gives back
def test_a_best_rate_at_an_end_of_the_grid_has_no_interval(highest: float) -> None:
    rates = (1e-6, 1e-5, highest)
    curve = normscope.rate_curve(made(), batches(), loss=loss, optimizer="sgd", rates=rates, updates=10)
    assert curve.best_rate == pytest.approx(highest)
    assert curve.best_interval is None
    assert "may lie beyond" in str(curve)


def test_usual_names_and_instances_are_the_same_optimiser() -> None:
    model = made()
    own = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.9, 0.98))
    of_name, of_own = (
        normscope.rate_curve(model, batches(), loss=loss, optimizer=one, rates=(1e-3, 1e-2, 1e-1), updates=10)
        for one in ("Adam", own)
    )
    for one, other in zip(of_name.runs, of_own.runs, strict=True):
        assert one.losses == pytest.approx(other.losses, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rates": (1e-3, 1e-2)}, "three or more"),
        ({"rates": (1e-3, 1e-2, 1e-2)}, "rising"),
        ({"updates": 5}, "updates must be 10 or more"),
        ({"warmup_share": 2.0}, r"warmup_share in \[0, 1\]"),
        ({"optimizer": "adan"}, "did you mean 'adam'"),
    ],
)
def test_what_does_not_fit_is_told(options, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        normscope.rate_curve(made(), batches(), loss=loss, **options)


class Picky(torch.optim.SGD):
    def __init__(self, params, secret=None, **settings):
        if secret is None:
            raise RuntimeError("no secret")
        super().__init__(params, **settings)


def test_an_instance_that_cannot_be_built_again_and_batches_that_are_none() -> None:
    model = made()
    with pytest.raises(ValueError, match="Picky cannot be built again from the settings of its groups"):
        normscope.rate_curve(model, batches(), loss=loss, optimizer=Picky(model.parameters(), secret=1, lr=1.0))
    with pytest.raises(ValueError, match="the batches to train on are none"):
        normscope.rate_curve(model, [], loss=loss)
