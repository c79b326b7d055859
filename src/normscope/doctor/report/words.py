"""The words of a diagnosis, for the terminal and for the page alike."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from ...choosing.law import normed_share
from ...report.words import (
    MISSING,
    NON_FINITE,
    counted,
    joined,
    learning_rate,
    norm_name,
    significant,
)
from ..measured import ModelMeasurements
from ..record import Stack, StreamConnection, Sublayer
from ..result import NO_GRADIENT, Finding, Health, Record, Severity
from .advice_words import rate_headline, rate_step, speaks_against, warmup_step

_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_MOST_LEADING = 2


def first_step(diagnosis: Record) -> str:
    """Returns the one thing to do, in the imperative, or "nothing to do"."""
    leading = leading_findings(diagnosis)
    if leading:
        first = leading[0]
        verb = "fix" if first.severity is Severity.ERROR else "check"
        place = first.built_at or first.called_at
        at = f" at {place}" if place else ""
        told = first.fix or first.message
        named = f" of {first.where}" if _is_to_be_named(first.where, told) else ""
        return f"{verb} {first.id}{named}{at}: {told}"
    advice = diagnosis.advice
    if advice is not None and (step := rate_step(advice, diagnosis.compared)):
        return step
    if not diagnosis.stacks:
        return "look at what was run: no residual stream was found in it"
    if any(not (one.placement or one.scaled_placement) for one in diagnosis.stacks):
        return (
            "compare the formulas below with what you meant: no registered placement computes them"
        )
    step = "" if advice is None else warmup_step(advice)
    return step if step and any(map(_norms_every_sum, diagnosis.stacks)) else "nothing to do"


_SHORT = 60
"""Letters of names that a first line has room for."""


def _is_to_be_named(where: str, told: str) -> bool:
    """Tells whether a line that says what to do has to name its subject, since it does not contain
    the name.
    """
    first = where.split(",")[0].split(" and ")[0]
    return bool(where) and len(where) <= _SHORT and first not in told


def code_words(finding: Finding) -> str:
    """Returns the places in the user's code where the finding's subject was built and called; ""
    where neither is known.
    """
    built, called = finding.built_at, finding.called_at
    told = [f"built at {built}"] if built else []
    told += [f"called at {called}"] if called and called != built else []
    return ", ".join(told)


def placed(finding: Finding) -> str:
    """Returns the path in the model and place in the code in one line; "" where neither is
    known.
    """
    return ", ".join(filter(None, [finding.where, code_words(finding)]))


def _norms_every_sum(stack: Stack) -> bool:
    """Tells whether a stack is wired as Post-LN: each sum is normed, and nothing makes its skip the
    larger part.
    """
    inside = [one for one in stack.sublayers if one.block > 0]
    return bool(inside) and all(
        one.placement and normed_share(one.placement) == one.skip_scale == 1 for one in inside
    )


def headline(diagnosis: Record, *, diverged: bool = False) -> tuple[str, str]:
    """Returns the verdict, and what to know of the learning rate, "" without advice.

    No model is called healthy whose wanted rate is advised against, or whose training `diverged`.
    """
    advice = diagnosis.advice
    verdict = verdict_words(diagnosis)
    if diverged and diagnosis.verdict is Health.HEALTHY:
        verdict = ", ".join(
            filter(None, ["no error or warning in the model", tally(diagnosis.findings)])
        )
    return verdict, "" if advice is None else rate_headline(advice)


def headline_severity(diagnosis: Record) -> Severity | None:
    """Returns the worst of what the headline says; None where all of it is well."""
    if diagnosis.verdict is Health.ERRORS:
        return Severity.ERROR
    warned = diagnosis.verdict is Health.WARNINGS or speaks_against(diagnosis.advice)
    return Severity.WARNING if warned else None


def leading_findings(diagnosis: Record) -> tuple[Finding, ...]:
    """Returns the one or two that matter most: the first errors and warnings."""
    return tuple(one for one in diagnosis.findings if one.severity is not Severity.INFO)[
        :_MOST_LEADING
    ]


def further_findings(diagnosis: Record) -> tuple[Finding, ...]:
    """Returns all the others, the worst first."""
    leading = len(leading_findings(diagnosis))
    return diagnosis.findings[leading:]


def rules_count(diagnosis: Record) -> str:
    """Returns how many rules were checked, and how many not."""
    asked = sum(rule.asked for rule in diagnosis.rules)
    left = len(diagnosis.rules) - asked
    return counted(asked, "rule") + " checked" + (f", {left} not" if left else "")


def unasked(diagnosis: Record) -> str:
    """Returns how many rules were not checked, and the commonest reason, in one line; "" where all
    were.
    """
    reasons = Counter(rule.reason for rule in diagnosis.rules if not rule.asked)
    if not reasons:
        return ""
    ((reason, most),) = reasons.most_common(1)
    others = reasons.total() - most
    left = f"not checked: {counted(most, 'rule')}, as {reason}"
    return f"{left}; {others} for other reasons" if others else left


def rules_words(diagnosis: Record) -> str:
    """Returns how many rules were checked, and why the others were not, the commonest reason
    first.
    """
    reasons: dict[str, list[str]] = {}
    for rule in diagnosis.rules:
        if not rule.asked:
            reasons.setdefault(rule.reason, []).append(rule.id)
    asked = len(diagnosis.rules) - sum(map(len, reasons.values()))
    words = f"{counted(asked, 'rule')} checked"
    if reasons:
        by_number = sorted(reasons.items(), key=lambda pair: -len(pair[1]))
        few = [
            (joined(ids) if len(ids) <= _MOST_LEADING else f"{len(ids)} rules", why)
            for why, ids in by_number
        ]
        words += f"; not checked: {'; '.join(f'{ids}, as {reason}' for ids, reason in few)}"
    return words


def figures(value: float | None, digits: int = 3) -> str:
    """Returns a measured number to three significant figures, which is what one batch is good
    for.
    """
    return significant(value, digits)


def verdict_words(diagnosis: Record) -> str:
    """Returns the verdict with how much was found: "1 error, 2 warnings", "healthy; 31 of 38 rules
    asked", "healthy, 1 note".

    A model without errors and warnings is not called healthy beside a wanted rate that is advised
    against.
    """
    found = tally(diagnosis.findings)
    if diagnosis.verdict in (Health.WARNINGS, Health.ERRORS):
        return found
    bare = speaks_against(diagnosis.advice) or any(
        one.id == NO_GRADIENT for one in diagnosis.findings
    )
    word = "no error or warning" if bare else "healthy"
    if diagnosis.stacks and all(math.isnan(stack.end_square) for stack in diagnosis.stacks):
        word = "nothing wrong in the structure"  # of weights nothing is known
    if diagnosis.verdict is Health.UNKNOWN:
        word = diagnosis.verdict.value
    asked = sum(rule.asked for rule in diagnosis.rules)
    left_out = (
        f"; {asked} of {counted(len(diagnosis.rules), 'rule')} checked"
        if asked < len(diagnosis.rules)
        else ""
    )
    return ", ".join(filter(None, [word, found])) + left_out


def tally(findings: Sequence[Finding]) -> str:
    """Counts the findings of each severity, the worst first, in words."""
    severities = [finding.severity for finding in findings]
    return ", ".join(
        counted(severities.count(s), _NOUNS[s]) for s in reversed(Severity) if s in severities
    )


def summary(diagnosis: Record) -> str:
    """Returns all stacks in one line; those that differ in nothing but their number of blocks share
    a description.
    """
    stacks = diagnosis.stacks
    if not stacks:
        return "no stack found"
    described = [_what_it_is(stack) for stack in stacks]
    if len(set(described)) == 1:
        placement, rest = described[0]
        if len(stacks) == 1:
            return ", ".join([placement, _blocks(stacks[0]), *rest])
        return ", ".join(
            [placement, f"{' + '.join(f'{stack.blocks}' for stack in stacks)} blocks", *rest]
        )
    return "; ".join(
        ", ".join([f"{stack_title(stack)}: {placement}", _blocks(stack), *rest])
        for stack, (placement, rest) in zip(stacks, described, strict=True)
    )


def stack_title(stack: Stack) -> str:
    """Returns the stack's path, or what stands for the root."""
    return stack.name or "whole model"


