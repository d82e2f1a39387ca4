"""Orders at Binance USD-M futures: what is sent of each, one request after the other, without I/O.

Sources: Binance documentation of USD-M Futures, "New Order", "Modify Order", "Cancel Order", "Cancel All Open
Orders", "Auto-Cancel All Open Orders", "Query Order", "Error Code", "General Info".

No order is sent twice. Where the answer to one does not come, or says that nobody knows (5xx, -1006, -1007),
the order is asked for by its client id: it is there, or, once `recvWindow` is over, after which the venue
takes it no more, it never will be. Cancellations are sent until the order is seen to have ended.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import Protocol

import msgspec

from orderbook.core.errors import KEPT_TEXT
from orderbook.strategies.execution.binance_messages import (
    STATUSES,
    UNUSABLE,
    RequestLimits,
    WireOrder,
    WireProblem,
    check_numbers,
)
from orderbook.strategies.execution.venue_account import OpenOrder, VenueAccount
from orderbook.strategies.execution.venue_reports import (
    CancelAll,
    CancelOrder,
    Missing,
    Modify,
    NotModified,
    OrderState,
    Place,
    Refused,
    Report,
)

_log = logging.getLogger(__name__)

# Seconds: after the receive window before an order is taken to be lost, more than the venue's clock may be
# mistaken; between two looks for one.
_MARGIN, _LOOK, _LONGEST_DELAY = 2.0, 1.0, 30.0
NO_SUCH_ORDER, UNKNOWN_ORDER, _DUPLICATE = -2013, -2011, -4116
Take = Callable[[int, WireProblem, bytes], None]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """sends: whether orders leave at all. Times are seconds; cancel_after 0: orders stay when the run is
    gone.

    share: of the venue's limits, how much new orders may use of them; the rest is for cancelling and asking.
    """

    sends: bool = True
    receive_window: float = 5.0
    cancel_after: float = 60.0
    reconcile_seconds: float = 60.0
    share: float = 0.8


class Link(Protocol):
    """What orders need of the session; see BinanceSession."""

    limits: RequestLimits
    trouble: str | None
    waits_until: float
    compared: float
    begun: float

    @property
    def ready(self) -> bool: ...

    def ask(
        self,
        method: str,
        path: str,
        params: dict[str, str],
        take: Take,
        *,
        weight: int = 1,
        orders: int = 0,
        signed: bool = True,
    ) -> None:
        """Ask the venue; `take` is given the status (0: nobody knows), what is wrong, and the body."""

    def report(self, report: Report) -> None:
        """Something has been learned."""

    def venue_ms(self) -> int:
        """The venue's time, ms."""

    def reconcile_within(self, seconds: float) -> None:
        """Reconcile soon."""


@dataclass(slots=True)
class OrderLine:
    """What is under way of one order. Requests of an order do not overtake each other.

    sent: when the last one left that may still arrive. look: when the order is to be asked
    for, as nobody knows what became of a request; `modifying` is then what it was to become.
    """

    client_id: str
    symbol: str
    side: str
    busy: bool = False
    sent: float = -inf
    look: float = inf
    looks: int = 0
    cancel: bool = False
    cancel_at: float = 0.0
    modify: Modify | None = None
    modifying: Modify | None = None
    last: OrderState | None = None
    # An order that the run has no record of.
    stray: bool = False


