"""The conclusion of a comparison in two sentences: what became of its configurations, and what the paper says of it."""

from collections.abc import Sequence

from ...report.comparison.contents import Conclusion
from ...report.words import counted, joined, number
from .paper import what_the_paper_says
from .verdict import Judged, Outcome, perplexity

_NAMED = 3
"""Configurations are named up to so many, and counted beyond."""
_VERBS = {
    Outcome.LEARNED: "learned",
    Outcome.LESS: "learned less than the best",
    Outcome.BASELINE: "did no better than the unigram baseline",
    Outcome.WORSE: "did worse than the unigram baseline",
    Outcome.DIVERGED: "diverged",
    Outcome.NEVER_PEAKED: "ended before the end of the warm-up",
    Outcome.FAILED: "failed",
    Outcome.UNFINISHED: "did not finish",
}
_SOME_SEEDS, _NO_SEED, _NOT_ALL_KNOWN = "learned in some seeds only", "did not learn", "did not finish all runs"


def conclusion(configurations: Sequence[Judged], unigram_nats: float) -> Conclusion:
    """What was found, from the outcomes and losses of the runs alone, and whether the paper agrees: a sentence each."""
    return Conclusion(
        found=_found(configurations, unigram_nats), paper=what_the_paper_says(configurations, unigram_nats)
    )


def _found(configurations: Sequence[Judged], unigram_nats: float) -> str:
    if not any(outcome.ended for one in configurations for outcome in one.outcomes):
        return "No run has ended yet, and so nothing is found."
    without = [one for one in configurations if not one.row.warmup_updates]
    with_warmup = [one for one in configurations if one.row.warmup_updates]
    parts = [f"without warm-up, {_became(without)}"] if without else []
    parts += [f"with warm-up, {_became(with_warmup)}"] if with_warmup else []
    text = "; ".join([*parts, _lowest(configurations, unigram_nats)])
    return f"{text[0].upper()}{text[1:]}."


def _became(configurations: Sequence[Judged]) -> str:
    """Who did what: "Pre-LN (0.35 nats) learned and Post-LN (4.74 nats) did no better than the unigram baseline"."""
    titles = [one.row.name.group for one in configurations]
    by_verb: dict[str, list[str]] = {}
    for one in configurations:
        name = str(one.row.name) if titles.count(one.row.name.group) > 1 else one.row.name.group
        loss = f" ({number(one.row.mean_loss, 2)} nats)" if one.row.losses else ""
        by_verb.setdefault(_verb(one), []).append(name + loss)
    order = [*_VERBS.values(), _SOME_SEEDS, _NO_SEED, _NOT_ALL_KNOWN]
    clauses = []
    for verb in sorted(by_verb, key=order.index):
        names = by_verb[verb]
        several = f"{len(names)} of {counted(len(configurations), 'configuration')}"
        clauses.append(f"{joined(names) if len(names) <= _NAMED else several} {verb}")
    return joined(clauses)


def _verb(one: Judged) -> str:
    kinds = set(one.outcomes)
    if len(kinds) == 1:
        return _VERBS[one.outcomes[0]]
    if one.learned:
        return _VERBS[Outcome.LEARNED]
    if any(kind.learned for kind in kinds):
        return _SOME_SEEDS
    return _NO_SEED if all(kind.decided for kind in kinds) else _NOT_ALL_KNOWN


def _lowest(configurations: Sequence[Judged], unigram_nats: float) -> str:
    """The best configuration with its numbers, and whether its seeds tell it from the others."""
    seeds = {len(one.row.seeds) for one in configurations}
    each = (
        "one seed each" if seeds == {1} else f"{min(seeds)}{f' to {max(seeds)}' if len(seeds) > 1 else ''} seeds each"
    )
    baseline = f"unigram baseline {number(unigram_nats, 2)}"
    best = next((one for one in configurations if one.best), None)
    if best is None:
        return f"the {baseline} nats per token ({each})"
    loss = best.row.mean_loss
    words = (
        f"the best is {best.row.name} with {number(loss, 2)} nats per token (perplexity {perplexity(loss)}; {baseline})"
    )
    others = [one.row.losses for one in configurations if one is not best and one.row.losses]
    if not others:
        return f"{words}, from {each}"
    if min(seeds) == 1:
        return f"{words}, from {each}, which does not tell near losses apart"
    near = sum(min(losses) <= max(best.row.losses) for losses in others)
    apart = f"whose seeds overlap with those of {counted(near, 'other')}" if near else "below every seed of the others"
    return f"{words}, {apart}, from {each}"
