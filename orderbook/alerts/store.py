"""What is kept of alerts: their history, what is silenced, and the notifications that are still to be sent.

One SQLite database, in a folder or in memory; any thread may call it. An alert is told from others by its
rule, its row's key and the version at which its condition came to hold, so that what a run's log brings again
after a crash is known. A notification is told from others by its alert, channel, kind and number: it is made
once, and has the same id at every attempt.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from orderbook.core.errors import SourceError
from orderbook.engine.runtime.subscriptions import Version

NotificationKind = Literal["raised", "resolved", "repeated", "escalated", "suppressed"]
# Notifications that wait for one channel at most.
MOST_WAITING = 10_000
_LAYOUT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS alerts (
    id TEXT PRIMARY KEY, rule TEXT, view TEXT, severity TEXT, key TEXT, packed_key BLOB, row TEXT,
    message TEXT, stamp INTEGER, switch INTEGER, seq INTEGER, raised INTEGER,
    over_stamp INTEGER, over_switch INTEGER, over_seq INTEGER, over INTEGER,
    acknowledged INTEGER, acknowledged_by TEXT, told INTEGER, limited INTEGER, step INTEGER, repeats INTEGER,
    due INTEGER);
CREATE INDEX IF NOT EXISTS alerts_open ON alerts (rule) WHERE over IS NULL;
CREATE INDEX IF NOT EXISTS alerts_due ON alerts (due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS alerts_told ON alerts (rule, told) WHERE told IS NOT NULL;
CREATE INDEX IF NOT EXISTS alerts_over ON alerts (over) WHERE over IS NOT NULL;
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, alert TEXT, channel TEXT, kind TEXT, body TEXT,
    made INTEGER, attempts INTEGER, next INTEGER, state TEXT, problem TEXT);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (channel, next) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS outbox_alert ON outbox (alert);
CREATE TABLE IF NOT EXISTS limits (rule TEXT PRIMARY KEY, until INTEGER, count INTEGER);
CREATE TABLE IF NOT EXISTS silences (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT, match TEXT, until INTEGER, by TEXT, made INTEGER);
"""


class Alert(msgspec.Struct, frozen=True):
    """An alert as it is kept. Times are ns since 1970 by the run's clock.

    since: the version at which its condition came to hold. key: JSON array. row: JSON object. over: when it
    was cleared. told: when its channels were; limited: not, because of the rate limit.
    """

    id: str
    rule: str
    view: str
    severity: str
    key: str
    row: str
    message: str
    since: Version
    raised: int
    over: int | None
    acknowledged: int | None
    acknowledged_by: str | None
    told: int | None
    limited: int | None


class Waiting(msgspec.Struct, frozen=True):
    """A notification that a channel is to be given."""

    id: str
    body: str
    made: int
    attempts: int


class Silence(msgspec.Struct, frozen=True):
    """Alerts of `rule` ("*": of all) whose row has these values are told to nobody, until `until`."""

    id: int
    rule: str
    match: dict[str, str]
    until: int
    by: str


class Stored(msgspec.Struct):
    """What a rule needs to know of an alert of a run before, and makes of it as the log comes again."""

    id: str
    since: Version
    over: Version | None
    packed_key: bytes


def alert_id(rule: str, key: str, since: Version) -> str:
    """The id of an alert."""
    return hashlib.sha256(f"{rule}\0{key}\0{since}".encode()).hexdigest()[:24]


def notification_id(alert: str, channel: str, kind: NotificationKind, number: int) -> str:
    """The id of a notification: that of its alert or limit, and what tells it from others of that."""
    return "n_" + hashlib.sha256(f"{alert}\0{channel}\0{kind}\0{number}".encode()).hexdigest()[:24]


_ALERT = (
    "id, rule, view, severity, key, row, message, stamp, switch, seq, raised, over, acknowledged, "
    "acknowledged_by, told, limited"
)


def _alert(row: Sequence[Any]) -> Alert:
    id_, rule, view, severity, key, values, message, stamp, switch, seq, *rest = row
    return Alert(id_, rule, view, severity, key, values, message, (stamp, switch, seq), *rest)


