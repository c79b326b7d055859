"""A diagnosis as Python and notebooks have it: the record, which can draw itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .result import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Record):
    """All that was found out about a model."""

    def plot(self) -> "Figure":
        """Every stack over depth, measured and predicted, as a matplotlib figure. Raises ValueError without a stack."""
        from ..report.chart_svg import panels_figure
        from .report.notebook import stack_panels

        if not self.stacks:
            raise ValueError(f"{self.target} has no residual stream, so there is nothing to draw over depth")
        return panels_figure(stack_panels(self))

    def __str__(self) -> str:
        """What the terminal shows."""
        from ..report.terminal import plain_text
        from .lint.linter import reasons
        from .report.text import terminal_page

        return plain_text(terminal_page(self, reasons()))

    def __repr__(self) -> str:
        from .report.words import headline, summary

        return f"Diagnosis({self.target}: {headline(self)[0]}; {summary(self)})"

    def _repr_html_(self) -> str:
        from .report.notebook import diagnosis_html

        return diagnosis_html(self)
