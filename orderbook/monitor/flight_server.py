"""Arrow Flight: views in bulk, SQL, and changes as they come, for pyarrow, polars, pandas and other clients.

gRPC's threads answer calls; what the hub tells, and what is asked of the run, goes through the loop of the
server's process. Queries go the way of all clients' queries, in their turn and within their limits.
Source: Apache Arrow's documentation, "Arrow Flight RPC".
"""

import asyncio
import json
import logging
import tempfile
import threading
import time
import weakref
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from decimal import Decimal, InvalidOperation
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, Never, Self, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from orderbook.monitor.client import BACKLOG_BYTES, MESSAGES_A_SECOND
from orderbook.monitor.hub import Hub
from orderbook.monitor.messages import (
    Answer,
    Ask,
    Cancel,
    Follow,
    ListTables,
    Name,
    QueryArrow,
    SqlText,
    Topic,
    id_of,
)
from orderbook.operations.access import Access

# Clients of all kinds together, calls of one connection at a time, and of all.
MOST_CLIENTS, MOST_CALLS, MOST_ALL_CALLS = 64, 4, 64
# Calls at once, beyond which they come at MESSAGES_A_SECOND.
_MOST_AT_ONCE = 100
# Seconds for which what there is to read is told from memory.
_TABLES_SECONDS = 1.0
# Seconds between two looks whether a client still waits, and for gRPC to end.
_LOOK_SECONDS, _END_SECONDS = 0.5, 2.0
_VERSION = b"orderbook.version"
_CHANGE_FIELDS = [(name, pa.int64()) for name in ("stamp", "switch", "sequence", "diff")]

_ANOTHER = "the view is another one now; ask for its changes again"

Given = TypeVar("Given")

_logger = logging.getLogger("orderbook.monitor")


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A ticket, JSON: the rows of a view or relation, those of SQL, or the changes of a view."""

    view: Name | None = None
    sql: SqlText | None = None
    changes: Name | None = None


_ticket = msgspec.json.Decoder(Wanted)


def read_ticket(data: bytes) -> Wanted:
    """What a client asks for. Raises FlightServerError."""
    try:
        wanted = _ticket.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise flight.FlightServerError(f"not a ticket: {error}") from None
    if sum(one is not None for one in (wanted.view, wanted.sql, wanted.changes)) != 1:
        raise flight.FlightServerError('a ticket has one of {"view": …}, {"sql": …} and {"changes": …}')
    return wanted


def of_descriptor(descriptor: flight.FlightDescriptor) -> Wanted:
    """What a descriptor names: a view by its path, its changes by NAME/changes, SQL by a command."""
    if descriptor.command:
        with suppress(UnicodeDecodeError):
            return _checked(Wanted(sql=descriptor.command.decode()))
    path = [part.decode(errors="replace") for part in descriptor.path or ()]
    if len(path) == 1:
        return _checked(Wanted(view=path[0]))
    if len(path) == 2 and path[1] == "changes":
        return _checked(Wanted(changes=path[0]))
    raise flight.FlightServerError(
        "a descriptor has the path NAME, the path NAME, changes, or a command, which is SQL"
    )


def _checked(wanted: Wanted) -> Wanted:
    return read_ticket(msgspec.json.encode(wanted))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


class Changes:
    """Messages about a followed view that wait for its client, from the loop to a thread of gRPC's."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._error: str | None = None
        self._there = threading.Condition()

    def put(self, message: bytes) -> None:
        """One that must arrive, in this order."""
        with self._there:
            # One message alone, such as a snapshot, may be larger.
            if self._waiting and self._size + len(message) > BACKLOG_BYTES:
                self._error = self._error or "too slow: too many changes wait; ask for them again"
            elif self._error is None:
                self._waiting.append(message)
                self._size += len(message)
            self._there.notify()

    def end(self, error: str) -> None:
        """There are no more."""
        with self._there:
            self._error = self._error or error
            self._there.notify()

    def take(self) -> bytes | None:
        """The next; None where there is none for a while. Raises FlightServerError after the last."""
        with self._there:
            if not self._waiting and self._error is None:
                self._there.wait(_LOOK_SECONDS)
            if self._waiting:
                message = self._waiting.popleft()
                self._size -= len(message)
                return message
            if self._error is not None:
                raise flight.FlightServerError(self._error)
            return None


