"""One HTML file that needs nothing else: pictures, tables, commands. `write` puts the pictures beside it as files."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ...files import write_atomically
from ..lines import styles_for
from ..svg import inlined
from ..template import environment, style_sheet
from .contents import Arm, Comparison, GradientProfile
from .endings import endings_svg
from .plots import curves_svg, gradient_svg, schedule_svg, stack_of

_TONES = {"learned": "good", "partly": "mixed", "stuck": "stuck", "diverged": "bad"}


def render(comparison: Comparison) -> str:
    """The page as text; the same comparison gives the same bytes."""
    return _page(comparison, _pictures(comparison))


def write(comparison: Comparison, folder: Path) -> Path:
    """Writes `report.html` and the pictures into `folder`, each complete or not at all. Returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _pictures(comparison)
    for name, svg in pictures.items():
        write_atomically(folder / f"{name}.svg", svg)
    page = folder / "report.html"
    write_atomically(page, _page(comparison, pictures))
    return page


def _pictures(comparison: Comparison) -> dict[str, str]:
    """Name to SVG text, one look an arm in all of them."""
    curves = [*comparison.valid_curves, *comparison.train_curves, *comparison.schedules]
    profiles = comparison.gradient_profiles
    styles = styles_for([c.style_key for c in curves] + [profile.style_key for profile in profiles])
    chance = comparison.chance_loss_nats
    nats = "nats per target token"
    return {
        "final_loss": endings_svg(comparison.arms, chance=chance),
        "valid_loss": curves_svg(
            comparison.valid_curves, ylabel=nats, title="Validation loss over updates", chance=chance, styles=styles
        ),
        "train_loss": curves_svg(
            comparison.train_curves, ylabel=nats, title="Training loss over updates", chance=chance, styles=styles
        ),
        "gradient_norms": gradient_svg(profiles, styles=styles),
        "learning_rate": schedule_svg(comparison.schedules, styles=styles),
    }


def _page(comparison: Comparison, pictures: dict[str, str]) -> str:
    jinja = environment()
    jinja.filters |= {"number": number, "spread": spread, "tone": tone, "growth": growth}
    return jinja.get_template("comparison.html.j2").render(
        c=comparison,
        pictures={name: inlined(svg, name.replace("_", "-")) for name, svg in pictures.items()},
        css=style_sheet(),
        runs=tally(comparison.arms),
    )


def number(value: float | None, form: str = ".3f") -> str:
    """A cell of a table: "–" for what was not measured, "non-finite" for NaN and infinities."""
    if value is None:
        return "–"
    return format(value, form) if math.isfinite(value) else "non-finite"


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and, each for a line below it, what the mean hides."""

    mean: str
    notes: tuple[str, ...] = ()


def spread(values: Iterable[float | None], form: str = ".3f") -> Spread:
    """Mean of the finite values and their range, "4.19 to 4.24", with the count where some are absent."""
    every = list(values)
    finite = [value for value in every if value is not None and math.isfinite(value)]
    if not finite:
        return Spread("non-finite" if any(value is not None for value in every) else "–")
    mean, low, high = (format(value, form) for value in (math.fsum(finite) / len(finite), min(finite), max(finite)))
    notes = [f"{low} to {high}"] if low != high else []
    if len(finite) < len(every):
        notes.append(f"{len(finite)} of {len(every)} seeds")
    return Spread(mean, tuple(notes))


def growth(profile: GradientProfile) -> list[tuple[str, float, float, float]]:
    """Per stack: its name, mean norm of its first and of its last block, last over first."""
    means = [math.fsum(column) / len(column) for column in zip(*profile.seeds_norms, strict=True)]
    rows = []
    named = zip(profile.blocks, means, strict=False)  # no seeds, no means: no rows
    for stack, part in groupby(named, key=lambda pair: stack_of(pair[0])[0]):
        norms = [mean for _, mean in part]
        rows.append((stack, norms[0], norms[-1], norms[-1] / norms[0] if norms[0] else math.nan))
    return rows


def tone(verdict: str) -> str:
    """The class of the dot beside a verdict; the verdict itself always stands beside it in words."""
    first = verdict.split(maxsplit=1)[0].strip(":,;.").lower() if verdict.strip() else ""
    return _TONES.get(first, "plain")


def tally(arms: Sequence[Arm]) -> str:
    """How the runs ended, in one sentence: "4 arms, 12 runs: 11 finished, 1 stopped at a non-finite value." """
    endings = [seed.status for arm in arms for seed in arm.seeds]
    words = {
        "finished": "finished",
        "non-finite": "stopped at a non-finite value",
        "running": "still running",
        "failed": "failed",
        "missing": "missing",
    }
    parts = [f"{endings.count(status)} {words[status]}" for status in words if status in endings]
    counts = f"{_plural(len(arms), 'arm')}, {_plural(len(endings), 'run')}"
    return f"{counts}: {', '.join(parts)}." if parts else f"{counts}."


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
