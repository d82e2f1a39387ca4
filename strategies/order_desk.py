"""The desk of a strategy in SQL: what Python has of the compiled rules by which rows become orders.

See `execution.order_rows` for the rules, and what is where.
"""

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SqlError
from orderbook.core.jit import entry_address
from orderbook.core.native_code import INTEGER, python_callable
from orderbook.engine.runtime.live_view import LiveView
from orderbook.engine.runtime.row_format import RowFormat, UnpackedFiring, row_words, word_of
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.books import Books
from orderbook.market.instruments import SCALE, Instrument, Instruments
from orderbook.strategies.compiled import CompiledMethods, Entry, held_words
from orderbook.strategies.execution import order_rows
from orderbook.strategies.execution.account import Order, OrderSide
from orderbook.strategies.execution.order_news import SIDES, STATUSES
from orderbook.strategies.execution.order_rows import COLUMN, COLUMNS, KINDS, PLACE, WANTED, WORKING
from orderbook.strategies.strategy import Strategy
from orderbook.views.binding.bound import OrderRules
from orderbook.views.m3 import Result
from orderbook.views.types import Kind

_NAMES = {name: place for place, name in enumerate(order_rows.STATE.names or ())}
_ZERO = Decimal(0)
# Tags that are texts whose places are kept, of orders that are gone.
_MOST_RANKS = 4096
# What the loop calls, by methods.
_CALLED = {"changed": order_rows.note_row, "on_order_update": order_rows.note_order, "look": order_rows.look}


class OrderKey(NamedTuple):
    """What tells an order of a strategy from its others."""

    venue: str
    symbol: str
    side: OrderSide
    tag: str | int | None = None


class Terms(NamedTuple):
    """Of a row, the columns of these names; None and False where it has none."""

    trail: Decimal | None = None
    display: Decimal | None = None
    reduce_only: bool = False
    good_until: int | None = None


class Wanted(NamedTuple):
    """What a row asks for: price (None: a market order), volume and stop in ticks and lots of the instrument.

    terms: what an order cannot be modified in.
    """

    price: Decimal | None
    volume: Decimal
    kind: str
    stop: Decimal | None = None
    terms: Terms = Terms()


class Working(msgspec.Struct):
    """The order of one row, as far as was told.

    id: 0 without an order. wanted: what the row asked for when the exchange was asked last. price, volume:
    the order's own, as asked. filled: of the order; before: of earlier orders of the row, below 0 where
    volume was filled for a row that has gone. since: when the exchange was asked last, ns. asked: that is not
    answered; cancelling: it was asked to cancel. ended: what is not asked for again, as it was refused.
    """

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


