"""Verdicts and the two sentences of a comparison: nothing is said that its runs do not show."""

import math
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from kinds import examples
from normscope.compare.conclusion import conclusion
from normscope.compare.verdict import ConfigurationOutcome, JudgedRuns, judged, summary, verdict
from normscope.placement import named
from normscope.report.comparison.contents import Name, SeedResult, Status

UNIGRAM = 5.0
UPDATES = 500


def seed(status: str, loss: float | None) -> SeedResult:
    return SeedResult(
        seed=1, status=Status(status), updates=UPDATES, valid_loss_nats=loss, summed_lr=0.0
    )


DIVERGED, RUNNING = seed("non-finite", math.nan), seed("running", 3.0)
FAILED, MISSING = seed("failed", None), seed("missing", None)


def row(
    placement: str,
    warmup: int,
    *seeds: float | SeedResult,
    setting: str = "",
    named_as: str = "",
) -> JudgedRuns:
    """Runs of a configuration; a number stands for one that finished with this loss."""
    label = f"warm-up {warmup}" if warmup else "no warm-up"
    return JudgedRuns(
        name=Name(named(placement).title, ", ".join(filter(None, (label, setting)))),
        placement=placement,
        warmup_updates=warmup,
        setting=setting,
        named_as=named_as,
        seeds=tuple(one if isinstance(one, SeedResult) else seed("finished", one) for one in seeds),
    )


def alone(*seeds: float | SeedResult, warmup: int = 0) -> ConfigurationOutcome:
    """A configuration beside one that learned to 1.0, a gain of 4 over the baseline."""
    return judged([row("peri-ln", warmup, *seeds), row("pre-ln", 0, 1.0)], UNIGRAM)[0]


@pytest.mark.parametrize(
    ("seeds", "words", "tone"),
    [
        ([1.5], "learned", "good"),
        ([1.9, 1.1], "learned", "good"),
        ([2.1], "learned less than the best", "mixed"),  # 2.9 of 4.0 is under three quarters
        ([1.9, 2.1], "learned, 1 of 2 seeds less than the best", "mixed"),
        ([4.49], "learned less than the best", "mixed"),
        # 90 % of the baseline is not under 90 %, and all the same below it.
        ([4.5], "hardly better than the unigram baseline", "stuck"),
        ([4.99], "hardly better than the unigram baseline", "stuck"),
        ([5.0], "no better than the unigram baseline", "stuck"),
        ([5.25], "no better than the unigram baseline", "stuck"),
        ([5.26], "worse than the unigram baseline", "bad"),
        ([6.73, 5.9], "worse than the unigram baseline", "bad"),
        ([5.0, 6.0], "no better than the unigram baseline, and 1 of 2 seeds worse", "stuck"),
        ([6.0, 4.6], "hardly better than the unigram baseline, and 1 of 2 seeds worse", "stuck"),
        (
            [6.0, 4.6, 5.1],
            "hardly better than the unigram baseline, and 1 of 3 seeds no better and 1 of 3 seeds "
            "worse",
            "stuck",
        ),
        ([DIVERGED, DIVERGED], "diverged", "bad"),
        ([1.5, DIVERGED, 2.5], "undecided: 2 of 3 seeds learned", "mixed"),
        ([1.5, 5.0], "undecided: 1 of 2 seeds learned", "mixed"),
        ([1.5, RUNNING], "undecided: 1 of 2 seeds learned", "mixed"),
        ([5.0, DIVERGED], "did not learn, and 1 of 2 seeds diverged", "bad"),
        ([RUNNING], "unfinished", "plain"),  # whatever its loss is by now
        ([MISSING], "unfinished", "plain"),
        ([DIVERGED, RUNNING], "unfinished", "plain"),
        ([FAILED], "failed", "plain"),
        ([FAILED, 5.0], "failed", "plain"),
        ([FAILED, RUNNING, DIVERGED], "failed or unfinished", "plain"),
    ],
)
def test_the_verdict_on_a_configuration(
    seeds: list[float | SeedResult], words: str, tone: str
) -> None:
    found = verdict(alone(*seeds))
    assert (found.text, found.tone) == (words, tone)


@pytest.mark.parametrize("loss", [1.2, 5.0, 6.7])
def test_a_warm_up_that_outlasts_the_training_is_not_judged(loss: float) -> None:
    assert (
        verdict(alone(loss, warmup=UPDATES)).text != verdict(alone(loss, warmup=UPDATES + 1)).text
    )
    assert verdict(alone(loss, warmup=UPDATES + 1)).text == (
        "warm-up longer than the training: the peak rate was never reached"
    )


