"""One websocket client: what it asks is checked and limited, what it gets waits for it only so long."""

import asyncio
import time
from collections import deque

from starlette.websockets import WebSocket, WebSocketDisconnect

from orderbook.core.errors import DataError
from orderbook.monitor.hub import Hub
from orderbook.monitor.messages import (
    Acknowledge,
    AddView,
    Answer,
    AnyRequest,
    Ask,
    Cancel,
    Costs,
    DropView,
    EndSilence,
    Explain,
    Follow,
    Halt,
    ListAlerts,
    QuerySql,
    Rules,
    SetRule,
    SilenceAlerts,
    Subscribe,
    Topic,
    Unsubscribe,
    Why,
    encoded,
    id_of,
    read_request,
    topic_of,
)
from orderbook.operations.access import Access

MOST_SUBSCRIPTIONS = 64
# Of continuous queries of SQL, each of which the engine keeps up to date.
MOST_SQL_FOLLOWS = 4
MOST_UNANSWERED = 8
# Messages a second, over a few seconds; what is above waits, what is far above ends the connection.
MESSAGES_A_SECOND = 50
_MOST_AT_ONCE = 200
# Messages that are no requests, or are refused, after which a client is let go.
_MOST_ERRORS = 50
# Ordered messages that may wait for a client, and seconds in which it must take one.
BACKLOG_BYTES = 4 << 20
PATIENCE_SECONDS = 20.0

# Close codes of RFC 6455, and of our own.
POLICY, TOO_BIG, TRY_LATER = 1008, 1009, 1013
TOO_SLOW = 4001


