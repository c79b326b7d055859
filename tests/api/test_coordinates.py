"""The coordinate check against what is known: standard parametrisation grows with the width, and µP
does not.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normscope

INPUTS, CLASSES, RATE = 8, 5, 0.02
WIDTHS = (64, 128, 256, 512)


class Network(nn.Module):
    """Two hidden layers; with `mup` the output is divided by the width, as µP has it."""

    def __init__(self, width: int, *, mup: bool) -> None:
        super().__init__()
        self.into, self.hidden = (
            nn.Linear(INPUTS, width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.out = nn.Linear(width, CLASSES, bias=False)
        self.mup, self.width = mup, width
        with torch.no_grad():
            self.into.weight.normal_()
            self.hidden.weight.normal_(std=width**-0.5)
            self.out.weight.normal_(std=1.0 if mup else width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.hidden(torch.tanh(self.into(x))))
        return self.out(y / self.width if self.mup else y)


def mup_adam(model: nn.Module) -> torch.optim.Optimizer:
    """Yang et al. 2021, table 3: Adam's rate of a hidden matrix falls as 1 / width, that of the
    others does not.
    """
    others = [*model.into.parameters(), *model.out.parameters()]
    hidden = {"params": list(model.hidden.parameters()), "lr": RATE * 64 / model.width}
    return torch.optim.Adam([{"params": others, "lr": RATE}, hidden])


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    drawn = (
        torch.randn((4, 32, INPUTS), generator=generator),
        torch.randint(CLASSES, (4, 32), generator=generator),
    )
    return [lambda model, x=x, y=y: (model(x), y) for x, y in zip(*drawn, strict=True)]


def loss(output: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(*output)


@pytest.fixture(scope="module")
def standard():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = normscope.coordinate_check(
        lambda width: Network(width, mup=False),
        WIDTHS,
        batches(),
        loss=loss,
        rate=RATE,
        updates=4,
        seeds=4,
    )
    assert torch.equal(torch.get_rng_state(), state)
    return found


def test_the_standard_parametrisation_grows(standard) -> None:
    assert standard.verdict == "grows with width"
    assert standard.modules["out"].growth == "grows with width"
    assert standard.modules["into"].growth == "does not"
    assert {name: one.sizes.shape for name, one in standard.modules.items()} == dict.fromkeys(
        ("", "into", "hidden", "out"), (5, 4, 4)
    )
    # At the start nothing does: its weights are drawn so.
    assert abs(float(standard.modules["hidden"].slopes[0].mean)) < 0.05


def test_mup_does_not() -> None:
    found = normscope.coordinate_check(
        lambda width: Network(width, mup=True),
        WIDTHS,
        batches(),
        loss=loss,
        optimizer=mup_adam,
        updates=4,
        seeds=4,
    )
    for name in ("into", "hidden"):
        slope = found.modules[name].slopes[-1]
        assert float(slope.low) - 0.03 < 0 < float(slope.high) + 0.03, name
        assert found.modules[name].growth == "does not"
    assert found.verdict == "does not"


def test_sizes_and_slopes_are_those_of_a_loop_by_hand(standard) -> None:
    sizes = np.empty((4, len(WIDTHS)))
    for seed in range(4):
        for at, width in enumerate(WIDTHS):
            torch.manual_seed(seed)
            model = Network(width, mup=False)
            optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
            for batch in batches():
                optimizer.zero_grad()
                loss(batch(model)).backward()
                optimizer.step()
            sizes[seed, at] = model(batches()[0].__defaults__[0]).abs().mean().item()
    np.testing.assert_allclose(standard.modules["out"].sizes[-1], sizes, rtol=1e-5)
    fits = [np.polyfit(np.log(WIDTHS), np.log(row), 1)[0] for row in sizes]
    slope = standard.modules["out"].slopes[-1]
    assert float(slope.mean) == pytest.approx(np.mean(fits), abs=1e-5)
    quantile = 3.182446  # Student's t, 97.5 %, 3 degrees of freedom
    assert float(slope.half_width) == pytest.approx(
        quantile * np.std(fits, ddof=1) / math.sqrt(4), rel=1e-3
    )


def test_it_says_and_draws_what_it_found(standard) -> None:
    lines = str(standard).splitlines()
    assert lines[0].startswith("grows with width: mean |activation| after 4 updates at rate 0.02")
    assert next(line for line in lines if line.startswith("out")).endswith("grows with width")
    assert (
        repr(standard) == "CoordinateCheck(4 modules, widths (64, 128, 256, 512): grows with width)"
    )
    assert len([axes for axes in standard.plot().axes if axes.get_visible()]) == 2
    assert "slope of log size over log width" in standard._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"widths": (64, 64)}, "widths must be two or more, positive and rising"),
        ({"seeds": 1}, "seeds 2 or more"),
        ({"updates": 0}, "updates must be 1 or more"),
        ({"build": Network(8, mup=False).into.weight}, "build must be a function"),
    ],
)
def test_what_does_not_fit_is_told(arguments, said: str) -> None:
    usual = {
        "build": lambda width: Network(width, mup=False),
        "widths": (8, 16),
        "batches": batches(),
        "loss": loss,
    }
    with pytest.raises(ValueError, match=said):
        normscope.coordinate_check(**usual | arguments)