def test_the_best_is_the_lowest_mean_of_those_whose_every_run_learned() -> None:
    rows = [
        row("pre-ln", 0, 1.0, 3.0),
        row("post-ln", 0, 0.1, DIVERGED),
        row("peri-ln", 0, 1.8, 1.9),
    ]
    assert [verdict(one).text for one in judged(rows, UNIGRAM)] == [
        "learned, 1 of 2 seeds less than the best",
        "undecided: 1 of 2 seeds learned",
        "learned, the best",
    ]
    assert verdict(*judged([row("pre-ln", 0, 1.0)], UNIGRAM)).text == "learned"
    assert not any(
        one.best for one in judged([row("pre-ln", 0, 4.9), row("post-ln", 0, RUNNING)], UNIGRAM)
    )


def test_a_summary_says_how_far_a_configuration_came_and_from_how_many_seeds() -> None:
    best, less, stuck, none = judged(
        [
            row("pre-ln", 0, 0.33),
            row("post-ln", 9, 2.0, 3.0),
            row("post-ln", 0, 5.1),
            row("peri-ln", 0, DIVERGED),
        ],
        4.63,
    )
    assert summary(best, 4.63) == (
        "Pre-LN, no warm-up: validation loss 0.33 nats per token, perplexity 1.39, the lowest "
        "here, beside the unigram baseline (4.63), one seed"
    )
    share = round(100 * (4.63 - 2.5) / (4.63 - 0.33))
    assert summary(less, 4.63) == (
        "Post-LN, warm-up 9: validation loss 2.50 nats per token, perplexity 12.2, "
        f"{share} % of the best configuration's gain over the unigram baseline (4.63), 2 seeds"
    )
    assert "perplexity 164, beside the unigram baseline (4.63), one seed" in summary(stuck, 4.63)
    assert summary(none, 4.63) == "Peri-LN, no warm-up (one seed)"


SAID = "Xiong et al. (2020) say that Post-LN needs warm-up and Pre-LN does not"


@pytest.mark.parametrize(
    ("rows", "paper"),
    [
        (
            [row("post-ln", 0, 5.0), row("post-ln", 9, 1.0), row("pre-ln", 0, 1.0)],
            ": as far as one seed can say, these runs agree on Post-LN and Pre-LN.",
        ),
        (  # 1.6 of 4.0 without warm-up: far less than with it
            [row("post-ln", 0, 3.4, 3.5), row("post-ln", 9, 1.0, 1.1), row("pre-ln", 0, 1.0, 0.9)],
            ": these runs agree on Post-LN and Pre-LN.",
        ),
        (
            [
                *(row("post-ln", 0, 1.2, 1.3), row("post-ln", 9, 1.0, 1.1)),
                *(row("pre-ln", 0, 5.0, 5.0), row("pre-ln", 9, 1, 1)),
            ],
            ": these runs differ on Pre-LN; they cannot say for Post-LN, which learned without "
            "warm-up too (a higher rate may need it).",
        ),
        (
            [row("post-ln", 0, 1.2, 1.3), row("post-ln", 9, 5.0, DIVERGED)],
            ": these runs differ on Post-LN; they cannot say for Pre-LN, which was not compared.",
        ),
        (
            [
                row("pre-ln", 9, 1.0, 1.0),
                row("post-ln", 0, 5.0, 5.0),
                row("post-ln", 900, 1.0, 1.0),
            ],
            ": these runs cannot say for Post-LN, which has runs without a result, or seeds that "
            "disagree; they cannot say for Pre-LN, which was not trained without warm-up.",
        ),
        (
            [row("post-ln", 0, 5.0), row("post-ln", 9, DIVERGED), row("pre-ln", 0, 6.0)],
            ": these runs cannot say for Post-LN, which did not learn with the warm-up tried "
            "either; they cannot say for Pre-LN, which did not learn without warm-up and was not "
            "trained with it.",
        ),
        (
            [row("deepnorm", 0, 1.0, 1.0), row("peri-ln", 0, 1.0, 1.0)],
            ", and these runs cannot say whether that is so, as neither was compared; of DeepNorm "
            "and Peri-LN it says nothing.",
        ),
        (
            [
                *(
                    row("post-ln", 0, 5.0, 5.0, setting="rate 3e-3"),
                    row("post-ln", 0, 1.0, 1.0, setting="rate 1e-4"),
                ),
                *(row("post-ln", 9, 1.0, 1.0, setting=rate) for rate in ("rate 3e-3", "rate 1e-4")),
                *(
                    row("pre-ln", 0, 1.0, 1.0, setting="rate 3e-3"),
                    row("pre-ln", 0, 5.0, 5.0, setting="rate 1e-4"),
                ),
                *(row("pre-ln", 9, 1.0, 1.0, setting=rate) for rate in ("rate 3e-3", "rate 1e-4")),
            ],
            ": these runs agree on Post-LN at rate 3e-3 and Pre-LN at rate 3e-3; they differ on "
            "Pre-LN at rate 1e-4.",
        ),
    ],
)
def test_what_the_paper_says_beside_what_was_seen(rows: list[JudgedRuns], paper: str) -> None:
    assert conclusion(judged(rows, UNIGRAM), UNIGRAM)[1] == SAID + paper


