"""Rows of a view as the orders that should be there, by the rules of docs/strategies.md in plain Python."""

from collections import deque
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec

from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.live_view import Key, ViewRow
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.strategies.execution.account import Order
from orderbook.strategies.execution.exchange_state import LAST
from orderbook.strategies.execution.order_terms import TimeInForce
from orderbook.strategies.order_desk import OrderKey, Terms, Wanted
from orderbook.strategies.order_views import strategies_of
from orderbook.strategies.strategy import (
    BookStateChange,
    Strategy,
    StrategyDefinition,
    on_view,
)
from orderbook.views.binding.bound import OrderRules
from orderbook.views.program import CompiledProgram

_SECOND = 10**9
_ZERO = Decimal(0)
# The decimal places of relations, to which what is DOUBLE is rounded.
_PLACES = Decimal("1e-8")
_NOT_MODIFIED = "not modified"
_DONE = ("filled", "cancelled", "refused")
_KINDS = ("limit", "post only", "ioc", "fok")
_CANCEL, _MODIFY, _PLACE = range(3)


class Working(msgspec.Struct):
    """The order of one row, as far as was told."""

    id: int = 0
    wanted: Wanted | None = None
    price: Decimal | None = None
    volume: Decimal = _ZERO
    filled: Decimal = _ZERO
    before: Decimal = _ZERO
    since: int = 0
    asked: bool = False
    cancelling: bool = False
    ended: Wanted | None = None


