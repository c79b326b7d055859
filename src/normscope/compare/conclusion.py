"""The words of a comparison's page: its conclusion, and the paper's statement on it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..placement import StandIn, named
from ..placement.printing import formula
from ..report.comparison.targets import TOKENS, TargetWords, perplexity
from ..report.words import counted, joined, number, percentage
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from .verdict import (
    MOST_OF_THE_GAIN,
    ConfigurationOutcome,
    Outcome,
)

NEEDS_WARMUP = {"post-ln": True, "pre-ln": False}
"""The conclusion of Xiong et al. 2020 (arXiv:2002.04745), section 5, on whether a placement needs
warm-up; they speak of no other.
"""
_SAID = "Xiong et al. (2020) say that Post-LN needs warm-up and Pre-LN does not"


class _WarmupEffect(StrEnum):
    """The effect of warm-up that the runs of one placement show in one setting, equal but for their
    warm-up.
    """

    NEEDED = "learned with warm-up, and without it not or much less"
    NOT_NEEDED = "learned without warm-up too (a higher rate may need it)"
    HARMFUL = "learned without warm-up alone"
    NO_BARE_RUN = "was not trained without warm-up"
    NO_WARM_RUN = "did not learn without warm-up and was not trained with it"
    NEVER = "did not learn with the warm-up tried either"
    OPEN = "has runs without a result, or seeds that disagree"
    ABSENT = "was not compared"


_WORDS: dict[bool | None, str] = {True: "agree on", False: "differ on", None: "cannot say for"}
"""The relation of the runs to the paper's statement, in words."""
_ANSWERS = {
    (True, _WarmupEffect.NEEDED): True,
    # That Post-LN learned without warm-up may be for a low rate, unless warm-up took it away.
    (True, _WarmupEffect.HARMFUL): False,
    (False, _WarmupEffect.NOT_NEEDED): True,
    (False, _WarmupEffect.HARMFUL): True,
    (False, _WarmupEffect.NEEDED): False,
}
"""The agreement with the paper, by whether it says that the placement needs warm-up, and by the
observed effect; all other pairs are open.
"""


@dataclass(frozen=True, slots=True)
class _View:
    """The observations on one placement in one setting."""

    placement: str
    setting: str
    seen: _WarmupEffect
    answer: bool | None
    least_seeds: int


def what_the_paper_says(
    configurations: Sequence[ConfigurationOutcome],
    unigram_nats: float,
    words: TargetWords = TOKENS,
) -> str:
    """A sentence: what it says, and whether the runs agree, differ or cannot say, and why they
    cannot.
    """
    others = list(
        dict.fromkeys(
            one.row.name.group
            for one in configurations
            if one.row.known_placement not in NEEDS_WARMUP
        )
    )
    silent = (
        joined(others) if len(others) <= 3 else f"the other {counted(len(others), 'placement')}"
    )
    nothing = f"; of {silent} it says nothing" if others else ""
    views = list(_views(configurations, unigram_nats))
    if {view.seen for view in views} == {_WarmupEffect.ABSENT}:
        return (
            f"{_SAID}, and these runs cannot say whether that is so, as neither was "
            f"compared{nothing}."
        )
    clauses = []
    for answer in (True, False):
        subjects = [
            _subject(_title(configurations, name), views, name, answer)
            for name in NEEDS_WARMUP
            if _with_answer(views, name, answer)
        ]
        if subjects:
            clauses.append(f"{_WORDS[answer]} {joined(subjects)}")
    for name in NEEDS_WARMUP:
        own = [view for view in views if view.placement == name]
        if len(_with_answer(views, name, None)) == len(own):
            reasons = " or ".join(dict.fromkeys(view.seen for view in own))
            clauses.append(f"{_WORDS[None]} {_title(configurations, name)}, which {reasons}")
    few = any(view.least_seeds == 1 for view in views if view.answer is not None)
    better = [
        clause
        for name, needed in NEEDS_WARMUP.items()
        if not needed
        for clause in _better(configurations, name, words)
    ]
    said = (
        f"{_SAID}: {'as far as one seed can say, ' if few else ''}these runs "
        f"{'; they '.join(clauses)}{nothing}"
    )
    return f"{'; '.join([said, *better])}."


def _better(
    configurations: Sequence[ConfigurationOutcome], placement: str, words: TargetWords
) -> Iterator[str]:
    """Yields the settings in which a placement that is said to need no warm-up trained without one,
    and ended lower with it in every seed.
    """
    own = [
        one
        for one in configurations
        if one.row.known_placement == placement and one.learned and one.row.losses
    ]
    for bare in (one for one in own if not one.row.warmup_updates):
        warm = [
            one for one in own if one.row.warmup_updates and one.row.setting == bare.row.setting
        ]
        best = min(warm, key=lambda one: one.row.mean_loss, default=None)
        if best is not None and max(best.row.losses) < min(bare.row.losses):
            with_it = words.short_loss(best.row.mean_loss)
            without = number(bare.row.mean_loss, 2)
            yield (
                f"{_title(configurations, placement)} trains without warm-up and was better with "
                f"it at this rate ({with_it} with, {without} without)"
            )


