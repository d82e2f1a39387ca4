"""What an instance of a strategy asks for, in Python and by compiled methods, and how that is done.

Requests wait until the message at hand has ended; an execution client then performs them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import index
from typing import Protocol, SupportsIndex

import numpy as np
from msgspec.structs import replace

from orderbook.core.errors import DataError, OrderbookError
from orderbook.market.instruments import fixed_point
from orderbook.strategies.compiled import CompiledMethods, Request
from orderbook.strategies.execution import desk
from orderbook.strategies.execution.account import OrderSide, OrderUpdate
from orderbook.strategies.execution.client import ExecutionClient, LoggedRequest, OrderRequest, RequestKind
from orderbook.strategies.execution.order_terms import LATEST, PLAIN, Number, OrderTerms, TimeInForce
from orderbook.strategies.order_desk import OrderDesk
from orderbook.strategies.own_instruments import OwnInstruments

# More than any message can call for: a strategy that answers each of its fills with an order never ends.
MOST_REQUESTS = 1_000
_TOO_MANY = f"more than {MOST_REQUESTS} orders and cancels in one message"
# Of orders that the loop sends; those until a time, too.
_IN_LOOP = ("gtc", "ioc", "fok")
# The terms of an order without any, as `place_order` has them.
_NO_TERMS = (0, 0, desk.MARKET, 0, 0, desk.MARKET, desk.MARKET, 0)
# By what compiled methods ask for.
_REQUESTED: tuple[RequestKind, ...] = ("order", "modify", "cancel")


class RequestQueue(Protocol):
    """Where requests wait until the message at hand has ended."""

    in_views: bool
    """Whether a row of a view is told that the compiled loop has come to, which then ends the message."""

    def after_message(self, action: Callable[[], None], first: bool = False) -> None:
        """Do something when the message at hand has ended."""

    def request(self, request: LoggedRequest) -> None:
        """Write what a strategy asks for ahead, then let its runner perform it; done once."""


class AskedOrders:
    """The requests of one instance, told from others by its `identity`, in the order in which it makes them.

    send: lets compiled code send what was asked for, at the end of a message; how much, up to what Python is
    to do. failed: the strategy is to be disabled, as something was wrong. Raises OrderbookError for too many
    in one message.
    """

    def __init__(
        self,
        queue: RequestQueue,
        identity: str,
        compiled: CompiledMethods | None,
        own: OwnInstruments,
        send: Callable[[], int],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._queue, self._identity, self._compiled, self._own = queue, identity, compiled, own
        self._send, self._failed = send, failed
        # Whether what is asked for is about to be sent in compiled code.
        self._sending = False
        # Orders so far, by which they are numbered.
        self.orders = 0
        # Requests of the message at hand, and since the last item began, by which a log tells them apart.
        self.count = self.number = 0

    def place(
        self,
        side: OrderSide,
        symbol: str,
        volume: Number,
        price: Number | None,
        venue: str | None,
        time_in_force: TimeInForce,
        post_only: bool,
        terms: OrderTerms | None = None,
    ) -> int:
        """See Desk."""
        symbol, venue = str(symbol), _text(venue)
        if self._in_loop:
            placed = self._placed(side, symbol, volume, price, venue, time_in_force, post_only, terms)
            if placed:
                return placed
        self._begin()
        self.orders += 1
        request_id = self.orders
        # Those that come once it is done have the ids after its own.
        self.orders += 0 if terms is None else terms.exits
        if self._compiled is not None:
            self._compiled.orders = self.orders
        self.number += 1
        request = LoggedRequest(
            0, self._identity, "order", request_id, symbol, side, str(volume), _text(price), venue,
            str(time_in_force), bool(post_only), self.number, terms,
        )  # fmt: skip
        self._ask(request)
        self._note_open(request)
        return request_id

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, stop: Number | None = None
    ) -> None:
        """See Desk. Raises OrderbookError for what is no id."""
        order_id = _id_of(order_id)
        if self._in_loop and self._modified(order_id, volume, price, stop):
            return
        self._begin()
        request = replace(self._request("modify", order_id), volume=_text(volume), price=_text(price))
        if stop is not None:
            request = replace(request, terms=OrderTerms(stop=str(stop)))
        self._ask(request)
        if self._compiled is not None:
            _note_price(self._compiled, request)

    def cancel(self, order_id: int) -> None:
        """See Desk. Raises OrderbookError for what is no id."""
        order_id = _id_of(order_id)
        if self._in_loop and self._is_one(order_id):
            assert self._compiled is not None
            desk.cancel_order(self._compiled.address, order_id)
            self._send_later()
            return
        self._begin()
        self._ask(self._request("cancel", order_id))

    def end(self, kind: RequestKind) -> None:
        """The strategy has failed, or is unloaded: that comes before what it has asked for."""
        self._ask(self._request(kind, 0), first=True)

    def ask(self) -> None:
        """Asks for what compiled methods have asked for, at the end of a message: in compiled code, where it
        may."""
        compiled = self._compiled
        if compiled is None or isinstance(compiled, OrderDesk) or not compiled.sends or compiled.asked_apart:
            self.take()
        elif compiled.requested:
            self._send_later()

    def take(self, first: bool = False) -> None:
        """Asks for what compiled methods have asked for, in Python; first: before what waits already."""
        compiled, asked = self._compiled, list[LoggedRequest]()
        try:
            for one in () if compiled is None else compiled.requests():
                self._add()
                asked.append(self._of(one))
        finally:
            for request in reversed(asked) if first else asked:
                self._ask(request, first)

    def _of(self, asked: Request) -> LoggedRequest:
        """What a compiled method has asked for."""
        one = None if asked.instrument < 0 else self._own.all[asked.instrument]
        venue, symbol = (one.venue, one.symbol) if one else (None, "")
        if one is None and isinstance(self._compiled, OrderDesk):
            venue, symbol = self._compiled.named(asked.id)
        self.number += 1
        kind: RequestKind = _REQUESTED[asked.kind]
        volume, price = (
            None if value is None else f"{value.normalize():f}" for value in (asked.volume, asked.price)
        )
        return LoggedRequest(
            0, self._identity, kind, asked.id, symbol, asked.side, volume, price, venue,
            asked.time_in_force, asked.post_only, self.number, asked.terms,
        )  # fmt: skip

    def settled(self) -> None:
        """Everything that was asked for is done."""
        self.count = 0
        if self._compiled is not None:
            self._compiled.asked_apart = False

    @property
    def _in_loop(self) -> bool:
        """Whether compiled code sends what is asked for now. Raises OrderbookError for too much."""
        compiled = self._compiled
        if compiled is None or not compiled.sends or compiled.asked_apart:
            return False
        if self.count + compiled.requested >= MOST_REQUESTS:
            raise OrderbookError(_TOO_MANY)
        return True

    def _send_later(self) -> None:
        """What compiled code sends is sent at the end of the message at hand, which the loop sees to itself
        while views change."""
        if not (self._queue.in_views or self._sending):
            self._sending = True
            self._queue.after_message(self._send_all)

    def _send_all(self) -> None:
        """Sends what was asked for, in compiled code up to what Python is to do."""
        self._sending, compiled = False, self._compiled
        if compiled is not None and compiled.sends and not compiled.asked_apart:
            few = self.count + compiled.requested <= MOST_REQUESTS
            self.count += self._send() if few else 0
        try:
            self.take(first=True)
        except OrderbookError as error:
            self._failed("ask", error)

    def _placed(
        self,
        side: OrderSide,
        symbol: str,
        volume: Number,
        price: Number | None,
        venue: str | None,
        time_in_force: TimeInForce,
        post_only: bool,
        terms: OrderTerms | None,
    ) -> int:
        """Lets the loop send an order, and gives its id; 0 where that is for Python."""
        lasts = terms is not None and terms.good_until is not None and time_in_force == "gtd"
        if self._compiled is None or not (lasts or time_in_force in _IN_LOOP):
            return 0
        try:
            index = self._own.place_of(symbol, venue)
            lots, limit = fixed_point(str(volume)), _price(price)
            own = _NO_TERMS if terms is None else _fixed_terms(terms)
        except DataError:
            return 0
        if index is None or not self._fits(index, lots, [limit]):
            return 0
        if terms is not None and not self._terms_fit(index, own):
            return 0
        placed: int = desk.place_order(
            self._compiled.address, index, side == "sell", lots, limit, bool(post_only),
            time_in_force == "ioc", time_in_force == "fok", *own,
        )  # fmt: skip
        self.orders = placed if terms is None else self._compiled.orders
        self._send_later()
        return placed

    def _note_open(self, request: LoggedRequest) -> None:
        """Compiled methods know of an order from when it is asked for, and of those that come after it."""
        compiled = self._compiled
        if compiled is None or isinstance(compiled, OrderDesk):
            return
        try:
            index, terms = self._own.place_of(request.symbol, request.venue), request.terms or PLAIN
            prices = [_price(request.price)]
            prices += [] if terms.take_profit is None else [_price(terms.take_profit)]
            prices += [] if terms.stop_loss is None else [desk.MARKET]
        except DataError:
            return
        sells = request.side == "sell"
        for number, price in enumerate(prices if index is not None else ()):
            side = sells if number == 0 else not sells
            desk.note_open(compiled.address, request.id + number, index, side, price, 1, 0)

    def _is_one(self, order_id: int) -> bool:
        """Whether it is the id of an order."""
        return 0 < order_id <= self.orders

    def _fits(self, index: int, volume: int | None, prices: Iterable[int]) -> bool:
        """Whether the instrument takes a volume and prices, 1e-8; what is wrong with others is said later,
        as they were asked for."""
        one = self._own.all[index]
        if volume is not None and (volume <= 0 or volume % (one.lot_scale * one.lot_units)):
            return False
        return all(price == desk.MARKET or price % (one.tick_scale * one.tick_units) == 0 for price in prices)

    def _terms_fit(self, index: int, own: Sequence[int]) -> bool:
        """Whether the instrument takes terms, as `place_order` has them, and the order that they name is one
        that there may be; what is wrong with others is said later, as they were asked for."""
        _, until, stop, trail, display, profit, loss, oco = own
        if not (0 <= until <= LATEST and 0 <= oco <= self.orders and trail >= 0):
            return False
        return self._fits(index, display or None, [stop, trail, profit, loss])

    def _modified(
        self, order_id: int, volume: Number | None, price: Number | None, stop: Number | None
    ) -> bool:
        """Lets the loop send a modification; False where it is for Python."""
        compiled = self._compiled
        if compiled is None or not self._is_one(order_id):
            return False
        index = desk.instrument_of(compiled.address, order_id)
        lots, prices = None, [desk.MARKET, desk.MARKET]
        # Where nothing of it is open, it is asked for alone.
        if index >= 0:
            try:
                lots = None if volume is None else fixed_point(str(volume))
                prices = [_price(price), _price(stop)]
            except DataError:
                return False
            if not self._fits(index, lots, prices):
                return False
        desk.modify_order(compiled.address, order_id, desk.UNCHANGED if lots is None else lots, *prices)
        self._send_later()
        return True

    def _ask(self, request: LoggedRequest, first: bool = False) -> None:
        """Asks for something when the message at hand has ended; all that ends it for the strategy is then
        done by Python, in its order."""
        if self._compiled is not None:
            self._compiled.asked_apart = True
        self._queue.after_message(partial(self._queue.request, request), first=first)

    def _request(self, kind: RequestKind, order_id: int) -> LoggedRequest:
        self.number += 1
        return LoggedRequest(0, self._identity, kind, order_id, number=self.number)

    def _begin(self) -> None:
        """Python is about to ask for something, after what compiled methods have asked for."""
        self.take()
        self._add()

    def _add(self) -> None:
        self.count += 1
        if self.count > MOST_REQUESTS:
            raise OrderbookError(_TOO_MANY)


def _id_of(order_id: object) -> int:
    """An order's id as it is logged, 0 where no order can have it. Raises OrderbookError for what is none."""
    if isinstance(order_id, bool | np.bool_) or not isinstance(order_id, SupportsIndex):
        raise OrderbookError(f"{order_id!r} is no order's id; give what buy or sell returned")
    found = index(order_id)
    return found if 0 < found < 2**63 else 0