class OrderDesk(CompiledMethods):
    """A desk whose requests come of the rows of a view.

    rules: the options of the strategy. key: the symbol of the one instance whose rows it has; None: of all.
    """

    def __init__(
        self,
        kind: type[Strategy],
        result: Result,
        rules: OrderRules,
        instruments: Instruments,
        dictionary: Dictionary,
        books: Books | None,
        key: str | None,
    ) -> None:
        super().__init__(kind, {}, {result.name: result}, len(instruments), order_rows.VIEWED)
        self._result, self._rules, self._key = result, rules, key
        self._instruments, self._dictionary = instruments, dictionary
        self._form, self._columns = RowFormat(result), np.zeros(len(COLUMNS), COLUMN)
        kinds = {}
        for column, (at, wide) in zip(result.columns, self._form.columns, strict=True):
            if column.name in COLUMNS:
                kinds[column.name] = column.type.kind
                form = order_rows.REAL if column.type.kind is Kind.DOUBLE else order_rows.WORD
                form = order_rows.WIDE if wide else form
                self._columns[COLUMNS.index(column.name)] = at, form, column.type.scale
        # Tags that are texts are asked for in the order of these, which Python knows.
        self._tags_are_texts = kinds.get("tag") is Kind.TEXT
        self.row["texts"], self._ranks = self._tags_are_texts, np.zeros((0, 2), np.int64)
        self._places = np.zeros(len(instruments), PLACE)
        self._seen: list[Instrument | None] = [None] * len(instruments)
        self._sides, self._kinds = (
            np.array([dictionary.encode(text) for text in texts], np.int64) for texts in (SIDES, KINDS)
        )
        row = self.row
        for name, values in (("columns", self._columns), ("places", self._places), ("sides", self._sides)):
            row[name] = values.ctypes.data
        row["kinds"], row["places_count"] = self._kinds.ctypes.data, len(instruments)
        row["keys"], row["words"] = self._form.key_count, self._form.words
        row["books"] = books.address if isinstance(books, Books) else 0
        row["min_life"], row["min_move"] = rules.min_life, rules.min_move
        row["max_requests"], row["refill"] = rules.max_requests, rules.refill
        # Whether the rows of the view are known.
        self.reads = True
        weakref.finalize(self, _free, self._rows)

    def follow(self) -> None:
        """The loop calls what follows orders, and looks at the end of messages."""
        self.row["on_order"] = self.entry("on_order_update", None).address
        self.row["look"] = self.entry("look", None).address

    def entry(self, method: str, view: str | None) -> Entry:
        """See CompiledMethods."""
        address = entry_address(_CALLED[method], len(INTEGER * 3))
        return Entry(address, python_callable(address, INTEGER * 3))

    def note(self, event: ViewEvent) -> None:
        """A row of the view has changed."""
        firing = event.firing
        if isinstance(firing, UnpackedFiring):
            old, new = firing.format.old_word, firing.format.new_word
            at = held_words(firing.held)
            order_rows.row_changed(self.address, at + 8 * new, at + 8 * old)
            return
        keys = [word_of(word, key.type) for word, key in zip(event.codes, self._result.keys, strict=True)]
        rows = (row_words(self._result, one) for one in (firing.old, firing.new))
        self._note(np.array([*keys, *(word for row in rows for word in row)], np.int64))

    def _note(self, words: NDArray[np.int64]) -> None:
        """A row has changed: its key, then the row as it was, and as it is."""
        old = int(words.ctypes.data) + 8 * self._form.key_count
        order_rows.row_changed(self.address, old + 8 * self._form.words, old)

    def read(self, view: LiveView, fresh: bool) -> None:
        """Reads all rows of the view. fresh: all are to be looked at."""
        self.reads = False
        order_rows.forget_rows(self.address)
        self.row["quiet"] = not fresh
        count, nothing = self._form.key_count, np.zeros(self._form.words, np.int64)
        at = count + int(self._columns[COLUMNS.index("symbol")]["at"])
        own = None if self._key is None else self._dictionary.encode(self._key)
        for words in view.row_words():
            if own is None or words[at + 1] == own:
                self._note(np.concatenate([words[:count], nothing, words[count:]]))
        self.row["quiet"] = 0

    @property
    def too_small(self) -> int:
        """How often a row was looked at that asks for less than a lot."""
        count: int = self.words[_NAMES["too_small"]]
        return count

    @property
    def looking(self) -> bool:
        """Whether orders are to be looked at when the message at hand ends."""
        return bool(self.words[_NAMES["looking"]])

    @looking.setter
    def looking(self, on: bool) -> None:
        self.words[_NAMES["looking"]] = on

    @property
    def looked(self) -> bool:
        """Whether the loop has looked at the message at hand."""
        return bool(self.words[_NAMES["looked"]])

    @property
    def wake(self) -> int:
        """From when on it is to look at a message, ns; LAST: by no time."""
        time: int = self.words[_NAMES["wake"]]
        return time

    @wake.setter
    def wake(self, time: int) -> None:
        self.words[_NAMES["wake"]] = time

    def note_steps(self) -> None:
        """Ticks and lots are those that instruments have now."""
        for index, one in enumerate(self._instruments):
            if one is not self._seen[index]:
                self._seen[index] = one
                venue, symbol = self._dictionary.encode(one.venue), self._dictionary.encode(one.symbol)
                steps = one.tick_scale * one.tick_units, one.lot_scale * one.lot_units
                self._places[index] = venue, symbol, *steps

    def look(self, now: int) -> None:
        """Asks for what rows that have changed ask for. Raises SqlError where one is no order."""
        self.note_steps()
        self._rank()
        if order_rows.look_now(self.address, now):
            raise self._error()

    def look_anew(self, venue: str | None = None, symbol: str | None = None) -> None:
        """Looks at the orders of a venue and symbol, None: at all, also at what was refused."""
        codes = (-1 if text is None else self._dictionary.encode(text) for text in (venue, symbol))
        order_rows.look_anew(self.address, *codes)

    def note_order(self, order: Order) -> None:
        """The exchange has answered, or filled something."""
        told = self._told[0]
        told["id"], told["status"], told["has_reason"] = (
            order.id, STATUSES.index(order.status), order.reason is not None,
        )  # fmt: skip
        told["volume"], told["filled"] = _fixed(order.volume), _fixed(order.filled)
        told["has_price"], told["price"] = order.price is not None, _fixed(order.price or _ZERO)
        order_rows.order_changed(self.address, int(self._told.ctypes.data))

    def named(self, order_id: int) -> tuple[str, str]:
        """The venue and symbol of an order that is asked for."""
        one = next(working for _, working in self._orders() if working["id"] == order_id)
        return self._dictionary.decode(int(one["venue"])), self._dictionary.decode(int(one["symbol"]))

    def saved(self) -> list[tuple[OrderKey, Working]]:
        """The orders, by what tells them apart."""
        found = [(self._key_of(one), _working(at, one)) for at, one in self._orders()]
        return sorted(
            ((key, one) for key, one in found if one != Working()), key=lambda item: place_of(item[0])
        )

    @property
    def waiting(self) -> list[OrderKey]:
        """The orders that are to be looked at."""
        found = [self._key_of(one) for _, one in self._orders() if one["changed"] or one["waits"]]
        return sorted(found, key=place_of)

    @property
    def times(self) -> list[int]:
        """Those of the requests of the last second, ns."""
        first, end = int(self.row["times_first"]), int(self.row["times_count"])
        return (ctypes.c_int64 * end).from_address(int(self.row["times"]))[first:] if end else []

    def load_orders(
        self, orders: Sequence[tuple[OrderKey, Working]], waiting: Sequence[OrderKey], times: Sequence[int]
    ) -> None:
        """Goes on from these."""
        order_rows.free_rows(self.address)
        self.note_steps()
        for key, saved in orders:
            at = self._order_of(key)
            one = _record(at, WORKING)
            for name in ("id", "since", "asked", "cancelling"):
                one[name] = getattr(saved, name)
            for name in ("volume", "filled", "before"):
                one[name] = _fixed(getattr(saved, name))
            one["has_price"], one["price"] = saved.price is not None, _fixed(saved.price or _ZERO)
            asked, ended = order_rows.ASKED_AT, order_rows.ENDED_AT
            for place, name, wanted in (
                (asked, "has_asked", saved.wanted),
                (ended, "has_ended", saved.ended),
            ):
                one[name] = wanted is not None
                if wanted is not None:
                    _write_wanted(_record(at + place, WANTED), wanted)
        for key in waiting:
            order_rows.hold(self.address, self._order_of(key), 0)
        for time in times:
            order_rows.note_time(self.address, time)

    def _order_of(self, key: OrderKey) -> int:
        encode, tag = self._dictionary.encode, key.tag
        code = encode(tag) if isinstance(tag, str) else tag or 0
        side = SIDES.index(key.side)
        names = encode(key.venue), encode(key.symbol)
        return int(order_rows.order_of(self.address, *names, side, tag is not None, code))

    def _rank(self) -> None:
        """Ranks tags that are texts, where one is new."""
        if not self.row["unranked"]:
            return
        self.row["unranked"] = 0
        orders = [one for _, one in self._orders() if one["has_tag"]]
        known = self._ranks[:, 0].tolist() if len(self._ranks) < _MOST_RANKS else []
        codes = sorted({*known, *(int(one["tag"]) for one in orders)})
        places = {tag: rank for rank, tag in enumerate(sorted(codes, key=self._dictionary.decode))}
        self._ranks = np.array([(tag, places[tag]) for tag in codes], np.int64).reshape(-1, 2)
        self.row["ranks"], self.row["ranks_count"] = self._ranks.ctypes.data, len(self._ranks)
        for one in orders:
            one["rank"] = places[int(one["tag"])]

    def _orders(self) -> Iterator[tuple[int, np.void]]:
        """The WORKING, with their addresses."""
        count = int(self.row["working_count"])
        addresses = (ctypes.c_int64 * count).from_address(int(self.row["working"]))[:] if count else []
        return ((at, _record(at, WORKING)) for at in addresses)

    def _key_of(self, one: np.void) -> OrderKey:
        decode, tag = self._dictionary.decode, int(one["tag"])
        text: str | int | None = decode(tag) if self._tags_are_texts and one["has_tag"] else tag
        names = decode(int(one["venue"])), decode(int(one["symbol"]))
        return OrderKey(*names, SIDES[int(one["side"])], text if one["has_tag"] else None)

    def _error(self) -> SqlError:
        """What is wrong with a row."""
        row, texts = self.row, {}
        words = (ctypes.c_int64 * self._form.words).from_address(int(row["wrong_row"]))[:]
        for name in ("venue", "symbol", "side", "kind"):
            at = int(self._columns[COLUMNS.index(name)]["at"])
            texts[name] = self._dictionary.decode(words[at + 1]) if at and words[at] else None
        if row["wrong"] == order_rows.NO_KEY:
            where = f"at venue {texts['venue']!r}, symbol {texts['symbol']!r}"
            what = f"an order of side {texts['side']!r} {where}"
        elif row["wrong"] == order_rows.NO_KIND:
            what = f"kind {texts['kind']!r} of an order; there are {', '.join(map(repr, KINDS))}"
        else:
            key = self._key_of(_record(int(row["wrong_order"]), WORKING))
            named = ", ".join(str(part) for part in key if part is not None)
            what = f"two rows of the order {named}; tell them apart by a column tag, or GROUP BY its key"
        rules = self._rules
        return SqlError(f"strategy {self._result.name}: {what}", rules.line, rules.column, rules.file)


