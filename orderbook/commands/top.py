"""`orderbook top`: the essentials of a running engine in a terminal, from its monitor's websocket."""

import asyncio
import json
from time import monotonic
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.styled import Styled
from rich.table import Table
from rich.text import Text
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from orderbook.commands.asking import socket_address
from orderbook.commands.common import stopped_by_signals
from orderbook.core.errors import SourceError, visible
from orderbook.core.latency import latency_text
from orderbook.core.summaries import is_collected, told
from orderbook.core.units import size_text

_NOTES = 5
_PATIENCE = 5.0
# Seconds without a frame after which what is shown is not of now; the server sends several a second.
_SILENT = 1.5
_STYLES = {"valid": "green", "syncing": "yellow", "stale": "red", "ended": "red"}


def top(url: str, token: str) -> None:
    """Show until Ctrl-C or the run's end; for a script, once. Raises UserError, SourceError."""
    asyncio.run(_top(socket_address(url, token), url, Console()))


async def _top(address: str, url: str, console: Console) -> None:
    try:
        async with connect(address, max_size=None, compression=None, open_timeout=_PATIENCE) as socket:
            for number, topic in enumerate(("status", "notes"), 1):
                await socket.send(json.dumps({"id": number, "op": "subscribe", "topic": topic}))
            if is_collected():
                await _tell_status(socket)
                return
            with Live(console=console, auto_refresh=False) as live, stopped_by_signals() as stopped:
                showing = asyncio.create_task(_show(socket, live))
                ending = asyncio.create_task(stopped.wait())
                await asyncio.wait((showing, ending), return_when=asyncio.FIRST_COMPLETED)
                for task in (showing, ending):
                    task.cancel()
                await asyncio.gather(showing, ending, return_exceptions=True)
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
        raise SourceError(f"no monitor at {url}: {error}; start `orderbook run`, or give --url") from None


async def _tell_status(socket: Any) -> None:
    """The first status alone, for a script."""
    async with asyncio.timeout(_PATIENCE):
        while (message := json.loads(await socket.recv()))["type"] != "status":
            pass
    told(**{name: value for name, value in message.items() if name not in ("id", "type")})


async def _show(socket: Any, live: Live) -> None:
    """Draw every status until the connection ends, and say of what is shown when it is not of now."""
    notes: list[dict[str, Any]] = []
    status: dict[str, Any] | None = None
    received = monotonic()
    while True:
        try:
            message = json.loads(await asyncio.wait_for(socket.recv(), _SILENT))
        except TimeoutError:
            if status is not None:
                silence = f"no frames for {monotonic() - received:.0f} s"
                live.update(screen(status, notes, silence), refresh=True)
            continue
        except ConnectionClosed:
            if status is not None:
                live.update(screen(status, notes, "disconnected"), refresh=True)
            return
        received = monotonic()
        if message["type"] == "notes":
            notes = [*notes, *message["notes"]][-_NOTES:]
        elif message["type"] == "status":
            status = message
            live.update(screen(status, notes), refresh=True)


def screen(status: dict[str, Any], notes: list[dict[str, Any]], not_live: str = "") -> Group:
    """What is shown of a status and the last notes; `not_live`: why they are not of now."""
    engine = status["engine"]
    to_views = engine["to_views"]
    latency = f"  to views p99 {latency_text(to_views['p99'])}" if to_views else ""
    head = Text(
        f"{engine['events']:,} events  {engine['events_per_second']:,.0f}/s  queue {engine['queue']:,}  "
        f"epoch {engine['epoch']:,}  maps {size_text(engine['bytes'])}{latency}",
        style="bold",
    )
    # What a monitor elsewhere sends must not steer this terminal.
    lines = [Text(visible(f"{note['kind']}  {note['text']}")) for note in notes]
    shown: tuple[Text | Table, ...] = (head, _feeds(status), _views(engine), _strategies(status), *lines)
    if not_live:
        told = Text(f"not live: {not_live}; what follows is as of before", style="bold red")
        return Group(told, *(Styled(part, "dim") for part in shown))
    return Group(*shown)


def _feeds(status: dict[str, Any]) -> Table:
    table = Table("feed", "state", "books", "gaps", "reconnects", "last", "p99", box=None, header_style="dim")
    for feed in status["feeds"]:
        last, delay = feed["last_message_seconds"], feed["latency"]
        table.add_row(
            Text(visible(feed["name"])),
            Text(visible(f"{feed['state']} {feed['reason']}"), style=_STYLES.get(feed["state"], "")),
            f"{feed['books']['valid']}/{sum(feed['books'].values())}",
            f"{feed['gaps']:,}",
            f"{feed['reconnects']:,}",
            "" if last is None else f"{last:.1f} s",
            "" if delay is None else latency_text(delay["p99"]),
        )
    return table


def _views(engine: dict[str, Any]) -> Table:
    table = Table("view", "rows", "bytes", box=None, header_style="dim")
    for view in engine["views"]:
        size = "" if view["bytes"] is None else size_text(view["bytes"])
        table.add_row(Text(visible(view["view"])), str(view["rows"]), size)
    return table


def _strategies(status: dict[str, Any]) -> Table:
    names = ("callbacks", "orders", "fills", "refused")
    table = Table("strategy", *names, "profit", box=None, header_style="dim")
    for one in status["strategies"]:
        known = [p for p in one["positions"] if p["profit"] is not None]
        profits = ", ".join(f"{p['symbol']} {p['profit']} {p.get('currency', '')}".rstrip() for p in known)
        note, style = (" FAILED", "red") if one["failed"] else ("", "")
        table.add_row(
            Text(visible(one["name"]) + note, style=style),
            *(f"{one[name]:,}" for name in names),
            Text(visible(profits)),
        )
    return table
