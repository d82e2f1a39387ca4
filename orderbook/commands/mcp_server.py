"""`orderbook mcp`: what a run shows, for language models, by the Model Context Protocol. Nothing is changed.

A process of its own beside the run, whose monitor's websocket it asks, within the limits of all clients.
Source: Model Context Protocol, specification of 2025-06-18, "Tools".
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, TypedDict

from orderbook.commands.asking import ask_run, socket_address
from orderbook.core.errors import OrderbookError, UserError

# Rows that a model is given where it does not ask for fewer or more, and at most.
_ROWS, _MOST_ROWS = 100, 1_000
# Of a request.
_MOST_BYTES = 1 << 20
# Seconds for an answer: queries, and what is computed from the log.
_QUERY_SECONDS, _WHY_SECONDS = 90.0, 70.0
_OTHERWISE = "begin a run with its monitor, or give --url and --token"
_INSTRUCTIONS = """Reads a running order-book engine. SQL views over live order books are kept up to date at
every event. List `views` first; then `query` them with a SELECT of DuckDB's SQL: each answer is of one
version of all views and relations. Times are ns since 1970 UTC, decimals are text. `explain` tells how a
view is computed and what an event costs; `why` tells what an event did to a view, from the run's log."""


class Rows(TypedDict):
    """An answer: its columns with their types, rows, how many there are, and the version that it is of."""

    columns: list[tuple[str, str]]
    rows: list[list[Any]]
    count: int
    truncated: bool
    version: list[Any]


class Views(TypedDict):
    """The columns of each view and relation."""

    tables: dict[str, list[tuple[str, str]]]


class Explanation(TypedDict):
    """A view: as it was written, what it is compiled to, and an overview with costs."""

    sql: str
    overview: str
    plan: str
    maps: list[str]


class Reasons(TypedDict):
    """What an event did, as text."""

    text: str


_COLUMNS = (
    "SELECT table_name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
)


class RunTools:
    """The tools, of the run at `url`. Each raises SourceError that says why where it refuses."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    async def views(self) -> Views:
        """The views and relations that can be queried, with their columns and types."""
        answer = await self._ask({"op": "sql", "sql": _COLUMNS, "dialect": "postgres", "whole": True})
        tables: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in answer["rows"]:
            tables.setdefault(table, []).append((column, kind))
        return {"tables": tables}

    async def query(self, sql: str, rows: int = _ROWS) -> Rows:
        """Answer a SELECT of DuckDB's SQL over views and relations, as of now.

        rows: at most so many are given, up to 1,000; `count` tells how many there are.
        """
        if not 0 <= rows <= _MOST_ROWS:
            raise UserError(f"rows: give a number from 0 to {_MOST_ROWS:,}")
        answer = await self._ask({"op": "sql", "sql": sql})
        given = answer["rows"][:rows]
        return {
            "columns": [(name, kind) for name, kind in answer["columns"]],
            "rows": given,
            "count": answer["count"],
            "truncated": len(given) < answer["count"],
            "version": answer["version"],
        }

    async def explain(self, view: str) -> Explanation:
        """How a view is computed: its SQL, plan and maps, and how costs grow with the book."""
        answer = await self._ask({"op": "explain", "view": view})
        return {name: answer[name] for name in ("sql", "overview", "plan", "maps")}  # type: ignore[return-value]

    async def why(self, view: str, version: list[int | str]) -> Reasons:
        """What the event of a version (stamp, switch, sequence) did to a view, and why; it is in the log."""
        if len(version) != 3:
            raise UserError("version: give [stamp, switch, sequence], as answers have it")
        at = [str(version[0]), int(version[1]), int(version[2])]
        answer = await self._ask({"op": "why", "view": view, "at": at}, _WHY_SECONDS)
        return {"text": answer["text"]}

    async def _ask(self, request: Mapping[str, object], seconds: float = _QUERY_SECONDS) -> dict[str, Any]:
        return await ask_run(self._url, self._token, request, _OTHERWISE, seconds)


def serve_mcp(url: str, token: str, port: int | None) -> None:
    """Serve on standard input and output, or on a port of loopback, until the client ends it.

    Raises UserError where the library is not installed, and for a URL that is none.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        raise UserError("mcp needs its library: pip install 'orderbook[mcp]'") from None
    socket_address(url, token)
    server = MCPServer("orderbook", instructions=_INSTRUCTIONS, log_level="WARNING")
    tools = RunTools(url, token)
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)

    def said(tool: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        """The tool, whose refusals are told to the model; what else fails is not."""

        @wraps(tool)
        async def call(*arguments: Any, **named: Any) -> object:
            try:
                return await tool(*arguments, **named)
            except OrderbookError as error:
                raise ToolError(str(error)) from None

        return call

    for tool in (tools.views, tools.query, tools.explain, tools.why):
        server.add_tool(said(tool), annotations=hints)
    if port is None:
        server.run("stdio")
    else:
        import uvicorn

        from orderbook.monitor.server import BoundedHttp

        # Nothing is kept of a client between two requests, so that there is nothing to pile up.
        served = server.streamable_http_app(
            stateless_http=True, json_response=True, max_request_body_size=_MOST_BYTES
        )
        # What clients send wrongly is answered, not logged line by line.
        uvicorn.run(served, host="127.0.0.1", port=port, http=BoundedHttp, ws="none", log_level="error")