class PlainOrders(Strategy):
    """The strategy of a CREATE STRATEGY."""

    rules: ClassVar[OrderRules]
    of_view: ClassVar[str]
    sql: ClassVar[str]

    def __init__(self) -> None:
        self._orders: dict[OrderKey, Working] = {}
        self._keys: dict[int, OrderKey] = {}
        # Rows by what they are orders of, each by its key in the view; None: they are to be read.
        self._rows: dict[OrderKey, dict[Key, ViewRow]] | None = None
        self._places: dict[Key, OrderKey] = {}
        # Whether all rows are to be looked at, once they are read.
        self._fresh = True
        # Those to be looked at: at the end of the message, and at a later one.
        self._changed: set[OrderKey] = set()
        self._waiting: set[OrderKey] = set()
        self._wake: int | None = None
        self._sent: deque[int] = deque()

        # What is called by time where its class says so is this one's too.
        desk: Any = self._desk
        desk.clock._rows = SimpleNamespace(wake=LAST, in_loop=False)

    def on_trade(self, trade: Any) -> None:
        """Is told of messages, so that time goes by."""

    def on_start(self) -> None:
        """Looks at all rows that there are."""
        for order in self._orders.values():
            order.ended = None
        self._rows, self._fresh = None, True
        self._look_at(self._orders)

    def note(self, event: ViewEvent) -> None:
        """A row of the view has changed."""
        if self._rows is None:
            changed = [self._key(row) for row in (event.old, event.new) if row is not None]
        else:
            changed = self._note(event.key, event.new)
        self._look_at(changed)

    def on_order_update(self, order: Order) -> None:
        """The exchange has answered, or filled something."""
        key = self._keys.get(order.id)
        if key is None:
            return
        own = self._orders[key]
        quiet, own.filled = own.filled == order.filled, order.filled
        if order.status in _DONE:
            del self._keys[order.id]
            if order.status != "filled" and not own.cancelling:
                own.ended = own.wanted
            own.id, own.before, own.filled = 0, own.before + own.filled, _ZERO
            own.asked = own.cancelling = False
        elif order.status in ("resting", "waiting") and not own.cancelling:
            if order.price == own.price and order.volume == own.volume:
                own.asked = False
            elif quiet and (order.reason or "").startswith(_NOT_MODIFIED):
                own.price, own.volume, own.asked, own.ended = order.price, order.volume, False, own.wanted
        self._look_at((key,))

    def on_book_state(self, state: BookStateChange) -> None:
        """Rows of a book are looked at when it is lost, and when it is back."""
        place = state.venue, state.symbol
        found = [key for key in {*self._orders, *(self._rows or ())} if key[:2] == place]
        for key in found:
            if key in self._orders:
                self._orders[key].ended = None
        self._look_at(found)

    def woken(self) -> None:
        """The time has come for rows that were held back."""
        self._wake = None
        self._look_at(self._waiting)

    def look(self) -> None:
        """At the end of a message: asks for what rows that have changed ask for."""
        if self._rows is None:
            self._read()
        changed, self._changed, self._waiting = self._changed | self._waiting, set(), set()
        requests = [found for key in changed if (found := self._request(key)) is not None]
        # Cancellations first, then changes; the same order in every run.
        for kind, key, wanted in sorted(requests, key=lambda one: (one[0], _place(one[1]))):
            self._ask(kind, key, wanted)

    def _look_at(self, keys: Iterable[OrderKey]) -> None:
        self._changed.update(keys)
        self._desk.look_at_end()

    def _wake_at(self, time: int) -> None:
        if self._wake is None or time < self._wake:
            self._wake = time
            self._desk.wake(time)

    def _hold(self, key: OrderKey, time: int) -> None:
        """Looks at a row again at the first message from a time on."""
        self._waiting.add(key)
        self._wake_at(time)

    def _read(self) -> None:
        """Reads all rows of the view, as they are."""
        self._rows, self._places = {}, {}
        for key, row in self.view(self.of_view).items():
            found = self._note(key, row)
            if self._fresh:
                self._changed.update(found)
        self._fresh = False

    def _note(self, key: Key, row: ViewRow | None) -> list[OrderKey]:
        """The row of a key of the view is now this one; the orders that may be others by it."""
        assert self._rows is not None
        found = []
        before = self._places.pop(key, None)
        if before is not None:
            del self._rows[before][key]
            if not self._rows[before]:
                del self._rows[before]
            found.append(before)
        if row is not None:
            own = self._places[key] = self._key(row)
            self._rows.setdefault(own, {})[key] = row
            found.append(own)
        return found

    def _key(self, row: ViewRow) -> OrderKey:
        key = OrderKey(*(row.get(name) for name in OrderKey._fields))  # type: ignore[arg-type]
        if None in key[:3] or key.side not in ("buy", "sell"):
            raise self._error(f"an order of side {key.side!r} at venue {key.venue!r}, symbol {key.symbol!r}")
        return key

    def _error(self, what: str) -> SqlError:
        rules = self.rules
        return SqlError(f"strategy {self.of_view}: {what}", rules.line, rules.column, rules.file)

    def _wanted(self, key: OrderKey) -> Wanted | None:
        """What the row of a key asks for; None where there is none, or its volume is none."""
        assert self._rows is not None
        rows = self._rows.get(key)
        if rows is None:
            return None
        (row, *others) = rows.values()
        if others or row.multiplicity > 1:
            named = ", ".join(str(part) for part in key if part is not None)
            raise self._error(
                f"two rows of the order {named}; tell them apart by a column tag, or GROUP BY its key"
            )
        kind = row.get("kind", "limit") or "limit"
        if kind not in _KINDS:
            raise self._error(f"kind {kind!r} of an order; there are {', '.join(map(repr, _KINDS))}")
        volume = _decimal(row["volume"])
        price = None if row["price"] is None else _decimal(row["price"])
        if volume is None or (price is None and row["price"] is not None):
            return None
        stop, trail, display = (_decimal(row.get(name)) for name in ("stop", "trail", "display"))
        reduce_only, until = bool(row.get("reduce_only")), _time(row.get("good_until"))
        try:
            one = self.instrument(key.symbol, key.venue)
        except DataError:
            # Sent as it is, so that the order is refused with the reason.
            return Wanted(price, volume, str(kind), stop, Terms(trail, display, reduce_only, until))
        volume = _rounded(volume, one.lot, ROUND_FLOOR)
        if price is not None:
            price = _rounded(price, one.tick, ROUND_FLOOR if key.side == "buy" else ROUND_CEILING)
        # Stops are rounded away from the market, as prices are.
        if stop is not None:
            stop = _rounded(stop, one.tick, ROUND_CEILING if key.side == "buy" else ROUND_FLOOR)
        if trail is not None:
            trail = _rounded(trail, one.tick, ROUND_CEILING)
        if display is not None:
            display = _rounded(display, one.lot, ROUND_FLOOR) or None
        terms = Terms(trail, display, reduce_only, until)
        return Wanted(price, volume, str(kind), stop, terms) if volume > 0 else None

    def _valid(self, key: OrderKey) -> bool:
        desk: Any = self._desk
        return bool(desk._host.books.is_valid(desk._host.instruments.index(key.venue, key.symbol)))

    def _request(self, key: OrderKey) -> tuple[int, OrderKey, Wanted | None] | None:
        """What is to be asked for a row; None: nothing, or not yet."""
        own = self._orders.get(key)
        if not self._valid(key):
            # What rows say is told when the book is back.
            return (_CANCEL, key, None) if own is not None and own.id and not own.asked else None
        wanted = self._wanted(key)
        if own is None:
            if wanted is None:
                return None
            own = self._orders[key] = Working()
        if own.asked:
            if wanted is None:
                own.before, own.ended = -own.filled, None
            return None
        kind = self._missing(key, own, wanted) if own.id == 0 else self._wrong(key, own, wanted)
        return None if kind is None else (kind, key, wanted)

    def _missing(self, key: OrderKey, own: Working, wanted: Wanted | None) -> int | None:
        """What is to be asked for where there is no order."""
        if wanted is None:
            del self._orders[key]
            return None
        if wanted == own.ended:
            return None
        own.ended = None
        if own.before >= wanted.volume:
            if not self.rules.refill:
                return None
            own.before = _ZERO
        return _PLACE

    def _wrong(self, key: OrderKey, own: Working, wanted: Wanted | None) -> int | None:
        """What is to be asked for of an order that rests."""
        kind: int | None = _CANCEL
        if wanted is None:
            own.before, own.ended = -own.filled, None
        elif wanted.volume - own.before > own.filled and own.wanted is not None:
            if wanted == own.ended:
                return None
            before = own.wanted
            same = wanted.kind == before.kind and wanted.terms == before.terms
            same = same and (wanted.price is None) is (before.price is None)
            same = same and (wanted.stop is None) is (before.stop is None)
            # A market order that does not wait is not modified.
            same = same and (wanted.price, wanted.stop, wanted.terms.trail) != (None, None, None)
            if same and (*self._target(key, own, wanted), wanted.stop) == (
                own.price,
                own.volume,
                before.stop,
            ):
                return None
            kind = _MODIFY if same else _CANCEL
        held = own.since + self.rules.min_life
        if self.now < held:
            self._hold(key, held)
            return None
        return kind

    def _target(self, key: OrderKey, own: Working, wanted: Wanted) -> tuple[Decimal | None, Decimal]:
        """The price and volume that an order is to have."""
        price = wanted.price
        if price is not None and own.price is not None and price != own.price:
            least = self.rules.min_move * self.instrument(key.symbol, key.venue).tick
            price = price if abs(price - own.price) >= least else own.price
        return price, wanted.volume - own.before

    def _ask(self, kind: int, key: OrderKey, wanted: Wanted | None) -> None:
        """Asks the exchange, unless that were too often."""
        own, now, most = self._orders[key], self.now, self.rules.max_requests
        while self._sent and self._sent[0] <= now - _SECOND:
            self._sent.popleft()
        if most and len(self._sent) >= most and (kind != _CANCEL or self._valid(key)):
            self._hold(key, self._sent[0] + _SECOND)
            return
        if most:
            self._sent.append(now)
        own.asked, own.since = True, now
        if kind == _CANCEL:
            own.cancelling = True
            self.cancel(own.id)
            return
        assert wanted is not None
        if kind == _PLACE:
            own.price = None
        own.wanted, (own.price, own.volume) = wanted, self._target(key, own, wanted)
        price, stop, terms = _text(own.price), _text(wanted.stop), wanted.terms
        if kind == _MODIFY:
            self.modify(own.id, f"{own.volume:f}", price, stop)
            return
        place, what = self.buy if key.side == "buy" else self.sell, wanted.kind
        lasts: TimeInForce = "ioc" if what == "ioc" else "fok" if what == "fok" else "gtc"
        own.id = place(
            key.symbol, f"{own.volume:f}", price, key.venue, time_in_force=lasts,
            post_only=what == "post only", stop=stop, trail=_text(terms.trail), display=_text(terms.display),
            reduce_only=terms.reduce_only, good_until=terms.good_until,
        )  # fmt: skip
        self._keys[own.id] = key


