"""`orderbook serve`: live feeds through views for websocket clients, with nothing shown in the terminal."""

from collections.abc import Sequence
from pathlib import Path

from orderbook.commands.run import run
from orderbook.display import QuietDisplay


def serve(
    config: Path | None,
    duration: float | None,
    feeds: Sequence[str],
    views: Sequence[str],
    strategies: Sequence[str],
    out: Path | None = None,
    allow_incomplete: bool = False,
) -> None:
    """As `run`, with the monitor, whose address is printed, and without values and notes."""
    run(config, duration, feeds, views, strategies, out, True, QuietDisplay, allow_incomplete)
