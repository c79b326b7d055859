"""A history as a section of the doctor's page: its pictures, and every episode in words."""

from ..report.doctor.history import EpisodeWords, HistorySection
from ..report.svg import Picture, inlined
from ..report.words import Tone
from .episodes import Kind
from .explain import Explanation
from .figure import loss_svg, steps_svg
from .text import head_of, headed, told


def section(explanation: Explanation) -> HistorySection:
    """All episodes, where a terminal has room for some."""
    pictures = [
        ("loss", loss_svg(explanation), "The training's loss over its updates. Dashed: where an episode began.")
    ]
    if (steps := steps_svg(explanation)) is not None:
        picture, caption = steps
        pictures.append(("steps", picture, caption))
    return HistorySection(
        head=head_of(explanation),
        episodes=tuple(
            EpisodeWords(
                head=headed(one), tone=Tone.INFO if one.kind == Kind.SPIKE else Tone.MIXED, rows=tuple(told(one))
            )
            for one in explanation.episodes
        ),
        pictures=tuple(
            Picture(svg=inlined(svg, f"history-{name}"), caption=caption) for name, svg, caption in pictures
        ),
    )