class OrderLines:
    """What is under way of the run's orders; see the module."""

    def __init__(
        self, link: Link, account: VenueAccount, options: SessionOptions, clock: Callable[[], float]
    ) -> None:
        self.lines: dict[str, OrderLine] = {}
        # Nothing new is sent any more.
        self.leaving = False
        self._link, self._account, self._options, self._clock = link, account, options, clock
        # When the countdown of a symbol is set again.
        self._countdowns: dict[str, float] = {}

    @property
    def wake_at(self) -> float:
        """When `wake` has something to do."""
        times = [*self._countdowns.values(), inf]
        for line in self.lines.values():
            if not line.busy:
                times.append(line.look)
                if line.cancel and line.look == inf:
                    times.append(line.cancel_at)
        return min(times)

    def wake(self, now: float) -> None:
        """Do what is due."""
        for line in list(self.lines.values()):
            self.advance(line, now)
        self.beat(now)

    def stray(self, order: WireOrder) -> None:
        """The venue has an order with the name of this run, which has no record of it: it is cancelled."""
        if order.clientOrderId not in self.lines:
            _log.warning(
                "%s: order %s is of this run, which has no record of it: it is cancelled",
                self._account.venue, order.clientOrderId,
            )  # fmt: skip
            line = self.lines[order.clientOrderId] = OrderLine(order.clientOrderId, order.symbol, order.side)
            line.cancel = line.stray = True

    def take_intents(self) -> None:
        outbox = self._account.outbox
        while outbox:
            intent = outbox.popleft()
            match intent:
                case Place():
                    self._place(intent)
                case Modify():
                    if (line := self._line_of(intent.client_id)) is not None:
                        line.modify = intent
                        self.advance(line, self._clock())
                case CancelOrder():
                    if (line := self._line_of(intent.client_id)) is not None:
                        line.cancel = True
                        self.advance(line, self._clock())
                case CancelAll(symbol):
                    self.cancel_all(symbol)

    def _refusal(self, orders: int) -> str | None:
        if not self._options.sends:
            return "dry run: nothing is sent"
        if self.leaving:
            return "the run ends"
        if self._account.blocked:
            return "halted"
        if not self._link.ready:
            return f"the order gateway is not ready: {self._link.trouble or 'it reconciles'}"
        if self._clock() < self._link.waits_until:
            return self._link.trouble or "the venue asks to wait"
        why = self._link.limits.refusal(1 - orders, orders, self._options.share, self._link.venue_ms())
        return None if why is None else f"the venue's limits: {why}"

    def _place(self, intent: Place) -> None:
        params = {
            "symbol": intent.symbol,
            "side": intent.side.upper(),
            "type": "MARKET" if intent.price is None else "LIMIT",
            "quantity": intent.volume,
            "newClientOrderId": intent.client_id,
            "newOrderRespType": "RESULT",
        }
        if intent.price is not None:
            kind = "IOC" if intent.ioc else "GTX" if intent.post_only else "GTC"
            params |= {"price": intent.price, "timeInForce": kind}
        why = self._refusal(1)
        if why is not None:
            if not self._options.sends:
                _log.info("%s: not sent: POST /fapi/v1/order %s", self._account.venue, _shown(params))
            self._link.report(Refused(intent.client_id, why, self._link.venue_ms()))
            return
        line = self.lines[intent.client_id] = OrderLine(intent.client_id, intent.symbol, intent.side)
        self._send(line, "POST", params, lambda *answer: self._placed(line, *answer), orders=1)
        self._countdowns.setdefault(intent.symbol, -inf)

    def _send(
        self,
        line: OrderLine,
        method: str,
        params: dict[str, str],
        take: Callable[[int, WireProblem, bytes], None],
        *,
        orders: int = 0,
    ) -> None:
        line.busy, line.sent = True, self._clock()
        self._link.ask(method, "/fapi/v1/order", params, take, weight=1 - orders, orders=orders)

    def _placed(self, line: OrderLine, status: int, problem: WireProblem, body: bytes) -> None:
        line.busy = False
        if 200 <= status < 300 and self._noted(body):
            pass
        elif status == 0 or 200 <= status < 300 or problem.code == _DUPLICATE:
            self._look_for(line)
        else:
            self._link.report(Refused(line.client_id, _why(status, problem), self._link.venue_ms()))
            self.lines.pop(line.client_id, None)
        self.advance(line, self._clock())

    def advance(self, line: OrderLine, now: float) -> None:
        """Sends what waits of an order, once nothing of it is under way."""
        if self.lines.get(line.client_id) is not line or line.busy or now < self._link.waits_until:
            return
        if line.look < inf:
            if now >= line.look:
                line.busy = True
                self.query(line, lambda: None)
        elif line.cancel:
            if now >= line.cancel_at:
                self._cancel(line)
        elif line.modify is not None:
            self._modify(line, line.modify)

    def _cancel(self, line: OrderLine) -> None:
        if not self._options.sends:
            _log.info(
                "%s: not sent: DELETE /fapi/v1/order symbol=%s origClientOrderId=%s",
                self._account.venue, line.symbol, line.client_id,
            )  # fmt: skip
            line.cancel = False
            if line.stray:
                self.lines.pop(line.client_id, None)
            return

        def take(status: int, problem: WireProblem, body: bytes) -> None:
            line.busy = False
            line.cancel_at = self._clock() + _LOOK
            if 200 <= status < 300 and self._noted(body):
                return
            if status == 0 or problem.code in (UNKNOWN_ORDER, NO_SUCH_ORDER) or 200 <= status < 300:
                self._look_for(line)
            self.advance(line, self._clock())

        if line.modify is not None:
            line.modify = None
        params = {"symbol": line.symbol, "origClientOrderId": line.client_id}
        line.busy = True
        self._link.ask("DELETE", "/fapi/v1/order", params, take)

    def _modify(self, line: OrderLine, asked: Modify) -> None:
        line.modify = None
        why = self._refusal(1)
        params = {
            "symbol": asked.symbol, "side": asked.side.upper(), "quantity": asked.volume,
            "price": asked.price, "origClientOrderId": asked.client_id,
        }  # fmt: skip
        if why is not None:
            if not self._options.sends:
                _log.info("%s: not sent: PUT /fapi/v1/order %s", self._account.venue, _shown(params))
            self._link.report(NotModified(line.client_id, why, self._link.venue_ms()))
            return

        def take(status: int, problem: WireProblem, body: bytes) -> None:
            line.busy = False
            if 200 <= status < 300 and self._noted(body):
                pass
            elif status == 0 or 200 <= status < 300:
                line.modifying = asked
                self._look_for(line)
            else:
                self._link.report(NotModified(line.client_id, _why(status, problem), self._link.venue_ms()))
                if problem.code in (UNKNOWN_ORDER, NO_SUCH_ORDER):
                    self._look_for(line)
            self.advance(line, self._clock())

        self._send(line, "PUT", params, take, orders=1)

    def _look_for(self, line: OrderLine) -> None:
        line.look, line.looks = self._clock(), 0

    def query(self, line: OrderLine, then: Callable[[], None]) -> None:
        """Asks for an order; it is busy until the answer."""

        over = line.sent + self._options.receive_window + _MARGIN <= self._clock()

        def take(status: int, problem: WireProblem, body: bytes) -> None:
            line.busy = False
            line.looks += 1
            again = self._clock() + min(_LONGEST_DELAY, _LOOK * 2 ** min(line.looks - 1, 5))
            if 200 <= status < 300 and self._noted(body):
                self._found(line, over)
            elif problem.code in (NO_SUCH_ORDER, UNKNOWN_ORDER) and over and line.looks > 1:
                self._link.report(Missing(line.client_id, self._link.venue_ms()))
                self.lines.pop(line.client_id, None)
            elif problem.code in (NO_SUCH_ORDER, UNKNOWN_ORDER):
                line.look = self._clock() + _LOOK
            else:
                line.look = again
            then()
            self.advance(line, self._clock())

        params = {"symbol": line.symbol, "origClientOrderId": line.client_id}
        self._link.ask("GET", "/fapi/v1/order", params, take)

    def _found(self, line: OrderLine, over: bool) -> None:
        """An order that was asked for is there, and open or not."""
        asked, line.look = line.modifying, inf
        if asked is None or self.lines.get(line.client_id) is not line:
            return
        state = line.last
        same = (
            state is not None
            and Decimal(state.volume) == Decimal(asked.volume)
            and Decimal(state.price) == Decimal(asked.price)
        )
        if same:
            line.modifying = None
        elif over:
            line.modifying = None
            reason = "the venue has not answered, and has not done it"
            self._link.report(NotModified(line.client_id, reason, self._link.venue_ms()))
        else:
            line.look = self._clock() + _LOOK

    def cancel_all(self, symbol: str) -> None:
        """Cancels all orders of a symbol in one request; each of the run's once more, unless it ends."""
        for order in list(self._account.open_orders()):
            if order.symbol == symbol:
                line = self.line(order)
                line.cancel, line.cancel_at = True, self._clock() + _LOOK
        if not self._options.sends:
            _log.info("%s: not sent: DELETE /fapi/v1/allOpenOrders symbol=%s", self._account.venue, symbol)
            return

        def take(status: int, problem: WireProblem, body: bytes) -> None:
            if not 200 <= status < 300:
                _log.warning(
                    "%s: cancelling all of %s: %s", self._account.venue, symbol, _why(status, problem)
                )
            self._link.reconcile_within(_LOOK)

        self._link.ask("DELETE", "/fapi/v1/allOpenOrders", {"symbol": symbol}, take)

    def line(self, order: OpenOrder) -> OrderLine:
        line = self.lines.get(order.client_id)
        if line is None:
            line = self.lines[order.client_id] = OrderLine(order.client_id, order.symbol, order.side)
            # Of one that may be under way it is known that this session has not sent it.
            line.sent = -inf if order.confirmed else self._link.begun
        return line

    def _line_of(self, client_id: str) -> OrderLine | None:
        """What is under way of an order; None where it has ended."""
        if client_id in self.lines:
            return self.lines[client_id]
        found = (order for order in self._account.open_orders() if order.client_id == client_id)
        return next((self.line(order) for order in found), None)

    def beat(self, now: float) -> None:
        """Sets the countdowns by which the venue cancels what a run that is gone has left."""
        seconds = self._options.cancel_after
        if not (seconds and self._options.sends) or self._link.compared == -inf:
            return
        active = {order.symbol for order in self._account.open_orders()}
        active |= {line.symbol for line in self.lines.values() if line.busy}
        for symbol in active:
            self._countdowns.setdefault(symbol, -inf)
        for symbol, due in list(self._countdowns.items()):
            if symbol in active and now >= due:
                self._countdowns[symbol] = now + seconds / 3
                self._count_down(symbol, round(1000 * seconds))
            elif symbol not in active:
                # It would cancel what somebody places later.
                del self._countdowns[symbol]
                if due > -inf:
                    self._count_down(symbol, 0)

    def _count_down(self, symbol: str, milliseconds: int) -> None:
        def take(status: int, problem: WireProblem, body: bytes) -> None:
            if not 200 <= status < 300 and symbol in self._countdowns:
                self._countdowns[symbol] = self._clock() + _LOOK

        params = {"symbol": symbol, "countdownTime": str(milliseconds)}
        self._link.ask("POST", "/fapi/v1/countdownCancelAll", params, take, weight=10)

    def _noted(self, body: bytes) -> bool:
        """Whether an answer is an order, which is then reported."""
        try:
            self.note(msgspec.json.decode(body, type=WireOrder))
        except UNUSABLE as error:
            _log.warning("%s: an order that cannot be read: %s", self._account.venue, str(error)[:KEPT_TEXT])
            return False
        return True

    def note(self, order: WireOrder) -> None:
        status = STATUSES.get(order.status)
        if status is None or order.symbol not in self._account.symbols:
            return
        check_numbers(order.origQty, order.price, order.executedQty)
        self.state(
            OrderState(
                order.clientOrderId, order.orderId, status, order.origQty, order.price, order.executedQty,
                order.updateTime,
            ),
            order.symbol,
        )  # fmt: skip

    def state(self, state: OrderState, symbol: str) -> None:
        line = self.lines.get(state.client_id)
        if line is not None and line.stray:
            if state.status != "open":
                self.lines.pop(state.client_id, None)
            return
        if not self._account.knows(state.client_id):
            return
        if line is not None:
            if line.last == state:
                return
            if line.last is None or state.time >= line.last.time or state.status != "open":
                line.last = state
            if line.look < inf and line.modifying is None:
                line.look = inf
            if state.status != "open":
                self.lines.pop(state.client_id, None)
        self._link.report(state)


def _why(status: int, problem: WireProblem) -> str:
    if problem.code:
        return f"{problem.msg} ({problem.code})"[:KEPT_TEXT]
    return (problem.msg or f"status {status or 'unknown'}")[:KEPT_TEXT]


def _shown(params: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())