def _views(configurations: Sequence[ConfigurationOutcome], unigram_nats: float) -> Iterator[_View]:
    for placement, needed in NEEDS_WARMUP.items():
        own = _of_placement(configurations, placement)
        if not own:
            yield _View(placement, "", _WarmupEffect.ABSENT, None, 0)
        for setting in dict.fromkeys(one.row.setting for one in own):
            alike = [one for one in own if one.row.setting == setting]
            seen = _seen(alike, unigram_nats)
            least = min(len(one.row.seeds) for one in alike)
            yield _View(placement, setting, seen, _ANSWERS.get((needed, seen)), least)


def _seen(alike: Sequence[ConfigurationOutcome], unigram_nats: float) -> _WarmupEffect:
    """Returns the effect of warm-up in configurations of one placement and setting, which differ in
    warm-up alone.
    """
    bare = next((one for one in alike if not one.row.warmup_updates), None)
    warm = [one for one in alike if one.row.warmup_updates]
    if bare is None:
        return _WarmupEffect.NO_BARE_RUN
    learned_warm = [one for one in warm if one.learned]
    undecided = any(one.learned is None for one in warm)
    if bare.learned is None:
        return _WarmupEffect.OPEN
    if not bare.learned:
        if learned_warm:
            return _WarmupEffect.NEEDED
        return (
            _WarmupEffect.OPEN
            if undecided
            else _WarmupEffect.NEVER
            if warm
            else _WarmupEffect.NO_WARM_RUN
        )
    if not learned_warm:
        return _WarmupEffect.NOT_NEEDED if undecided or not warm else _WarmupEffect.HARMFUL
    gains = [unigram_nats - loss for loss in bare.row.losses]
    most = max(learned_warm, key=lambda one: unigram_nats - one.row.mean_loss)
    warm_gains = [unigram_nats - loss for loss in most.row.losses]
    if max(gains) < MOST_OF_THE_GAIN * min(warm_gains):
        return _WarmupEffect.NEEDED
    return (
        _WarmupEffect.NOT_NEEDED
        if min(gains) >= MOST_OF_THE_GAIN * max(warm_gains)
        else _WarmupEffect.OPEN
    )


def _with_answer(views: Sequence[_View], placement: str, answer: bool | None) -> list[_View]:
    return [view for view in views if view.placement == placement and view.answer is answer]


def _of_placement(
    configurations: Sequence[ConfigurationOutcome], placement: str
) -> list[ConfigurationOutcome]:
    return [one for one in configurations if one.row.known_placement == placement]


def _title(configurations: Sequence[ConfigurationOutcome], placement: str) -> str:
    """Returns the placement's title; of a model that has it by its own code "Own (Post-LN)"."""
    title = named(placement).title
    groups = {one.row.name.group for one in _of_placement(configurations, placement)}
    return title if not groups or title in groups else f"{joined(sorted(groups))} ({title})"


def _subject(title: str, views: Sequence[_View], placement: str, answer: bool | None) -> str:
    """Returns the placement, and in which settings where it was trained in others too."""
    settings = [view.setting for view in _with_answer(views, placement, answer)]
    everywhere = len(settings) == sum(view.placement == placement for view in views)
    return title if everywhere else f"{title} at {joined(settings)}"


_NAMED = 3
"""Configurations are named up to so many, and counted beyond."""
_VERBS = {
    Outcome.LEARNED: "learned",
    Outcome.LESS: "learned less than the best",
    Outcome.NEAR: "did hardly better than the {baseline}",
    Outcome.BASELINE: "did no better than the {baseline}",
    Outcome.WORSE: "did worse than the {baseline}",
    Outcome.DIVERGED: "diverged",
    Outcome.NEVER_PEAKED: "ended before the end of the warm-up",
    Outcome.FAILED: "failed",
    Outcome.UNFINISHED: "did not finish",
}
_SOME_SEEDS = "learned in some seeds only"
_NO_SEED = "did not learn"
_NOT_ALL_KNOWN = "did not finish all runs"


def conclusion(
    configurations: Sequence[ConfigurationOutcome],
    unigram_nats: float,
    words: TargetWords = TOKENS,
) -> tuple[str, str]:
    """Returns the findings, from the outcomes and losses of the runs alone, and whether the paper
    agrees: a sentence each. words: those of the data.
    """
    found = _found_words(configurations, unigram_nats, words)
    return found, what_the_paper_says(configurations, unigram_nats, words)


