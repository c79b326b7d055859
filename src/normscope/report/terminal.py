"""What a terminal shows, as plain text for `print`: its columns, its letters, and no colours."""

import io
import shutil
import sys

from rich.console import Console, RenderableType


def plain_text(*shown: RenderableType) -> str:
    """Each below the other, as wide as the terminal, or 80 columns without one; in ASCII where it has nothing else."""
    letters = getattr(sys.stdout, "encoding", None) or "utf-8"
    file = io.TextIOWrapper(io.BytesIO(), encoding=letters, errors="replace", newline="\n")
    width = shutil.get_terminal_size((80, 24)).columns
    console = Console(file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False)
    for one in shown:
        console.print(one)
    file.flush()
    text = file.buffer.getvalue().decode(letters)
    return "\n".join(line.rstrip() for line in text.splitlines())
