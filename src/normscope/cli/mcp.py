"""The verb `mcp`: NormScope's tools for programs that act for somebody."""

import contextlib
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..errors import UserError, installation
from ..signals import HANDLED
from .help.options import described_by

_OF_MCP = ("mcp", "mcp_types", "anyio")
"""Libraries of the extra "mcp"."""


@described_by()
def mcp(
    root: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    skill: bool = False,
) -> None:
    """Serve NormScope's tools to an agent or an editor, by the Model Context Protocol on standard
    input and output.

    The tools are diagnose, explain_log, predict, choose, transplant and compare. The client starts
    this command; its answers name the files that were run.

    What is served:
        root: The folder that paths are from. Code outside it is not run, and nothing outside it is
            read or written by a tool.
        skill: Print the skill file for an agent, SKILL.md, and exit.

    For example:

    \b
      normscope mcp --root .
    """
    if skill:
        from ..agents.skill import skill as text

        typer.echo(text(), nl=False)
        return
    if root is None:
        raise UserError(
            "--root DIR: name the folder whose code may be run, as in normscope mcp --root ."
        )
    _serve(root)


def _serve(root: Path) -> None:
    """Serves until the client has gone. Raises UserError where the extra is not installed."""
    from ..agents.root import Root

    held = Root.of(root)
    try:
        from ..agents.server import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_MCP:
            raise
        raise UserError(f"this takes {error.name}: {installation('mcp')}") from None
    for number in HANDLED:
        signal.signal(number, _leave)
    server(held).run("stdio")


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the server at once: the thread that waits for a client's words would hold it up.

    Commands that are under way find that it has gone, save and end.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
