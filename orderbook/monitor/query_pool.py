"""Ad-hoc SQL of clients, run in processes beside the run, which only copies the rows that queries read.

Whose query is next: that of the client which has had least, and no long one keeps short ones waiting
(start-time fair queueing; Goyal, Vin and Cheng, 1996).
"""

import asyncio
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO

import msgspec

from orderbook.clients.queries import EngineSnapshot, Pace, snapshot_between
from orderbook.clients.query_plan import Queryable
from orderbook.configuration.options import QueryOptions
from orderbook.core.errors import DataError, SqlError
from orderbook.core.processors import step_aside
from orderbook.core.units import size_text
from orderbook.monitor.messages import SHOWN_ROWS, QueryArrow, QuerySql, body_of, wire_version
from orderbook.monitor.publisher import Share
from orderbook.monitor.query_worker import (
    ASK,
    HEADER,
    LENGTH,
    ROWS,
    STOP,
    Answered,
    Failed,
    Given,
    Planned,
    Question,
    Ready,
    Reply,
    packed_file,
    read_reply,
)
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.program import CompiledProgram

# Queries of one client that wait, and of all of them.
MOST_OF_A_CLIENT, MOST_WAITING = 4, 64

Asked = QuerySql | QueryArrow


@dataclass(eq=False, slots=True)
class Turn:
    """A query that waits, or is under way `since` then. `long` once it has had its time as a short one."""

    client: int
    order: int
    long: bool = False
    since: float | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def going(self) -> bool:
        """Whether it is under way."""
        return self.since is not None