class Dropped(Exception):
    """A client is let go, with a close code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Client:
    """Serves one connection; see `serve`. `number` tells clients apart."""

    def __init__(self, number: int, socket: WebSocket, hub: Hub, access: Access) -> None:
        self.number, self.has_asked = number, False
        self._socket, self._hub, self._access = socket, hub, access
        # By the id of the subscription: the topic, and the number of the frame last sent.
        self._topics: dict[int, Topic] = {}
        self._seen: dict[int, int] = {}
        self._dirty: dict[int, None] = {}
        self._follows: set[int] = set()
        self._sql_follows: set[int] = set()
        self._unanswered: set[int] = set()
        self._ordered: deque[bytes] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()
        self._dropping: Dropped | None = None
        self._errors = 0
        self._allowance, self._counted = float(_MOST_AT_ONCE), time.monotonic()

    async def serve(self) -> None:
        """Until the client goes, or is let go with a reason."""
        self._hub.members[self.number] = self
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._hub.leave(self)
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Dropped):
                await self._close(result)
                return

    async def _close(self, dropped: Dropped) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self._socket.close(dropped.code, dropped.reason[:120])
        except (TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
            pass

    # What the hub tells.

    def touched(self, topic: Topic) -> None:
        """See Member."""
        for number, own in self._topics.items():
            if own == topic:
                self._dirty[number] = None
        self._wake.set()

    def enqueue(self, message: bytes) -> None:
        """See Member."""
        if self._dropping is None:
            self._ordered.append(message)
            self._waiting += len(message)
            # One message alone, such as a snapshot, may be larger.
            if self._waiting > BACKLOG_BYTES and len(self._ordered) > 1:
                self._dropping = Dropped(TOO_SLOW, "too slow: too much waits; follow again from your version")
        self._wake.set()

    def dropped(self, topic: Topic, error: str) -> None:
        """See Member."""
        for number in [n for n, own in self._topics.items() if own == topic]:
            self._forget(number)
            self._error(number, error)

    def ended(self, number: int, error: str) -> None:
        """See Member."""
        self._follows.discard(number)
        self._sql_follows.discard(number)
        self._error(number, error)

    def answered(self, answer: Answer) -> None:
        """See Member."""
        self._unanswered.discard(answer.id)
        self.enqueue(b'{"id":%d,%s}' % (answer.id, answer.body))

    # What the client asks.

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] != "websocket.receive":
                return
            await self._limit()
            await self._hub.room()
            text = message.get("text") or message.get("bytes") or b""
            try:
                self._handle(read_request(text))
            except DataError as error:
                self._error(id_of(text), str(error))
                self._errors += 1
            if self._errors > _MOST_ERRORS:
                raise Dropped(POLICY, f"more than {_MOST_ERRORS} messages that were refused")

    async def _limit(self) -> None:
        now = time.monotonic()
        self._allowance += (now - self._counted) * MESSAGES_A_SECOND
        self._allowance = min(self._allowance, _MOST_AT_ONCE) - 1
        self._counted = now
        if self._allowance < 0:
            # Meanwhile nothing is read, so that the client's own socket fills.
            await asyncio.sleep(-self._allowance / MESSAGES_A_SECOND)

    def _handle(self, request: object) -> None:
        match request:
            case Subscribe():
                self._subscribe(request)
            case Unsubscribe():
                if request.subscription in self._topics:
                    self._forget(request.subscription)
                elif request.subscription in self._follows:
                    self._follows.discard(request.subscription)
                    self._sql_follows.discard(request.subscription)
                    self._hub.follows.close(self, request.subscription)
                else:
                    raise DataError(f"no subscription {request.subscription}")
                self.enqueue(encoded({"id": request.id, "type": "done"}))
            case Follow():
                self._follow(request)
            case QuerySql() | Explain() | Why() | Costs() | Rules() | ListAlerts():
                self._ask(request)
            case Cancel():
                if request.request not in self._unanswered:
                    raise DataError(f"no request {request.request} waits for an answer")
                self._hub.send(Ask(self.number, request))
                self.enqueue(encoded({"id": request.id, "type": "done"}))
            case Halt() | Acknowledge() | SilenceAlerts() | EndSilence() if (
                self._access.local and not self._access.changes_allowed
            ):
                # Who is on this machine could stop the run as well.
                self._ask(request)
            case AddView() | DropView() | SetRule() | Halt() | Acknowledge() | SilenceAlerts() | EndSilence():
                if not self._access.changes_allowed:
                    raise DataError("read-only: set monitor.token in the configuration to change anything")
                if not self._access.token_is(request.token):
                    raise DataError("the token is another one")
                self._ask(request)

    def _taken(self, number: int) -> None:
        if number in self._topics or number in self._follows or number in self._unanswered:
            raise DataError(f"id {number} is in use; choose another")
        if len(self._topics) + len(self._follows) >= MOST_SUBSCRIPTIONS:
            raise DataError(f"at most {MOST_SUBSCRIPTIONS} subscriptions a client; unsubscribe some")

    def _subscribe(self, request: Subscribe) -> None:
        self._taken(request.id)
        topic = topic_of(request)
        self._topics[request.id], self._seen[request.id] = topic, 0
        if refused := self._hub.open(self, topic):
            self._topics.pop(request.id)
            raise DataError(refused)

    def _follow(self, request: Follow) -> None:
        self._taken(request.id)
        if (request.sql is None) == (request.view is None):
            raise DataError("follow either `sql` or a `view`")
        if request.sql is not None and not (self._access.local or self._access.token_is(request.token)):
            raise DataError("SQL is followed on loopback, or with the token; follow a view")
        if request.sql is not None and len(self._sql_follows) >= MOST_SQL_FOLLOWS:
            raise DataError(f"at most {MOST_SQL_FOLLOWS} continuous queries of SQL a client; end one")
        name = f"view {request.view}" if request.sql is None else f"sql {request.sql.strip()}"
        if refused := self._hub.follows.open(self, request, name):
            raise DataError(refused)
        self._follows.add(request.id)
        if request.sql is not None:
            self._sql_follows.add(request.id)

    def _ask(self, request: AnyRequest) -> None:
        if request.id in self._unanswered:
            raise DataError(f"id {request.id} is in use; choose another")
        if len(self._unanswered) >= MOST_UNANSWERED:
            raise DataError(f"{MOST_UNANSWERED} requests wait for an answer already; wait for one")
        self._unanswered.add(request.id)
        self.has_asked = True
        self._hub.send(Ask(self.number, request))

    def _forget(self, number: int) -> None:
        topic = self._topics.pop(number)
        self._seen.pop(number), self._dirty.pop(number, None)
        if topic not in self._topics.values():
            self._hub.close(self, topic)

    def _error(self, number: int | None, text: str) -> None:
        self.enqueue(encoded({"id": number, "type": "error", "error": text}))

    # What the client gets.

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ordered or self._dirty:
                if self._dropping is not None:
                    raise self._dropping
                if self._ordered:
                    message = self._ordered.popleft()
                    self._waiting -= len(message)
                    await self._send(message)
                else:
                    await self._send_frame()

    async def _send_frame(self) -> None:
        number = next(iter(self._dirty))
        del self._dirty[number]
        found = self._hub.message(self._topics[number], self._seen[number])
        if found is not None:
            self._seen[number] = found[0]
            await self._send(b'{"id":%d,%s' % (number, found[1]))

    async def _send(self, message: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._socket.send({"type": "websocket.send", "text": message.decode()})
        except TimeoutError:
            raise Dropped(TOO_SLOW, f"took nothing for {PATIENCE_SECONDS:.0f} s") from None
