"""Decides who is told what, and has it sent: a thread that keeps alerts, and one for each channel.

The engine's thread only puts what happens into a queue of bounded length. An alert that is raised is told
unless it is silenced or more than the rule's rate limit allows; while it is open and nobody has acknowledged
it, it is told again and to others. All that is in the store before anything is sent.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import TypeVar

import msgspec

from orderbook.alerts.channels import Channel, DeliveryError
from orderbook.alerts.messages import alert_data, message_of, row_json
from orderbook.alerts.rules import Cleared, Raised, Transition
from orderbook.alerts.store import (
    MOST_WAITING,
    Alert,
    AlertStore,
    NotificationKind,
    Silence,
    notification_id,
)
from orderbook.configuration.alert_options import AlertOptions, ChannelOptions, rate_of
from orderbook.core.errors import DataError, Problems
from orderbook.core.files import packed
from orderbook.core.units import delay
from orderbook.sinks.outbox import key_text

_T = TypeVar("_T")

# Alerts that are raised and wait to be kept, at most.
MOST_QUEUED = 10_000
_TOGETHER = 500
# Seconds between two looks at what is due by the clock, and after which the oldest is forgotten.
_LOOK, _PRUNE = 0.1, 60.0
# Seconds before a notification is tried again: doubled from the first to the longest.
_FIRST, _LONGEST = 0.5, 60.0

_logger = logging.getLogger("orderbook.alerts")


@dataclass(slots=True)
class ChannelReport:
    """What became of a channel's notifications by this run. waiting: that it has not taken."""

    name: str
    sent: int
    waiting: int
    failures: int
    given_up: int


class ChannelWorker:
    """Sends what waits for one channel, by a thread of its own."""

    def __init__(
        self, name: str, channel: Channel, store: AlertStore, give_up: int, now: Callable[[], int],
        problems: Problems,
    ) -> None:  # fmt: skip
        self.name = name
        self.sent = self.failures = self.given_up = self.waiting = 0
        self._channel, self._store, self._give_up, self._now = channel, store, give_up, now
        self._problems = problems
        self._failing = self._ended = False
        self._wake = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"alerts {name}", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def close(self, end: float) -> None:
        """Send what is due while that succeeds, until `end` of time.monotonic; the rest is the next run's."""
        self._ended = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        try:
            while not (self._ended and self._failing):
                self._wake.clear()
                found = self._store.next(self.name, self._now())
                if found is not None and not isinstance(found, int):
                    self._attempt(found.id, found.body, found.made, found.attempts)
                elif self._ended:
                    return
                else:
                    self._wake.wait(None if found is None else max(0.001, (found - self._now()) / 1e9))
        except Exception as error:
            self.failure = error

    def _attempt(self, id_: str, body: str, made: int, attempts: int) -> None:
        try:
            self._channel.send(id_, body)
        except DeliveryError as error:
            self.failures += 1
            self._problems.add("alert not delivered", self.name, str(error))
            if not self._failing:
                _logger.warning(
                    "channel %s: %s; what it is not given waits, and is tried again", self.name, error
                )
            self._failing = True
            now = self._now()
            if now - made >= self._give_up:
                self.given_up += 1
                self._store.done(id_, "given up")
                return
            wait = max(error.wait, min(_LONGEST, _FIRST * 2 ** min(attempts, 20)) * random.uniform(0.5, 1.0))
            self._store.attempted(id_, now + int(wait * 1e9), str(error)[:500])
        else:
            self._store.done(id_, "sent")
            self.sent += 1
            self._failing = False


