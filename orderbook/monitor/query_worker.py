"""The process that plans and runs ad-hoc SQL of clients: `python -m orderbook.monitor.query_worker`.

The run hands it a program's columns, the query, and the rows that it reads, in files without a name where
they are large; it answers with MessagePack. It has so much memory, can be killed at any time, and knows what
it is given.
"""

import ctypes
import gc
import json
import mmap
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from struct import Struct
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.clients import duckdb_queries
from orderbook.clients.duckdb_queries import AnswerLimits, Running, run_to_file, run_within, write_batches
from orderbook.clients.encoded_rows import EncodedRows, Rows
from orderbook.clients.postgres_queries import (
    PostgresCatalog,
    in_duckdb,
    macro_statements,
    tables_of,
    type_name,
)
from orderbook.clients.query_plan import Queryable, QueryPlan, QueryPlanner
from orderbook.core.changes import Dictionary
from orderbook.core.errors import OrderbookError, SqlError
from orderbook.core.processors import end_with_parent, give_way, limit_memory, memory_of
from orderbook.core.units import size_text
from orderbook.monitor.messages import SHOWN_ROWS, body_of, is_followed, wire_value

# Below the run's priority and that of what serves clients.
_NICE = 10
# Of the memory, what DuckDB may take; and what of it a query may leave behind.
_DUCKDB_SHARE, _LEFT_SHARE = 0.4, 0.25
_ALIGNMENT = 64
# Before a message to the process: its kind, the number of the query, and the bytes of the pickle, which is in
# the file that comes with it, or follows.
HEADER = Struct("=qqq")
ASK, ROWS, STOP = 0, 1, 2
LENGTH = 4


class Given(NamedTuple):
    """What a query reads, and the strings that the process has not had, by their codes.

    views: parts of rows by view, int64[n, words of the row]. relations: rows int64[n, columns] by relation,
    with how often each stands, int64[n]. nbytes: of all rows.
    """

    views: Mapping[str, Sequence[NDArray[np.int64]]]
    relations: Mapping[str, Rows]
    strings: Sequence[str]
    nbytes: int


class Question(NamedTuple):
    """A query, with the program where that is another than the last one's; see `QuerySql`, `QueryArrow`.

    given: what it reads, where that is known.
    """

    sql: str
    program: Queryable | None
    given: Given | None = None
    dialect: str = "duckdb"
    describe: bool = False
    whole: bool = False
    file: str = ""
    most: int = 0
    bulk: str = ""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The process can be asked."""


class Planned(msgspec.Struct, frozen=True, tag=True):
    """The views and relations that a query reads."""

    number: int
    reads: tuple[str, ...]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """An answer as `body_of` gives it, without version and time.

    strings: of the dictionary, that the process has. last: it has taken so much memory that it is to end.
    """

    number: int
    body: bytes
    strings: int
    last: bool


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A query that is wrong or too large. strings, last: as `Answered` has them."""

    number: int
    error: str
    strings: int
    last: bool


Reply = Ready | Planned | Answered | Failed
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
read_reply = _replies.decode
_pack = msgspec.msgpack.Encoder().encode