def _found_words(
    configurations: Sequence[ConfigurationOutcome], unigram_nats: float, words: TargetWords
) -> str:
    if not any(outcome.ended for one in configurations for outcome in one.outcomes):
        return "No run has ended yet, and so nothing is found."
    without = [one for one in configurations if not one.row.warmup_updates]
    with_warmup = [one for one in configurations if one.row.warmup_updates]
    said = []
    if without:
        said.append(f"without warm-up, {_became(without, words)}")
    if with_warmup:
        said.append(f"with warm-up, {_became(with_warmup, words)}")
    # Which is the best is what one looks for first; a baseline alone is what all stand beside.
    first = 0 if any(one.best for one in configurations) else len(said)
    said.insert(first, _lowest(configurations, unigram_nats, words))
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _became(configurations: Sequence[ConfigurationOutcome], words: TargetWords) -> str:
    """Returns which configurations did what: "Pre-LN (0.35 nats) learned and Post-LN (4.74 nats)
    did no better than the unigram baseline".
    """
    titles = Counter(one.row.name.group for one in configurations)
    by_verb: dict[str, list[str]] = {}
    for one in configurations:
        name = str(one.row.name) if titles[one.row.name.group] > 1 else one.row.name.group
        reached = f" ({_reached(one, words)})" if one.row.losses else ""
        by_verb.setdefault(_verb(one), []).append(name + reached)
    order = [*_VERBS.values(), _SOME_SEEDS, _NO_SEED, _NOT_ALL_KNOWN]
    clauses = []
    for verb in sorted(by_verb, key=order.index):
        names = by_verb[verb]
        several = f"{len(names)} of {counted(len(configurations), 'configuration')}"
        said = verb.format(baseline=words.baseline)
        clauses.append(f"{joined(names) if len(names) <= _NAMED else several} {said}")
    return joined(clauses)


def _reached(one: ConfigurationOutcome, words: TargetWords) -> str:
    """How far a configuration came, in brackets: of a classification what it has right."""
    right = one.row.mean_accuracy
    if words.is_classification and right is not None:
        return f"{percentage(right, 1)} right"
    return words.short_loss(one.row.mean_loss)


def _verb(one: ConfigurationOutcome) -> str:
    kinds = set(one.outcomes)
    if len(kinds) == 1:
        return _VERBS[one.outcomes[0]]
    if one.learned:
        return _VERBS[Outcome.LEARNED]
    if any(kind.learned for kind in kinds):
        return _SOME_SEEDS
    return _NO_SEED if all(kind.decided for kind in kinds) else _NOT_ALL_KNOWN


def _lowest(
    configurations: Sequence[ConfigurationOutcome], unigram_nats: float, words: TargetWords
) -> str:
    """Returns the best configuration with its numbers, and whether its seeds tell it from the
    others.
    """
    seeds = {len(one.row.seeds) for one in configurations}
    each = (
        "one seed each"
        if seeds == {1}
        else f"{min(seeds)}{f' to {max(seeds)}' if len(seeds) > 1 else ''} seeds each"
    )
    best = next((one for one in configurations if one.best), None)
    if best is None:
        unit = " nats per token" if words.short == "token" else ""
        guesses = f", {words.guesses}" if words.is_classification else ""
        return f"the {words.baseline} {number(unigram_nats, 2)}{unit}{guesses} ({each})"
    loss, right = best.row.mean_loss, best.row.mean_accuracy
    if words.is_classification and right is not None:
        said = f"{percentage(right, 1)} right of the validation ({words.guesses})"
    elif words.short == "token":
        said = (
            f"{number(loss, 2)} nats per token (perplexity {perplexity(loss)}; {words.baseline} "
            f"{number(unigram_nats, 2)})"
        )
    else:
        said = f"a loss of {words.loss(loss)} (the {words.baseline} {number(unigram_nats, 2)})"
    by_loss = " by its loss" if words.is_classification else ""
    said = f"the best{by_loss} is {best.row.name} with {said}"
    others = [one.row.losses for one in configurations if one is not best and one.row.losses]
    if not others:
        return f"{said}, from {each}"
    if min(seeds) == 1:
        return f"{said}, from {each}, which does not tell near losses apart"
    near = sum(min(losses) <= max(best.row.losses) for losses in others)
    apart = (
        f"whose seeds overlap with those of {counted(near, 'other')}"
        if near
        else "below every seed of the others"
    )
    return f"{said}, {apart}, from {each}"


def formula_in(placement: str, config: RunConfig) -> str:
    """Returns the formula with the constants of this model; encoder and decoder apart where they
    differ.
    """
    if issubclass(own := named(placement), StandIn):
        return own.shown
    found = {
        shape.kind: formula(named(placement), shape) for shape in task_of(config).shapes(config)
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{kind}: {text}" for kind, text in found.items())
