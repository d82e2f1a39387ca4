"""`orderbook why`: what one event of a run's log did to a view, and what followed."""

from collections.abc import Sequence

from orderbook.commands.query import parsed_version
from orderbook.commands.query_source import QuerySource
from orderbook.errors import UserError
from orderbook.past_states import LAST, open_past_run
from orderbook.why import Explanation, why_text


def why(source: QuerySource, view: str, at: str, key: Sequence[str]) -> None:
    """Print the event of a version, the statements it ran, what they read and wrote, and what followed.

    Raises UserError for a version that names no event, and as reading the log does.
    """
    version = parsed_version(at)
    if LAST in version:
        raise UserError(f"--at {at}: one event has STAMP,SWITCH,SEQUENCE, as view events have it")
    past = open_past_run(source.configuration(), version)
    found = Explanation(past, view, version).found()
    print(why_text(found, past.engine.program, key), end="")
