"""A book of price levels whose snapshot comes in its own stream, and its checksums where there are any."""

from bisect import bisect_left, insort
from collections.abc import Callable

from feeds.exchange import Link
from feeds.feed_book import FeedBook, WireLevels
from orderbook.errors import DataError
from orderbook.events import Action, BookState, Side, StateReason


class StreamBook:
    """Writes snapshots and updates as units; a message that cannot be used loses the book."""

    def __init__(self, book: FeedBook, link: Link) -> None:
        self.book = book
        self._link = link

    @property
    def synchronised(self) -> bool:
        """Whether updates can be applied: a snapshot has come since the book was lost."""
        return self.book.state is not BookState.SYNCING

    def snapshot(
        self,
        bids: WireLevels,
        asks: WireLevels,
        exchange_time: int = 0,
        sequence: int = 0,
        *,
        check: Callable[[], str | None] | None = None,
    ) -> None:
        """The whole book; see `update`."""
        self.book.begin(exchange_time, self._link.receive_time, sequence, snapshot=True)
        self.book.clear()
        self._forget()
        if self._applied(bids, asks, check):
            self._link.synchronised(self.book)

    def update(
        self,
        bids: WireLevels,
        asks: WireLevels,
        exchange_time: int = 0,
        sequence: int = 0,
        *,
        check: Callable[[], str | None] | None = None,
    ) -> None:
        """New volumes of levels, ignored before a snapshot.

        `check` compares the exchange's checksum with the book after the change: None, or what is wrong.
        """
        if self.synchronised:
            self.book.begin(exchange_time, self._link.receive_time, sequence)
            self._applied(bids, asks, check)

    def _applied(self, bids: WireLevels, asks: WireLevels, check: Callable[[], str | None] | None) -> bool:
        """Write the unit that has begun; False where it had to be taken back, and the book was lost."""
        try:
            self._change(bids, asks)
            wrong = check() if check is not None else None
        except (DataError, ValueError) as error:
            self.book.undo()
            self._link.statistics.malformed += 1
            self._link.lose(self.book, StateReason.MALFORMED, str(error))
            return False
        if wrong is not None:
            self.book.undo()
            self._link.lose(self.book, StateReason.CHECKSUM, wrong)
            return False
        self.book.end()
        return True

    def _change(self, bids: WireLevels, asks: WireLevels) -> None:
        self.book.levels(Side.BID, bids)
        self.book.levels(Side.ASK, asks)

    def _forget(self) -> None:
        """The snapshot begins from nothing."""


class CheckedBook(StreamBook):
    """A StreamBook that keeps its levels as the exchange writes them, for checksums.

    depth: levels beyond the best `depth` of a side are dropped after every message, as by the exchange.
    """

    def __init__(self, book: FeedBook, link: Link, depth: int | None = None) -> None:
        super().__init__(book, link)
        self.depth = depth
        # Prices of a side in ticks, best first (a bid's are negative), and each level's text.
        self._keys: dict[Side, list[int]] = {}
        self._texts: dict[Side, dict[int, tuple[str, str]]] = {}
        self._forget()

    def best(self, side: Side, count: int) -> list[tuple[str, str]]:
        """The best `count` levels, best first, as (price, size) in the exchange's text."""
        texts = self._texts[side]
        return [texts[key] for key in self._keys[side][:count]]

    def _forget(self) -> None:
        self._keys = {Side.BID: [], Side.ASK: []}
        self._texts = {Side.BID: {}, Side.ASK: {}}

    def _change(self, bids: WireLevels, asks: WireLevels) -> None:
        for side, levels in ((Side.BID, list(bids)), (Side.ASK, list(asks))):
            if levels:
                self.book.levels(side, levels)
                self._keep(side, levels)

    def _keep(self, side: Side, levels: list[tuple[str, str]]) -> None:
        keys, texts, ticks, lots = self._keys[side], self._texts[side], self.book.ticks, self.book.lots
        sign = -1 if side is Side.BID else 1
        for level in levels:
            price, size = level
            key = sign * ticks[price]
            if lots[size]:
                if key not in texts:
                    insort(keys, key)
                texts[key] = level
            elif texts.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
        if self.depth is not None:
            while len(keys) > self.depth:
                key = keys.pop()
                del texts[key]
                self.book.add(Action.LEVEL, side, price=abs(key))
