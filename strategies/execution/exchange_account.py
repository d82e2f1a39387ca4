"""One account at the simulated exchange, as Python holds it: its memory, and what was reported of orders.

The rules are those of `exchange`, and compiled; records are in ticks and lots.
"""

import ctypes
import struct
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.engine.maps.memory import free_memory
from orderbook.market.books import Books
from orderbook.market.events import BookState, Events, Side, plain
from orderbook.market.instruments import Instrument, Instruments
from orderbook.strategies.execution import exchange_calls as exchange
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BACK,
    BOARD,
    BOOK_SYNCING,
    CLOSED,
    ENTRY_UNFILLED,
    EXPIRED,
    FILL,
    LAST,
    MESSAGE,
    NO_REASON,
    NO_VOLUME,
    NOT_AT_ONCE,
    NOT_MODIFIED,
    NOT_WHOLE,
    NOTHING_LEFT,
    NOTHING_TO_REDUCE,
    ORDER,
    PAYMENT,
    PLACE,
    QUEUES,
    REPORT,
    SQUARE,
    STOP_BY,
    TEXTS,
    TIED_HAS_FILLED,
    TIED_IS_DONE,
    WOULD_TAKE,
)
from orderbook.strategies.execution.venue_model import Delays, Sessions, SimulationOptions

_SIDES = (("bids", Side.BID), ("asks", Side.ASK))
_OF_INSTRUMENT = {
    **{BOOK_SYNCING + state: f"the book is {state.name.lower()}" for state in BookState},
    CLOSED: "outside the trading hours",
    WOULD_TAKE: "it is post-only, and would take",
}
_OF_ORDER = {
    NO_VOLUME: "no more volume is displayed",
    NOT_AT_ONCE: "the rest could not be filled at once",
    NOTHING_LEFT: "modified to what is filled",
    NOT_WHOLE: "it could not be filled whole at once",
    EXPIRED: "its good_until has passed by the exchange's clock",
    NOTHING_TO_REDUCE: "there is no position that it could reduce",
    TIED_IS_DONE: "the order that it is tied to is done",
    TIED_HAS_FILLED: "the order that it is tied to was filled",
    ENTRY_UNFILLED: "nothing was filled that it could protect",
}
_WORD = 8
_DUE, _NUMBERS, _TOLD_APART = ((ACCOUNT.names or ()).index(name) for name in ("due", "numbers", "told_apart"))
_POSITION = (BOARD.names or ()).index("position")
_LOT = (BOARD.names or ()).index("proportional")
# The first and the end of each vector of a board.
_ENDS = tuple(
    ((BOARD.names or ()).index(f"{name}_first"), (BOARD.names or ()).index(f"{name}_count"))
    for name in ("bids", "asks", "stops", "entering", "taken_bids", "taken_asks", "messages")
)
_REPORT_WORDS = struct.Struct(f"<{len(REPORT.names or ())}q")
_PAYMENT_WORDS = struct.Struct(f"<{len(PAYMENT.names or ())}q")
_OWN_FILLS = (REPORT.names or ()).index("fills")
_FILL_WORDS = struct.Struct(f"<{len(FILL.names or ())}q")
_ADDRESSES = ("ahead", "count", "profit", "loss")
_PLACED = tuple(name for name in ORDER.names or () if name not in _ADDRESSES)


class SavedOrder(msgspec.Struct, frozen=True):
    """An ORDER in a checkpoint: its words by name, the lots by id of those ahead, and what comes once it is
    done."""

    words: dict[str, int]
    ahead: list[tuple[int, int]]
    profit: "SavedOrder | None" = None
    loss: "SavedOrder | None" = None


class SavedMessage(msgspec.Struct, frozen=True):
    """What is on its way to the exchange; see MESSAGE. `order` is that of a new one."""

    instrument: int
    arrival: int
    kind: int
    id: int
    order: SavedOrder | None
    lots: int | None
    limit: int | None
    reason: str | None
    stop: int | None = None


class Filled(NamedTuple):
    """An execution; see FILL."""

    time: int
    lots: int
    ticks: int
    maker: int


class Payment(NamedTuple):
    """Funding of a position; see PAYMENT."""

    time: int
    instrument: int
    lots: int
    price: int
    rate: int


class Report(msgspec.Struct, frozen=True):
    """What has become of an order; see REPORT. `volume` and `limit` are None where they are as before."""

    due: int
    id: int
    instrument: int
    time: int
    status: int
    filled: int
    volume: int | None
    limit: int | None
    reason: str | None
    fills: list[Filled]
    side: int


