"""The server: NormScope's tools over standard input and output, by the Model Context Protocol."""

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from .. import __version__
from ..errors import UserError
from .root import Root
from .skill import instructions
from .tools import Tools


class _Server(MCPServer[Any]):
    """A server whose errors are one line each, without the library's words before them."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Calls a tool as the library does. Raises ToolError with what the caller has to
        correct.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, UserError):
                raise ToolError(str(cause)) from None
            if isinstance(cause, ValidationError):
                raise ToolError(_in_one_line(cause)) from None
            raise


def _in_one_line(error: ValidationError) -> str:
    """Returns which arguments are wrong, and how."""
    wrong = []
    for one in error.errors(include_url=False, include_context=False):
        place = ".".join(map(str, one["loc"]))
        wrong.append(f"{place}: {one['msg']}")
    return "; ".join(wrong)


def server(root: Root) -> MCPServer[Any]:
    """Returns the server of the tools for the files of one folder."""
    made = _Server(
        "normscope",
        title="NormScope",
        version=__version__,
        instructions=instructions(),
        log_level="CRITICAL",  # an error is answered, and the client's terminal is another's
    )
    tools = Tools(root)
    runs_nothing = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    asking: list[Callable[..., Any]] = [tools.explain_log, tools.predict, tools.choose]
    running: list[Callable[..., Any]] = [tools.diagnose, tools.transplant, tools.compare]
    for tool in asking:
        made.add_tool(tool, annotations=runs_nothing, structured_output=False)
    for tool in running:
        made.add_tool(tool, structured_output=False)
    return made
