"""Methods of strategies as machine code: their state, what they see of a row, and what they ask for.

A method under `compiled` is Python of integers, doubles and booleans. Its `self` is a record: the fields that
the class declares, its parameters, and what is at hand (`now`, `tick`, `lot`, `position`). Its row is a
record of the view's columns as the engine has them: a DECIMAL is an integer in units of its last place, so
that a price or a volume of DECIMAL(18, 8) counts 10^-8; so do orders, `tick`, `lot` and `position`. A TEXT is
a number that is the same for equal texts. `has_NAME` says whether a column is not NULL, `multiplicity` is 0
where there is no row.

    class Join(Strategy):
        order: int = 0

        @compiled
        @on_view("touch", fire="change")
        def moved(self, row):
            if self.order != 0 and self.is_open(self.order):
                self.cancel(self.order)
            if row.has_bid and self.position < 10 * self.lot:
                self.order = self.buy(self.lot, row.bid, post_only=True)
"""

import ctypes
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import types

from orderbook.core.errors import ConfigurationError
from orderbook.core.files import packed, unpacked
from orderbook.core.native import NativeError
from orderbook.core.native_code import INTEGER, native_address, python_callable
from orderbook.engine.maps.memory import free_memory
from orderbook.engine.runtime.row_format import RowFormat, UnpackedFiring, row_words
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.block_memory import record_at
from orderbook.market.instruments import SCALE, Instrument
from orderbook.strategies.execution import desk
from orderbook.strategies.execution.account import OrderSide
from orderbook.strategies.execution.exchange_state import PLACE
from orderbook.strategies.strategy import Parameter, Strategy, compiled_methods, fields_of
from orderbook.views.m3 import Result
from orderbook.views.types import Kind

_METHODS: Mapping[str, Any] = {
    "buy": desk.buy, "sell": desk.sell, "modify": desk.modify, "cancel": desk.cancel, "is_open": desk.is_open,
}  # fmt: skip
_NAMES = frozenset(desk.DESK.names or ())
_PLACES = {name: place for place, name in enumerate(desk.DESK.names or ())}
_WORD = 8
# Of a method without the row before.
_WITHOUT_OLD = 2
_BYTES_AT = bytes.__basicsize__ - 1


class Request(NamedTuple):
    """What a compiled method asked for, in the relation's units; None: as it is, or of a market order."""

    kind: int
    id: int
    instrument: int
    side: OrderSide
    volume: Decimal | None
    price: Decimal | None
    post_only: bool
    ioc: bool