class FairQueue:
    """Gives at most `places` turns at a time, at most one to a client, all but one place to short queries.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996): a client that comes begins with what the least
    served of those that are there has had, and whoever has had least is next. One place alone has long
    queries wherever others wait for it.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._turns: list[Turn] = []
        self._had: dict[int, float] = {}
        self._orders = count()

    @asynccontextmanager
    async def turn(self, client: int, long: bool = False) -> AsyncIterator[Turn]:
        """Waits for a turn, which ends with the block. Raises DataError where too many wait."""
        mine = sum(turn.client == client and not turn.going for turn in self._turns)
        if mine >= MOST_OF_A_CLIENT:
            raise DataError(f"{MOST_OF_A_CLIENT} queries of yours wait already; wait for one")
        if sum(not turn.going for turn in self._turns) >= MOST_WAITING:
            raise DataError(f"{MOST_WAITING} queries of all clients wait already; ask again later")
        turn = Turn(client, next(self._orders), long)
        self._had[client] = max(self._had.get(client, 0.0), self._least())
        self._turns.append(turn)
        try:
            self._give()
            await turn.begun.wait()
            yield turn
        finally:
            self._turns.remove(turn)
            if turn.since is not None:
                self.charge(client, time.monotonic() - turn.since)
            self._give()

    def charge(self, client: int, seconds: float) -> None:
        """Note what a client has had beside its turns, unless it has gone."""
        if client in self._had:
            self._had[client] += seconds

    def leave(self, client: int) -> None:
        """A client has gone."""
        self._had.pop(client, None)

    def stays(self, turn: Turn) -> bool:
        """Whether a query that is no short one any more may go on where it is; then it is a long one."""
        turn.long = turn.long or self._room(True)
        return turn.long or not any(map(self._may_begin, self._waiting()))

    def _least(self) -> float:
        return min((self._had.get(turn.client, 0.0) for turn in self._turns), default=0.0)

    def _waiting(self) -> list[Turn]:
        waiting = [turn for turn in self._turns if not turn.going]
        return sorted(waiting, key=lambda turn: (self._had.get(turn.client, 0.0), turn.order))

    def _room(self, long: bool) -> bool:
        going = [turn for turn in self._turns if turn.going]
        return not long or sum(turn.long for turn in going) < max(1, self._places - 1)

    def _may_begin(self, turn: Turn) -> bool:
        others = any(one.client == turn.client and one.going for one in self._turns)
        return not others and self._room(turn.long)

    def _give(self) -> None:
        for turn in self._waiting():
            if sum(one.going for one in self._turns) >= self._places:
                return
            if self._may_begin(turn):
                turn.since = time.monotonic()
                turn.begun.set()


# Processes, of which one is for queries that take longer than this while others wait.
_PROCESSES = 2
_SHORT_SECONDS = 1.0
_LOOK_SECONDS = 0.25
# Seconds until a process can be asked, and in which it must have stopped a query.
_START_SECONDS, _STOP_SECONDS = 60.0, 1.0
# Of the memory of a process, what the rows that a query reads may be.
_ROWS_SHARE = 0.2
# Likewise of rows that are only written to a file, of which the process has a part at a time.
_BULK_SHARE = 0.6
# Seconds of the engine's thread for copying rows that are saved up for who asks now and then, and those owed
# to who has not asked for a while.
_SAVED, _OWED, _REST_SECONDS = 0.1, 0.3, 60.0
# How much more of the engine's thread copying may take while it waits for events.
_IDLE = 10.0
# Seconds for which who reads in bulk waits until rows may be copied, beyond what can be owed; and those that
# writing the rows takes at most, which is bounded by their bytes, where the processors have other work.
_BULK_PATIENCE, _BULK_SECONDS = 60.0, 60.0
# What a second of copying, in the engine's thread, counts in the seconds of a process.
_COPYING_COST = 20.0
# Rows and strings that take less time to pack than another thread to wake.
_SMALL_BYTES, _SMALL_STRINGS = 1 << 15, 256
# Queries whose plan is known, and the letters of one at most.
_KNOWN, _KNOWN_LETTERS = 256, 2048


def _is_bulk(asked: Asked) -> bool:
    return isinstance(asked, QueryArrow) and bool(asked.bulk)


def _plan_key(asked: Asked) -> tuple[str, ...]:
    """What the plan of a query depends on."""
    return ("arrow", asked.sql, asked.bulk) if isinstance(asked, QueryArrow) else (asked.dialect, asked.sql)


def _check_size(memory: int, share: float, nbytes: int) -> None:
    """Raises SqlError where a query reads more bytes than a share of the memory of its process."""
    if nbytes > (most := int(memory * share)):
        raise SqlError(
            f"the query reads {size_text(nbytes)} of rows, the limit is {size_text(most)}, "
            f"{share:.0%} of queries.memory; ask a view of fewer rows"
        )


class Gone(Exception):
    """The process has ended."""


class QueryProcess:
    """One process, asked by the run's event loop; one question at a time. See `query_worker`."""

    def __init__(self, options: QueryOptions) -> None:
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        limits = {
            "rows": options.rows,
            "kept_rows": SHOWN_ROWS,
            "nbytes": options.answer_bytes,
            "memory": options.memory_bytes,
            "seconds": int(4 * options.seconds + 60),
        }
        path = os.pathsep.join(p for p in (str(Path(__file__).resolve().parents[2]), *sys.path) if p)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "orderbook.monitor.query_worker",
                    str(theirs.fileno()),
                    json.dumps(limits),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"},
                # Ctrl-C is for the run, which ends this.
                start_new_session=True,
            )
        step_aside(self._process.pid)
        self._most = options.answer_bytes + (1 << 16)
        self._read = bytearray()
        self._number = 0
        # What it has been given: the program, and how many strings of the dictionary.
        self._program: CompiledProgram | None = None
        self._strings = 0
        # Whether it is at work, has answered before, and can be asked no more.
        self.asked = self.served = self.over = False

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ready(self) -> None:
        """Waits until it can be asked. Raises Gone."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                reply = await self._reply()
        except TimeoutError:
            raise Gone from None
        if not isinstance(reply, Ready):
            raise Gone

    async def plan(self, asked: Asked, program: CompiledProgram) -> Planned | Answered:
        """The names that a query reads, or the answer of one that reads nothing of the run.

        Raises SqlError where it is wrong, Gone.
        """
        reply = await self._asks(asked, program, None)
        if not isinstance(reply, Planned | Answered):
            raise Gone
        return reply

    async def answer(self, taken: EngineSnapshot, check: Callable[[int], None]) -> Answered:
        """The answer to the query that was planned, of the same program.

        check: raises where it reads too many bytes. Raises SqlError, Gone.
        """
        given = await self._given(taken, check)
        return _answer(await self._asked(ROWS, given, _is_large(given)))

    async def answer_at_once(
        self, asked: Asked, taken: EngineSnapshot, check: Callable[[int], None]
    ) -> Answered:
        """The answer to a query that reads just this; see `answer`."""
        given = await self._given(taken, check)
        return _answer(await self._asks(asked, taken.program, given))

    async def _asks(self, asked: Asked, program: CompiledProgram, given: Given | None) -> Reply:
        self._number += 1
        new = None if self._program is program else Queryable.of(program)
        self._program = None
        if isinstance(asked, QueryArrow):
            question = Question(
                asked.sql,
                new,
                given,
                describe=asked.describe,
                file=asked.file,
                most=asked.most,
                bulk=asked.bulk,
            )
        else:
            question = Question(asked.sql, new, given, asked.dialect, asked.describe, asked.whole)
        large = new is not None or (given is not None and _is_large(given))
        reply = await self._asked(ASK, question, large)
        if isinstance(reply, Failed):
            raise SqlError(reply.error)
        self._program = program
        return reply

    async def _given(self, taken: EngineSnapshot, check: Callable[[int], None]) -> Given:
        encoded = taken.encoded() if taken.at_hand else await asyncio.to_thread(taken.encoded)
        check(encoded.nbytes)
        views = {name: parts for name, (_, parts) in encoded.views.items()}
        relations = {name: rows for name, (_, rows) in encoded.relations.items()}
        return Given(views, relations, taken.dictionary.since(self._strings), encoded.nbytes)

    async def stop(self) -> None:
        """Ends the query under way; the process, where it does not end soon."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                self._send(HEADER.pack(STOP, self._number, 0))
                while self.asked:
                    self._note(await self._reply())
        except (Gone, TimeoutError):
            self.over = True

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._line.close()

    def wait(self) -> str:
        """How it has ended."""
        code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"

    async def _asked(self, kind: int, message: Question | Given, large: bool) -> Reply:
        """The reply to a message; a large one is packed in another thread."""
        if large:
            file, size = await asyncio.to_thread(packed_file, message)
            with file:
                self._send(HEADER.pack(kind, self._number, size), file)
        else:
            body = pickle.dumps(message, 5)
            self._send(HEADER.pack(kind, self._number, len(body)) + body)
        self.asked = True
        while self.asked:
            self._note(reply := await self._reply())
        return reply

    def _note(self, reply: Reply) -> None:
        if not isinstance(reply, Ready) and reply.number == self._number:
            self.asked = False
            if not isinstance(reply, Planned):
                self._strings, self.over, self.served = reply.strings, reply.last, True

    def _send(self, head: bytes, file: IO[bytes] | None = None) -> None:
        files = [] if file is None else [file.fileno()]
        try:
            # So little fits always: one question is under way.
            socket.send_fds(self._line, [head], files)
        except OSError:
            raise Gone from None

    async def _reply(self) -> Reply:
        loop = asyncio.get_running_loop()
        while True:
            if len(self._read) >= LENGTH:
                size = int.from_bytes(self._read[:LENGTH], "big")
                if size > self._most:
                    raise Gone
                if len(self._read) >= LENGTH + size:
                    data = bytes(self._read[LENGTH : LENGTH + size])
                    del self._read[: LENGTH + size]
                    try:
                        return read_reply(data)
                    except msgspec.MsgspecError:
                        raise Gone from None
            try:
                data = await loop.sock_recv(self._line, 1 << 16)
            except OSError:
                data = b""
            if not data:
                raise Gone
            self._read += data