def test_what_was_found_in_a_sentence() -> None:
    def found(*rows: JudgedRuns) -> str:
        return conclusion(judged(rows, UNIGRAM), UNIGRAM)[0]

    post = [row("post-ln", 0, 5.1), row("post-ln", 200, 2.51)]
    assert found(*post, row("pre-ln", 0, 0.35), row("pre-ln", 200, 0.33)) == (
        "The best is Pre-LN, warm-up 200 with 0.33 nats per token (perplexity 1.39; unigram "
        "baseline 5.00), from one seed each, which does not tell near losses apart; without "
        "warm-up, Pre-LN (0.35 nats) learned and Post-LN (5.10 nats) did no better than the "
        "unigram baseline; with warm-up, Pre-LN (0.33 nats) learned and Post-LN (2.51 nats) "
        "learned less than the best."
    )
    assert found(row("post-ln", 0, RUNNING), row("pre-ln", 0, MISSING)) == (
        "No run has ended yet, and so nothing is found."
    )
    assert found(row("post-ln", 0, 6.0, 6.2)) == (
        "Without warm-up, Post-LN (6.10 nats) did worse than the unigram baseline; the unigram "
        "baseline 5.00 nats per token (2 seeds each)."
    )
    assert "unigram baseline 5.00), below every seed of the others, from 2 seeds each;" in found(
        row("pre-ln", 0, 1.0, 1.1), row("post-ln", 0, 1.2, 1.3)
    )
    assert "whose seeds overlap with those of 1 other, from 2 seeds each;" in found(
        row("pre-ln", 0, 1.0, 1.3), row("post-ln", 0, 1.2, 1.3)
    )
    assert "4 of 4 configurations learned" in found(
        *(row("pre-ln", warmup, 1.0) for warmup in (1, 2, 3, 4))
    )


@pytest.mark.parametrize("loss", [2.89, 2.97, 3.20, 3.21, 3.30, 3.40])
def test_who_did_no_better_than_the_baseline_is_not_below_it(loss: float) -> None:
    """3.21 is the baseline, and 90 % of it 2.889."""
    rows = judged([row("own", 0, loss)], 3.21)
    said = [conclusion(rows, 3.21)[0], verdict(rows[0]).text]
    for sentence in said:
        assert ("no better than the unigram" in sentence) is (3.21 <= loss < 3.37)
        assert ("hardly better than the unigram" in sentence) is (loss < 3.21)
        assert ("worse than the unigram" in sentence) is (loss > 3.38)


def test_a_model_as_it_is_built_counts_as_the_placement_that_the_doctor_names() -> None:
    rows = [
        row("own", 0, 5.0, 5.0, named_as="post-ln"),
        row("own", 9, 1.0, 1.1, named_as="post-ln"),
    ]
    paper = conclusion(judged([*rows, row("pre-ln", 0, 1.0, 1.0)], UNIGRAM), UNIGRAM)[1]
    assert paper == f"{SAID}: these runs agree on Own (Post-LN) and Pre-LN."
    unnamed = [row("own", 0, 5.0, 5.0), row("own", 9, 1.0, 1.1)]
    paper = conclusion(judged(unnamed, UNIGRAM), UNIGRAM)[1]
    assert paper.endswith("as neither was compared; of Own it says nothing.")


