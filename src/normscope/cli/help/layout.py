"""The layout of a verb's `--help`: what it does, its arguments, its options in groups, and an
example last.
"""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

_EXAMPLE = "For example"
"""The beginning of the paragraph before an example; nothing but the example comes after it."""
_WIDEST = 26
"""Columns of an option with the form of its value; what is wider has a line of its own."""


class LaidOut:
    """A command whose options stand in groups, typer's panels as plain text, and whose help ends
    with the example of its docstring.
    """

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        told, _, _ = (self.help or "").partition(_EXAMPLE)
        _write_indented(formatter, told)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, where there is one."""
        _, begun, example = (self.help or "").partition(_EXAMPLE)
        _write_indented(formatter, begun + example)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments first, then each group of options below its heading."""
        arguments: list[tuple[str, str]] = []
        groups: dict[str, list[tuple[str, str]]] = {}
        others: list[tuple[str, str]] = []
        parameters: list[Any] = self.get_params(ctx)  # type: ignore[attr-defined]
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = getattr(parameter, "rich_help_panel", None)
            if parameter.param_type_name == "argument":
                arguments.append(record)
            elif group:
                groups.setdefault(group, []).append(record)
            else:
                others.append(record)
        rest = "Other options" if groups else "Options"
        _write_sections(formatter, {"Arguments": arguments, **groups, rest: others})


class GroupedCommand(LaidOut, TyperCommand):
    """A verb whose help is laid out so."""


def _write_sections(formatter: Any, sections: Mapping[str, list[tuple[str, str]]]) -> None:
    """Write those that hold something, with all words in one column."""
    terms = [term for rows in sections.values() for term, _ in rows]
    width = min(max(map(len, terms)), _WIDEST)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                aligned = [(term.ljust(width), words) for term, words in rows]
                formatter.write_dl(aligned, col_max=width)


def _write_indented(formatter: Any, text: str) -> None:
    if text.strip():
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text.strip())
