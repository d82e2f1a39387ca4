"""Methods of strategies as machine code: their state, what they see of a row, and what they ask for.

A method under `compiled` is Python of integers, doubles and booleans. Its `self` is a record: the fields that
the class declares, its parameters, and what is at hand (`now`, `tick`, `lot`, `position`). Its row is a
record of the view's columns as the engine has them: a DECIMAL is an integer in units of its last place, so
that a price or a volume of DECIMAL(18, 8) counts 10^-8; so do orders, `tick`, `lot` and `position`. A TEXT is
a number that is the same for equal texts. `has_NAME` says whether a column is not NULL, `multiplicity` is 0
where there is no row. A parameter whose default is a float is a double, one with a Decimal counts 10^-8.

    class Join(Strategy):
        order: int = 0

        @compiled
        @on_view("touch", fire="change")
        def moved(self, row):
            if self.order != 0 and self.is_open(self.order):
                self.cancel(self.order)
            if row.has_bid and self.position < 10 * self.lot:
                self.order = self.buy(self.lot, row.bid, post_only=True)

`is_open(id)` says whether an order is under way or rests, `open_order(side)` (0: to buy, 1: to sell) which is
the last such order to the row's instrument, 0 where none is, and `open_price(id)` at what price it was asked
for. A compiled method of `on_timer` has no row: at hand is the one instrument that an instance sees, or none.
A compiled `on_book_state(self, state)` has `state.state` and `state.reason` as the codes of `BookState` and
`StateReason`, and `state.ts`; `on_trade(self, trade)` has the fields of TRADE, `on_order_update(self, order)`
and `on_fill(self, fill)` those of `execution.desk`'s ORDER_UPDATE and FILL_UPDATE.
"""

import ctypes
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from orderbook.core.errors import ConfigurationError, suggestion
from orderbook.core.files import packed, unpacked
from orderbook.core.native_code import INTEGER, native_address, python_callable
from orderbook.core.native_types import BEYOND, NativeError, UnknownName, WrittenDouble
from orderbook.engine.maps.memory import free_memory
from orderbook.engine.runtime.live_view import ViewLayout, ViewRow, words_of
from orderbook.engine.runtime.row_format import RowFormat, UnpackedFiring, UnpackedRow, row_words, unpacker
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.block_memory import record_at
from orderbook.market.instruments import SCALE, Instrument
from orderbook.strategies.compiled_units import STATE_AMOUNTS, check_units
from orderbook.strategies.execution import desk, desk_clock
from orderbook.strategies.execution.account import OPEN, Fill, Order, OrderSide
from orderbook.strategies.execution.desk_messages import NEWS
from orderbook.strategies.execution.exchange_state import LAST, MODIFY, PLACE
from orderbook.strategies.execution.order_news import LIQUIDITY, SIDES, STATUSES
from orderbook.strategies.execution.order_terms import PLAIN, OrderTerms, TimeInForce
from orderbook.strategies.strategy import (
    Parameter,
    Strategy,
    Trade,
    compiled_methods,
    fields_of,
    fills_in_python,
    stored_attributes,
    timers_in_python,
)
from orderbook.views.m3 import Result
from orderbook.views.types import Kind

_METHODS: Mapping[str, Any] = {
    "buy": desk.buy, "sell": desk.sell, "modify": desk.modify, "cancel": desk.cancel, "is_open": desk.is_open,
    "open_order": desk.open_order, "open_price": desk.open_price, "hold": desk.hold,
}  # fmt: skip
_NAMES = frozenset(desk.DESK.names or ())
_PLACES = {name: place for place, name in enumerate(desk.DESK.names or ())}
_WORD = 8
# Of a REQUEST, among its terms.
_STOP = (desk.REQUEST.names or ()).index("stop") - (desk.REQUEST.names or ()).index("fok")
# Of a method without the row before.
_WITHOUT_OLD = 2
_BYTES_AT = bytes.__basicsize__ - 1


