"""An order gateway on a virtual clock: strategies' clients, a session, and a venue, with faults between them.

The run is a log: requests of strategies and reports of the session, each applied when it is there, as the
run's queue does. A restart makes everything anew but the venue, and applies the log again.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
from binance_account import BinanceAccount

from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.strategies.execution.account import Fill, Order, OrderUpdate
from orderbook.strategies.execution.binance_orders import SessionOptions
from orderbook.strategies.execution.binance_session import (
    BinanceSession,
    CloseStream,
    OpenStream,
    Request,
)
from orderbook.strategies.execution.client import OrderRequest, SavedAccount
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.routed_client import RoutedClient
from orderbook.strategies.execution.venue_account import VenueAccount
from orderbook.strategies.execution.venue_model import RiskLimits, SimulationOptions
from orderbook.strategies.execution.venue_orders import SavedVenue
from orderbook.strategies.execution.venue_reports import Report, client_id_of

VENUE, NATIVE, SYMBOL = "binance_futures", "BTCUSDT", "BTC-USDT-PERP"
_START = 1_700_000_000_000
_reports = msgspec.msgpack.Decoder(list[Report])


def instruments() -> Instruments:
    """One perpetual, held as finely as rows are."""
    tick, lot = Decimal("0.10"), Decimal("0.001")
    return Instruments([Instrument(VENUE, SYMBOL, NATIVE, tick, lot, FINEST, FINEST)])


@dataclass
class Faults:
    """Probabilities of what happens to a request, an event and a connection, while faults last."""

    lost: float = 0.0  # the request never arrives
    unanswered: float = 0.0  # it does, and the answer is lost
    late: float = 0.0  # it arrives seconds later, after it was given up
    unknown: float = 0.0  # 503 that leaves open what happened
    limited: float = 0.0  # 429 or 418
    repeated: float = 0.0  # an event comes twice
    delayed: float = 0.0  # an event comes after later ones
    broken: float = 0.0  # the stream ends, with what is on its way
    queued: bool = False  # reports wait until they are applied
    skew: int = 0  # ms by which our clock is wrong
    drift: bool = False  # and becomes wrong by the way


NO_FAULTS = Faults()


class Run:
    """What a process knows: it goes with it."""

    def __init__(self, strategies: tuple[str, ...], limits: RiskLimits) -> None:
        own = instruments()
        self.account = VenueAccount(VENUE, own)
        self.clients = {
            name: RoutedClient(
                name, name, PaperClient(name, None, own, SimulationOptions(), limits, name),
                {VENUE: self.account}, None, own, limits,
            )
            for name in strategies
        }  # fmt: skip
        self.lines = {client.venues[VENUE].line: name for name, client in self.clients.items()}
        self.rows: dict[tuple[str, int], Order] = {}
        self.fills: list[Fill] = []
        self.history: list[OrderUpdate] = []

    def load(self, before: "Run") -> None:
        """What a checkpoint says; relations are kept by the engine."""
        self.rows, self.fills = dict(before.rows), list(before.fills)
        for name, client in self.clients.items():
            data = msgspec.msgpack.encode(before.clients[name].save())
            client.load(msgspec.msgpack.decode(data, type=SavedAccount), range(1))
        account = msgspec.msgpack.encode(before.account.save())
        self.account.load(msgspec.msgpack.decode(account, type=SavedVenue))

    def publish(self, updates: list[OrderUpdate]) -> None:
        """Rows as the relations have them; each update must fit to the row there is."""
        for update in updates:
            key = update.new.strategy, update.new.id
            assert self.rows.get(key) == update.old, (self.rows.get(key), update)
            self.rows[key] = update.new
            self.fills += update.fills
            self.history.append(update)

    def apply(self, entry: tuple[Any, ...]) -> None:
        """Applies an entry of the log."""
        kind, now, *rest = entry
        if kind == "reports":
            for report in _reports.decode(rest[0]):
                self.publish([update for _, update in self.account.take(report)])
            return
        strategy, *arguments = rest
        client = self.clients[strategy]
        if kind == "place":
            self.publish(client.place(OrderRequest(*arguments), now))
        elif kind == "modify":
            order_id, volume, price = arguments
            self.publish(client.modify(order_id, volume, price, now))
        elif kind == "cancel":
            (order_id,) = arguments
            self.publish(client.cancel(order_id, now))
        else:
            self.account.cancel_all()
            for name, one in self.clients.items():
                for order_id in one.open_orders():
                    self.publish(self.clients[name].cancel(order_id, now, "halted"))


class Network:
    """The run and the venue; see the module. seed: of all that is left to chance."""

    def __init__(
        self,
        seed: int,
        faults: Faults = NO_FAULTS,
        strategies: tuple[str, ...] = ("one", "two"),
        options: SessionOptions | None = None,
        limits: RiskLimits | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.skew, self.venue_skew = faults.skew, 0
        self.time = 0.0
        self.log: list[tuple[Any, ...]] = []
        self.venue = BinanceAccount(self.venue_ms)
        self._strategies, self._limits = strategies, limits or RiskLimits()
        self._options = options or SessionOptions(reconcile_seconds=20.0)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = self._process = 0
        self._told = 0
        self._free = 0.0
        self.sent: list[Request] = []
        self.ids = dict.fromkeys(strategies, 0)
        self.begin()

    def venue_ms(self) -> int:
        """The venue's clock."""
        return _START + round(1000 * self.time) + self.venue_skew

    def wall_ms(self) -> int:
        """Ours."""
        return self.venue_ms() + self.skew

    def begin(self, before: Run | None = None) -> None:
        """A process begins, and applies the log there is; or goes on from a checkpoint of the one before."""
        self._process += 1
        self.run = Run(self._strategies, self._limits)
        if before is None:
            for entry in self.log:
                self.run.apply(entry)
        else:
            self.run.load(before)
        self.run.account.sending = True
        self.session = BinanceSession(
            self.run.account, self._options, lambda: self.time, self.wall_ms,
            lambda: f"{self._process:08d}", self.random.randrange(1 << 30),
        )  # fmt: skip
        self._stream: object | None = None

    def restart(self, checkpoint: bool = False) -> None:
        """The process is gone, with what it had not logged; another one goes on."""
        rows, fills = dict(self.run.rows), list(self.run.fills)
        self._drop_stream()
        self._due = [one for one in self._due if getattr(one[2], "stays", False)]
        heapq.heapify(self._due)
        self.begin(self.run if checkpoint else None)
        assert (self.run.rows, self.run.fills) == (rows, fills)

    def ask(self, kind: str, strategy: str, *arguments: Any) -> None:
        """A strategy asks for something: it is logged, and then done."""
        self._apply((kind, self.wall_ms() * 10**6, strategy, *arguments))

    def place(
        self, strategy: str, side: str, volume: str, price: str | None, tif: str = "gtc", post: bool = False
    ) -> int:
        """Its id."""
        self.ids[strategy] += 1
        number = self.ids[strategy]
        self.ask("place", strategy, number, SYMBOL, side, volume, price, None, tif, post)
        return number

    def client_id(self, strategy: str, number: int) -> str:
        """The venue's name of an order."""
        line = self.run.clients[strategy].venues[VENUE].line
        return client_id_of(self.run.account.session, line, number)

    def step(self, until: float) -> None:
        """Lets time pass."""
        while True:
            self._settle()
            wake = self.session.wake_at
            due = self._due[0][0] if self._due else until
            self.time = max(self.time, min(until, wake, due))
            if self.time >= until:
                return
            while self._due and self._due[0][0] <= self.time:
                heapq.heappop(self._due)[2]()
            self.venue.pass_time()
            self.session.wake()

    def settle(self, seconds: float = 90.0) -> None:
        """No faults from now on; long enough for everything to be known."""
        self.faults = NO_FAULTS
        self.step(self.time + seconds)

    def later(self, seconds: float, action: Callable[[], None], stays: bool = False) -> None:
        """Something happens then; stays: whatever becomes of the process."""
        self._number += 1
        if stays:
            action.stays = True  # type: ignore[attr-defined]
        heapq.heappush(self._due, (self.time + seconds, self._number, action))

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _apply(self, entry: tuple[Any, ...]) -> None:
        self.log.append(entry)
        self.run.apply(entry)

    def _settle(self) -> None:
        """What is to be done at once: commands, reports, events."""
        for _ in range(1000):
            self._listen()
            if self.run.account.outbox:
                self.session.wake()
            commands, reports = self.session.commands(), self.session.take()
            if reports:
                self._queue(msgspec.msgpack.encode(reports))
            for command in commands:
                self._do(command)
            if not (commands or reports or self.run.account.outbox):
                return
        raise AssertionError("the session does not come to rest")

    def _queue(self, data: bytes) -> None:
        """Reports wait for their turn, in order; those that wait when the process ends are lost."""
        wait = self.random.uniform(0.0, 0.1) if self.faults.queued else 0.0
        self._free = max(self._free, self.time + wait)

        def apply() -> None:
            self._apply(("reports", self.wall_ms() * 10**6, data))

        if self._free <= self.time:
            apply()
        else:
            self.later(self._free - self.time, apply)

    def _do(self, command: object) -> None:
        session = self.session
        match command:
            case Request():
                self.sent.append(command)
                self._send(command)
            case OpenStream(key):
                self.later(0.05, lambda: self._open(session, key))
            case CloseStream():
                self._break("closed by us")

    def _open(self, session: BinanceSession, key: str) -> None:
        if self.session is not session:
            return
        if key != self.venue.listen_key or self._chance(self.faults.broken):
            session.disconnected("refused")
            return
        self._stream = object()
        self._told = len(self.venue.sent)
        session.connected()

    def _drop_stream(self) -> None:
        self._stream = None

    def _break(self, reason: str) -> None:
        """The stream ends, and what was on its way with it."""
        if self._stream is not None:
            self._drop_stream()
            session = self.session
            self.later(0.01, lambda: session.disconnected(reason))

    def _listen(self) -> None:
        """Messages of the stream go on their way."""
        messages, self._told = self.venue.sent[self._told :], len(self.venue.sent)
        for message in messages:
            if self._stream is None:
                continue
            data = msgspec.json.encode(message)
            for _ in range(2 if self._chance(self.faults.repeated) else 1):
                wait = 0.01
                if self._chance(self.faults.delayed):
                    wait = self.random.uniform(0.01, 2.0)
                self.later(wait, self._delivery(data))
            if self._chance(self.faults.broken):
                self._break("broken")

    def _delivery(self, data: bytes) -> Callable[[], None]:
        stream, session = self._stream, self.session

        def deliver() -> None:
            if self._stream is stream:
                session.frame(data)

        return deliver

    def _send(self, request: Request) -> None:
        session, faults = self.session, self.faults
        if faults.drift and self._chance(0.02):
            self.skew = self.random.randrange(-4000, 4000)

        def answer(status: int, headers: dict[str, str], body: bytes) -> None:
            self.later(
                self.random.uniform(0.005, 0.08),
                lambda: session.answered(request.number, status, headers, body),
            )

        def arrive() -> None:
            # On a clock of its own, whatever becomes of the process.
            answer(*self.venue.handle(request.method, request.path, request.params))

        def arrive_unheard() -> None:
            self.venue.handle(request.method, request.path, request.params)

        def give_up() -> None:
            self.later(self.random.uniform(0.5, 3.0), lambda: session.failed(request.number, "timed out"))

        way = self.random.uniform(0.005, 0.08)
        if self._chance(faults.lost):
            give_up()
        elif self._chance(faults.unanswered):
            self.later(way, arrive_unheard, stays=True)
            give_up()
        elif self._chance(faults.late):
            self.later(self.random.uniform(1.0, 8.0), arrive_unheard, stays=True)
            give_up()
        elif self._chance(faults.unknown):
            text = b'{"code":-1007,"msg":"Timeout waiting for response from backend server."}'
            if self._chance(0.5):
                self.later(way, arrive_unheard, stays=True)
            answer(503, {}, text)
        elif self._chance(faults.limited):
            status = 418 if self._chance(0.3) else 429
            answer(status, {"Retry-After": "2"}, b'{"code":-1003,"msg":"Too many requests."}')
        else:
            self.later(way, arrive, stays=True)