class ExchangeAccount:
    """What the simulated exchange has of one account. `address` is that of its ACCOUNT.

    delays: of orders, of the feed, and of responses. at_once: whether everything is told at once.
    """

    def __init__(
        self,
        books: Books,
        instruments: Instruments,
        options: SimulationOptions,
        delays: Mapping[str, Delays],
        at_once: bool,
    ) -> None:
        self._instruments = instruments
        self._queue, self._power = QUEUES.index(options.queue), options.queue_power
        if self._queue == SQUARE:
            self._power = 2.0
        self._accounts = np.zeros(1, ACCOUNT)
        self._words = memoryview(self._accounts.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        self._boards: dict[int, NDArray[np.void]] = {}
        self._addresses: dict[int, int] = {}
        self._board_words: dict[int, memoryview] = {}
        self._texts: list[str] = []
        # Kept as long as compiled code may look there.
        self._sessions, self._delays = Sessions(options.sessions), delays
        row = self._accounts[0]
        # Whether what becomes of an order is told as it is sent.
        self.instant = at_once
        row["books"], row["instant"], row["due"] = books.address, at_once, LAST
        row["stop_by"] = STOP_BY.index(options.stop_by)
        row["at_once"] = delays["orders"].zero and delays["feed"].zero
        for name, own in delays.items():
            row[name], row[f"{name}_count"], row[f"{name}_key"], row[f"{name}_timed"] = own.words
        row["sessions"], row["sessions_count"] = self._sessions.words
        self.address = int(self._accounts.ctypes.data)
        weakref.finalize(self, _release, self._accounts, self._boards)

    def board(self, instrument: int) -> int:
        """The address of the BOARD of an instrument."""
        found = self._addresses.get(instrument)
        if found is None:
            board = self._boards[instrument] = np.zeros(1, BOARD)
            board["account"], board["instrument"] = self.address, instrument
            board["expires"] = LAST
            board["queue"], board["power"] = self._queue, round(self._power * 10**9)
            one = self._instruments[instrument]
            board["tick_scale"], board["lot_scale"] = one.tick_scale, one.lot_scale
            found = self._addresses[instrument] = int(board.ctypes.data)
            self._board_words[instrument] = memoryview(board.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        if self._queue != BACK:
            # The exchange may change it.
            self._board_words[instrument][_LOT] = self._instruments[instrument].lot_units
        return found

    def take_steps(self) -> None:
        """Orders are taken in the ticks and lots that instruments have now."""
        for index, board in self._boards.items():
            one = self._instruments[index]
            taken = one.not_tradable is None
            board["tick"] = one.tick_scale * one.tick_units if taken else 0
            board["lot"] = one.lot_scale * one.lot_units if taken else 0

    def has(self, instrument: int) -> bool:
        """Whether anything was ever sent to an instrument."""
        return instrument in self._boards

    @property
    def due(self) -> int:
        """When the first report can be known, ns; LAST where there is none."""
        due: int = self._words[_DUE]
        return due

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, rests or is taken."""
        return self.due == LAST and all(
            words[first] == words[end] for words in self._board_words.values() for first, end in _ENDS
        )

    def next_number(self) -> int:
        """The number of a message that is about to be sent."""
        number: int = self._words[_NUMBERS] + 1
        self._words[_NUMBERS] = number
        return number

    def send(
        self,
        kind: int,
        instrument: int,
        order_id: int,
        arrival: int,
        at_once: bool,
        *,
        order: int = 0,
        lots: int | None = None,
        limit: int | None = None,
        stop: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Sends what arrives then; see MESSAGE."""
        exchange.send(
            self.board(instrument), arrival, at_once, kind, order_id, order, lots or 0, lots is not None,
            limit or 0, limit is not None, stop or 0, stop is not None, self._code(reason),
        )  # fmt: skip

    def hold(self, instrument: int, lots: int) -> None:
        """So many lots are held of an instrument, with what is filled and not yet told."""
        self.board(instrument)
        self._boards[instrument]["position"] = lots

    def before(self, instrument: int, time: int) -> None:
        """See `exchange.arrive`."""
        if instrument in self._boards:
            exchange.before_message(self.board(instrument), time)

    def after(self, instrument: int, events: Events, time: int, now: int) -> None:
        """See `exchange.meet`."""
        if instrument in self._boards:
            events = plain(events)
            exchange.after_message(self.board(instrument), events.ctypes.data, len(events), time, now)

    def told(self, now: int) -> list[Report]:
        """Takes the reports that are due by now."""
        if self.due > now:
            return []
        reports = list(_REPORT_WORDS.iter_unpack(exchange.take_reports(self.address, now)))
        count = sum(words[_OWN_FILLS] for words in reports)
        fills = self.take_fills(count)
        return [self.report_of(words, fills) for words in reports]

    def take_fills(self, count: int) -> deque[tuple[int, ...]]:
        """Takes the first so many FILLs, as words."""
        return deque(_FILL_WORDS.iter_unpack(exchange.take_fills(self.address, count)) if count else ())

    def take_fill_rows(self, count: int) -> NDArray[np.void]:
        """Takes the first so many, FILL[count]."""
        return np.frombuffer(exchange.take_fills(self.address, count) if count else b"", FILL)

    def take_payments(self) -> list[Payment]:
        """Takes what funding was paid since it was asked last."""
        row = self._accounts[0]
        if row["payments_first"] == row["payments_count"]:
            return []
        return [Payment(*words) for words in _PAYMENT_WORDS.iter_unpack(exchange.take_payments(self.address))]

    @property
    def holds(self) -> bool:
        """Whether anything is held, on which funding may be paid."""
        return any(words[_POSITION] for words in self._board_words.values())

    def text(self, code: int, one: Instrument) -> str | None:
        """What a reason says, of an order to an instrument."""
        return self._text(code, one)

    def texts(self, one: Instrument) -> list[str | None]:
        """What reasons say of an order to an instrument, then as why it could not be modified; by codes."""
        codes = range(TEXTS + len(self._texts))
        known = [code for code in codes if code >= TEXTS or code in _OF_INSTRUMENT or code in _OF_ORDER]
        texts = {code: self._text(code, one) for code in known}
        changes = {code: self._text(NOT_MODIFIED + code, one) for code in known}
        return [*(texts.get(code) for code in codes), *(changes.get(code) for code in codes)]

    @property
    def told_apart(self) -> bool:
        """Whether compiled code tells its strategy what is due."""
        return bool(self._words[_TOLD_APART])

    @told_apart.setter
    def told_apart(self, on: bool) -> None:
        self._words[_TOLD_APART] = on

    def drop_messages(self) -> list[SavedMessage]:
        """Takes what is under way."""
        found = list(self._messages())
        for board in self._boards.values():
            _drop_messages(board)
        return found

    def orders(self, instrument: int) -> Iterator[np.void]:
        """The ORDERs that rest, best price first, then oldest, those to buy first."""
        board = self._boards.get(instrument)
        if board is not None:
            yield from _resting(board[0])

    def save(self) -> "SavedExchange":
        """The account between two messages; instruments by the indexes that they have in the run."""
        boards = sorted(self._boards.items())
        row = self._accounts[0]
        return SavedExchange(
            [
                (index, [_saved(_order(at)) for at in _alive(board[0], ("bids", "asks", "stops"))])
                for index, board in boards
            ],
            [(index, *one) for index, board in boards for one in _taken(board[0])],
            [index for index, board in boards if board[0]["executes"]],
            list(self._messages()),
            self._reports(),
            int(row["numbers"]),
            {index: int(board[0]["arrival"]) for index, board in boards},
            int(row["last_due"]),
            [
                (index, _saved(_order(at)))
                for index, board in boards
                for at in _alive(board[0], ("entering",))
            ],
            {index: int(board[0]["seen"]) for index, board in boards},
        )

    def load(self, saved: "SavedExchange", indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        row = self._accounts[0]
        for index, orders in saved.resting:
            board = self.board(indexes[index])
            for one in orders:
                exchange.rests(board, _loaded(one))
        for index, one in saved.entering:
            exchange.enters_later(self.board(indexes[index]), _loaded(one))
        for index, side, price, lots in saved.taken:
            self._take(indexes[index], Side(side), price, lots)
        for index in saved.executes:
            self.board(indexes[index])
            self._boards[indexes[index]]["executes"] = 1
        for message in saved.messages:
            order = 0 if message.order is None else _loaded(message.order)
            self.send(
                message.kind, indexes[message.instrument], message.id, message.arrival, False,
                order=order, lots=message.lots, limit=message.limit, stop=message.stop,
                reason=message.reason,
            )  # fmt: skip
        for index, arrival in saved.arrivals.items():
            self.board(indexes[index])
            self._boards[indexes[index]]["arrival"] = arrival
        for index, seen in saved.seen.items():
            self.board(indexes[index])
            self._boards[indexes[index]]["seen"] = seen
        for report in saved.reports:
            self._load_report(report, indexes[report.instrument])
        row["numbers"], row["last_due"] = saved.numbers, saved.last_due

    def _take(self, instrument: int, side: Side, price: int, lots: int) -> None:
        self.board(instrument)
        name = "taken_bids" if side is Side.BID else "taken_asks"
        vector = _address_of(self._boards[instrument], name)
        exchange.put_taken(vector, price if side is Side.BID else -price, lots)

    def _load_report(self, report: Report, instrument: int) -> None:
        row = self._accounts[0]
        if row["reports_first"] == row["reports_count"]:
            row["due"] = report.due
        at = exchange.push(_address_of(self._accounts, "reports"), REPORT.itemsize)
        _write(
            at,
            (
                report.due, report.id, instrument, report.time, report.status, report.filled,
                report.volume or 0, report.limit or 0, report.volume is not None,
                self._code(report.reason), len(report.fills), report.side,
            ),
        )  # fmt: skip
        for fill in report.fills:
            _write(exchange.push(_address_of(self._accounts, "fills"), FILL.itemsize), fill)

    def report_of(self, words: Sequence[int], fills: deque[tuple[int, ...]]) -> Report:
        """A REPORT as words, with those of the FILLs that are its own, which are the first."""
        due, order_id, instrument, time, status, filled, volume, limit, modified, reason, own, side = words
        return Report(
            due, order_id, instrument, time, status, filled,
            volume if modified else None, limit if modified else None,
            self._text(reason, self._instruments[instrument]) if reason else None,
            [Filled(*fills.popleft()) for _ in range(own)], side,
        )  # fmt: skip

    def _reports(self) -> list[Report]:
        row = self._accounts[0]
        fills = deque(tuple(words) for words in _words(row, "fills", FILL))
        return [self.report_of(words, fills) for words in _words(row, "reports", REPORT)]

    def _messages(self) -> Iterator[SavedMessage]:
        for index, board in sorted(self._boards.items()):
            for words in _words(board[0], "messages", MESSAGE):
                arrival, kind, order_id, order, lots, has_lots, limit, has_limit, stop, has_stop, reason = (
                    words
                )
                yield SavedMessage(
                    index, arrival, kind, order_id, _saved(_order(order)) if kind == PLACE else None,
                    lots if has_lots else None, limit if has_limit else None,
                    self._text(reason, self._instruments[index]), stop if has_stop else None,
                )  # fmt: skip

    def _code(self, text: str | None) -> int:
        """What stands for a reason in records."""
        if text is None:
            return NO_REASON
        if text not in self._texts:
            self._texts.append(text)
        return TEXTS + self._texts.index(text)

    def _text(self, code: int, one: Instrument) -> str | None:
        """What a reason says, of an order to an instrument."""
        if code == NO_REASON:
            return None
        if code >= NOT_MODIFIED:
            return f"not modified: {self._text(code - NOT_MODIFIED, one)}"
        if code >= TEXTS:
            return self._texts[code - TEXTS]
        found = _OF_INSTRUMENT.get(code)
        return _OF_ORDER[code] if found is None else f"{one}: {found}"


class SavedExchange(msgspec.Struct, frozen=True):
    """An account at the exchange in a checkpoint.

    `resting` are the orders of each instrument that rest or wait for their stop, `entering` those that come
    once its book is valid, `taken` (instrument, side, price, lots), `executes` the
    instruments whose feeds tell executions of orders, `numbers` how many messages were sent, `arrivals` by
    instrument the last arrival, `last_due` that of the last report, `seen` by instrument the time until which
    funding is paid.
    """

    resting: list[tuple[int, list[SavedOrder]]]
    taken: list[tuple[int, int, int, int]]
    executes: list[int]
    messages: list[SavedMessage]
    reports: list[Report]
    numbers: int
    arrivals: dict[int, int]
    last_due: int
    entering: list[tuple[int, SavedOrder]] = []
    seen: dict[int, int] = {}


def ahead_of(order: np.void) -> list[tuple[int, int]]:
    """The ids and lots of the orders ahead of an ORDER."""
    words = (ctypes.c_int64 * (2 * int(order["count"]))).from_address(int(order["ahead"]) or 1)
    return list(zip(words[::2], words[1::2], strict=True))


def lots_before(order: np.void) -> int:
    """Lots before an ORDER now."""
    return sum(lots for _, lots in ahead_of(order)) if order["known"] else int(order["front"])


def _words(row: np.void, name: str, item: np.dtype) -> list[list[int]]:
    """The items of a VECTOR."""
    first, end = int(row[f"{name}_first"]), int(row[f"{name}_count"])
    if first == end:
        return []
    width = item.itemsize // _WORD
    address = int(row[name]) + item.itemsize * first
    words = (ctypes.c_int64 * (width * (end - first))).from_address(address)[:]
    return [words[start : start + width] for start in range(0, len(words), width)]


def _addresses(row: np.void, name: str) -> list[int]:
    count = int(row[f"{name}_count"])
    return (ctypes.c_int64 * count).from_address(int(row[name]))[:] if count else []


def _orders(address: int) -> NDArray[np.void]:
    """The one ORDER at an address."""
    buffer = memoryview((ctypes.c_char * ORDER.itemsize).from_address(address))
    return np.frombuffer(buffer, ORDER)


def _order(address: int) -> np.void:
    order: np.void = _orders(address)[0]
    return order


def _alive(row: np.void, vectors: Iterable[str]) -> Iterator[int]:
    """Addresses of the ORDERs in vectors of a board."""
    return (address for name in vectors for address in _addresses(row, name))


def _resting(row: np.void) -> Iterator[np.void]:
    return (_order(address) for address in _alive(row, ("bids", "asks")))


def _taken(row: np.void) -> Iterator[tuple[int, int, int]]:
    for name, side in _SIDES:
        pairs = _words(row, f"taken_{name}", np.dtype((np.int64, 2)))
        yield from ((int(side), key if side is Side.BID else -key, lots) for key, lots in pairs)


def _saved(order: np.void) -> SavedOrder:
    exits = (_saved(_order(int(order[name]))) if order[name] else None for name in ("profit", "loss"))
    return SavedOrder({name: int(order[name]) for name in _PLACED}, ahead_of(order), *exits)


def _loaded(saved: SavedOrder) -> int:
    """The address of the ORDER that was saved."""
    words = saved.words
    address: int = exchange.new_order(
        words["id"], words["side"], words["limit"], words["market"], words["volume"], words["ioc"],
        words["post_only"],
    )  # fmt: skip
    order = _orders(address)
    for name, word in words.items():
        order[name] = word
    order["ahead"], order["count"] = exchange.words(2 * len(saved.ahead)), len(saved.ahead)
    _write(int(order["ahead"][0]), [word for pair in saved.ahead for word in pair])
    for name, one in (("profit", saved.profit), ("loss", saved.loss)):
        order[name] = 0 if one is None else _loaded(one)
    return address


def _write(address: int, words: Iterable[int]) -> None:
    for place, word in enumerate(words):
        ctypes.c_int64.from_address(address + _WORD * place).value = int(word)


def _address_of(rows: NDArray[np.void], name: str) -> int:
    """Where a field of the first of some records is."""
    assert rows.dtype.fields is not None
    return int(rows.ctypes.data) + rows.dtype.fields[name][1]


def _drop_messages(board: NDArray[np.void]) -> None:
    row = board[0]
    for words in _words(row, "messages", MESSAGE):
        if words[1] == PLACE:
            _free(words[3])
    row["messages_first"] = row["messages_count"] = 0


def _free(address: int) -> None:
    """Gives back an ORDER, with those that would come once it is done."""
    for name in ("profit", "loss"):
        if _order(address)[name]:
            _free(int(_order(address)[name]))
    free_memory(int(_order(address)["ahead"]))
    free_memory(address)


def _release(accounts: NDArray[np.void], boards: Mapping[int, NDArray[np.void]]) -> None:
    """Gives back what compiled code has allocated."""
    for board in boards.values():
        _drop_messages(board)
        for address in list(_alive(board[0], ("bids", "asks", "stops", "entering"))):
            _free(address)
        for name in ("bids", "asks", "stops", "entering", "taken_bids", "taken_asks", "messages"):
            free_memory(int(board[0][name]))
    for name in ("reports", "fills", "payments"):
        free_memory(int(accounts[0][name]))
