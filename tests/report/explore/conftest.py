"""Comparisons to explore, and one browser for all tests that do."""

import math
import random
from collections.abc import Iterator

import pytest

from normscope.report.comparison.contents import (
    BlockPlace,
    ComparedConfiguration,
    ComparisonPage,
    GradientProfile,
    Name,
    RateCurve,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.words import Tone, TonedWords
from report.devtools import Tab, chromium

UPDATES = range(1, 1_001)
SEEDS = (1, 2, 3)


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


def comparison_of(
    arms: int, *, updates: range = UPDATES, rates: tuple[float, ...] = (1e-3,)
) -> ComparisonPage:
    """Arms with and without warm-up, with a spike each, three seeds, and all that can be recorded
    of them.
    """
    dice = random.Random(arms)
    settings = [
        (f"Placement {i // 2 + 1}", 200 * (i % 2), rate)
        for i in range(arms // len(rates))
        for rate in rates
    ]

    def name_of(group: str, warmup: int, rate: float) -> Name:
        own = f"warm-up {warmup}" if warmup else "no warm-up"
        if len(rates) > 1:
            own += f", rate {rate:g}"
        return Name(group, own)

    names = [name_of(*setting) for setting in settings]

    def rows(floor: float, noise: float) -> list[list[float]]:
        made = [
            [floor + 6 * math.exp(-u / 200) + dice.gauss(0, noise) for u in updates] for _ in SEEDS
        ]
        made[1][len(updates) // 3] += 3.0
        return made

    losses = [rows(2.5 + i / 20, 0.1) for i in range(arms)]
    blocks = [BlockPlace(stack, i) for stack in ("encoder", "decoder") for i in range(1, 7)]

    def profile(name: Name, update: int) -> GradientProfile:
        norms = [
            [math.exp(0.2 * i + update / 1_000 + dice.gauss(0, 0.1)) for i in range(12)]
            for _ in SEEDS
        ]
        return GradientProfile(names=[name], blocks=blocks, seeds_norms=norms, update=update)

    schedules = [
        [rate * (min(1.0, u / warmup) if warmup else 1.0) for u in updates]
        for _, warmup, rate in settings
    ]
    return ComparisonPage(
        title="A comparison to explore",
        subtitle="Made up.",
        conclusion=("Found.", "Said."),
        created="2025-01-31T12:00:00+00:00",
        configurations=[
            ComparedConfiguration(
                name=name,
                warmup_updates=warmup,
                peak_lr=rate,
                optimizer="adam",
                verdict=TonedWords("learned", Tone.GOOD),
                summary=f"{name} ends at {rows[0][-1]:.3f} nats.",
                seeds=[
                    SeedResult(
                        seed=seed,
                        status=Status.FINISHED,
                        updates=1_000,
                        valid_loss_nats=row[-1],
                        summed_lr=1.0,
                    )
                    for seed, row in zip(SEEDS, rows, strict=True)
                ],
            )
            for name, (_, warmup, rate), rows in zip(names, settings, losses, strict=True)
        ],
        unigram_loss_nats=6.1,
        valid_curves=[
            RunCurve(name=name, updates=updates[49::50], seeds_values=[row[49::50] for row in of])
            for name, of in zip(names, losses, strict=True)
        ],
        train_curves=[
            RunCurve(name=n, updates=updates, seeds_values=of)
            for n, of in zip(names, losses, strict=True)
        ],
        gradient_curves=[
            RunCurve(name=name, updates=updates, seeds_values=rows(0.5, 0.05)) for name in names
        ],
        gradient_profiles=[profile(name, 0) for name in names],
        later_profiles=[profile(name, update) for name in names[:4] for update in (1, 500, 1_000)],
        schedules=[
            RunCurve(name=n, updates=updates, seeds_values=[row])
            for n, row in zip(names, schedules, strict=True)
        ],
        clocks={
            name: {
                "update": updates,
                "target tokens": [768 * u - u * 7_919 % 97 for u in updates],
                "epoch": [round(u / 133.7, 4) for u in updates],
                "cumulative learning rate": [math.fsum(rates[:u]) for u in updates],
            }
            for name, rates in zip(names, schedules, strict=True)
        },
        rate_curves=[
            RateCurve(
                name=Name(*key),
                peak_lrs=rates,
                seeds=SEEDS,
                seeds_losses=[
                    [losses[start + i][seed][-1] for i in range(len(rates))]
                    for seed in range(len(SEEDS))
                ],
                seeds_replaced=[[False] * len(rates)] * len(SEEDS),
                initial_nats=[8.0] * len(SEEDS),
                sensitivity=None,
                summary="",
                configurations=names[start : start + len(rates)],
            )
            for start in range(0, arms, len(rates))
            for key in [(settings[start][0], "warm-up" if settings[start][1] else "no warm-up")]
        ]
        if len(rates) > 1
        else [],
        what=[("Corpus", "none")],
        formulas=[("Post-LN", "x ← LN(x + F(x))")],
        commands=["normscope compare"],
        environment=[("Python", "3.11")],
    )


@pytest.fixture(scope="session")
def large() -> ComparisonPage:
    return comparison_of(12)
