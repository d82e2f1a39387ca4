"""One connection of a client of PostgreSQL: who it is, what it asks, and the rows that it gets.

Views and relations are read, nothing is changed. Queries go the way of all clients' queries, in their turn,
within their limits; each is answered as of one version. `SUBSCRIBE` gives the changes of a view as they come.
Source: PostgreSQL's documentation, chapter "Frontend/Backend Protocol"; SUBSCRIBE is that of Materialize.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from orderbook.clients.postgres_catalog import SERVER_VERSION, SETTINGS
from orderbook.core.errors import DataError, SqlError
from orderbook.monitor.client import BACKLOG_BYTES, MOST_SQL_FOLLOWS, PATIENCE_SECONDS
from orderbook.monitor.hub import Hub
from orderbook.monitor.messages import Answer, Ask, Cancel, Follow, QuerySql, Topic
from orderbook.monitor.postgres_copy import Copy, CopyOut, copy
from orderbook.monitor.postgres_statements import (
    Statement,
    Subscription,
    statements,
    subscription,
)
from orderbook.monitor.postgres_wire import (
    COLUMN_TYPES,
    MOST_MESSAGE,
    Fields,
    ProtocolError,
    ValueProblem,
    complete,
    data_row,
    encoders,
    failure,
    int16,
    int32,
    literal,
    message,
    ready,
    row_description,
    text,
)

# Prepared statements, and portals and cursors whose rows are kept, of one connection.
MOST_STATEMENTS, MOST_PORTALS = 256, 16
# Rows and bytes that are written at a time.
_CHUNK_BYTES = 1 << 16
_ALL = 1 << 62
# Seconds after which it is looked whether a client is there that waits for changes.
_LOOK_SECONDS = 1.0
_MOST_TEXT = 32_768
_STARTUP = {
    "server_version": SERVER_VERSION, "server_encoding": "UTF8", "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC", "integer_datetimes": "on", "standard_conforming_strings": "on",
    "IntervalStyle": "postgres",
    "default_transaction_read_only": "on", "in_hot_standby": "off", "is_superuser": "off",
}  # fmt: skip
# Statements that have nothing to do here, and what is answered.
_NOTHING = {"SAVEPOINT": "SAVEPOINT", "RELEASE": "RELEASE", "UNLISTEN": "UNLISTEN"}
_ENDS = {"COMMIT": "COMMIT", "END": "COMMIT", "ROLLBACK": "ROLLBACK", "ABORT": "ROLLBACK"}
# What a client sees before the columns of a view in SUBSCRIBE.
_CHANGE_COLUMNS = (("stamp", "integer"), ("switch", "integer"), ("sequence", "integer"), ("diff", "integer"))


class Failed(Exception):
    """A statement that fails, with PostgreSQL's code for it."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


@dataclass(slots=True)
class Answered:
    """Rows of an answer, as messages have them, from `at` on, or the end of a statement that has none."""

    columns: list[tuple[str, str]] | None
    rows: list[list[Any]] = field(default_factory=list)
    tag: str = ""
    at: int = 0
    # A cursor over changes has no end.
    subscribed: "_Changes | None" = None


@dataclass(slots=True)
class _Prepared:
    statement: Statement
    oids: list[int]


