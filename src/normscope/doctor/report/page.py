"""A diagnosis as one HTML file that needs nothing else: verdict, learning rate and what matters
most, then evidence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...report.chart_svg import panels_svg
from ...report.explorer import environment, scripted
from ...report.svg import Picture, inlined
from ...report.words import Tone, counted, kind_name, learning_rate
from ..lint.rule import Rule
from ..record import Stack
from ..result import Record, Severity
from . import words
from .advice_words import TERMS
from .depth import depth_panels, values_of
from .rates import advised

_TONES: dict[Severity | None, Tone] = {
    Severity.ERROR: Tone.BAD,
    Severity.WARNING: Tone.MIXED,
    Severity.INFO: Tone.INFO,
    None: Tone.GOOD,
}
_CAPTIONS = {
    "stream": (
        "Mean square of the residual stream's entries where each sub-layer reads it; a norm gives "
        "1."
    ),
    "correlation": (
        "Mean cosine similarity between the stream's vectors at different tokens of one sequence."
    ),
    "share": "Squared norm of what a sub-layer adds, over that plus the squared norm of what it is "
    "added to.",
    "gradient": "Norm of the loss's gradient with respect to the weight matrices of a sub-layer.",
}
_COLUMNS = ("stream_square", "branch_square", "sum_square", "correlation", "share", "gradient_norm")
"""The quantities of the table's columns, in order."""
_COLUMN_TERMS = tuple(
    TERMS[key] for key in ("stream", "branch", "sum", "similarity", "energy", "gradient")
)
_THEORY = " Dashed: the mean-field prediction"
_FITTED = ", whose one factor for the whole stack is fitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeWords:
    """One spike, rise or plateau in words."""

    head: str
    tone: Tone
    rows: tuple[tuple[str, str], ...]
    """Cause, place, evidence and what to try, each with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySection:
    """The section on a training's history, ready to be set."""

    head: str
    episodes: tuple[EpisodeWords, ...]
    pictures: tuple[Picture, ...]
    first: str = ""
    """The first step, after a loss that did not come back; else ""."""
    command: str = ""
    """The command for that step, where there is one; else ""."""


def render_doctor(
    diagnosis: Record, rules: Iterable[Rule] = (), history: HistorySection | None = None
) -> str:
    """Return the page as text; the same diagnosis gives the same bytes.

    rules: those of the linter. They say why a finding matters and where it is known from. history:
    of the training, where the model comes from one.
    """
    jinja = environment()
    jinja.filters |= {
        "figures": words.figures,
        "rate": learning_rate,
        "tone": _TONES.__getitem__,
        "code": words.code_words,
    }
    asked = "" if history is None else history.first
    verdict, rate = words.headline(diagnosis, diverged=bool(asked))
    if asked:
        verdict = f"the training went wrong; {verdict}"
    explored = {
        _figure(number, name): [panel]
        for number, stack in enumerate(diagnosis.stacks)
        for name, panel in depth_panels(stack).items()
    }
    return jinja.get_template("doctor.html.j2").render(
        d=diagnosis,
        scripted=scripted(explored, "doctor"),
        verdict=verdict,
        rate_headline=rate,
        tone=Tone.BAD if asked else _TONES[words.headline_severity(diagnosis)],
        failed=bool(asked),
        first=asked or words.first_step(diagnosis),
        command="" if history is None else history.command,
        summary=words.summary(diagnosis),
        unasked=words.unasked(diagnosis),
        parameters=counted(diagnosis.parameters, "parameter"),
        loss=words.loss_words(diagnosis.measured),
        **advised(diagnosis),
        leading=words.leading_findings(diagnosis),
        further=words.further_findings(diagnosis),
        stacks=[_stack(number, diagnosis.stacks) for number in range(len(diagnosis.stacks))],
        column_terms=_COLUMN_TERMS,
        stack_terms=(*_COLUMN_TERMS, TERMS["theory"]),
        rules={rule.id: rule for rule in rules},
        found={finding.id for finding in diagnosis.findings},
        facts=_facts(diagnosis),
        history=history,
    )


def _stack(number: int, stacks: Sequence[Stack]) -> dict[str, Any]:
    """Returns one stack, ready to be set; `every` has a row for each sub-layer, `rows` for those
    that are the same thing.
    """
    stack = stacks[number]
    predicted = stack.predicted
    pictures = []
    for name, panel in depth_panels(stack).items():
        theory = (
            ""
            if predicted is None or name == "share"
            else _THEORY + (_FITTED if name == "gradient" else "") + "."
        )
        figure, svg = (
            _figure(number, name),
            panels_svg([panel], title=f"{panel.title} of {words.stack_title(stack)}"),
        )
        pictures.append(
            Picture(svg=inlined(svg, figure), caption=_CAPTIONS[name] + theory, name=figure)
        )
    groups = words.same_sublayers(stack)
    return {
        "title": words.stack_title(stack),
        "words": " · ".join(words.stack_words(stack)),
        "ends": " ".join(_ends(stack, stacks)),
        "rows": tuple(_row(stack, group) for group in groups),
        "every": tuple(_row(stack, [i]) for i in range(len(stack.sublayers))),
        "pictures": tuple(pictures),
        "assumptions": "" if predicted is None else predicted.assumptions,
    }


