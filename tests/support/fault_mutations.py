"""Breakages of the session and of its books, each of which runs with faults must find."""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from simulated_venue import Dialect

from orderbook.feeds.exchanges.books import CheckedBook, JoinedBook, SnapshotJoin, StreamBook
from orderbook.feeds.exchanges.coinbase_full import CoinbaseBook
from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.feeds.exchanges.kraken import Kraken
from orderbook.feeds.live.session import Session


@dataclass(frozen=True)
class Mutation:
    """In the source of a method `old` becomes `new`; runs of this dialect show it, or of either."""

    kind: type
    method: str
    old: str
    new: str
    dialect: Dialect | None = None


MUTATIONS = {
    "resets are not detected": Mutation(
        SnapshotJoin, "_passed", "return self._late < LATE_IN_A_ROW", "return True", "orders"
    ),
    "gaps are not detected": Mutation(SnapshotJoin, "arrive", "if not follows:", "if False:", "orders"),
    "late messages are applied": Mutation(
        SnapshotJoin, "arrive", "if rule.consecutive and self._passed():", "if False:", "orders"
    ),
    "heartbeats tell nothing": Mutation(
        SnapshotJoin, "miss", "known = self.last is not None", "return Arrival.CONTAINED", "orders"
    ),
    "held messages stay after a gap": Mutation(SnapshotJoin, "lose", "self._held.clear()", "pass", "orders"),
    "any snapshot fits": Mutation(
        SnapshotJoin,
        "join",
        "if newer and not (rule.joins(snapshot, newer[0]) if rule.consecutive else begins_before):",
        "if False:",
        "orders",
    ),
    "messages that a snapshot contains are applied": Mutation(
        SnapshotJoin, "join", "if not rule.contains(snapshot, span)", "", "orders"
    ),
    "a connection keeps the place of the one before": Mutation(
        SnapshotJoin, "reset", "self._arrived = None", "pass", "orders"
    ),
    "valid before held messages are applied": Mutation(
        JoinedBook, "snapshot", "book.end()\n", "book.end()\n    link.synchronised(book)\n", "orders"
    ),
    "a message that cannot be applied is skipped": Mutation(
        JoinedBook,
        "_applied",
        "self._link.lose(self.book, StateReason.MALFORMED, where)",
        "return True",
        "orders",
    ),
    "a book does not forget the orders before its snapshot": Mutation(
        CoinbaseBook, "load", "self._left.clear()", "pass", "orders"
    ),
    "what is half written stays": Mutation(FeedBook, "undo", "self._events.undo()", "pass"),
    "a lost book keeps its rows": Mutation(FeedBook, "become", "self.clear()", "pass"),
    "checksums are not looked at": Mutation(
        StreamBook, "_applied", "if wrong is not None:", "if False:", "levels"
    ),
    "updates before a snapshot are applied": Mutation(
        StreamBook, "update", "if self.synchronised:", "if True:", "levels"
    ),
    "a snapshot is added to what was there": Mutation(
        StreamBook, "snapshot", "self._forget()", "pass", "levels"
    ),
    "levels below the depth stay": Mutation(
        CheckedBook, "_keep", "if self.depth is not None:", "if False:", "levels"
    ),
    "a malformed message is skipped": Mutation(
        Session, "_unreadable", "if not placed and not self._exchange.loss_shows:", "if False:", "levels"
    ),
    "a book is subscribed to again without end of the old subscription": Mutation(
        Kraken,
        "resubscribe",
        'return [_request("unsubscribe", book), _request("subscribe", book)]',
        'return [_request("subscribe", book)]',
        "levels",
    ),
    "silence is not noticed": Mutation(
        Session, "wake", "if now >= self._heard + self._exchange.silence:", "if False:"
    ),
    "books stay valid after the end of their connection": Mutation(
        Session, "disconnected", "self._changes(sync, BookState.STALE, self.end_reason)", "pass"
    ),
    "a lost book is valid": Mutation(
        Session, "lose", "self._changes(sync, BookState.SYNCING, reason)", "pass"
    ),
    "a book that is lost again waits anew": Mutation(
        Session,
        "lose",
        "sync.deadline = min(sync.deadline, now + PATIENCE)\n    if not sync.asked and sync.due == inf:",
        "sync.deadline = now + PATIENCE\n    if not sync.asked:",
        "orders",
    ),
    "a book may synchronise for ever": Mutation(
        Session, "_advance", "if now >= sync.deadline and not self._closing:", "if False:", "levels"
    ),
    "Retry-After is not respected": Mutation(
        Session, "failed", "self._next_get = max(self._next_get, now + retry_after)", "pass", "orders"
    ),
    "requests of ended connections do not count": Mutation(
        Session, "disconnected", "sync.wait()", "sync.wait()\n            sync.requests = 0", "orders"
    ),
    "messages are sent without pause": Mutation(
        Session, "_flush", "outgoing.next = now + self._exchange.send_interval", "pass", "levels"
    ),
    "connections are made without pause": Mutation(
        Session, "disconnected", "delay = self._reconnects.delay()", "delay = 0.01"
    ),
    "receive times go back": Mutation(Session, "_at", "if receive_time < self.receive_time:", "if False:"),
}


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The breakage, inside of this."""
    original: Any = mutation.kind.__dict__[mutation.method]
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(mutation.old) >= 1, f"{mutation.method} has no {mutation.old!r} any more"
    found: dict[str, Any] = {}
    exec(source.replace(mutation.old, mutation.new, 1), vars(sys.modules[mutation.kind.__module__]), found)
    setattr(mutation.kind, mutation.method, found[mutation.method])
    try:
        yield
    finally:
        setattr(mutation.kind, mutation.method, original)