# What `on_book_state` is called with.
STATE = np.dtype([("ts", "i8"), ("state", "i8"), ("reason", "i8")])
# What `on_trade` is called with, in 10^-8; side: who took, 0 bought, 1 sold, 2 is not told.
TRADE = np.dtype([("ts", "i8"), ("side", "i8"), ("volume", "i8"), ("price", "i8")])
# By methods what they are told.
TOLD = {
    "on_book_state": STATE, "on_trade": TRADE,
    "on_order_update": desk.ORDER_UPDATE, "on_fill": desk.FILL_UPDATE,
}  # fmt: skip


_TOLD_AMOUNTS = ("volume", "price", "filled")


class Request(NamedTuple):
    """What a compiled method asked for, in the relation's units; None: as it is, or of a market order."""

    kind: int
    id: int
    instrument: int
    side: OrderSide
    volume: Decimal | None
    price: Decimal | None
    post_only: bool
    time_in_force: TimeInForce
    terms: OrderTerms | None

    @property
    def exits(self) -> list[bool]:
        """Of the orders that come once it is done: whether each is a market order."""
        terms = self.terms or PLAIN
        return [False] * (terms.take_profit is not None) + [True] * (terms.stop_loss is not None)


class CompiledMethods:
    """The state of one instance of a strategy, and its compiled methods for the rows of the views it watches.

    more: what stands in the state behind the DESK. Raises ConfigurationError for what cannot be compiled, or
    a name that stands twice.
    """

    def __init__(
        self,
        kind: type[Strategy],
        parameters: Mapping[str, Parameter],
        results: Mapping[str, Result],
        instruments: int,
        more: np.dtype | None = None,
    ) -> None:
        for method in compiled_methods(kind):
            if hasattr(Strategy, method) and method not in TOLD:
                told = ", ".join(sorted(TOLD))
                raise ConfigurationError(
                    f"{kind.__name__}.{method} is called by Python; leave @compiled out there, which is for "
                    f"methods of on_view and on_timer, for {told}, and for what these call"
                )
        numbers = {}
        for name, value in parameters.items():
            word = _word_of(value, kind.defaults.get(name))
            if word is not None:
                numbers[name] = word
        fields = fields_of(kind)
        for name in (*numbers, *fields):
            if name in _NAMES or name in _METHODS or (name in numbers and name in fields):
                raise ConfigurationError(f"{kind.__name__}: {name} means something else there; rename it")
        columns = [(name, _format(value)) for name, value in (*numbers.items(), *fields.items())]
        self._dtype = np.dtype([*desk.DESK.descr, *(() if more is None else more.descr), *columns])
        self._rows = np.zeros(1, self._dtype)
        for name, value in (*numbers.items(), *fields.items()):
            self._rows[name] = value
        self._fields = tuple(fields)
        stored = stored_attributes(kind)
        given = {name: value for name, value in numbers.items() if name not in fields}
        constant = {name: value for name, value in fields.items() if name not in stored}
        # What compiled methods see of doubles that nothing changes, and which numbers count 10^-8.
        self._doubles = {k: v for k, v in (*given.items(), *constant.items()) if isinstance(v, float)}
        self._amounts = STATE_AMOUNTS | {
            name
            for name, value in given.items()
            if isinstance(value, int) and Decimal in (type(parameters[name]), type(kind.defaults.get(name)))
        }
        self.row = self._rows[0]
        self.words = memoryview(self._rows.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        self.address = int(self._rows.ctypes.data)
        self.boards, self.positions = np.zeros(instruments, np.int64), np.zeros(instruments, np.int64)
        self.row["boards"], self.row["positions"] = self.boards.ctypes.data, self.positions.ctypes.data
        self._kind, self._results = kind, results
        self._entries: dict[tuple[str, str | None], Entry] = {}
        # Those rows of watches that wait for their time, in the order of watches.
        self.throttles: list[RowThrottle] = []
        self._throttles_at = np.zeros(0, np.int64)
        self.row["due"] = self.row["wake"] = self.row["timer_due"] = LAST
        self.row["only"] = -1
        self._told = np.zeros(1, desk.ORDER_UPDATE)
        self.row["record"] = self._told.ctypes.data
        # Whether the loop calls its methods.
        self.in_loop = False
        weakref.finalize(self, _release, self._rows)

    def call(
        self,
        method: str,
        event: ViewEvent,
        index: int | None,
        one: Instrument | None,
        held: Decimal,
        now: int,
    ) -> None:
        """Calls a method with a row: of an instrument, None where it names none, of which so much is held."""
        self._at_hand(index, one, held, now)
        bytes_of, old, new = _words_of(event, self._results[event.view])
        at = held_words(bytes_of)
        self.entry(method, event.view).call(self.address, at + new, at + old)

    def call_told(
        self,
        method: str,
        told: Sequence[int],
        index: int | None,
        one: Instrument | None,
        held: Decimal,
        now: int,
    ) -> None:
        """Calls a method with one of TOLD, as words, that is of an instrument; else as `call`."""
        self._at_hand(index, one, held, now)
        words = array("q", told)
        self.entry(method, None).call(self.address, words.buffer_info()[0], 0)

    @property
    def overflow(self) -> tuple[str, OverflowError] | None:
        """In which method an integer has had too many bits, and what is said of it; None: in none."""
        line = self.words[_PLACES[BEYOND]]
        if not line:
            return None
        starts = {
            getattr(self._kind, own).__code__.co_firstlineno: own for own in compiled_methods(self._kind)
        }
        method = starts[max(start for start in starts if start <= line)]
        error = OverflowError(
            f"line {line}: an integer of more than the 64 bits of a field or an argument, or than 128;"
            " compute it as a double, as in row.price * 1e-8"
        )
        return method, error

    def _at_hand(self, index: int | None, one: Instrument | None, held: Decimal, now: int) -> None:
        words = self.words
        words[_PLACES["now"]], words[_PLACES["instrument"]] = now, -1 if index is None else index
        words[_PLACES["tick"]] = 0 if one is None else one.tick_scale * one.tick_units
        words[_PLACES["lot"]] = 0 if one is None else one.lot_scale * one.lot_units
        words[_PLACES["position"]] = int(held.scaleb(SCALE))

    def _advice(self, error: NativeError) -> str:
        """What to do about what cannot be compiled, where that is known."""
        if isinstance(error, WrittenDouble):
            units = f"{round(error.value * 10**SCALE):_}"
            own = f"'size': Decimal('{error.value}')"
            return (
                f"; volumes and prices count 10^-8 there: {units}, or a parameter as {{{own}}} in `defaults`"
            )
        if not isinstance(error, UnknownName):
            return ""
        name, record = error.name, error.record
        if record is None and name in _NAMES:
            return f"; self.{name} is a number"
        if record is None:
            return f"; {suggestion(name, [*_METHODS, *compiled_methods(self._kind)])}"
        if "requests" not in record.fields:
            return f"; {suggestion(name, [*record.fields])}"
        if name == "parameters":
            return "; a parameter is self.NAME"
        if hasattr(Strategy, name):
            return "; it is for methods in Python"
        if name in self._kind.defaults:
            return "; parameters that are texts are for methods in Python"
        return f"; declare it in the class, as `{name}: float = 0.0`, or among its `defaults`"

    def entry(self, method: str, view: str | None) -> "Entry":
        """A method compiled for the rows of a view, None: for what it is told. Raises ConfigurationError."""
        found = self._entries.get((method, view))
        if found is None:
            own = {name: getattr(self._kind, name) for name in compiled_methods(self._kind)}
            row = TOLD.get(method) if view is None else _row_type(self._results[view])
            amounts = _TOLD_AMOUNTS if view is None else _amounts_of(self._results[view])
            try:
                for name, function in own.items():
                    check_units(function, self._doubles, self._amounts, amounts if name == method else ())
                found = _entry_of(method, own, self._dtype, row)
            except NativeError as error:
                where = f"{self._kind.__name__}.{method}" + ("" if view is None else f", of view {view}")
                why = f"{error}{self._advice(error)}"
                raise ConfigurationError(f"{where}, cannot be compiled: {why}") from error
            self._entries[method, view] = found
        return found

    @property
    def orders(self) -> int:
        """How many orders were placed."""
        found: int = self.words[_PLACES["orders"]]
        return found

    @orders.setter
    def orders(self, count: int) -> None:
        self.words[_PLACES["orders"]] = count

    @property
    def requested(self) -> int:
        """How much is asked for and not taken."""
        first, end = self.words[_PLACES["requests"] + 1 : _PLACES["requests"] + 3]
        return end - first

    @property
    def untold_fills(self) -> bool:
        """Whether there are fills among the news that are not taken."""
        return self.words[_PLACES["news_fills"]] != 0

    def requests(self) -> list[Request]:
        """Takes what was asked for."""
        words, place = self.words, _PLACES["requests"]
        address, first, end = words[place], words[place + 1], words[place + 2]
        if first == end:
            return []
        words[place + 1] = words[place + 2] = 0
        width = desk.REQUEST.itemsize // _WORD
        taken = (ctypes.c_int64 * (width * (end - first))).from_address(
            address + desk.REQUEST.itemsize * first
        )[:]
        return [_request(*taken[start : start + width]) for start in range(0, len(taken), width)]

    def news(self) -> NDArray[np.void] | None:
        """Takes the NEWS[n]; None where there are none."""
        words, place = self.words, _PLACES["news"]
        address, first, end = words[place : place + 3]
        if first == end:
            return None
        words[place + 1] = words[place + 2] = 0
        size = NEWS.itemsize
        return np.frombuffer(ctypes.string_at(address + size * first, size * (end - first)), NEWS)

    def take_calls(self) -> int:
        """How many methods the loop has called since it was asked last."""
        calls: int = self.words[_PLACES["calls"]]
        self.words[_PLACES["calls"]] = 0
        return calls

    def take_others(self) -> int:
        """How many other calls there were."""
        calls: int = self.words[_PLACES["others"]]
        self.words[_PLACES["others"]] = 0
        return calls

    @property
    def sends(self) -> bool:
        """Whether the loop sends what is asked for."""
        return self.in_loop and not self.words[_PLACES["logged"]]

    @property
    def sent(self) -> int:
        """How many requests of the message at hand were sent in the loop."""
        found: int = self.words[_PLACES["sent"]]
        return found

    @property
    def asked_apart(self) -> bool:
        """Whether Python has asked for something that waits for the end of a message."""
        return bool(self.words[_PLACES["asked"]])

    @asked_apart.setter
    def asked_apart(self, on: bool) -> None:
        self.words[_PLACES["asked"]] = on

    def follow(self) -> None:
        """Compiles what is told of books, orders and fills, for the loop too. Raises ConfigurationError."""
        kind, own = self._kind, compiled_methods(self._kind)
        self.row["told_market"] = kind.on_trade is not Strategy.on_trade
        self.row["told_market"] |= bool(timers_in_python(kind))
        self.row["told_apart"] = fills_in_python(kind)
        for method in TOLD.keys() & {*own}:
            address = self.entry(method, None).address
            if method in ("on_order_update", "on_fill"):
                self.row["on_order" if method == "on_order_update" else "on_fill"] = address

    def take_called(self) -> tuple[int, int]:
        """How many of the news methods were called for, which are about to be taken; and how many of the rest
        come before rows that have waited."""
        words, place = self.words, _PLACES["called"]
        called, before = words[place], words[_PLACES["before"]]
        words[place] = words[place + 1] = 0
        return called, max(0, before - called)

    def take_news_fills(self) -> int:
        """How many fills are of the news taken."""
        count: int = self.words[_PLACES["news_fills"]]
        self.words[_PLACES["news_fills"]] = 0
        return count

    def told(self, order: Order, instrument: int) -> None:
        """An order to an instrument is under way or rests, or is done."""
        price = desk.MARKET if order.price is None else fixed(order.price)
        is_open, refused = order.status in OPEN, order.reason is not None
        side = 0 if order.side == "buy" else 1
        desk.note_open(self.address, order.id, instrument, side, price, is_open, refused)

    def forget(self, order_ids: Iterable[int]) -> None:
        """Orders that were to come after another one, which was refused."""
        for order_id in order_ids:
            desk.note_open(self.address, order_id, 0, 0, 0, 0, 0)

    def note_asked(self, prices: Mapping[int, int]) -> None:
        """Orders that are open were asked for at these prices last, 1e-8, by what is not called again."""
        for order_id, price in prices.items():
            desk.note_asked(self.address, order_id, price)

    @property
    def asked(self) -> dict[int, int]:
        """At what prices orders that are open were asked for last, 1e-8; market orders at desk.MARKET."""
        address, count = int(self.row["open"]), int(self.row["open_count"])
        held = (ctypes.c_char * (desk.OPEN.itemsize * count)).from_address(address).raw if count else b""
        return dict(np.frombuffer(held, desk.OPEN)[["id", "price"]].tolist())

    def keep_time(self, timers: NDArray[np.void], methods: Sequence[str]) -> None:
        """TIMER[n] of methods that the loop calls."""
        for row, method in zip(timers, methods, strict=True):
            row["entry"] = self.entry(method, None).address
        self.row["timers"], self.row["timers_count"] = timers.ctypes.data, len(timers)

    def throttle(self, watch: int, every: int, method: str, view: str, index: int) -> "RowThrottle":
        """The state of a row of a watch that is looked at once in a while: that of an instrument, below 0 of
        none."""
        found = next((one for one in self.throttles if one.watch == watch and one.instrument == index), None)
        if found is None:
            result, entry = self._results[view], self.entry(method, view).address
            found = RowThrottle(self.address, result, watch, every, index, entry)
            self.throttles = sorted([*self.throttles, found], key=lambda one: (one.watch, one.instrument))
            self._throttles_at = np.array([one.address for one in self.throttles if one.in_loop], np.int64)
            self.row["throttles"], self.row["throttles_count"] = (
                self._throttles_at.ctypes.data, len(self._throttles_at),
            )  # fmt: skip
        return found

    def waits_until(self) -> None:
        """Says anew when the first row has waited for long enough."""
        waiting = (one for one in self.throttles if one.waits and one.in_loop)
        self.row["due"] = min((one.due_at for one in waiting), default=LAST)

    def take_looks(self) -> bool:
        """Whether the loop has left to Python what time brings about."""
        looks = bool(self.words[_PLACES["looks"]])
        self.words[_PLACES["looks"]] = 0
        return looks

    def save(self) -> bytes:
        """The fields, for a checkpoint."""
        return packed({name: self.row[name].item() for name in self._fields})

    def load(self, state: bytes) -> None:
        """Goes on from `save`; fields that it has not stay as they are."""
        for name, value in unpacked(state).items():
            if name in self._fields:
                self.row[name] = value


class RowThrottle:
    """A row of a compiled watch that is called once at most in `every` ns; see THROTTLE."""

    def __init__(
        self, desk_at: int, result: Result, watch: int, every: int, instrument: int, entry: int
    ) -> None:
        self._desk, self._result, self._form = desk_at, result, RowFormat(result)
        self._kinds = _kinds_of(result)
        rows, words = len(desk_clock.THROTTLE.names or ()), self._form.words
        self._words, self._rows = np.zeros(rows + 2 * words + self._form.key_count, np.int64), rows
        self._record = self._words[:rows].view(desk_clock.THROTTLE)[0]
        self.address = int(self._words.ctypes.data)
        self.watch, self.instrument = watch, instrument
        # Whether the loop knows the row.
        self.in_loop = instrument >= 0
        self._record["every"], self._record["watch"], self._record["instrument"] = every, watch, instrument
        self._record["entry"], self._record["words"] = entry, words
        self._record["kinds"] = self._kinds.ctypes.data

    @property
    def told(self) -> int | None:
        """When it was told last, ns."""
        return int(self._record["told"]) if self._record["known"] else None

    @property
    def waits(self) -> int:
        """0 where it does not wait; else a number that grows with each row that begins to."""
        return int(self._record["waits"])

    @property
    def due_at(self) -> int:
        """The time (ns) from which on it may be told."""
        return int(self._record["told"] + self._record["every"])

    def read_by(self, key: Sequence[int], state: int, row: int, condition: int) -> None:
        """How the loop reads the row: by its key, in words; see THROTTLE."""
        self._words[self._rows + 2 * self._form.words :] = key
        self._record["state"], self._record["row"], self._record["condition"] = state, row, condition

    def offer(self, event: ViewEvent, now: int) -> bool:
        """Its watch has fired; whether that is to be told now."""
        bytes_of, old, _ = _words_of(event, self._result)
        return bool(desk_clock.offer(self._desk, self.address, held_words(bytes_of) + old, now))

    def done(self, told: int | None = None) -> None:
        """It does not wait any more; since it was told at that time."""
        self._record["waits"] = 0
        if told is not None:
            self._record["told"], self._record["known"] = told, 1

    def old(self, layout: ViewLayout) -> ViewRow | None:
        """The row as it was when it began to wait."""
        words = self._words[self._rows :][: self._form.words]
        values = unpacker(self._form.row)(words.tobytes(), 0)
        return ViewRow(layout, UnpackedRow(values, self._form.columns)) if values[0] else None

    def wait(self, waits: int, old: ViewRow | None) -> None:
        """It waits since it was so."""
        self._record["waits"] = waits
        self._words[self._rows :][: self._form.words] = row_words(self._result, words_of(old))


def _kinds_of(result: Result) -> NDArray[np.int64]:
    """What each word of a row of a view is."""
    form = RowFormat(result)
    kinds = np.full(form.words, desk_clock.VALUE_WORD, np.int64)
    kinds[0] = desk_clock.COUNT_WORD
    for column, (at, _) in zip(result.columns, form.columns, strict=True):
        kinds[at] = desk_clock.FLAG_WORD
        if column.type.kind is Kind.DOUBLE:
            kinds[at + 1] = desk_clock.DOUBLE_WORD
    return kinds


class Entry(NamedTuple):
    """A compiled method, of the addresses of a state, the row now and the row before; `call` is Python's."""

    address: int
    call: Callable[[int, int, int], int]


# Instances of a strategy share them.
_entries: dict[tuple[object, ...], Entry] = {}


def _entry_of(method: str, own: Mapping[str, Any], state: np.dtype, row: np.dtype | None) -> Entry:
    """Compiles one of the methods of a class; row: what it is called with, None: with nothing. Raises
    NativeError."""
    known = (*own.values(), method, str(state.descr), str(row))
    if known in _entries:
        return _entries[known]
    function, state_at, row_at = own[method], record_at(state), record_at(state if row is None else row)

    def call_alone(state: int, new: int, old: int) -> int:
        function(state_at(state))
        return 0

    def call(state: int, new: int, old: int) -> int:
        function(state_at(state), row_at(new))
        return 0

    def call_with_old(state: int, new: int, old: int) -> int:
        function(state_at(state), row_at(new), row_at(old))
        return 0

    entry = call_with_old if function.__code__.co_argcount > _WITHOUT_OLD else call
    entry = call_alone if row is None else entry
    assert isinstance(entry, FunctionType)
    _, address, _ = native_address(entry, [types.int64] * 3, None, {**_METHODS, **own})
    _entries[known] = found = Entry(address, python_callable(address, INTEGER * 3))
    return found


def _release(rows: NDArray[np.void]) -> None:
    for name in ("requests", "open", "news"):
        free_memory(int(rows[name][0]))


def _request(
    kind: int, order_id: int, instrument: int, side: int, volume: int, price: int, post_only: int, ioc: int,
    has_terms: int, *terms: int,
) -> Request:  # fmt: skip
    stays = volume == desk.UNCHANGED and kind != PLACE
    fok, asked = 0, None
    if has_terms:
        fok, reduce_only, until, stop, trail, display, profit, loss, oco = terms
        asked = OrderTerms(
            stop=_number(stop), trail=_number(trail or desk.MARKET), good_until=until or None,
            reduce_only=bool(reduce_only), display=_number(display or desk.MARKET),
            take_profit=_number(profit), stop_loss=_number(loss), oco=oco or None,
        )  # fmt: skip
        asked = None if asked == PLAIN else asked
    elif kind == MODIFY and terms[_STOP] != desk.MARKET:
        asked = OrderTerms(stop=_number(terms[_STOP]))
    return Request(
        kind, order_id, instrument, "sell" if side else "buy",
        None if stays else Decimal(volume).scaleb(-SCALE),
        None if price == desk.MARKET else Decimal(price).scaleb(-SCALE), bool(post_only),
        "fok" if fok else "ioc" if ioc else "gtc", asked,
    )  # fmt: skip


def _number(fixed: int) -> str | None:
    """A price or a volume as text; None for none."""
    return None if fixed == desk.MARKET else f"{Decimal(fixed).scaleb(-SCALE).normalize():f}"


def _row_type(result: Result) -> np.dtype:
    """A row of a view in memory; see RowFormat."""
    form = RowFormat(result)
    names, formats, offsets = ["multiplicity"], ["i8"], [0]
    for column, (at, _) in zip(result.columns, form.columns, strict=True):
        value = "f8" if column.type.kind is Kind.DOUBLE else "i8"
        for name, one, place in ((f"has_{column.name}", "i8", at), (column.name, value, at + 1)):
            if name not in names:
                names.append(name)
                formats.append(one)
                offsets.append(_WORD * place)
    size = _WORD * form.words
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _amounts_of(result: Result) -> frozenset[str]:
    """The columns of a view that count units of their last place."""
    return frozenset(
        column.name for column in result.columns if column.type.kind is Kind.DECIMAL and column.type.scale
    )


def fixed(value: Decimal) -> int:
    """A price, a volume or an amount in 1e-8."""
    return int(value.scaleb(SCALE))


def order_words(order: Order) -> tuple[int, ...]:
    """An ORDER_UPDATE, in words."""
    price = 0 if order.price is None else fixed(order.price)
    return (
        order.ts, order.id, SIDES.index(order.side), fixed(order.volume), order.price is not None, price,
        fixed(order.filled), STATUSES.index(order.status), order.reason is not None,
    )  # fmt: skip


def trade_words(trade: Trade) -> tuple[int, ...]:
    """A TRADE, in words."""
    side = SIDES.index(trade.side) if trade.side else len(SIDES)
    return trade.ts, side, fixed(trade.volume), fixed(trade.price)


def fill_words(fill: Fill) -> tuple[int, ...]:
    """A FILL_UPDATE, in words."""
    return (
        fill.ts, fill.order_id, SIDES.index(fill.side), fixed(fill.volume), fixed(fill.price),
        LIQUIDITY.index(fill.liquidity),
    )  # fmt: skip


def amount(units: int) -> Decimal:
    """So many 1e-8."""
    return Decimal(units).scaleb(-SCALE)


def held_words(held: bytes) -> int:
    """The address of the words that bytes hold."""
    return id(held) + _BYTES_AT


def _words_of(event: ViewEvent, result: Result) -> tuple[bytes, int, int]:
    """Bytes that hold the old and the new row of an event, and where in them."""
    firing = event.firing
    if isinstance(firing, UnpackedFiring):
        return firing.held, _WORD * firing.format.old_word, _WORD * firing.format.new_word
    old, new = row_words(result, firing.old), row_words(result, firing.new)
    return array("q", [*old, *new]).tobytes(), 0, _WORD * len(old)


def _word_of(value: Parameter, default: Parameter | None = None) -> int | float | None:
    """A parameter as a field; None for one that is none."""
    if isinstance(default, int | float | Decimal) and isinstance(value, str):
        with suppress(InvalidOperation):
            value = Decimal(value)
    if isinstance(default, float) and not isinstance(value, str):
        return float(value)
    # A DECIMAL is written without a point, too.
    if isinstance(default, Decimal) and isinstance(value, int):
        value = Decimal(value)
    if isinstance(value, Decimal):
        whole = value.scaleb(SCALE)
        return int(whole) if whole == whole.to_integral_value() else float(value)
    return None if isinstance(value, str) else value


def _format(value: float) -> str:
    return "f8" if isinstance(value, float) else "i8"