def _is_large(given: Given) -> bool:
    return given.nbytes > _SMALL_BYTES or len(given.strings) > _SMALL_STRINGS


def _answer(reply: Reply) -> Answered:
    if isinstance(reply, Failed):
        raise SqlError(reply.error)
    if not isinstance(reply, Answered):
        raise Gone
    return reply


class Copying:
    """How much of the engine's thread copying rows takes: admitted where there is a share left, and measured.

    share: of its time while it has events to apply; ten times as much of that in which it waits. A client
    that has not had rows for a while is admitted although others have spent what there was, up to a bound.
    """

    def __init__(self, waited: Callable[[], float], share: float) -> None:
        self._share = Share(waited, busy=share, idle=min(1.0, _IDLE * share), saved=_SAVED)
        self._last: dict[int, float] = {}

    def admits(self, client: int) -> bool:
        """Whether a client may have rows copied now."""
        self._share.fill()
        rested = time.monotonic() - self._last.get(client, -_REST_SECONDS) >= _REST_SECONDS
        return self._share.credit > (-_OWED if rested else 0.0)

    def pace(self, client: int) -> Pace:
        """Copies pieces for a client, by turns with what else the loop does."""

        async def copied(piece: Callable[[], bool]) -> bool:
            await asyncio.sleep(0)
            self._last[client] = time.monotonic()
            with self._share.spending():
                return piece()

        return copied

    def leave(self, client: int) -> None:
        """A client has gone."""
        self._last.pop(client, None)

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self._share.spent


