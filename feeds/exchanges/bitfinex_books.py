"""Bitfinex's books: rows of their messages, in the text of the wire, as events."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from sortedcontainers import SortedDict

from feeds.checksums import BITFINEX_LEVELS, bitfinex_checksum
from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.stream_book import CheckedBook
from orderbook.errors import DataError
from orderbook.events import Action, BookState, Side, StateReason

# Three JSON numbers.
Row = tuple[str, str, str]
_LARGEST = 2**63 - 1


class BitfinexBook(Protocol):
    """A book of either precision."""

    book: FeedBook

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:
        """The whole book."""

    def update(self, row: Row, sequence: int) -> None:
        """What one row changes; ignored before a snapshot."""

    def checksum(self) -> int:
        """What the exchange's checksum should be now."""

    @property
    def synchronised(self) -> bool:
        """Whether a snapshot has come since the book was lost."""


class LevelBook(CheckedBook):
    """Price levels: rows of (price, count of orders, amount), amounts of asks negative.

    A count of 0 removes the level; the amount, 1 or -1, tells its side.
    """

    def checksum(self) -> int:
        bids, asks = (self.best(side, BITFINEX_LEVELS) for side in (Side.BID, Side.ASK))
        return bitfinex_checksum([(price, f"-{size}") for price, size in asks], list(bids))

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:  # type: ignore[override]
        super().snapshot(*_by_side(rows), sequence=sequence)

    def update(self, row: Row, sequence: int) -> None:  # type: ignore[override]
        super().update(*_by_side([row]), sequence=sequence)


class OrderBook:
    """Orders: rows of (order id, price, amount), amounts of asks negative; a price of 0 removes one.

    At one price, orders are sorted by their ids.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        self.book = book
        self._link = link
        self._forget()

    @property
    def synchronised(self) -> bool:
        return self.book.state is not BookState.SYNCING

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:
        self.book.begin(0, self._link.receive_time, sequence, snapshot=True)
        self.book.clear()
        self._forget()
        if self._written(rows):
            self._link.synchronised(self.book)

    def update(self, row: Row, sequence: int) -> None:
        if self.synchronised:
            self.book.begin(0, self._link.receive_time, sequence)
            self._written([row])

    def checksum(self) -> int:
        asks, bids = (self._texts[side].values() for side in (Side.ASK, Side.BID))
        return bitfinex_checksum(list(islice(asks, BITFINEX_LEVELS)), list(islice(bids, BITFINEX_LEVELS)))

    def _forget(self) -> None:
        self._orders: dict[int, tuple[Side, int, int]] = {}
        # By price and id, best first; a bid's price is negative.
        self._texts: dict[Side, SortedDict[tuple[int, int], tuple[str, str]]] = {
            Side.BID: SortedDict(),
            Side.ASK: SortedDict(),
        }

    def _written(self, rows: Iterable[Row]) -> bool:
        """Write rows and end the unit; False where one cannot be used, and the book is lost."""
        try:
            for row in rows:
                self._write(row)
        except (DataError, ValueError) as error:
            self.book.undo()
            self._link.statistics.malformed += 1
            self._link.lose(self.book, StateReason.MALFORMED, str(error))
            return False
        self.book.end()
        return True

    def _write(self, row: Row) -> None:
        id_text, price_text, amount = row
        book, number = self.book, int(id_text)
        if not 0 < number <= _LARGEST:
            raise DataError(f"{id_text} is no order id")
        price = book.ticks[price_text]
        old = self._orders.get(number)
        if price == 0:
            self._remove(number)
            return
        side, size = _side(amount)
        volume = book.lots[size]
        if volume == 0:
            raise DataError(f"order {id_text} has no amount")
        if old is None or old[0] is not side:
            self._remove(number)
            book.add(Action.ADD, side, order_id=number, price=price, volume=volume)
        else:
            del self._texts[side][_key(*old, number)]
            if old[1] == price and volume < old[2]:
                book.add(Action.REDUCE, side, order_id=number, price=price, volume=old[2] - volume)
            elif old != (side, price, volume):
                book.add(Action.MODIFY, side, order_id=number, price=price, volume=volume)
        self._orders[number] = (side, price, volume)
        self._texts[side][_key(side, price, volume, number)] = (id_text, amount)

    def _remove(self, number: int) -> None:
        """Delete an order; one that is not known has left the best orders before."""
        order = self._orders.pop(number, None)
        if order is not None:
            side, price, volume = order
            del self._texts[side][_key(side, price, volume, number)]
            self.book.add(Action.DELETE, side, order_id=number, price=price, volume=volume)


def _key(side: Side, price: int, volume: int, number: int) -> tuple[int, int]:
    return (-price if side is Side.BID else price), number


def _side(amount: str) -> tuple[Side, str]:
    """The side that an amount's sign tells, and its size."""
    return (Side.ASK, amount[1:]) if amount.startswith("-") else (Side.BID, amount)


def _by_side(rows: Iterable[Row]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Bids and asks of rows of levels, as (price, size)."""
    bids: list[tuple[str, str]] = []
    asks: list[tuple[str, str]] = []
    for price, count, amount in rows:
        side, size = _side(amount)
        (bids if side is Side.BID else asks).append((price, "0" if count == "0" else size))
    return bids, asks
