"""Continuous queries in the run: what changes in a view from one look to the next.

A look takes the view's rows as words between two messages and compares them with those of the last. So a
query costs the engine nothing for a message, whatever is followed, and a look that nobody could take is made
up for by the next.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.configuration.options import QueryOptions
from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import DataError, OrderbookError
from orderbook.engine.plan.describe import Cost
from orderbook.engine.runtime.compile_process import WorkLimits
from orderbook.engine.runtime.live_view import LiveView
from orderbook.engine.runtime.program_replacement import Replacement
from orderbook.monitor.messages import (
    FOLLOWED,
    Answer,
    Changes,
    Follow,
    FollowEnded,
    FollowSnapshot,
    TopicFrame,
    body_of,
    is_followed,
    wire_version,
)
from orderbook.monitor.publisher import Mailbox
from orderbook.monitor.view_topic import (
    RowReader,
    columns_of,
    converters,
    differences,
    first_rows,
    row_values,
)
from orderbook.strategies.gated_engine import GatedEngine

# Rows of a view that are followed: its first ones.
MOST_ROWS = 20_000
# What keeping a continuous query may take for an event.
MOST_COST = Cost.SLICE
_NO_CHANGES = ChangeBatch(np.empty(0, np.int16), np.empty(0, np.uint8), np.empty((0, 1), np.int64))
# Seconds between two marks of progress where nothing changes.
_PROGRESS_SECONDS = 0.5


def work_limits(options: QueryOptions) -> WorkLimits:
    """What compiling SQL of clients may take."""
    return WorkLimits(options.compile_seconds, options.compile_memory_bytes)


class Followed:
    """One continuous query; a TopicSource that posts messages instead of frames."""

    def __init__(self, name: str, view: str, engine: GatedEngine, mailbox: Mailbox) -> None:
        self.view = view
        self.adding: Replacement | None = None
        self._name, self._engine, self._mailbox = name, engine, mailbox
        self._waiting: list[tuple[int, int]] = []
        self._words: NDArray[np.int64] | None = None
        self._reader: RowReader | None = None
        self._told_at = 0.0
        self._beyond = 0

    def ask(self, client: int, number: int) -> None:
        """A client is to have a snapshot."""
        self._waiting.append((client, number))

    def frame(self) -> TopicFrame | None:
        """See TopicSource. Raises DataError where the view is gone."""
        engine = self._engine
        if self.adding is not None:
            if not self.adding.done:
                return None
            if self.adding.error is not None:
                raise DataError(str(self.adding.error))
            self.adding = None
        if not engine.between_messages:
            return None
        view = engine[self.view]
        now = view.row_words()
        reader = self._reader if self._reader and self._reader.layout is view.layout else RowReader(view)
        self._beyond = 0
        if len(now) > MOST_ROWS:
            # In the engine's order, in which rows mostly stay where they are.
            first = now.take(np.sort(first_rows(view.layout, now, MOST_ROWS)), 0)
            self._beyond = reader.count(now) - reader.count(first)
            now = first
        if self._words is not None and self._reader is not None:
            self._post_changes(view, reader, now)
        else:
            self._words = now
        self._reader = reader
        while self._waiting and self._words is now:
            self._post_snapshot(view, reader, now, *self._waiting.pop())
        return None

    def _post_changes(self, view: LiveView, reader: RowReader, now: NDArray[np.int64]) -> None:
        assert self._words is not None and self._reader is not None
        version = self._engine.version
        gone, come = differences(self._words, now)
        body = b""
        if len(gone) or len(come):
            columns = converters(view)
            changes = [[-row.multiplicity, *row_values(row, columns)] for _, row in self._reader.rows(gone)]
            changes += [[row.multiplicity, *row_values(row, columns)] for _, row in reader.rows(come)]
            message = {"type": "changes", "version": wire_version(version), "changes": changes}
            body = body_of(self._cut(message))
        elif not self._waiting and time.monotonic() - self._told_at < _PROGRESS_SECONDS:
            self._words = now
            return
        # What has no room now is in the next look's changes.
        if self._mailbox.post(Changes(self._name, version, body)):
            self._words = now
            self._told_at = time.monotonic()

    def _post_snapshot(
        self, view: LiveView, reader: RowReader, now: NDArray[np.int64], client: int, number: int
    ) -> None:
        columns = converters(view)
        rows = [row for _, row in reader.rows(now)]
        version = self._engine.version
        message: dict[str, Any] = {
            "type": "snapshot",
            "version": wire_version(version),
            "keys": view.layout.result.shown_keys,
            "columns": columns_of(view),
            "rows": [row_values(row, columns) for row in rows],
        }
        self._cut(message)
        counts = [row.multiplicity for row in rows]
        if any(count != 1 for count in counts):
            message["counts"] = counts
        if not self._mailbox.post(FollowSnapshot(self._name, client, number, version, body_of(message))):
            error = {"type": "error", "error": "the server is too busy for a snapshot; follow again"}
            self._mailbox.post(Answer(client, number, body_of(error)))

    def _cut(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message, which says how many rows there are beyond those that are followed."""
        if self._beyond:
            message["beyond"] = self._beyond
        return message

    def close(self) -> None:
        """See TopicSource."""