def _place(key: OrderKey) -> tuple[Any, ...]:
    return *key[:3], key.tag is not None, key.tag


def _time(value: object) -> int | None:
    """ns since 1970; None for NULL."""
    return value if isinstance(value, int) else None


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def _decimal(value: object) -> Decimal | None:
    """A number of SQL; None for NULL, and what is not finite."""
    if isinstance(value, float):
        found = Decimal(repr(value))
        return found.quantize(_PLACES) if found.is_finite() else None
    return Decimal(value) if isinstance(value, Decimal | int) else None


def _rounded(value: Decimal, step: Decimal, rounding: str) -> Decimal:
    return (value / step).to_integral_value(rounding) * step


def plain_strategies(program: CompiledProgram) -> list[StrategyDefinition]:
    """The strategies that a program declares in SQL, of the names that they have elsewhere."""
    found = []
    for own in strategies_of(program):
        kind: Any = own.kind

        def changed(self: PlainOrders, event: ViewEvent) -> None:
            self.note(event)

        members = {
            "rules": kind.rules, "of_view": kind.of_view, "sql": kind.sql, "partition_by": kind.partition_by,
            "changed": on_view(kind.of_view, fire="change")(changed),
        }  # fmt: skip
        found.append(StrategyDefinition(type(kind.__name__, (PlainOrders,), members)))
    return found