class AlertStore:
    """folder None: in memory. Raises SourceError where the file cannot be used.

    keep: how many alerts that are over stay, and as many notifications that are done with.
    """

    def __init__(self, folder: Path | None, keep: int) -> None:
        self._lock = threading.RLock()
        self._keep = keep
        file = None if folder is None else folder / "alerts.db"
        self._name = str(file or "memory")
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                file or ":memory:", timeout=2.0, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            # A transaction survives a power failure once it has returned.
            self._db.execute("PRAGMA synchronous = FULL")
            # One run at a time: another's would send everything once more.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            (layout,) = self._db.execute("PRAGMA user_version").fetchone()
            if layout not in (0, _LAYOUT):
                raise SourceError(f"{file}: of another version of orderbook; choose another alerting.folder")
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_LAYOUT}; COMMIT;")
        except (sqlite3.Error, OSError) as error:
            raise SourceError(
                f"{file or folder}: cannot be used: {error}; end the run that has it, or choose another "
                "alerting.folder"
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything within survives a crash afterwards, or nothing. Raises SourceError."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise SourceError(f"{self._name}: {error}; see to the disk") from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def stored(self, rule: str) -> dict[str, list[Stored]]:
        """What is kept of a rule's alerts, by the row's key, the oldest first."""
        found: dict[str, list[Stored]] = {}
        for key, id_, packed, *versions in self._rows(
            "SELECT key, id, packed_key, stamp, switch, seq, over_stamp, over_switch, over_seq FROM alerts "
            "WHERE rule = ? ORDER BY stamp, switch, seq",
            (rule,),
        ):
            since, over = tuple(versions[:3]), None if versions[3] is None else tuple(versions[3:])
            found.setdefault(key, []).append(Stored(id_, since, over, packed))
        return found

    def read(self, db: sqlite3.Connection, id_: str) -> Alert:
        """An alert that is kept, within a transaction."""
        return _alert(db.execute(f"SELECT {_ALERT} FROM alerts WHERE id = ?", (id_,)).fetchone())

    def alerts(self, most: int) -> list[Alert]:
        """Those that are open, then those that are over; the newest first, and at most so many of each."""
        ends = ("over IS NULL ORDER BY raised DESC", "over IS NOT NULL ORDER BY over DESC, raised DESC")
        return [
            _alert(row)
            for end in ends
            for row in self._rows(f"SELECT {_ALERT} FROM alerts WHERE {end} LIMIT ?", (most,))
        ]

    def silences(self, now: int) -> list[Silence]:
        """Those that have not ended."""
        rows = self._rows("SELECT id, rule, match, until, by FROM silences WHERE until > ?", (now,))
        return [Silence(id_, rule, msgspec.json.decode(match), *rest) for id_, rule, match, *rest in rows]

    def open_count(self) -> int:
        """How many alerts are not over."""
        return int(self._rows("SELECT COUNT(*) FROM alerts WHERE over IS NULL")[0][0])

    def waiting(self, channel: str) -> int:
        """Notifications that a channel has not taken."""
        rows = self._rows("SELECT COUNT(*) FROM outbox WHERE channel = ? AND state = 'waiting'", (channel,))
        return int(rows[0][0])

    def next(self, channel: str, now: int) -> Waiting | int | None:
        """The notification that a channel is to be given now, or when one is due, or None without any.

        Those of one alert are given in the order in which they were made: its end after its beginning.
        """
        rows = self._rows(
            "SELECT id, body, made, attempts, next FROM outbox AS one "
            "WHERE channel = ? AND state = 'waiting' "
            "AND NOT EXISTS (SELECT 1 FROM outbox AS before WHERE before.alert = one.alert "
            "AND one.alert <> '' AND before.channel = one.channel AND before.state = 'waiting' "
            "AND before.number < one.number) "
            "ORDER BY next > ?, CASE WHEN next > ? THEN next ELSE number END LIMIT 1",
            (channel, now, now),
        )
        if not rows:
            return None
        *waiting, due = rows[0]
        return int(due) if due > now else Waiting(*waiting)

    def attempted(self, id_: str, due: int, problem: str) -> None:
        """An attempt failed; the next is due then."""
        with self.transaction() as db:
            db.execute(
                "UPDATE outbox SET attempts = attempts + 1, next = ?, problem = ? WHERE id = ?",
                (due, problem, id_),
            )

    def done(self, id_: str, state: Literal["sent", "given up"]) -> None:
        """A notification is done with."""
        with self.transaction() as db:
            db.execute("UPDATE outbox SET state = ?, attempts = attempts + 1 WHERE id = ?", (state, id_))

    def prune(self) -> None:
        """Forget the oldest of what is over."""
        with self.transaction() as db:
            db.execute(
                "DELETE FROM alerts WHERE over <= (SELECT over FROM alerts WHERE over IS NOT NULL "
                "ORDER BY over DESC LIMIT 1 OFFSET ?)",
                (self._keep,),
            )
            db.execute(
                "DELETE FROM outbox WHERE state != 'waiting' "
                "AND number <= (SELECT MAX(number) FROM outbox) - ?",
                (self._keep,),
            )
            db.execute("DELETE FROM silences WHERE id <= (SELECT MAX(id) FROM silences) - ?", (self._keep,))

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise SourceError(f"{self._name}: {error}; see to the disk") from error