class _NotAdmitted(Exception):
    """What a query reads cannot be copied yet."""


class _Again(Exception):
    """The process had ended before the query came to it."""


class QueryPool:
    """Answers queries in the run's event loop, by processes that are started when they are needed.

    waited: see Share.
    """

    def __init__(self, engine: GatedEngine, options: QueryOptions, waited: Callable[[], float]) -> None:
        self._engine, self._options = engine, options
        # Who reads large views in bulk takes nothing from who asks SQL.
        self._copying, self._bulk = (Copying(waited, options.copying) for _ in range(2))
        self._queue = FairQueue(_PROCESSES)
        self._idle: list[QueryProcess] = []
        self._all: set[QueryProcess] = set()
        self._ending: set[asyncio.Future[str]] = set()
        self._returning: set[asyncio.Future[None]] = set()
        # What queries read of this program, whoever asks.
        self._program: CompiledProgram | None = None
        self._reads: dict[tuple[str, ...], tuple[str, ...]] = {}

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [process.pid for process in self._all]

    async def answer(self, client: int, asked: Asked) -> bytes:
        """The answer to a client's query, as `body_of` gives it; cancelling it stops the query.

        Raises SqlError, DataError: what is wrong with the query, or which limit it has met.
        """
        long = False
        while True:
            try:
                async with self._queue.turn(client, long) as turn:
                    body = await self._in_turn(turn, asked)
                if body is not None:
                    return body
                # It has had its time as a short one; others wait.
                long = True
            except _Again:
                continue
            except _NotAdmitted:
                await self._admission(client, asked)

    def leave(self, client: int) -> None:
        """A client has gone; its queries are cancelled."""
        self._queue.leave(client)
        for copying in (self._copying, self._bulk):
            copying.leave(client)

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.end()
            process.wait()
        self._all.clear()
        self._idle.clear()

    def _copies(self, asked: Asked) -> Copying:
        """What rows are copied by."""
        return self._bulk if _is_bulk(asked) else self._copying

    async def _admission(self, client: int, asked: Asked) -> None:
        copying = self._copies(asked)
        until = time.monotonic() + (_BULK_PATIENCE if _is_bulk(asked) else self._options.seconds)
        while not copying.admits(client):
            if time.monotonic() > until:
                raise DataError(
                    "too many rows are copied for queries, which have a share of the run's thread, "
                    f"queries.copying = {self._options.copying}; ask views of fewer rows, or later"
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def _in_turn(self, turn: Turn, asked: Asked) -> bytes | None:
        """The answer; None where it takes too long for a short query and has to wait again."""
        process = await self._process()
        start = time.monotonic()
        seconds = max(self._options.seconds, _BULK_SECONDS if _is_bulk(asked) else 0.0)
        work = asyncio.ensure_future(self._answered(process, turn.client, asked))
        try:
            while True:
                gone = time.monotonic() - start
                if gone >= seconds:
                    limit = self._options.time_limit if seconds == self._options.seconds else f"{seconds:g}s"
                    raise DataError(f"the query takes longer than {limit}, the limit; ask for less at a time")
                if gone >= _SHORT_SECONDS and not self._queue.stays(turn):
                    return None
                wait = _LOOK_SECONDS if gone >= _SHORT_SECONDS else _SHORT_SECONDS - gone
                await asyncio.wait([work], timeout=min(wait, seconds - gone))
                if work.done():
                    return work.result()
        except Gone:
            how = await self._ended(process)
            raise DataError(f"the process of the query {how}; another is started, ask for less") from None
        finally:
            # Whoever is cancelled again meanwhile leaves the process to others all the same.
            returning = asyncio.ensure_future(self._given_back(process, work))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            await asyncio.shield(returning)

    async def _given_back(self, process: QueryProcess, work: asyncio.Future[bytes]) -> None:
        work.cancel()
        if process.asked:
            # Others have the process once it has stopped.
            await process.stop()
        await asyncio.gather(work, return_exceptions=True)
        self._back(process)

    async def _answered(self, process: QueryProcess, client: int, asked: Asked) -> bytes:
        start, program = time.monotonic(), self._engine.program
        if self._program is not program:
            self._program, self._reads = program, {}
        known = reads = None if asked.describe else self._reads.get(_plan_key(asked))
        if reads is None:
            try:
                planned = await process.plan(asked, program)
            except Gone:
                if process.served:
                    raise _Again from None
                raise
            if isinstance(planned, Answered):
                return self._told(planned, self._engine.version, start)
            reads = planned.reads
            self._note(asked, program, reads)
        copying = self._copies(asked)
        before = copying.spent
        if reads and not copying.admits(client):
            raise _NotAdmitted
        check = partial(
            _check_size, self._options.memory_bytes, _BULK_SHARE if _is_bulk(asked) else _ROWS_SHARE
        )
        try:
            taken = await snapshot_between(self._engine, reads, copying.pace(client), check)
        finally:
            self._queue.charge(client, _COPYING_COST * (copying.spent - before))
        if taken.program is not program:
            raise _Again
        # What waits meanwhile comes between.
        await asyncio.sleep(0)
        try:
            if known is None:
                answered = await process.answer(taken, check)
            else:
                answered = await process.answer_at_once(asked, taken, check)
        except Gone:
            # Asked again it is planned first, which tells whether it is what ends processes.
            self._reads.pop(_plan_key(asked), None)
            if known is None:
                raise
            raise _Again from None
        return self._told(answered, taken.version, start)

    def _note(self, asked: Asked, program: CompiledProgram, reads: tuple[str, ...]) -> None:
        if self._program is program and len(asked.sql) <= _KNOWN_LETTERS and not asked.describe:
            while len(self._reads) >= _KNOWN:
                self._reads.pop(next(iter(self._reads)))
            self._reads[_plan_key(asked)] = reads

    def _told(self, answered: Answered, version: tuple[int, int, int], start: float) -> bytes:
        own = {"version": wire_version(version), "seconds": round(time.monotonic() - start, 6)}
        return answered.body + b"," + body_of(own)

    async def _process(self) -> QueryProcess:
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            self._end(process)
        process = QueryProcess(self._options)
        self._all.add(process)
        try:
            await process.ready()
        except Gone:
            how = await self._ended(process)
            raise DataError(f"the process that runs queries {how}; is queries.memory enough?") from None
        except BaseException:
            self._end(process)
            raise
        return process

    def _back(self, process: QueryProcess) -> None:
        if process in self._all and not process.over:
            self._idle.append(process)
        else:
            self._end(process)

    def _end(self, process: QueryProcess) -> None:
        if process in self._all:
            ending = asyncio.ensure_future(self._ended(process))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _ended(self, process: QueryProcess) -> str:
        self._all.discard(process)
        process.end()
        return await asyncio.to_thread(process.wait)