def packed_file(message: Question | Given) -> tuple[IO[bytes], int]:
    """A file without a name that has a message, and the bytes of its head; in any thread.

    Arrays are written from where they lie, without the interpreter.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, 5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    head = pickle.dumps((body, [view.nbytes for view in views]))
    file = _nameless()
    file.write(head)
    for view in views:
        file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
        file.write(view)
    file.flush()
    return file, len(head)


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("query"), "wb", 0)
    return tempfile.TemporaryFile(buffering=0)


def _unpacked(file: int, size: int) -> Any:
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as whole:
        body, sizes = pickle.loads(whole[:size])
    if not sizes:
        return pickle.loads(body)
    shared, at, views = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ)), size, []
    for nbytes in sizes:
        at += -at % _ALIGNMENT
        views.append(shared[at : at + nbytes])
        at += nbytes
    return pickle.loads(body, buffers=views)


class Worker:
    """Answers one query after the other. `line`: the stream to the run."""

    def __init__(self, line: socket.socket, limits: AnswerLimits, memory: int, seconds: int) -> None:
        self._line, self._limits, self._memory, self._seconds = line, limits, memory, seconds
        self._inbox: queue.Queue[tuple[int, int, Any]] = queue.Queue()
        self._dictionary = Dictionary()
        self._program: Queryable | None = None
        self._planner: QueryPlanner | None = None
        self._catalog: PostgresCatalog | None = None
        self._plan: QueryPlan | None = None
        # Of the query that is asked: whether it is PostgreSQL's, the file for its answer, bytes of that, and
        # the view of which it asks for all.
        self._postgres, self._file, self._most, self._bulk = False, "", 0, ""
        self._running, self._at = Running(), -1
        self._left = memory

    def serve(self) -> None:
        """Until the run closes the line."""
        self._warm_up()
        self._left = limit_memory(self._memory)
        self._began = memory_of(os.getpid(), alone=True)
        threading.Thread(target=self._hear, daemon=True).start()
        self._tell(Ready())
        while True:
            signal.alarm(0)
            kind, number, message = self._inbox.get()
            # Where nobody is left to end this process, whatever it hangs in.
            signal.alarm(self._seconds)
            try:
                if kind == ASK:
                    self._ask(number, message)
                else:
                    self._answer(number, message)
            except OrderbookError as error:
                self._fail(number, str(error))
            except (MemoryError, RecursionError) as error:
                self._fail(number, self._too_much(error))
            except Exception as error:
                self._fail(number, f"{type(error).__name__}: {error}")
            del message

    def _warm_up(self) -> None:
        planner = QueryPlanner(Queryable((), (), {}, {}))
        plan = planner.plan("SELECT a FROM (VALUES (1)) t(a) WHERE a > 0")
        table = pa.table({"a": pa.array([1])})
        run_within("SELECT a FROM t", {"t": table}, {}, plan.columns, Running(), self._limits)

    def _ask(self, number: int, question: Question) -> None:
        if question.program is not None:
            self._planner, self._program = QueryPlanner(question.program), question.program
            self._catalog = None
        assert self._planner is not None
        self._limits = replace(self._limits, kept_rows=self._limits.rows if question.whole else SHOWN_ROWS)
        self._postgres, self._file = question.dialect == "postgres", question.file
        self._most, self._bulk = question.most, question.bulk
        sql = in_duckdb(question.sql) if self._postgres else question.sql
        of_catalog = self._postgres_catalog().query(sql) if self._postgres else None
        self._plan = plan = self._planner.plan(sql if of_catalog is None else of_catalog)
        if question.describe and self._file:
            empty = {name: schema.empty_table() for name, schema in self._planner.schemas(plan.reads).items()}
            self._run(number, plan, empty, describe=True)
        elif question.describe:
            self._tell_table(number, plan, pl.DataFrame({name: [] for name in plan.columns}), 0)
        elif of_catalog is not None:
            self._run(number, plan, {})
        elif question.given is not None:
            self._answer(number, question.given)
        else:
            # Another view may hold the same, but in columns of its own.
            self._tell(Planned(number, (self._bulk,) if self._bulk else plan.reads))

    def _postgres_catalog(self) -> PostgresCatalog:
        if self._catalog is None:
            assert self._program is not None
            own = [table for table in tables_of(self._program) if not is_followed(table.name)]
            self._catalog = PostgresCatalog(own)
            duckdb_queries.install(self._catalog.tables, macro_statements())
        return self._catalog

    def _answer(self, number: int, given: Given) -> None:
        assert self._plan is not None and self._program is not None
        for string in given.strings:
            self._dictionary.encode(string)
        views = {one.name: one for one in self._program.views}
        relations = {one.name: one for one in self._program.relations}
        rows = EncodedRows(
            {name: (views[name], parts) for name, parts in given.views.items()},
            {name: (relations[name], own) for name, own in given.relations.items()},
        )
        if self._bulk:
            batches, schema = rows.batches(self._dictionary), rows.schema()
            self._tell_file(number, write_batches(batches, schema, self._running, self._file, self._most))
            return
        tables = rows.tables(self._dictionary)
        del given, rows
        self._run(number, self._plan, tables)

    def _run(self, number: int, plan: QueryPlan, tables: dict[str, pa.Table], describe: bool = False) -> None:
        if self._file:
            asked = (plan.sql, tables, plan.parameters, plan.columns, self._running)
            self._tell_file(number, run_to_file(*asked, self._file, self._most, describe))
            return
        frame, count = run_within(
            plan.sql, tables, plan.parameters, plan.columns, self._running, self._limits
        )
        del tables
        self._tell_table(number, plan, frame, count)

    def _tell_file(self, number: int, count: int) -> None:
        body = body_of({"type": "arrow", "count": count})
        self._tell(Answered(number, body, len(self._dictionary), self._worn()))

    def _tell_table(self, number: int, plan: QueryPlan, frame: pl.DataFrame, count: int) -> None:
        kinds = [type_name(kind) for kind in plan.types] if self._postgres else None
        body = body_of(table_message(frame, count, kinds))
        if len(body) > self._limits.nbytes:
            most = size_text(self._limits.nbytes)
            raise SqlError(f"the answer has more than {most}, the limit; ask for fewer rows or columns")
        del frame
        self._tell(Answered(number, body, len(self._dictionary), self._worn()))

    def _fail(self, number: int, error: str) -> None:
        self._tell(Failed(number, error, len(self._dictionary), self._worn()))

    def _too_much(self, error: Exception) -> str:
        if isinstance(error, RecursionError):
            return "the query is nested too deeply; split it with WITH"
        return str(duckdb_queries.duckdb_error(error, ""))

    def _worn(self) -> bool:
        """Whether a query has left so much behind that another process does better."""
        self._plan = None
        gc.collect()
        pa.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return memory_of(os.getpid(), alone=True) - self._began > _LEFT_SHARE * self._left

    def _tell(self, reply: Reply) -> None:
        data = _pack(reply)
        self._line.sendall(len(data).to_bytes(LENGTH, "big") + data)

    def _hear(self) -> None:
        while True:
            try:
                head, files, _, _ = socket.recv_fds(self._line, HEADER.size, 1)
                while head and len(head) < HEADER.size:
                    head += self._line.recv(HEADER.size - len(head)) or os._exit(0)
            except OSError:
                head = b""
            if not head:
                os._exit(0)
            kind, number, size = HEADER.unpack(head)
            if kind == STOP:
                if number == self._at:
                    self._running.stop()
                continue
            if kind == ASK:
                self._running, self._at = Running(), number
            try:
                message = _unpacked(files[0], size) if files else pickle.loads(self._body(size))
                self._inbox.put((kind, number, message))
            except MemoryError as error:
                self._fail(number, self._too_much(error))
            finally:
                for file in files:
                    os.close(file)

    def _body(self, size: int) -> bytes:
        """What follows the head of a message that has no file."""
        body = bytearray()
        while len(body) < size:
            body += self._line.recv(size - len(body)) or os._exit(0)
        return bytes(body)


def table_message(frame: pl.DataFrame, count: int, kinds: Sequence[str] | None = None) -> dict[str, Any]:
    """The rows of an answer as clients get them, of `count` that there are. kinds: names of its types."""
    names = [_type_name(kind) for kind in frame.dtypes] if kinds is None else kinds
    return {
        "type": "table",
        "columns": list(zip(frame.columns, names, strict=True)),
        "rows": _rows(frame, arrays=kinds is not None),
        "count": count,
        "truncated": count > len(frame),
    }


def _type_name(kind: pl.DataType) -> str:
    if kind.is_decimal():
        return "decimal"
    if kind.is_integer():
        return "integer"
    if kind.is_float():
        return "double"
    if kind == pl.Boolean:
        return "boolean"
    return "timestamp" if isinstance(kind, pl.Datetime) else "text"


def _rows(frame: pl.DataFrame, arrays: bool) -> list[list[Any]]:
    """Rows as messages have them; times as text of ns, lists as such where `arrays`, else as text."""
    names = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    times = [pl.col(name).dt.epoch("ns").cast(pl.String) for name in names]
    plain = frame.with_columns(times) if times else frame
    if arrays:
        return [
            [[wire_value(_plain(v)) for v in value] if isinstance(value, list) else wire_value(_plain(value))
             for value in row]
            for row in plain.rows()
        ]  # fmt: skip
    return [[wire_value(_plain(value)) for value in row] for row in plain.rows()]


def _plain(value: Any) -> Any:
    """A value that JSON has, or a decimal."""
    return value if value is None or isinstance(value, bool | int | float | str | Decimal) else str(value)


class _WithoutPandas:
    """Finds no pandas, which pyarrow imports for its first array: a quarter of a second for nothing here."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(line: int, told: str) -> None:
    """Serve until the run ends."""
    sys.meta_path.insert(0, _WithoutPandas())
    give_way(_NICE)
    end_with_parent()
    limits = json.loads(told)
    memory, seconds = limits.pop("memory"), limits.pop("seconds")
    duckdb_queries.limit_memory(int(memory * _DUCKDB_SHARE))
    # What is imported stays; to look through it for garbage after each query takes 35 ms.
    gc.freeze()
    Worker(socket.socket(fileno=line), AnswerLimits(**limits), memory, seconds).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
