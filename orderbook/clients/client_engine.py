"""What clients of an engine call beside its own methods: SQL over a snapshot, streams, futures, cubes.

A query may be given as SQL or as an Ibis expression.
"""

from typing import TYPE_CHECKING

from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.subscriptions import Fire, Granularity, ViewEvent
from orderbook.views.program import Question

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    import polars as pl

    from orderbook.clients.cubes import Cube
    from orderbook.clients.query_plan import QueryPlan
    from orderbook.clients.streams import EventStream, Overflow


class ClientEngine(Engine):
    """`orderbook.Engine`: everything is called on the engine's thread, unless it says otherwise."""

    def events(
        self,
        *views: str,
        when: "str | Mapping[str, str] | None" = None,
        on: Granularity = "message",
        fire: Fire = "edge",
        buffer: int = 1024,
        overflow: "Overflow" = "raise",
        other_thread: bool = False,
    ) -> "EventStream":
        """The events of views as an asynchronous iterator, to which views can be added while it runs.

        when, on, fire: as `subscribe` has them; `when` for all views, or by view. buffer: how many events
        wait at most for the reader. overflow: what happens then: "raise" ends the stream with StreamOverflow
        after the events that wait, "oldest" leaves out the oldest, "conflate" all but the last of each row
        (and then the oldest). other_thread: the engine runs in another thread than the reader; views come
        and go after a later message. Raises DataError, SqlError as `subscribe`.
        """
        from orderbook.clients.streams import event_stream

        options = {"on": on, "fire": fire, "buffer": buffer, "overflow": overflow}
        return event_stream(self, views, when, other_thread=other_thread, **options)

    def next(
        self,
        view: str,
        where: str | None = None,
        timeout: float | None = None,
        *,
        on: Granularity = "message",
        other_thread: bool = False,
    ) -> "asyncio.Future[ViewEvent]":
        """The next event of a view: of a row of which `where` comes to hold, else of any row that changes.

        A row of which it holds already is no event. It counts from the call on, not from where it is
        awaited. The future raises TimeoutError after `timeout` seconds, ViewDropped where the view is
        dropped; cancelling it ends the subscription. other_thread: as `events` has it. Called in a running
        loop. Raises DataError, SqlError as `subscribe`.
        """
        from orderbook.clients.streams import next_event

        return next_event(self, view, where, timeout, on, other_thread)

    def query(self, sql: Question) -> "pl.DataFrame":
        """What a SELECT of DuckDB's SQL gives over the views and relations as the last event left them.

        Views stand for relations wherever a view holds what is asked of them; other relations need their
        rows kept. DECIMAL is exact, timestamps are Datetime("ns") in UTC; `:name` is a parameter of the
        program. Raises SqlError with line and column, DataError where rows are not kept.
        """
        from orderbook.clients.queries import query

        return query(self, sql)

    def cube(self, view: str) -> "Cube":
        """The groups of a view with GROUPING SETS, ROLLUP or CUBE, by all its dimensions at first.

        `engine.cube("depth").rollup("venue").slice(symbol="BTC-USD").drill_down("level")` has the groups by
        venue and level of one symbol. Levels are told apart by GROUPING(…) among the view's columns, or by
        NULL where no dimension can be NULL itself. Raises DataError for another view.
        """
        from orderbook.clients.cubes import cube

        return cube(self, view)

    async def query_async(self, sql: Question) -> "pl.DataFrame":
        """`query` of which the engine's thread, that of the running loop, only copies the rows.

        Cancelling it stops the query.
        """
        from orderbook.clients.queries import answer_async

        return (await answer_async(self, sql))[0]

    def query_plan(self, sql: Question) -> "QueryPlan":
        """Of which views and relations `query` answers; `str` of it explains. Raises SqlError."""
        from orderbook.clients.queries import planned

        return planned(self.program, sql)