class FlightClient:
    """One connection, a member of the hub once it has made a call; in the loop, but `calls` and `given`."""

    def __init__(self, number: int, hub: Hub, forget: Callable[[], object]) -> None:
        self.number, self.has_asked = number, False
        self.admitted, self.begun = False, 0
        # Calls under way; of those whose client has been given something, since when.
        self.calls: set[int] = set()
        self.given: dict[int, float] = {}
        self._hub, self._forget = hub, forget
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._changes: dict[int, Changes] = {}
        self._gone = False
        self._allowance, self._counted = float(_MOST_AT_ONCE), time.monotonic()

    # What the hub tells.

    def touched(self, topic: Topic) -> None:
        """See Member."""

    def dropped(self, topic: Topic, error: str) -> None:
        """See Member."""

    def enqueue(self, message: bytes) -> None:
        """See Member."""
        number = id_of(message)
        if number is not None and (changes := self._changes.get(number)) is not None:
            changes.put(message)

    def ended(self, number: int, error: str) -> None:
        """See Member."""
        if (changes := self._changes.get(number)) is not None:
            changes.end(error)

    def answered(self, answer: Answer) -> None:
        """See Member."""
        if (asked := self._asked.get(answer.id)) is not None and not asked.done():
            asked.set_result(json.loads(b"{" + answer.body + b"}"))

    # What the relay tells.

    def stalls(self, now: float) -> float:
        """See Caller."""
        return now - min(list(self.given.values()), default=now)

    def leave(self) -> None:
        """See Caller."""
        if self._gone:
            return
        self._gone = True
        for asked in self._asked.values():
            asked.cancel()
        for changes in self._changes.values():
            changes.end("the connection is closed, or the run has ended")
        self._hub.leave(self)
        self._forget()

    # What calls do.

    async def join(self) -> None:
        """A call begins. Raises FlightUnavailableError where there is no place for this client."""
        if self._gone:
            raise flight.FlightUnavailableError("the connection is closed")
        self.begun += 1
        if self.number not in self._hub.members:
            if len(self._hub.members) >= MOST_CLIENTS:
                raise flight.FlightUnavailableError(f"{MOST_CLIENTS} clients already; try again later")
            self._hub.members[self.number] = self
        self.admitted = True
        now = time.monotonic()
        self._allowance += (now - self._counted) * MESSAGES_A_SECOND
        self._allowance, self._counted = min(self._allowance, _MOST_AT_ONCE) - 1, now
        if self._allowance < 0:
            await asyncio.sleep(-self._allowance / MESSAGES_A_SECOND)

    async def ask(self, request: Callable[[int], QueryArrow | ListTables]) -> dict[str, Any]:
        """The answer of the run to a request, which is made of its number. Raises FlightServerError."""
        await self._hub.room()
        if self._gone:
            raise flight.FlightUnavailableError("the connection is closed")
        number, self.has_asked = next(self._ids), True
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._hub.send(Ask(self.number, request(number)))
        try:
            answer: dict[str, Any] = await asked
        finally:
            del self._asked[number]
            if not self._gone and not (asked.done() and not asked.cancelled()):
                self._hub.send(Ask(self.number, Cancel(next(self._ids), number)))
        if answer["type"] == "error":
            raise flight.FlightServerError(str(answer["error"]))
        return answer

    async def follow(self, view: str) -> tuple[int, Changes]:
        """The changes of a view from now on, with their number. Raises FlightUnavailableError."""
        await self._hub.room()
        if self._gone:
            raise flight.FlightUnavailableError("the connection is closed")
        number, self.has_asked = next(self._ids), True
        changes = self._changes[number] = Changes()
        if refused := self._hub.follows.open(self, Follow(number, view=view, progress=False), f"view {view}"):
            del self._changes[number]
            raise flight.FlightUnavailableError(refused)
        return number, changes

    def unfollow(self, number: int) -> None:
        """A call that followed has ended."""
        if self._changes.pop(number, None) is not None and not self._gone:
            self._hub.follows.close(self, number)