def place_of(key: OrderKey) -> tuple[Any, ...]:
    """What orders are sorted by."""
    return *key[:3], key.tag is not None, key.tag


def _free(rows: NDArray[np.void]) -> None:
    order_rows.free_rows(int(rows.ctypes.data))


def _record(address: int, dtype: np.dtype) -> np.void:
    """The record at an address."""
    found: np.void = np.frombuffer(memoryview((ctypes.c_char * dtype.itemsize).from_address(address)), dtype)[
        0
    ]
    return found


def _fixed(value: Decimal) -> int:
    return int(value.scaleb(SCALE))


def _decimal(fixed: int) -> Decimal:
    return Decimal(int(fixed)).scaleb(-SCALE)


def _working(address: int, one: np.void) -> Working:
    asked, ended = (
        _wanted(_record(address + at, WANTED)) if one[name] else None
        for at, name in ((order_rows.ASKED_AT, "has_asked"), (order_rows.ENDED_AT, "has_ended"))
    )
    return Working(
        int(one["id"]), asked, _decimal(one["price"]) if one["has_price"] else None, _decimal(one["volume"]),
        _decimal(one["filled"]), _decimal(one["before"]), int(one["since"]), bool(one["asked"]),
        bool(one["cancelling"]), ended,
    )  # fmt: skip


def _wanted(one: np.void) -> Wanted:
    trail, display = (_decimal(one[name]) if one[name] else None for name in ("trail", "display"))
    price, stop = (_decimal(one[name]) if one[f"has_{name}"] else None for name in ("price", "stop"))
    terms = Terms(trail, display, bool(one["reduce_only"]), int(one["good_until"]) or None)
    return Wanted(price, _decimal(one["volume"]), KINDS[int(one["kind"])], stop, terms)


def _write_wanted(one: np.void, wanted: Wanted) -> None:
    terms = wanted.terms
    one["volume"], one["kind"] = _fixed(wanted.volume), KINDS.index(wanted.kind)
    for name in ("price", "stop"):
        value = getattr(wanted, name)
        one[f"has_{name}"], one[name] = value is not None, _fixed(value or _ZERO)
    one["trail"], one["display"] = _fixed(terms.trail or _ZERO), _fixed(terms.display or _ZERO)
    one["reduce_only"], one["good_until"] = terms.reduce_only, terms.good_until or 0