class Replacing:
    """Lets views come and go while no changes do, with which they would; a TopicSource without frames."""

    def __init__(self, engine: GatedEngine) -> None:
        self._engine = engine
        self._waiting: list[Replacement] = []

    def wait(self, replacement: Replacement) -> Replacement:
        """See to it that this one is done."""
        self._waiting.append(replacement)
        return replacement

    def frame(self) -> TopicFrame | None:
        """See TopicSource."""
        self._waiting = [one for one in self._waiting if not one.done]
        if self._waiting and self._engine.between_messages:
            self._engine.apply(_NO_CHANGES)
        return None

    def close(self) -> None:
        """See TopicSource."""


class Follows:
    """Opens and closes continuous queries; `add` and `remove` give and take their turns."""

    def __init__(
        self,
        engine: GatedEngine,
        mailbox: Mailbox,
        replacing: Replacing,
        add: Callable[[str, Followed], object],
        remove: Callable[[str], object],
        options: QueryOptions,
    ) -> None:
        self._engine, self._mailbox, self._replacing = engine, mailbox, replacing
        self._add, self._remove = add, remove
        self._limits, self._most = work_limits(options), options.views
        self._open: dict[str, Followed] = {}
        # Of views that are going, what lets them go.
        self._dropping: dict[str, Replacement] = {}

    def open(self, name: str, client: int, request: Follow) -> None:
        """Begin a query where it is not under way, and have a snapshot given."""
        if name not in self._open:
            try:
                followed = self._begin(name, request)
            except OrderbookError as error:
                self._mailbox.post(FollowEnded(name, str(error)))
                return
            self._open[name] = followed
            self._add(name, followed)
        self._open[name].ask(client, request.id)

    def close(self, name: str) -> None:
        """End a query; a view that was added for it goes."""
        followed = self._open.pop(name, None)
        if followed is not None:
            self._remove(name)
            self._drop(followed)

    def failed(self, name: str, error: OrderbookError) -> None:
        """A query cannot go on."""
        followed = self._open.pop(name, None)
        self._mailbox.post(FollowEnded(name, str(error)))
        if followed is not None:
            self._drop(followed)

    def _begin(self, name: str, request: Follow) -> Followed:
        if request.view is not None:
            self._engine[request.view]
            return Followed(name, request.view, self._engine, self._mailbox)
        assert request.sql is not None
        sql = request.sql
        if sum(is_followed(one.view) for one in self._open.values()) >= self._most:
            raise DataError(
                f"{self._most} continuous queries of SQL are followed already, the limit; "
                "follow one of them, or a view"
            )
        view = FOLLOWED + hashlib.sha256(sql.encode()).hexdigest()[:12]
        followed = Followed(name, view, self._engine, self._mailbox)
        dropping = self._dropping.pop(view, None)
        if view not in self._engine.views or (dropping is not None and not dropping.done):
            limits = replace(self._limits, cost=MOST_COST)
            # As a text, whatever it may be the name of.
            adding = self._engine.add_view({view: sql}, name=view, background=True, limits=limits)
            followed.adding = self._replacing.wait(adding)
        return followed

    def _drop(self, followed: Followed) -> None:
        view, adding = followed.view, followed.adding
        coming = adding is not None and not adding.done
        if is_followed(view) and (coming or view in self._engine.views):
            self._dropping = {name: one for name, one in self._dropping.items() if not one.done}
            dropping = self._engine.drop_view(view, background=True, limits=self._limits)
            self._dropping[view] = self._replacing.wait(dropping)