class _Call:
    """A call under way, which holds one of the places of its connection until `end`."""

    def __init__(self, client: FlightClient, number: int, ended: Callable[[FlightClient, int], None]) -> None:
        self.client, self.number, self._ended = client, number, ended

    def end(self) -> None:
        """In any thread; again, too."""
        self._ended(self.client, self.number)


class _Batches:
    """What a call gives, and since when its client has the last that it was given.

    gRPC's thread forgets this when the call is over, however that came about.
    """

    def __init__(self, call: _Call, batches: Iterator[pa.RecordBatch], ended: Callable[[], object]) -> None:
        self._call, self._batches = call, batches
        weakref.finalize(self, _over, call, ended).atexit = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        given = self._call.client.given
        given.pop(self._call.number, None)
        batch = next(self._batches)
        given[self._call.number] = time.monotonic()
        return batch


def _over(call: _Call, ended: Callable[[], object]) -> None:
    call.end()
    ended()


class _Header(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in calls with the token, where one is needed."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """See ServerMiddlewareFactory."""
        given = next(iter(headers.get("authorization", ())), None)
        if not self._access.may_read(given, None):
            raise flight.FlightUnauthenticatedError("the token is needed: authorization: Bearer TOKEN")


class FlightDoor:
    """gRPC's server in the process of all clients, in its loop; see Door. most: bytes of an answer.

    numbers: gives each client a number.
    """

    def __init__(self, hub: Hub, numbers: Iterator[int], access: Access, most: int) -> None:
        self._hub, self._numbers, self._access, self._most = hub, numbers, access, most
        self._folder = tempfile.TemporaryDirectory(prefix="orderbook-")
        self.path = Path(self._folder.name, "s")
        self._clients: dict[str, FlightClient] = {}
        self._loop = asyncio.get_running_loop()
        self._calls, self._lock, self._numbering = 0, threading.Lock(), count(1)
        self._tables: tuple[float, dict[str, pa.Schema]] = -_TABLES_SECONDS, {}
        self._listing = asyncio.Lock()

    def __enter__(self) -> Self:
        self._server = _Server(self, f"grpc+unix://{self.path}", self._access)
        return self

    def __exit__(self, *_: object) -> None:
        for client in list(self._clients.values()):
            client.leave()
        # A call that does not end must not keep the process: it is a thread that nobody waits for.
        ending = threading.Thread(target=self._server.shutdown, daemon=True)
        ending.start()
        ending.join(_END_SECONDS)
        self._folder.cleanup()

    def caller(self, name: str) -> FlightClient:
        """See Door."""
        client = FlightClient(next(self._numbers), self._hub, lambda: self._clients.pop(name, None))
        self._clients[name] = client
        return client

    @contextmanager
    def call(self, context: flight.ServerCallContext) -> Iterator[_Call]:
        """A call, over with the block unless what it gives holds it. Raises FlightUnavailableError."""
        client = self._clients.get(context.peer().rpartition("/")[2])
        if client is None:
            raise flight.FlightUnavailableError("the connection is closed")
        with self._lock:
            if len(client.calls) >= MOST_CALLS or self._calls >= MOST_ALL_CALLS:
                raise flight.FlightUnavailableError(
                    f"at most {MOST_CALLS} calls of a connection, and {MOST_ALL_CALLS} of all, at a time"
                )
            self._calls += 1
            number = next(self._numbering)
            client.calls.add(number)
        call = _Call(client, number, self._ended)
        try:
            self.wait(context, client.join())
            yield call
        except BaseException:
            call.end()
            raise

    def _ended(self, client: FlightClient, number: int) -> None:
        with self._lock:
            client.given.pop(number, None)
            if number in client.calls:
                client.calls.discard(number)
                self._calls -= 1

    def unfollow(self, client: FlightClient, number: int) -> None:
        """In any thread: a call that followed has ended."""
        # There is no loop any more once the run has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(client.unfollow, number)

    def wait(self, context: flight.ServerCallContext, work: Coroutine[Any, Any, Given]) -> Given:
        """In a thread of gRPC's, what is done in the loop. Raises FlightCancelledError where nobody waits."""
        doing: Future[Given] = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return doing.result(_LOOK_SECONDS)
            except TimeoutError:
                if doing.done():
                    raise
                if context.is_cancelled():
                    doing.cancel()
            except CancelledError:
                raise flight.FlightCancelledError("the call was cancelled, or the run has ended") from None

    async def tables(self, client: FlightClient) -> dict[str, pa.Schema]:
        """What can be read, with its columns, at most a second old."""
        async with self._listing:
            told, known = self._tables
            if time.monotonic() - told > _TABLES_SECONDS:
                answer = await client.ask(ListTables)
                known = {
                    name: pa.ipc.read_schema(pa.py_buffer(b64decode(text)))
                    for name, text in answer["tables"].items()
                }
                self._tables = time.monotonic(), known
            return known

    async def schema(self, client: FlightClient, name: str) -> pa.Schema:
        """The columns of a view or relation. Raises FlightServerError where it cannot be read."""
        known = await self.tables(client)
        if name not in known:
            readable = ", ".join(sorted(known)) or "nothing"
            raise flight.FlightServerError(f"{name!r} cannot be read; {readable} can")
        return known[name]

    def answer(
        self,
        context: flight.ServerCallContext,
        client: FlightClient,
        sql: str,
        describe: bool = False,
        bulk: str = "",
    ) -> tuple[pa.ipc.RecordBatchFileReader, tuple[str, int, int]]:
        """What SQL gives, as a file of Arrow's, and the version that it is of; bulk: see QueryArrow."""
        with tempfile.NamedTemporaryFile(dir=self._folder.name, suffix=".arrow") as file:
            asked = client.ask(lambda number: QueryArrow(number, sql, file.name, self._most, describe, bulk))
            answer = self.wait(context, asked)
            return pa.ipc.open_file(pa.memory_map(file.name)), answer["version"]


def _plainly(call: Callable[..., Given]) -> Callable[..., Given]:
    """A call whose errors are lines: of others than Flight's own pyarrow would send the traceback."""

    @wraps(call)
    def called(*arguments: Any) -> Given:
        try:
            return call(*arguments)
        except flight.FlightError as error:
            # Of get_schema pyarrow tells what an error has come through, so that is forgotten.
            raise error.with_traceback(None) from None
        except Exception as error:
            _logger.exception("a call of Flight has failed")
            raise flight.FlightInternalError(f"{type(error).__name__}: the call has failed") from None

    return called


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """The calls, each in a thread of gRPC's."""

    def __init__(self, door: FlightDoor, location: str, access: Access) -> None:
        self._door = door
        super().__init__(location, middleware={"access": _Header(access)})

    @_plainly
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The rows of all that can be read; criteria count for nothing."""
        with self._door.call(context) as call:
            tables = self._door.wait(context, self._door.tables(call.client))
            call.end()
        return iter([_info(Wanted(view=name), schema) for name, schema in tables.items()])

    @_plainly
    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """The columns of what a descriptor names, and its ticket."""
        wanted = of_descriptor(descriptor)
        return _info(wanted, self._schema(context, wanted), descriptor)

    @_plainly
    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """The columns of what a descriptor names."""
        return flight.SchemaResult(self._schema(context, of_descriptor(descriptor)))

    @_plainly
    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The rows, or the changes, that a ticket asks for."""
        wanted = read_ticket(ticket.ticket)
        with self._door.call(context) as call:
            if wanted.changes is not None:
                return self._changes(context, call, wanted.changes)
            sql = wanted.sql
            if wanted.view is not None:
                self._door.wait(context, self._door.schema(call.client, wanted.view))
                sql = f"SELECT * FROM {_quoted(wanted.view)}"
            assert sql is not None
            reader, version = self._door.answer(context, call.client, sql, bulk=wanted.view or "")
            schema = reader.schema.with_metadata({_VERSION: ",".join(map(str, version)).encode()})
            batches = map(reader.get_batch, range(reader.num_record_batches))
            return flight.GeneratorStream(schema, _Batches(call, batches, lambda: None))

    def _refused(self, *_: Any) -> Never:
        raise flight.FlightServerError("nothing is changed here; list_flights and do_get read")

    # What clients may call beside that.
    do_put = do_action = do_exchange = list_actions = _refused

    def _schema(self, context: Any, wanted: Wanted) -> pa.Schema:
        with self._door.call(context) as call:
            if wanted.sql is not None:
                schema = self._door.answer(context, call.client, wanted.sql, describe=True)[0].schema
            else:
                name = wanted.view or wanted.changes or ""
                schema = self._door.wait(context, self._door.schema(call.client, name))
            call.end()
        return schema if wanted.changes is None else change_schema(schema)

    def _changes(self, context: Any, call: _Call, view: str) -> flight.FlightDataStream:
        schema = change_schema(self._door.wait(context, self._door.schema(call.client, view)))
        number, changes = self._door.wait(context, call.client.follow(view))
        batches = _change_batches(context, changes, schema)
        ended = partial(self._door.unfollow, call.client, number)
        return flight.GeneratorStream(schema, _Batches(call, batches, ended))


def _info(
    wanted: Wanted, schema: pa.Schema, descriptor: flight.FlightDescriptor | None = None
) -> flight.FlightInfo:
    named = descriptor or flight.FlightDescriptor.for_path(wanted.view)
    endpoint = flight.FlightEndpoint(flight.Ticket(msgspec.json.encode(wanted)), [])
    return flight.FlightInfo(schema, named, [endpoint], -1, -1)


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Of the changes of a view with these columns: the version and how many rows come or go before them."""
    return pa.schema([*map(pa.field, *zip(*_CHANGE_FIELDS, strict=True)), *schema])


def _change_batches(
    context: flight.ServerCallContext, changes: Changes, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows that there are, then a batch for each version at which something has changed."""
    names = schema.names[len(_CHANGE_FIELDS) :]
    while not context.is_cancelled():
        if (message := changes.take()) is None:
            continue
        said = json.loads(message)
        if said["type"] == "error":
            raise flight.FlightServerError(str(said["error"]))
        if said["type"] == "snapshot":
            if [name for name, _ in said["columns"]] != names:
                raise flight.FlightServerError(_ANOTHER)
            counts = said.get("counts") or [1] * len(said["rows"])
            rows = [[times, *row] for times, row in zip(counts, said["rows"], strict=True)]
        else:
            rows = said["changes"]
        if rows:
            yield _change_batch(said["version"], rows, schema)


def _change_batch(version: list[Any], rows: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [[int(part)] * len(rows) for part in version] + [
        list(column) for column in zip(*rows, strict=True)
    ]
    try:
        arrays = [
            pa.array([None if value is None else _plain(value, field.type) for value in column], field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
    except (ValueError, TypeError, InvalidOperation):
        raise flight.FlightServerError(_ANOTHER) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of a message, as `wire_value` made it, for a column of this type."""
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return int(value) if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) else value