def _figure(number: int, name: str) -> str:
    return f"stack-{number + 1}-{name}"


def _ends(stack: Stack, stacks: Sequence[Stack]) -> list[str]:
    """Returns sentences on where the stream comes from, where it goes, and which other stream it
    reads.
    """
    begins, ends = words.figures(stack.source_square), words.figures(stack.end_square)
    told = [f"E‖x‖² / d is {begins} where the stream begins and {ends} in its result."]
    if stack.continues is not None and stack.cut_by is not None:
        before = words.stack_title(stacks[stack.continues])
        told.append(
            f"Its source comes from {before} through {kind_name(stack.cut_by)} alone, without a "
            "residual sum."
        )
    if stack.memory is not None:
        normed = "" if stack.memory_normed else ", with no norm between"
        told.append(f"Its cross-attention reads {words.stack_title(stacks[stack.memory])}{normed}.")
    if stack.end_read_by == "weights":
        told.append("Weights read its last sum with no norm between.")
    return told


def _row(stack: Stack, group: Sequence[int]) -> dict[str, Any]:
    """Returns a line of a table; `measured` has what was measured and, of one sub-layer, what
    theory says, or "".
    """
    members = [stack.sublayers[i] for i in group]
    first = members[0]
    notes = [f"also {', '.join(first.also)}"] if first.also and first.confidence == "sure" else []
    notes += ["side by side"] if first.parallel else []
    notes += [] if first.connection is None else words.connection_words(first.connection)
    notes += [] if first.measured.reaches_output else ["does not reach the output"]
    skips, branches = [one.skip_scale for one in members], [one.branch_scale for one in members]
    for name, scales in (("x", skips), ("F(x)", branches)):
        notes += [] if set(scales) <= {1.0, None} else [f"{name} times {words.span_of(scales)}"]
    formula = str(first.formula)
    if any(str(one.formula) != formula for one in members):
        formula += "; another in other blocks"
    return {
        "blocks": words.block_span(found.block for found in members),
        "kind": kind_name(first.kind),
        "formula": formula,
        "named": pattern([found.name for found in members]),
        "placement": words.placement_words(first),
        "notes": tuple(notes),
        "measured": tuple(_cell(stack, of, group) for of in _COLUMNS),
    }


def _cell(stack: Stack, of: str, group: Sequence[int]) -> tuple[str, str]:
    """Returns the measurement of sub-layers as words, and theory's value for one; "" for several,
    and where theory says nothing.
    """
    seen, theory = values_of(stack, of)
    told = "" if theory is None or len(group) > 1 else f"theory {words.figures(theory[group[0]])}"
    return words.span_of([seen[i] for i in group]), told


def pattern(names: Sequence[str]) -> str:
    """Returns one path for several: parts that differ become a star, "layer.*.attention"; else the
    first and the last.
    """
    parts = [name.split(".") for name in names]
    if len({len(path) for path in parts}) > 1:
        return f"{names[0]} … {names[-1]}"
    return ".".join(
        several[0] if len(set(several)) == 1 else "*" for several in zip(*parts, strict=True)
    )


def _facts(diagnosis: Record) -> list[tuple[str, str]]:
    measured = diagnosis.measured
    of = "example" if measured.labels_examples else "token"
    which = "on random targets, because none was given" if measured.loss_is_stand_in else "as given"
    loss = (
        "none"
        if measured.loss_nats is None
        else f"{words.figures(measured.loss_nats)} nats per {of}, {which}"
    )
    return [
        ("Target", diagnosis.target),
        ("Parameters", f"{diagnosis.parameters:,}"),
        ("Loss", loss),
        ("Classes", words.figures(measured.classes)),
        ("Standard deviation of the logits", words.figures(measured.logit_deviation)),
        (
            "Mode",
            "evaluation; one forward pass"
            + (" and one backward" if measured.gradient_norms else ""),
        ),
        (
            "Weights",
            "trained; theory, which is of random weights, is left out"
            if diagnosis.trained
            else "initial",
        ),
        ("Parameters never read", ", ".join(measured.unused_parameters) or "none"),
        ("Rules", words.rules_words(diagnosis)),
    ]