def check(network: Network) -> None:
    """Strategies' orders, fills and positions are the account's; nothing was sent twice."""
    venue, run = network.venue, network.run
    placed = [request.params["newClientOrderId"] for request in network.sent if _places(request)]
    assert len(placed) == len(set(placed)), "an order was sent twice"
    assert all(count == 1 for count in venue.placed.values()), venue.placed
    by_id = {order.client_id: order for order in venue.orders.values()}
    for (strategy, number), row in run.rows.items():
        order = by_id.pop(network.client_id(strategy, number), None)
        if order is None:
            assert row.status == "refused" and not row.filled, row
            continue
        assert row.status != "sent", (row, order)
        told = {"FILLED": ("filled",), "CANCELED": ("cancelled",), "EXPIRED": ("cancelled", "refused")}
        assert row.status in told.get(order.status, ("resting",)), (row, order)
        assert row.filled == order.filled, (row, order)
        if order.open:
            assert (row.volume, row.price) == (order.quantity, order.price), (row, order)
    own = {name for name in by_id if name.startswith("ob")}
    assert not own, f"orders that nobody knows: {own}"
    names = {network.client_id(s, n): (s, n) for s, n in run.rows}
    expected = sorted(
        (*names[trade.order.client_id], trade.price, trade.quantity, trade.fee, trade.time * 10**6)
        for trade in venue.trades
        if trade.order.client_id in names
    )
    found = sorted((f.strategy, f.order_id, f.price, f.volume, f.fee, f.ts) for f in run.fills)
    assert found == expected
    held = sum((client.position(SYMBOL) for client in run.clients.values()), Decimal(0))
    outside = sum(
        (
            trade.quantity if trade.order.side == "BUY" else -trade.quantity
            for trade in venue.trades
            if trade.order.client_id not in names
        ),
        Decimal(0),
    )
    assert held + outside == venue.positions[NATIVE]
    assert run.account.unexplained(NATIVE) == 0
    assert network.session.ready


def _places(request: Request) -> bool:
    return (request.method, request.path) == ("POST", "/fapi/v1/order")