class CompiledMethods:
    """The state of one instance of a strategy, and its compiled methods for the rows of the views it watches.

    Raises ConfigurationError for what cannot be compiled, or a name that stands twice.
    """

    def __init__(
        self,
        kind: type[Strategy],
        parameters: Mapping[str, Parameter],
        results: Mapping[str, Result],
        instruments: int,
    ) -> None:
        numbers = {}
        for name, value in parameters.items():
            # A DECIMAL is written without a point, too.
            decimal = isinstance(kind.defaults.get(name), Decimal) and isinstance(value, int)
            word = _word_of(Decimal(value) if decimal else value)
            if word is not None:
                numbers[name] = word
        fields = fields_of(kind)
        for name in (*numbers, *fields):
            if name in _NAMES or name in _METHODS or (name in numbers and name in fields):
                raise ConfigurationError(f"{kind.__name__}: {name} means something else there; rename it")
        columns = [(name, _format(value)) for name, value in (*numbers.items(), *fields.items())]
        self._dtype = np.dtype([*desk.DESK.descr, *columns])
        self._rows = np.zeros(1, self._dtype)
        for name, value in (*numbers.items(), *fields.items()):
            self._rows[name] = value
        self._fields = tuple(fields)
        self.row = self._rows[0]
        self.words = memoryview(self._rows.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        self.address = int(self._rows.ctypes.data)
        self.boards, self.positions = np.zeros(instruments, np.int64), np.zeros(instruments, np.int64)
        self.row["boards"], self.row["positions"] = self.boards.ctypes.data, self.positions.ctypes.data
        self._kind, self._results = kind, results
        self._entries: dict[tuple[str, str], _Entry] = {}
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
        words = self.words
        words[_PLACES["now"]], words[_PLACES["instrument"]] = now, -1 if index is None else index
        words[_PLACES["tick"]] = 0 if one is None else one.tick_scale * one.tick_units
        words[_PLACES["lot"]] = 0 if one is None else one.lot_scale * one.lot_units
        words[_PLACES["position"]] = int(held.scaleb(SCALE))
        bytes_of, old, new = _words_of(event, self._results[event.view])
        at = id(bytes_of) + _BYTES_AT
        self.entry(method, event.view).call(self.address, at + new, at + old)

    def entry(self, method: str, view: str) -> "_Entry":
        """A method compiled for the rows of a view. Raises ConfigurationError."""
        found = self._entries.get((method, view))
        if found is None:
            own = {name: getattr(self._kind, name) for name in compiled_methods(self._kind)}
            try:
                found = _entry_of(method, own, self._dtype, _row_type(self._results[view]))
            except NativeError as error:
                where = f"{self._kind.__name__}.{method}, of view {view}"
                raise ConfigurationError(f"{where}, cannot be compiled: {error}") from error
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

    def requests(self) -> list[Request]:
        """Takes what was asked for."""
        return [_request(*words) for words in self._taken("requests", desk.REQUEST)]

    def news(self) -> list[Sequence[int]]:
        """Takes the NEWS, as words."""
        return self._taken("news", desk.NEWS)

    def take_calls(self) -> int:
        """How many methods the loop has called since it was asked last."""
        calls: int = self.words[_PLACES["calls"]]
        self.words[_PLACES["calls"]] = 0
        return calls

    def take_news_fills(self) -> int:
        """How many fills are of the news taken."""
        count: int = self.words[_PLACES["news_fills"]]
        self.words[_PLACES["news_fills"]] = 0
        return count

    def _taken(self, name: str, item: np.dtype) -> list[Sequence[int]]:
        words, place = self.words, _PLACES[name]
        address, first, end = words[place], words[place + 1], words[place + 2]
        if first == end:
            return []
        words[place + 1] = words[place + 2] = 0
        width = item.itemsize // _WORD
        taken = (ctypes.c_int64 * (width * (end - first))).from_address(address + item.itemsize * first)[:]
        return [taken[start : start + width] for start in range(0, len(taken), width)]

    def told(self, order_id: int, instrument: int, market: bool, is_open: bool) -> None:
        """An order to an instrument is under way or rests, or is done."""
        desk.note_open(self.address, order_id, ~instrument if market else instrument, is_open)

    def save(self) -> bytes:
        """The fields, for a checkpoint."""
        return packed({name: self.row[name].item() for name in self._fields})

    def load(self, state: bytes) -> None:
        """Goes on from `save`; fields that it has not stay as they are."""
        for name, value in unpacked(state).items():
            if name in self._fields:
                self.row[name] = value


class _Entry(NamedTuple):
    """A compiled method, of the addresses of a state, the row now and the row before; `call` is Python's."""

    address: int
    call: Callable[[int, int, int], int]


# Instances of a strategy share them.
_entries: dict[tuple[object, ...], _Entry] = {}


def _entry_of(method: str, own: Mapping[str, Any], state: np.dtype, row: np.dtype) -> _Entry:
    """Compiles one of the methods of a class. Raises NativeError."""
    known = (*own.values(), method, str(state.descr), str(row))
    if known in _entries:
        return _entries[known]
    function, state_at, row_at = own[method], record_at(state), record_at(row)

    def call(state: int, new: int, old: int) -> int:
        function(state_at(state), row_at(new))
        return 0

    def call_with_old(state: int, new: int, old: int) -> int:
        function(state_at(state), row_at(new), row_at(old))
        return 0

    entry = call_with_old if function.__code__.co_argcount > _WITHOUT_OLD else call
    assert isinstance(entry, FunctionType)
    _, address, _ = native_address(entry, [types.int64] * 3, None, {**_METHODS, **own})
    _entries[known] = found = _Entry(address, python_callable(address, INTEGER * 3))
    return found


def _release(rows: np.ndarray) -> None:
    for name in ("requests", "open", "news"):
        free_memory(int(rows[name][0]))


def _request(
    kind: int, order_id: int, instrument: int, side: int, volume: int, price: int, post_only: int, ioc: int
) -> Request:
    stays = volume == desk.UNCHANGED and kind != PLACE
    return Request(
        kind, order_id, instrument, "sell" if side else "buy",
        None if stays else Decimal(volume).scaleb(-SCALE),
        None if price == desk.MARKET else Decimal(price).scaleb(-SCALE), bool(post_only), bool(ioc),
    )  # fmt: skip


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


def _words_of(event: ViewEvent, result: Result) -> tuple[bytes, int, int]:
    """Bytes that hold the old and the new row of an event, and where in them."""
    firing = event.firing
    if isinstance(firing, UnpackedFiring):
        return firing.held, _WORD * firing.format.old_word, _WORD * firing.format.new_word
    old, new = row_words(result, firing.old), row_words(result, firing.new)
    return array("q", [*old, *new]).tobytes(), 0, _WORD * len(old)


def _word_of(value: Parameter) -> int | float | None:
    """A parameter as a field; None for one that is none."""
    if isinstance(value, Decimal):
        whole = value.scaleb(SCALE)
        return int(whole) if whole == whole.to_integral_value() else float(value)
    return None if isinstance(value, str) else value


def _format(value: float) -> str:
    return "f8" if isinstance(value, float) else "i8"