@dataclass(slots=True)
class _Portal:
    statement: Statement
    sql: str
    formats: list[int]
    answered: Answered | None = None


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The type and the body of the next message. Raises ProtocolError, asyncio.IncompleteReadError."""
    head = await reader.readexactly(5)
    size = int.from_bytes(head[1:], "big") - 4
    if not 0 <= size <= MOST_MESSAGE:
        raise ProtocolError(f"a message of {size:,} bytes; at most {MOST_MESSAGE:,} are taken")
    return head[:1], await reader.readexactly(size)


class PostgresSession:
    """Serves one connection whose client is let in; see `serve`. `number` tells clients apart.

    reader, writer: the connection, which TLS may encrypt already.
    """

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hub: Hub
    ) -> None:
        self.number, self.has_asked = number, False
        self.secret = secrets.token_bytes(4)
        self._reader, self._writer, self._hub = reader, writer, hub
        self._ids = count(1)
        self._asked: tuple[int, asyncio.Future[dict[str, Any]]] | None = None
        self._follows: dict[int, _Changes] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        self._cursors: dict[str, Answered] = {}
        self._settings = dict(SETTINGS)
        self._status = b"I"
        self._running: asyncio.Task[None] | None = None
        self._cancelled = False

    # What the hub tells.

    def touched(self, topic: Topic) -> None:
        """See Member."""

    def dropped(self, topic: Topic, error: str) -> None:
        """See Member."""

    def enqueue(self, message: bytes) -> None:
        """See Member."""
        said = json.loads(message)
        if (changes := self._follows.get(said["id"])) is not None:
            changes.put(said, len(message))

    def ended(self, number: int, error: str) -> None:
        """See Member."""
        if (changes := self._follows.get(number)) is not None:
            changes.end(error)

    def answered(self, answer: Answer) -> None:
        """See Member."""
        if self._asked is not None and self._asked[0] == answer.id and not self._asked[1].done():
            self._asked[1].set_result(json.loads(b"{" + answer.body + b"}"))

    def cancel(self) -> None:
        """Another connection has asked to give up what is under way."""
        if self._running is not None:
            self._cancelled = True
            self._running.cancel()

    # The connection.

    async def serve(self) -> None:
        """Until the client goes. Raises ProtocolError, OSError, TimeoutError, asyncio.IncompleteReadError."""
        self._hub.members[self.number] = self
        try:
            for name, value in _STARTUP.items():
                self._write(message(b"S", text(name), text(value)))
            self._write(message(b"K", int32(self.number), self.secret), ready(self._status))
            await self._drain()
            await self._answer_all()
        finally:
            self._hub.leave(self)

    async def _answer_all(self) -> None:
        skipping = False
        while True:
            kind, body = await read_message(self._reader)
            if kind == b"X":
                return
            if kind == b"S":
                skipping = False
                self._write(ready(self._status))
                await self._drain()
                continue
            if skipping:
                continue
            try:
                self._running = asyncio.ensure_future(self._answer(kind, Fields(body)))
                await self._running
            except asyncio.CancelledError:
                if not self._cancelled:
                    raise
                self._cancelled = False
                skipping = self._failed("57014", "canceling statement due to user request", kind)
            except Failed as error:
                skipping = self._failed(error.code, str(error), kind)
            except SqlError as error:
                skipping = self._failed("42601", str(error), kind)
            except DataError as error:
                skipping = self._failed("53000", str(error), kind)
            except ValueProblem as error:
                skipping = self._failed("22P02", str(error), kind)
            finally:
                self._running = None
            if kind == b"Q":
                skipping = False
                self._write(ready(self._status))
            if kind in b"QH":
                await self._drain()

    def _failed(self, code: str, said: str, kind: bytes) -> bool:
        """Tell the client; whether what follows is left out until it has heard of it."""
        if self._status == b"T":
            self._status = b"E"
        self._write(failure(code, said))
        return kind != b"Q"

    async def _answer(self, kind: bytes, fields: Fields) -> None:
        match kind:
            case b"Q":
                await self._simple(fields.text())
            case b"P":
                self._parse(fields)
            case b"B":
                self._bind(fields)
            case b"D":
                await self._describe(fields)
            case b"E":
                await self._execute(fields)
            case b"C":
                kinds: dict[bytes, dict[str, Any]] = {b"S": self._prepared, b"P": self._portals}
                kinds.get(fields.take(1), {}).pop(fields.text(), None)
                self._write(message(b"3"))
            case b"H":
                pass
            case b"d" | b"c" | b"f":
                # Of a COPY FROM that was refused.
                pass
            case _:
                raise ProtocolError(f"a message of an unknown type {kind!r}")

    # The simple protocol.

    async def _simple(self, sql: str) -> None:
        found = _statements(sql)
        if not found:
            self._write(message(b"I"))
        for statement in found:
            answered = await self._run(statement, statement.sql)
            if answered is None:
                continue
            if answered.columns is not None:
                self._write(row_description(answered.columns, ()))
                await self._rows(answered, (), 0)
            self._write(complete(answered.tag))

    # The extended protocol.

    def _parse(self, fields: Fields) -> None:
        name, sql = fields.text(), fields.text()
        given = [fields.int32() for _ in range(fields.count())]
        found = _statements(sql)
        if len(found) > 1:
            raise Failed("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else Statement("", (), 0, 0)
        if len(self._prepared) >= MOST_STATEMENTS and name not in self._prepared:
            raise Failed("53400", f"{MOST_STATEMENTS} statements are prepared already; close some")
        self._prepared[name] = _Prepared(statement, statement.types(given))
        self._write(message(b"1"))

    def _bind(self, fields: Fields) -> None:
        name, prepared = fields.text(), self._known(fields.text())
        formats = [fields.int16() for _ in range(fields.count())]
        values = [fields.value() for _ in range(fields.count())]
        if len(formats) not in (0, 1, len(values)):
            raise ProtocolError("formats of other parameters than there are")
        own = [formats[0] if len(formats) == 1 else formats[n] if formats else 0 for n in range(len(values))]
        results = [fields.int16() for _ in range(fields.count())]
        if len(values) != len(prepared.oids):
            raise Failed("08P01", f"{len(values)} parameters for a statement of {len(prepared.oids)}")
        literals = [literal(v, oid, form) for v, oid, form in zip(values, prepared.oids, own, strict=True)]
        if len(self._portals) >= MOST_PORTALS and name not in self._portals:
            raise Failed("53400", f"{MOST_PORTALS} portals are open already; close some")
        sql = prepared.statement.with_values(literals)
        self._portals[name] = _Portal(prepared.statement, sql, results)
        self._write(message(b"2"))

    def _known(self, name: str) -> _Prepared:
        if (prepared := self._prepared.get(name)) is None:
            raise Failed("26000", f'prepared statement "{name}" does not exist')
        return prepared

    def _portal(self, name: str) -> _Portal:
        if (portal := self._portals.get(name)) is None:
            raise Failed("34000", f'portal "{name}" does not exist')
        return portal

    async def _describe(self, fields: Fields) -> None:
        if fields.take(1) == b"S":
            prepared = self._known(fields.text())
            statement, oids = prepared.statement, prepared.oids
            self._write(message(b"t", int16(len(oids)), *map(int32, oids)))
            sql = statement.with_values([_null(oid) for oid in oids])
            columns = await self._columns(statement, sql)
            self._write(message(b"n") if columns is None else row_description(columns, ()))
            return
        name = fields.text()
        if name not in self._portals and (cursor := self._cursors.get(name.lower())) is not None:
            # What DECLARE opens is a portal, too.
            assert cursor.columns is not None
            self._write(row_description(cursor.columns, ()))
            return
        portal = self._portal(name)
        if portal.statement.is_query and portal.answered is None:
            portal.answered = await self._run(portal.statement, portal.sql)
        columns = await self._columns(portal.statement, portal.sql)
        if portal.answered is not None:
            columns = portal.answered.columns
        self._write(message(b"n") if columns is None else row_description(columns, portal.formats))

    async def _columns(self, statement: Statement, sql: str) -> list[tuple[str, str]] | None:
        """The columns that a statement gives, without its rows; None where it gives none."""
        if statement.is_query:
            answer = await self._ask_sql(sql, describe=True)
            return _answer_columns(answer)
        if statement.verb == "SHOW":
            return [(_shown(statement), "text")]
        if statement.verb == "FETCH" and (cursor := self._cursors.get(_last_name(statement))) is not None:
            return cursor.columns
        return None

    async def _execute(self, fields: Fields) -> None:
        portal, most = self._portal(fields.text()), fields.int32()
        if not portal.statement.tokens:
            self._write(message(b"I"))
            return
        if portal.answered is None:
            portal.answered = await self._run(portal.statement, portal.sql)
        answered = portal.answered
        if answered is None:
            portal.answered = Answered(None, tag="COPY 0")
            return
        if answered.columns is not None:
            await self._rows(answered, portal.formats, most)
            if answered.at < len(answered.rows):
                self._write(message(b"s"))
                return
        self._write(complete(answered.tag))

    # Statements.

    async def _run(self, statement: Statement, sql: str) -> Answered | None:
        """What a statement gives; None where all of it was written. Raises Failed, SqlError, DataError."""
        verb = statement.verb
        if self._status == b"E" and verb not in _ENDS:
            raise Failed(
                "25P02", "current transaction is aborted, commands ignored until end of transaction block"
            )
        if statement.is_query:
            answer = await self._ask_sql(sql)
            return Answered(_answer_columns(answer), answer["rows"], f"SELECT {len(answer['rows'])}")
        match verb:
            case "SHOW":
                name = _shown(statement)
                if name not in (known := {n.lower(): v for n, v in self._settings.items()}):
                    raise Failed("42704", f'unrecognized configuration parameter "{name}"')
                return Answered([(name, "text")], [[known[name]]], "SHOW")
            case "SET":
                self._set(statement)
                return Answered(None, tag="SET")
            case "RESET" | "DISCARD":
                name = _last_name(statement)
                kept = {} if name == "all" else {n: v for n, v in self._settings.items() if n.lower() != name}
                self._settings = {**SETTINGS, **kept}
                return Answered(None, tag="RESET" if verb == "RESET" else "DISCARD ALL")
            case "BEGIN" | "START":
                self._status = b"T"
                return Answered(None, tag="BEGIN" if verb == "BEGIN" else "START TRANSACTION")
            case "DECLARE":
                return await self._declare(statement, sql)
            case "FETCH":
                return await self._fetch(statement)
            case "CLOSE":
                name = _last_name(statement)
                for one in list(self._cursors) if name == "all" else [name]:
                    self._close_cursor(one)
                return Answered(None, tag="CLOSE CURSOR")
            case "DEALLOCATE":
                name = _last_name(statement)
                self._prepared = (
                    {} if name == "all" else {n: p for n, p in self._prepared.items() if n != name}
                )
                return Answered(None, tag="DEALLOCATE")
            case "COPY":
                await self._copy(copy(statements(sql)[0]))
                return None
            case "SUBSCRIBE":
                await self._copy(Copy(statements(sql)[0]))
                return None
        if verb in _ENDS:
            to_savepoint = verb == "ROLLBACK" and "TO" in statement.words()
            # A transaction that has failed is not committed.
            tag = "ROLLBACK" if self._status == b"E" else _ENDS[verb]
            self._status = b"T" if to_savepoint else b"I"
            if not to_savepoint:
                for name in list(self._cursors):
                    self._close_cursor(name)
            return Answered(None, tag=tag)
        if verb in _NOTHING:
            return Answered(None, tag=_NOTHING[verb])
        raise Failed(
            "25006", f"{verb} is not possible: views and relations are read here, nothing is changed"
        )

    def _set(self, statement: Statement) -> None:
        tokens = [t for t in statement.tokens[1:] if t.text.upper() not in ("SESSION", "LOCAL")]
        names = [t.text for t in tokens]
        place = next((n for n, name in enumerate(names) if name.upper() in ("TO", "=")), None)
        if place is None or place + 1 >= len(names):
            # SET TRANSACTION …, SET TIME ZONE …: there is one isolation and one time zone.
            return
        name, value = "".join(names[:place]), " ".join(names[place + 1 :])
        known = next((one for one in self._settings if one.lower() == name.lower()), name.lower())
        if known.lower() == "client_encoding" and value.upper().replace("-", "") not in ("UTF8", "UNICODE"):
            raise Failed("22023", f"client_encoding is UTF8, not {value}")
        if known not in self._settings and len(self._settings) >= MOST_STATEMENTS:
            raise Failed("53400", "too many settings")
        # Times are told in UTC, whatever is asked for.
        if known not in SETTINGS or known == "search_path":
            self._settings[known] = value[:1024]

    async def _ask_sql(self, sql: str, describe: bool = False) -> dict[str, Any]:
        """The answer of the run, of one version, which `orderbook.version` then has."""
        number, future = next(self._ids), asyncio.get_running_loop().create_future()
        if len(sql) > _MOST_TEXT:
            raise _too_long()
        self._asked = number, future
        self.has_asked = True
        await self._hub.room()
        self._hub.send(Ask(self.number, QuerySql(number, sql, "postgres", describe, True)))
        try:
            async with asyncio.timeout(self._timeout):
                answer: dict[str, Any] = await future
        except (asyncio.CancelledError, TimeoutError) as error:
            self._hub.send(Ask(self.number, Cancel(next(self._ids), number)))
            if isinstance(error, TimeoutError):
                raise Failed("57014", "canceling statement due to statement timeout") from None
            raise
        finally:
            self._asked = None
        if answer.get("type") != "table":
            said = str(answer.get("error", "no answer came"))
            raise Failed("42P01" if "no view or relation is named" in said else "42601", said)
        if not describe:
            version = ",".join(map(str, answer["version"]))
            if self._settings.get("orderbook.version") != version:
                self._settings["orderbook.version"] = version
                self._write(message(b"S", text("orderbook.version"), text(version)))
        return answer

    @property
    def _timeout(self) -> float | None:
        """Seconds that a statement may take, of `SET statement_timeout`; None: as long as the run's limit."""
        said = self._settings.get("statement_timeout", "0").replace(" ", "").lower()
        for unit, seconds in (("ms", 0.001), ("min", 60.0), ("s", 1.0), ("", 0.001)):
            if said.endswith(unit):
                with suppress(ValueError):
                    return float(said.removesuffix(unit)) * seconds or None
        return None

    # Cursors.

    async def _declare(self, statement: Statement, sql: str) -> Answered:
        words = statement.words()
        place = next((n for n, word in enumerate(words) if word == "FOR"), None)
        if place is None or "CURSOR" not in words[:place]:
            raise SqlError("DECLARE name CURSOR FOR SELECT … or SUBSCRIBE …")
        name = statement.tokens[1].text.lower()
        if len(self._cursors) >= MOST_PORTALS:
            raise Failed("53400", f"{MOST_PORTALS} cursors are open already; close some")
        if name in self._cursors:
            raise Failed("42P03", f'cursor "{name}" already exists')
        whole = statements(sql)[0]
        inner = whole.from_token(next(n for n, word in enumerate(whole.words()) if word == "FOR") + 1)
        if inner.verb == "SUBSCRIBE":
            changes = await self._subscribed(subscription(inner))
            self._cursors[name] = Answered(changes.columns, tag="", subscribed=changes)
        else:
            answered = await self._run(inner, inner.sql)
            if answered is None or answered.columns is None:
                raise SqlError("a cursor is for SELECT … or SUBSCRIBE …")
            self._cursors[name] = answered
        return Answered(None, tag="DECLARE CURSOR")

    async def _fetch(self, statement: Statement) -> Answered:
        """FETCH [FORWARD] [count | ALL | NEXT] [FROM | IN] name [WITH (timeout = '1s')]."""
        words, timeout = statement.words(), None
        if "WITH" in words:
            place = words.index("WITH")
            given = [word for word in words[place + 1 :] if word not in ("(", ")", "=", "TIMEOUT")]
            timeout = _seconds("".join(given).strip("'"))
            words = words[:place]
        names = [w for w in words[1:] if w not in ("FORWARD", "FROM", "IN", "NEXT", "RELATIVE")]
        most = 1
        if names and (names[0] == "ALL" or names[0].isdecimal()):
            most = _ALL if names[0] == "ALL" else int(names[0])
            names = names[1:]
        if len(names) != 1 or (cursor := self._cursors.get(names[0].strip('"').lower())) is None:
            raise Failed("34000", f'cursor "{" ".join(names)}" does not exist')
        if cursor.subscribed is not None:
            taken = await cursor.subscribed.take(most, timeout)
        else:
            taken = cursor.rows[cursor.at : cursor.at + most]
            cursor.at += len(taken)
        return Answered(cursor.columns, taken, f"FETCH {len(taken)}")

    def _close_cursor(self, name: str) -> None:
        cursor = self._cursors.pop(name, None)
        if cursor is not None and cursor.subscribed is not None:
            self._leave(cursor.subscribed)

    # Changes as they come.

    async def _subscribed(self, wanted: Subscription) -> "_Changes":
        number = next(self._ids)
        if wanted.sql is not None and len(self._follows) >= MOST_SQL_FOLLOWS:
            raise Failed("53400", f"at most {MOST_SQL_FOLLOWS} queries are followed at a time; close one")
        changes = self._follows[number] = _Changes(number, wanted)
        request = Follow(number, wanted.sql, wanted.view, wanted.progress)
        name = f"view {wanted.view}" if wanted.sql is None else f"sql {wanted.sql.strip()}"
        self.has_asked = True
        await self._hub.room()
        if refused := self._hub.follows.open(self, request, name):
            del self._follows[number]
            raise Failed("53400", refused)
        try:
            await changes.begun()
        except BaseException:
            self._leave(changes)
            raise
        return changes

    def _leave(self, changes: "_Changes") -> None:
        if self._follows.pop(changes.number, None) is not None:
            self._hub.follows.close(self, changes.number)

    async def _copy(self, wanted: Copy) -> None:
        if wanted.inner.verb == "SUBSCRIBE":
            changes = await self._subscribed(subscription(wanted.inner))
            try:
                out = CopyOut(wanted, changes.columns)
                self._write(out.begin())
                while not self._reader.at_eof():
                    await self._copy_rows(out, await changes.take(_ALL, _LOOK_SECONDS))
                raise ConnectionResetError
            finally:
                self._leave(changes)
            return
        answered = await self._run(wanted.inner, wanted.inner.sql)
        if answered is None or answered.columns is None:
            raise SqlError("COPY is followed by a view, by (SELECT …) or by (SUBSCRIBE …)")
        out = CopyOut(wanted, answered.columns)
        self._write(out.begin())
        await self._copy_rows(out, answered.rows)
        self._write(out.end(), complete(f"COPY {len(answered.rows)}"))

    async def _copy_rows(self, out: CopyOut, rows: list[list[Any]]) -> None:
        for row in out.rows(rows):
            self._write(row)
            await self._room()
        await self._drain()

    # What the client gets.

    async def _rows(self, answered: Answered, formats: Sequence[int], most: int) -> None:
        assert answered.columns is not None
        if len(formats) not in (0, 1, len(answered.columns)):
            raise Failed("08P01", f"{len(formats)} formats for {len(answered.columns)} columns")
        encode = encoders([kind for _, kind in answered.columns], formats)
        end = len(answered.rows) if most <= 0 else min(answered.at + most, len(answered.rows))
        for row in answered.rows[answered.at : end]:
            self._write(data_row(_encoded(row, encode)))
            await self._room()
        answered.at = end

    def _write(self, *messages: bytes) -> None:
        self._writer.write(b"".join(messages))

    async def _room(self) -> None:
        if self._writer.transport.get_write_buffer_size() > _CHUNK_BYTES:
            await self._drain()

    async def _drain(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._writer.drain()


class _Changes:
    """The changes of one subscription that wait for the client. Raises DataError where too many do."""

    def __init__(self, number: int, wanted: Subscription) -> None:
        self.number, self._wanted = number, wanted
        self.columns: list[tuple[str, str]] = []
        self._waiting: deque[list[Any]] = deque()
        self._size = 0
        self._error: str | None = None
        self._wake, self._begun = asyncio.Event(), asyncio.Event()

    def put(self, said: dict[str, Any], size: int) -> None:
        """A message of the run's: a snapshot, changes, or that there were none up to a version."""
        if self._error is not None:
            # A client that takes nothing is not told of the end before it has taken what waits.
            return
        kind = said.get("type")
        if kind == "error":
            self.end(str(said.get("error")))
            return
        stamp, switch, sequence = said["version"]
        version = [stamp, switch, sequence]
        if kind == "snapshot":
            own = [(name, known) for name, known in said["columns"]]
            self.columns = [*_CHANGE_COLUMNS, *own]
            counts = said.get("counts") or [1] * len(said["rows"])
            if self._wanted.snapshot:
                rows = zip(counts, said["rows"], strict=True)
                self._waiting.extend([*version, times, *row] for times, row in rows)
            self._begun.set()
        elif kind == "changes":
            self._waiting.extend([*version, *change] for change in said["changes"])
        elif self._wanted.progress:
            self._waiting.append([*version, 0, *([None] * (len(self.columns) - len(_CHANGE_COLUMNS)))])
        self._size += size
        if self._size > BACKLOG_BYTES and kind != "snapshot":
            self.end("too slow: too many changes wait; subscribe again")
        self._wake.set()

    def end(self, error: str) -> None:
        """There are no more."""
        self._error = error
        self._wake.set()
        self._begun.set()

    async def begun(self) -> None:
        """Waits until the columns are known. Raises DataError where there is nothing to follow."""
        await self._begun.wait()
        if self._error is not None:
            raise DataError(self._error)

    async def take(self, most: int, timeout: float | None) -> list[list[Any]]:
        """Up to so many rows, waiting so many seconds for the first; None: as long as it takes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wait()
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if not self._waiting:
            self._size = 0
        return taken

    async def _wait(self) -> None:
        while not self._waiting:
            if self._error is not None:
                raise DataError(self._error)
            self._wake.clear()
            await self._wake.wait()


def _too_long() -> Failed:
    return Failed("54001", f"the text of a query has at most {_MOST_TEXT:,} characters")


def _statements(sql: str) -> list[Statement]:
    if len(sql) > _MOST_TEXT:
        raise _too_long()
    return statements(sql)


def _answer_columns(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, kind if kind in COLUMN_TYPES else "text") for name, kind in answer["columns"]]


def _encoded(row: Sequence[Any], encode: Sequence[Any]) -> list[bytes | None]:
    return [None if value is None else own(value) for value, own in zip(row, encode, strict=True)]


def _null(oid: int) -> str:
    """NULL of a type, so that what is computed of it has its own."""
    kinds = {16: "BOOLEAN", 20: "BIGINT", 21: "BIGINT", 23: "BIGINT", 26: "BIGINT", 700: "DOUBLE",
    701: "DOUBLE",
             1082: "DATE", 1114: "TIMESTAMP", 1184: "TIMESTAMP", 1700: "DECIMAL(38, 8)"}  # fmt: skip
    return f"NULL::{kinds[oid]}" if oid in kinds else "NULL"


def _shown(statement: Statement) -> str:
    words = [token.text.lower() for token in statement.tokens[1:]]
    if words == ["time", "zone"]:
        return "timezone"
    if words[:2] == ["transaction", "isolation"]:
        return "transaction_isolation"
    return "".join(words)


def _last_name(statement: Statement) -> str:
    return statement.tokens[-1].text.lower() if len(statement.tokens) > 1 else ""


def _seconds(said: str) -> float | None:
    for unit, seconds in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("", 1.0)):
        if said.lower().endswith(unit):
            with suppress(ValueError):
                return float(said.lower().removesuffix(unit)) * seconds
    raise SqlError("a timeout is a length of time, as '1s' or '100ms'")