def _note_price(compiled: CompiledMethods, request: LoggedRequest) -> None:
    """Compiled methods know at once at what price an order was asked for last, where that is one."""
    with suppress(DataError):
        compiled.note_asked({request.id: _price(request.price)})


def _price(price: Number | None) -> int:
    """A price, 1e-8; MARKET where there is none. Raises DataError for what is no number of that scale."""
    return desk.MARKET if price is None else fixed_point(str(price))


class Run(Protocol):
    """What a run says of all requests: whether no strategy is called, and why no orders are taken."""

    silent: bool
    halted: str | None


class PerformedRequests:
    """The requests of one instance as they are performed; `publish` is told what becomes of them."""

    def __init__(
        self,
        run: Run,
        client: ExecutionClient,
        own: OwnInstruments,
        compiled: CompiledMethods | None,
        publish: Callable[[OrderUpdate], None],
    ) -> None:
        self._run, self._client, self._own, self._compiled = run, client, own, compiled
        self._publish = publish

    def perform(self, request: LoggedRequest, now: int, alive: bool) -> None:
        """Does what was asked for, at a time of the run, ns; alive: the strategy has not failed."""
        client, updates = self._client, list[OrderUpdate]()
        match request.kind:
            case "order":
                updates = self._place(request, now, alive)
            case "modify" if self._run.halted is None:
                if self._run.silent and self._compiled is not None:
                    _note_price(self._compiled, request)
                stop = None if request.terms is None else request.terms.stop
                updates = client.modify(request.id, request.volume, request.price, now, stop)
            case "cancel":
                updates = client.cancel(request.id, now)
            case "failed":
                self.cancel_all("the strategy failed", now)
            case "unloaded":
                self.cancel_all("the strategy could not take up its state", now)
        for update in updates:
            self._publish(update)
        self._forget_exits(request, updates)

    def cancel_all(self, reason: str, now: int) -> None:
        """Asks for every open order to be cancelled."""
        for order_id in self._client.open_orders():
            for update in self._client.cancel(order_id, now, reason):
                self._publish(update)

    def _place(self, asked: LoggedRequest, now: int, alive: bool) -> list[OrderUpdate]:
        client, own = self._client, self._own
        venue = asked.venue or (own.key if own.column == "venue" else None)
        request = OrderRequest(
            asked.id, asked.symbol, asked.side, asked.volume or "", asked.price, venue,
            asked.time_in_force, asked.post_only, asked.terms,  # type: ignore[arg-type]
        )  # fmt: skip
        if not alive:
            return client.refuse(request, now, "the strategy failed")
        if self._run.halted is not None:
            return client.refuse(request, now, f"halted: {self._run.halted}")
        if own.key is not None and own.key != (request.symbol if own.column == "symbol" else request.venue):
            refused = client.refuse(request, now, f"this instance trades {own.key} alone")
            # Whether another instance knows the symbol is not for this one to say.
            return [OrderUpdate(None, replace(update.new, venue=request.venue or "")) for update in refused]
        return client.place(request, now)

    def _forget_exits(self, asked: LoggedRequest, updates: list[OrderUpdate]) -> None:
        """Orders that were to come after one that was refused do not."""
        if asked.kind != "order" or asked.terms is None or self._compiled is None:
            return
        if updates[0].new.status == "refused":
            self._compiled.forget(range(asked.id + 1, asked.id + 1 + asked.terms.exits))


def _fixed_terms(terms: OrderTerms) -> tuple[int, ...]:
    """Terms as `place_order` has them. Raises DataError for what these cannot be."""
    trail, display = (0 if one is None else fixed_point(one) for one in (terms.trail, terms.display))
    until, oco = terms.good_until or 0, terms.oco or 0
    # What is 0 was asked for, and is wrong.
    wrong = (terms.trail is not None and not trail) or (terms.display is not None and not display)
    if wrong or terms.good_until == 0 or type(until) is not int or type(oco) is not int:
        raise DataError("not for compiled code")
    return (
        int(terms.reduce_only), until, _price(terms.stop), trail, display, _price(terms.take_profit),
        _price(terms.stop_loss), oco,
    )  # fmt: skip


def _text(value: Number | None) -> str | None:
    return None if value is None else str(value)
