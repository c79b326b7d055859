"""A comparison as the real ones are: four arms, three seeds, one run stopped by a non-finite
loss.
"""

import math
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from normscope.report.comparison import page
from normscope.report.comparison.contents import (
    BlockPlace,
    ComparedConfiguration,
    ComparisonPage,
    GradientProfile,
    Name,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.comparison.page import write
from normscope.report.words import Tone, TonedWords

CHANCE = 6.184
UPDATES = list(range(0, 2001, 50))
WITH, WITHOUT = "warm-up 400", "no warm-up"
LEARNED, PARTLY = (
    TonedWords("learned", Tone.GOOD),
    TonedWords("partly learned: 2 of 3 seeds", Tone.MIXED),
)
STUCK = TonedWords("no better than the unigram baseline", Tone.STUCK)
CONFIGURATIONS = [  # name, warm-up, floor of the loss, verdict, summary
    (
        Name("Post-LN", WITH),
        400,
        2.9,
        LEARNED,
        "Post-LN with 400 warm-up updates ends at 2.90 nats.",
    ),
    (Name("Post-LN", WITHOUT), 0, 6.15, STUCK, "Post-LN without warm-up stays at 6.15 nats."),
    (Name("Pre-LN", WITH), 400, 2.7, LEARNED, "Pre-LN with 400 warm-up updates ends at 2.70 nats."),
    (
        Name("Pre-LN", WITHOUT),
        0,
        2.6,
        PARTLY,
        "Pre-LN without warm-up ends at 2.60 nats in two seeds.",
    ),
]


def rate(update: int, warmup: int) -> float:
    ramp = min(1.0, update / warmup) if warmup else 1.0
    return 1e-3 * ramp * min(1.0, (max(warmup, 1) / max(update, 1)) ** 0.5 if warmup else 1.0)


def losses(seed: int, floor: float, warmup: int, noise: float) -> list[float]:
    dice = random.Random(f"{seed} {floor} {noise}")
    slow = 250 + warmup
    return [floor + (8.9 - floor) * math.exp(-u / slow) + dice.gauss(0, noise) for u in UPDATES]


def curve(name: Name, warmup: int, floor: float, noise: float) -> RunCurve:
    rows = [losses(seed, floor, warmup, noise) for seed in (1, 2, 3)]
    if str(name) == "Pre-LN, no warm-up":
        rows[2] = [*rows[2][:17], math.nan]
    return RunCurve(name=name, updates=UPDATES, seeds_values=rows)


def gradients(name: Name) -> GradientProfile:
    blocks = [BlockPlace(stack, i) for stack in ("encoder", "decoder") for i in range(1, 7)]
    dice = random.Random(str(name))
    slope = 0.38 if name.group == "Post-LN" else -0.08
    norms = [
        [math.exp(slope * (i % 6) - 1.5 * (i < 6) + dice.gauss(0, 0.08)) for i in range(12)]
        for _ in range(3)
    ]
    return GradientProfile(names=[name], blocks=blocks, seeds_norms=norms)


def seed_result(row: list[float], seed: int, warmup: int) -> SeedResult:
    stopped = not math.isfinite(row[-1])
    updates = 831 if stopped else UPDATES[-1]
    return SeedResult(
        seed=seed,
        status=Status.NON_FINITE if stopped else Status.FINISHED,
        updates=updates,
        valid_loss_nats=row[-1],
        scores={}
        if stopped
        else {
            "BLEU, test": max(0.11, (6.1 - row[-1]) * 7.3),
            "BLEU, test, tokenised": max(0.13, (6.1 - row[-1]) * 7.5),
        },
        summed_lr=sum(rate(u, warmup) for u in range(1, updates + 1)),
        message="loss is not finite at update 831 (gradient norm 3.1e+05)" if stopped else "",
    )


def sample() -> ComparisonPage:
    valid = [curve(name, warmup, floor, 0.03) for name, warmup, floor, _, _ in CONFIGURATIONS]
    configurations = [
        ComparedConfiguration(
            name=name,
            warmup_updates=warmup,
            peak_lr=1e-3,
            optimizer="Adam (0.9, 0.98)",
            seeds=[
                seed_result(list(row), i + 1, warmup) for i, row in enumerate(shown.seeds_values)
            ],
            verdict=verdict,
            summary=summary,
        )
        for (name, warmup, _, verdict, summary), shown in zip(CONFIGURATIONS, valid, strict=True)
    ]
    return ComparisonPage(
        title="Norm placement and warm-up on a small translation corpus",
        subtitle="Post-LN needs warm-up at this rate and depth; Pre-LN learns without it in two of "
        "three seeds.",
        conclusion=(
            "Post-LN learned with warm-up alone & Pre-LN with it and without.",
            "The paper says so too.",
        ),
        created="2025-01-31T12:00:00+00:00",
        configurations=configurations,
        unigram_loss_nats=CHANCE,
        valid_curves=valid,
        train_curves=[
            curve(name, warmup, floor - 0.2, 0.12) for name, warmup, floor, _, _ in CONFIGURATIONS
        ],
        gradient_profiles=[gradients(name) for name, *_ in CONFIGURATIONS],
        gradient_curves=[
            curve(name, warmup, 0.5 * floor, 0.05) for name, warmup, floor, _, _ in CONFIGURATIONS
        ],
        schedules=[
            RunCurve(
                name=name,
                updates=range(1, 2001),
                seeds_values=[[rate(u, warmup) for u in range(1, 2001)]],
            )
            for name, warmup, *_ in CONFIGURATIONS
        ],
        what=[
            ("Corpus", "Multi30k de-en, 29,000 sentence pairs"),
            (
                "Fingerprint",
                "sha256:9f2c1d7e5b8a4c3f0e6d2b1a9c8f7e6d5c4b3a2f1e0d9c8b7a6f5e4d3c2b1a0f",
            ),
            ("Model", "6 + 6 blocks, width 256, 4 heads, 11,534,336 parameters"),
            ("Updates", "2,000 of 4,096 target tokens"),
        ],
        formulas=[("Post-LN", "x ← LN(x + F(x))"), ("Pre-LN", "x ← x + F(LN(x))")],
        commands=[
            "normscope compare run --data corpora/multi30k --placements post-ln,pre-ln "
            "--warmup-updates 0,400 --peak-lr 1e-3 --seeds 1,2,3 --out runs/small",
            'normscope compare report runs/small --title "Norm placement & warm-up"',
        ],
        environment=[
            ("Python", "3.11.7"),
            ("PyTorch", "2.13.0"),
            ("Device", "16 CPU cores, 128 GiB"),
        ],
    )


@pytest.fixture
def comparison() -> ComparisonPage:
    return sample()


@pytest.fixture(scope="session", autouse=True)
def _pictures_once() -> Iterator[None]:
    """What is drawn of the same numbers is drawn once: pictures are nine tenths of a page's
    time.
    """
    drawn: dict[bytes, Any] = {}

    def once(draw: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*told: object, **options: object) -> Any:
            key = pickle.dumps((draw.__name__, told, options))
            return drawn.get(key) or drawn.setdefault(key, draw(*told, **options))

        return remembered

    with pytest.MonkeyPatch.context() as patch:
        for name in ("pictures", "endings_svg"):
            patch.setattr(page, name, once(getattr(page, name)))
        yield


def render(comparison: ComparisonPage) -> str:
    """The text of the page that `write` makes."""
    with tempfile.TemporaryDirectory() as folder:
        return write(comparison, Path(folder)).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def sample_page() -> str:
    """The page of `comparison`, drawn once for all tests that read it."""
    return render(sample())