class Notifier:
    """Takes what happens to alerts. `put` is for the engine's thread; all else may be called by any.

    now: the time, ns since 1970.
    """

    def __init__(
        self,
        rules: Mapping[str, AlertOptions],
        channels: Mapping[str, ChannelOptions],
        workers: Sequence[ChannelWorker],
        store: AlertStore,
        now: Callable[[], int],
        problems: Problems,
    ) -> None:
        self._rules, self._channels, self._store, self._now = rules, channels, store, now
        self._workers = {worker.name: worker for worker in workers}
        self._problems = problems
        self._queue: deque[Transition] = deque()
        self._asked: deque[Callable[[], None]] = deque()
        self._wake, self._ended = threading.Event(), False
        self._looked = self._pruned = 0.0
        self.raised = self.open = self.limited = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin; what a run before has left is sent, too."""
        with self._store.transaction() as db:
            known = ", ".join("?" * len(self._workers))
            db.execute(
                f"UPDATE outbox SET state = 'given up' WHERE state = 'waiting' AND channel NOT IN ({known})",
                tuple(self._workers),
            )
        self._thread.start()
        for worker in self._workers.values():
            worker.start()

    def put(self, transition: Transition) -> bool:
        """Take what happened; False for an alert that is raised where there is no room."""
        if isinstance(transition, Raised) and len(self._queue) >= MOST_QUEUED:
            return False
        self._queue.append(transition)
        self._wake.set()
        return True

    def ask(self, question: Callable[[], _T]) -> "Future[_T]":
        """What `question` gives, called by the thread of alerts between two transactions."""
        answer: Future[_T] = Future()

        def answered() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._asked.append(answered)
        self._wake.set()
        return answer

    def flush(self, seconds: float) -> None:
        """All that was put is kept on return. Raises what keeps it from that, and TimeoutError."""
        if self._thread.is_alive():
            self.ask(self._keep_all).result(seconds)
        else:
            self._keep_all()
        if self.failure is not None:
            raise self.failure

    def close(self, seconds: float) -> None:
        """Keep what was put, and send for some seconds what is due."""
        end = time.monotonic() + seconds
        self._ended = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        for worker in self._workers.values():
            worker.close(end)
        self._count()

    def acknowledge(self, alert: str, by: str) -> int:
        """Nobody else is told of an alert, by its id, or of a rule's open ones; how many these were.

        Raises DataError where there is no such alert.
        """
        with self._store.transaction() as db:
            found = db.execute(
                "UPDATE alerts SET acknowledged = ?, acknowledged_by = ?, due = NULL "
                "WHERE over IS NULL AND acknowledged IS NULL AND (id = ? OR rule = ?)",
                (self._now(), by, alert, alert),
            ).rowcount
            known = db.execute(
                "SELECT COUNT(*) FROM alerts WHERE id = ? OR rule = ?", (alert, alert)
            ).fetchone()
        if not known[0] and alert not in self._rules:
            raise DataError(f"no alert {alert!r}; give the id of one, or the name of a rule")
        return int(found)

    def silence(self, rule: str, match: Mapping[str, str], seconds: float, by: str) -> Silence:
        """Alerts of a rule ("*": of all) with such a row are told to nobody meanwhile. Raises DataError."""
        if rule != "*" and rule not in self._rules:
            raise DataError(f"no alert is named {rule!r}; give one of {', '.join(self._rules)}, or *")
        if not 0 < seconds <= 366 * 86400:
            raise DataError("a silence lasts more than 0 s and at most 366 days")
        now = self._now()
        until = now + int(seconds * 1e9)
        with self._store.transaction() as db:
            id_ = db.execute(
                "INSERT INTO silences (rule, match, until, by, made) VALUES (?, ?, ?, ?, ?)",
                (rule, msgspec.json.encode(dict(match)).decode(), until, by, now),
            ).lastrowid
        assert id_ is not None
        return Silence(id_, rule, dict(match), until, by)

    def end_silence(self, id_: int) -> None:
        """Alerts are told again. Raises DataError where there is no such silence."""
        now = self._now()
        with self._store.transaction() as db:
            if not db.execute(
                "UPDATE silences SET until = ? WHERE id = ? AND until > ?", (now, id_, now)
            ).rowcount:
                raise DataError(f"no silence {id_}")
            # Whoever it kept quiet is looked at again.
            db.execute(
                "UPDATE alerts SET due = ? WHERE over IS NULL AND told IS NULL AND due IS NOT NULL", (now,)
            )

    def reports(self) -> list[ChannelReport]:
        """What became of each channel's notifications; what waits is counted now and then."""
        return [
            ChannelReport(one.name, one.sent, one.waiting, one.failures, one.given_up)
            for one in self._workers.values()
        ]

    def attend(self) -> None:
        """Raises what a thread has failed at: the run must not go on without it."""
        for failure in (self.failure, *(worker.failure for worker in self._workers.values())):
            if failure is not None:
                raise failure

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(_LOOK)
                self._wake.clear()
                ended = self._ended
                self._keep_all()
                while self._asked:
                    self._asked.popleft()()
                self._look()
                if ended:
                    return
        except Exception as error:
            self.failure = error

    def _keep_all(self) -> None:
        while count := min(_TOGETHER, len(self._queue)):
            with self._store.transaction() as db:
                for number in range(count):
                    transition = self._queue[number]
                    if isinstance(transition, Raised):
                        self._keep(db, transition)
                    else:
                        self._end(db, transition)
            # Only now: whoever asks for all to be kept must not find it empty before.
            for _ in range(count):
                self._queue.popleft()
            self._wake_workers()

    def _wake_workers(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    def _keep(self, db: Connection, raised: Raised) -> None:
        options, event = self._rules[raised.rule], raised.event
        row = event.new or event.old
        assert row is not None
        stamp, switch, seq = raised.since
        added = db.execute(
            "INSERT OR IGNORE INTO alerts (id, rule, view, severity, key, packed_key, row, message, stamp, "
            "switch, seq, raised, step, repeats, due) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
            (
                raised.id, raised.rule, event.view, options.severity, key_text(event.key),
                packed(list(event.key)), row_json(row), message_of(raised.rule, options.message, row),
                stamp, switch, seq, raised.at, self._now(),
            ),
        ).rowcount  # fmt: skip
        if added:
            self.raised += 1
            self._tell_first(db, self._alert(db, raised.id))

    def _end(self, db: Connection, cleared: Cleared) -> None:
        ended = db.execute(
            "UPDATE alerts SET over_stamp = ?, over_switch = ?, over_seq = ?, over = ?, due = NULL "
            "WHERE id = ? AND over IS NULL",
            (*cleared.version, cleared.at, cleared.id),
        ).rowcount
        if not ended:
            return
        alert = self._alert(db, cleared.id)
        for (channel,) in db.execute(
            "SELECT DISTINCT channel FROM outbox WHERE alert = ? AND kind != 'resolved'", (alert.id,)
        ).fetchall():
            options = self._channels.get(channel)
            if options is not None and options.resolved:
                self._send(db, alert, channel, "resolved", 0)

    def _tell_first(self, db: Connection, alert: Alert) -> None:
        """Tells the channels of a rule of an alert, or has it wait until a silence ends, or limits it."""
        options, now = self._rules[alert.rule], self._now()
        if (until := self._silenced(db, alert, now)) is not None:
            db.execute("UPDATE alerts SET due = ? WHERE id = ?", (until, alert.id))
            return
        most, window = rate_of(options.rate_limit)
        (told,) = db.execute(
            "SELECT COUNT(*) FROM alerts WHERE rule = ? AND told > ?", (alert.rule, now - window)
        ).fetchone()
        if told >= most:
            self.limited += 1
            db.execute("UPDATE alerts SET limited = ?, due = NULL WHERE id = ?", (now, alert.id))
            db.execute(
                "INSERT INTO limits (rule, until, count) VALUES (?, ?, 1) "
                "ON CONFLICT (rule) DO UPDATE SET count = count + 1",
                (alert.rule, now + window),
            )
            return
        for channel in options.channels:
            self._send(db, alert, channel, "raised", 0)
        due = _due(options, now, 0, 0)
        db.execute("UPDATE alerts SET told = ?, due = ? WHERE id = ?", (now, due, alert.id))

    def _silenced(self, db: Connection, alert: Alert, now: int) -> int | None:
        """Until when an alert is silenced."""
        row = msgspec.json.decode(alert.row)
        ends = [
            until
            for match, until in db.execute(
                "SELECT match, until FROM silences WHERE until > ? AND rule IN (?, '*')", (now, alert.rule)
            ).fetchall()
            if all(_text(row.get(name)) == value for name, value in msgspec.json.decode(match).items())
        ]
        return max(ends, default=None)

    def _look(self) -> None:
        """What is due by the clock."""
        moment = time.monotonic()
        if moment - self._looked < _LOOK:
            return
        self._looked = moment
        now = self._now()
        with self._store.transaction() as db:
            for id_, step, repeats in db.execute(
                "SELECT id, step, repeats FROM alerts WHERE due <= ? AND over IS NULL LIMIT ?",
                (now, _TOGETHER),
            ).fetchall():
                self._tell_again(db, self._alert(db, id_), step, repeats, now)
            for rule, until, count in db.execute(
                "SELECT rule, until, count FROM limits WHERE until <= ?", (now,)
            ).fetchall():
                self._tell_of_limited(db, rule, until, count)
        self._wake_workers()
        self._count()
        if moment - self._pruned >= _PRUNE:
            self._pruned = moment
            self._store.prune()

    def _count(self) -> None:
        self.open = self._store.open_count()
        for worker in self._workers.values():
            worker.waiting = self._store.waiting(worker.name)

    def _tell_again(self, db: Connection, alert: Alert, step: int, repeats: int, now: int) -> None:
        options = self._rules.get(alert.rule)
        if options is None:
            # The rule is no more; nothing clears the alert either.
            db.execute("UPDATE alerts SET due = NULL WHERE id = ?", (alert.id,))
            return
        if alert.told is None:
            self._tell_first(db, alert)
            return
        if (until := self._silenced(db, alert, now)) is not None:
            db.execute("UPDATE alerts SET due = ? WHERE id = ?", (until, alert.id))
            return
        while step < len(options.escalate) and alert.told + options.escalate[step].nanoseconds <= now:
            for channel in options.escalate[step].channels:
                self._send(db, alert, channel, "escalated", step)
            step += 1
        every = delay(options.repeat)
        if every and alert.told + every * (repeats + 1) <= now:
            # Those that were missed, while there was no run, are one.
            repeats = (now - alert.told) // every
            reached = [one for earlier in options.escalate[:step] for one in earlier.channels]
            for channel in dict.fromkeys([*options.channels, *reached]):
                self._send(db, alert, channel, "repeated", repeats)
        due = _due(options, alert.told, step, repeats)
        db.execute(
            "UPDATE alerts SET step = ?, repeats = ?, due = ? WHERE id = ?", (step, repeats, due, alert.id)
        )

    def _tell_of_limited(self, db: Connection, rule: str, until: int, count: int) -> None:
        db.execute("DELETE FROM limits WHERE rule = ?", (rule,))
        options = self._rules.get(rule)
        for channel in () if options is None else options.channels:
            id_ = notification_id(rule, channel, "suppressed", until)
            assert options is not None
            data = {
                "name": rule, "severity": options.severity, "count": count,
                "message": f"{rule}: {count:,} more, of which nobody was told (limit {options.rate_limit})",
            }  # fmt: skip
            self._queue_for(db, id_, "", channel, "suppressed", data)

    def _send(self, db: Connection, alert: Alert, channel: str, kind: NotificationKind, number: int) -> None:
        id_ = notification_id(alert.id, channel, kind, number)
        self._queue_for(db, id_, alert.id, channel, kind, alert_data(alert))

    def _queue_for(
        self, db: Connection, id_: str, alert: str, channel: str, kind: NotificationKind,
        data: Mapping[str, object],
    ) -> None:  # fmt: skip
        (waiting,) = db.execute(
            "SELECT COUNT(*) FROM outbox WHERE channel = ? AND state = 'waiting'", (channel,)
        ).fetchone()
        if waiting >= MOST_WAITING:
            self._problems.add("alert not sent", channel, f"more than {MOST_WAITING:,} notifications wait")
            return
        now = self._now()
        at = datetime.fromtimestamp(now / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        body = msgspec.json.encode({"type": f"alert.{kind}", "timestamp": at, "data": data}).decode()
        db.execute(
            "INSERT OR IGNORE INTO outbox (id, alert, channel, kind, body, made, attempts, next, state) "
            "VALUES (?, ?, ?, ?, ?, ?, 0, ?, 'waiting')",
            (id_, alert, channel, kind, body, now, now),
        )

    def _alert(self, db: Connection, id_: str) -> Alert:
        return self._store.read(db, id_)


def _due(options: AlertOptions, told: int, step: int, repeats: int) -> int | None:
    """When somebody is to be told of an alert next."""
    every, steps = delay(options.repeat), options.escalate[step : step + 1]
    return min(
        [told + one.nanoseconds for one in steps] + [told + every * (repeats + 1)] * bool(every), default=None
    )


def _text(value: object) -> str:
    """A value of a row's JSON as silences have it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
