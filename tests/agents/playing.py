"""A client of the server, by the official SDK: starts `normscope mcp` and calls its tools."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


class Answer(NamedTuple):
    """What a tool has answered."""

    is_error: bool
    text: str


class Session(NamedTuple):
    """What a client has seen of a server."""

    tools: dict[str, Any]
    """By name."""
    instructions: str
    answers: list[Answer]
    said: str
    """On standard error."""


Call = tuple[str, dict[str, Any]]


def session(root: Path, calls: Sequence[Call], said: Path) -> Session:
    """Starts a server, calls its tools in turn, and ends it.

    said: the file for its standard error.
    """
    return anyio.run(_session, root, calls, said)


async def _session(root: Path, calls: Sequence[Call], said: Path) -> Session:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "normscope", "mcp", "--root", str(root)],
        env=dict(os.environ),
    )
    answers = []
    with said.open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                answers.append(Answer(bool(result.is_error), content.text))
            instructions = client.instructions or ""
    return Session(tools, instructions, answers, said.read_text(encoding="utf-8"))