LOSSES = st.sampled_from([0.3, 1.0, 2.4, 4.4, 4.6, 5.0, 5.3, 7.0])
SEEDS = st.one_of(LOSSES, st.sampled_from([DIVERGED, RUNNING, FAILED, MISSING]))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["post-ln", "pre-ln", "peri-ln", "deepnorm", "admin"]),
        st.sampled_from([0, 100, 900]),
        st.sampled_from(["rate 1e-3", "rate 3e-3"]),
        st.lists(SEEDS, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=14,
    unique_by=lambda one: one[:3],
).map(
    lambda some: [
        row(placement, warmup, *seeds, setting=rate) for placement, warmup, rate, seeds in some
    ]
)


def learned(one: JudgedRuns) -> bool:
    """Written by itself: every run ended at its peak rate or after, below nine tenths of the
    baseline.
    """
    return one.warmup_updates <= UPDATES and all(
        s.status == "finished" and s.valid_loss_nats is not None and s.valid_loss_nats < 4.5
        for s in one.seeds
    )


def failed(one: JudgedRuns) -> bool:
    """Every run ended, at its peak rate or after, and none below nine tenths of the baseline."""
    return all(
        s.status == "non-finite"
        or (
            s.status == "finished"
            and one.warmup_updates <= UPDATES
            and (s.valid_loss_nats or 0) >= 4.5
        )
        for s in one.seeds
    )


def could_agree(rows: Sequence[JudgedRuns], placement: str) -> bool:
    """Whether any setting holds what the paper says, at the least."""
    own = [one for one in rows if one.placement == placement]
    bare = [one for one in own if not one.warmup_updates]
    if placement == "pre-ln":
        return any(learned(one) for one in bare)
    return any(
        learned(warm)
        and warm.setting == one.setting
        and max(one.losses, default=9) > min(warm.losses)
        for one in bare
        for warm in own
        if warm.warmup_updates
    )


@examples(300)
@given(ROWS)
def test_a_conclusion_is_two_sentences_and_claims_nothing_that_the_runs_do_not_show(
    rows: list[JudgedRuns],
) -> None:
    found = conclusion(judged(rows, UNIGRAM), UNIGRAM)
    for sentence in found:
        assert len(re.findall(r"[.!?](?:\s+[A-Z]|$)", sentence)) == 1, sentence
        assert sentence.endswith(".")
        assert sentence[0].isupper()
        assert not re.search(r"nan|inf\b|None|\(\)|  |, ,|; ;", sentence), sentence
    # Whoever is said to have learned did, in every seed.
    if not any(map(learned, rows)):
        assert not re.search(r" learned(?! in some seeds)", found[0]), found[0]
        assert "the best is" not in found[0].lower()
    lowest = re.search(r"[Tt]he best is .*? with ([\d.]+) nats", found[0])
    assert (lowest is not None) == (any(map(learned, rows)) and len(rows) > 1)
    if lowest:
        best = min(
            (one for one in rows if learned(one)),
            key=lambda one: math.fsum(one.losses) / len(one.losses),
        )
        assert lowest[1] == f"{math.fsum(best.losses) / len(best.losses):.2f}"
    agreed = re.search(
        r"agree on (.*?)(?: and differ| and cannot|, differ|, cannot|[;.]$|;)", found[1]
    )
    for placement in ("post-ln", "pre-ln"):
        if agreed and named(placement).title in agreed[1]:
            assert could_agree(rows, placement), found[1]
    if all(failed(one) for one in rows):
        assert "agree on" not in found[1]
        assert "differ on" not in found[1]
    one_seed = any(len(one.seeds) == 1 for one in rows if one.placement in ("post-ln", "pre-ln"))
    assert one_seed or "one seed can say" not in found[1]


@pytest.mark.parametrize(
    ("warm", "better"), [((0.9, 1.0), True), ((0.9, 1.7), False), ((5.0, 5.0), False)]
)
def test_that_pre_ln_was_better_with_warm_up_is_said_where_every_seed_bears_it_out(
    warm: tuple[float, ...], better: bool
) -> None:
    rows = [
        row("post-ln", 0, 5.0, 5.0),
        row("post-ln", 9, 1.0, 1.0),
        row("pre-ln", 0, 1.6, 1.7),
        row("pre-ln", 9, *warm),
    ]
    said = conclusion(judged(rows, UNIGRAM), UNIGRAM)[1]
    words = (
        "; Pre-LN trains without warm-up and was better with it at this rate (0.95 nats with, 1.65 "
        "without)."
    )
    assert said.endswith(words) is better
    assert ("was better with it" in said) is better