def _blocks(stack: Stack) -> str:
    own, times = stack.blocks // stack.passes, stack.passes
    return counted(own, "block") + (
        f", {'each ' if own > 1 else ''}applied {times} times" if times > 1 else ""
    )


def stack_words(stack: Stack) -> list[str]:
    """Everything that is true of a stack as a whole, in short phrases."""
    placement, rest = _what_it_is(stack)
    inside = [sublayer.parallel for sublayer in stack.sublayers if sublayer.block > 0]
    order = (
        ["sub-layers side by side"]
        if inside and all(inside)
        else ["some side by side"]
        if any(inside)
        else []
    )
    if stack.norm_epsilon is not None:
        rest = (f"{rest[0]} ε {learning_rate(stack.norm_epsilon)}", *rest[1:])
    embedding = ["embedding norm"] if stack.embedding_norm else []
    streams = [] if stack.streams == 1 else [f"{stack.streams} streams"]
    return [
        placement,
        _blocks(stack),
        f"width {stack.width:,}",
        *streams,
        *rest,
        *embedding,
        *order,
    ]


def _what_it_is(stack: Stack) -> tuple[str, tuple[str, ...]]:
    # Of what has no name it is not known whether a norm at the end is one of the blocks'.
    ends = (
        "a norm at the end"
        if not stack.placement and stack.end_read_by == "norm"
        else "no final norm"
    )
    final = ("final norm",) if stack.final_norm else (ends,) if stack.norm else ()
    scaled = (
        f"{stack.scaled_placement} × scale" if stack.scaled_placement else "no registered placement"
    )
    return stack.placement or scaled, (norm_name(stack.norm), *final)


def block_span(blocks: Iterable[int]) -> str:
    """Returns the blocks in order, runs of them with a dash: "1–3, 5"; block 0 is what stands
    before the first.
    """
    several = sorted(set(blocks))
    parts = ["before 1"] if 0 in several else []
    numbered = [block for block in several if block > 0]
    # In a run of blocks, numbers grow as places do.
    runs = groupby(enumerate(numbered), key=lambda pair: pair[1] - pair[0])
    for _, members in runs:
        run = [block for _, block in members]
        parts.append(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(parts)


def same_sublayers(stack: Stack) -> list[list[int]]:
    """Returns the numbers of the sub-layers that were found to be the same thing in several blocks,
    in order of appearance.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        key = (
            sublayer.kind,
            sublayer.placement,
            sublayer.scaled_placement,
            sublayer.also,
            sublayer.confidence,
            sublayer.parallel,
            sublayer.block == 0,
            sublayer.measured.reaches_output,
        )
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def placement_words(sublayer: Sublayer) -> str:
    """Returns the placement of a sub-layer, up to what multiplies its branch, and whether something
    else may be meant.
    """
    if sublayer.scaled_placement:
        return f"{sublayer.scaled_placement} × {figures(sublayer.branch_scale)}"
    if not sublayer.placement:
        return "unnamed"
    if sublayer.confidence == "unsure":
        return " or ".join([sublayer.placement, *sublayer.also]) + " (unsure)"
    return sublayer.placement


def facts(diagnosis: Record) -> str:
    """Returns the target, its size, its loss, and whether its weights are trained, in one line."""
    told = [
        diagnosis.target,
        counted(diagnosis.parameters, "parameter"),
        loss_words(diagnosis.measured),
    ]
    return " · ".join([*told, *(["trained weights"] if diagnosis.trained else [])])


def loss_words(measured: ModelMeasurements) -> str:
    """Returns the loss that gradients were taken of, beside that of uniform guessing."""
    if measured.loss_nats is None:
        return "no loss, so no gradients"
    guessing = (
        f", {figures(math.log(measured.classes))} for uniform guessing" if measured.classes else ""
    )
    which = "loss on random targets" if measured.loss_is_stand_in else "loss"
    if not measured.labels_examples:
        return f"{which} {figures(measured.loss_nats)} nats per token{guessing}"
    classes = measured.classes or 1
    return (
        f"{which} {figures(measured.loss_nats)} nats per example{guessing}; accuracy by chance "
        f"{1 / classes:.3g}, 1 of {classes:,} classes"
    )


def span_of(values: Sequence[float | None]) -> str:
    """Returns the range of what was measured: "0.12 to 0.31", one figure where all look the same,
    "–" for nothing.
    """
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    if not all(map(math.isfinite, known)):
        return NON_FINITE
    low, high = figures(min(known)), figures(max(known))
    return low if low == high else f"{low} to {high}"


_MADE = {"constant": "constants", "trained": "trained numbers", "token": "numbers of each token"}


def connection_words(connection: StreamConnection) -> list[str]:
    """Notes on a sub-layer: what its streams are read, mixed and written by."""
    mixing, off = connection.mixing, connection.from_doubly_stochastic
    sums = (
        ""
        if mixing is None or off is None
        else f", rows and columns summing to 1 within {figures(off)}"
    )
    return [
        *([] if connection.read is None else [f"streams read by {_MADE[connection.read.made]}"]),
        *([] if mixing is None else [f"mixed by {_MADE[mixing.made]}{sums}"]),
        f"written by {_MADE[connection.write.made]}",
        *([f"stream {number} is not written to" for number in connection.unwritten]),
    ]
