"""What Bybit's order book messages and trades do to a book, as events.

Source: Bybit documentation, v5, "Orderbook" (process snapshot/delta) and "Trade".
"""

from collections.abc import Sequence
from uuid import UUID

from feeds import bybit_messages as wire
from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.snapshot_join import LATE_IN_A_ROW
from feeds.stream_book import StreamBook
from orderbook.events import Side, StateReason

MILLISECOND = 1_000_000
# Trades remembered, so that none is given twice.
_REMEMBERED = 1024


class BybitBook(StreamBook):
    """One product: a message is one unit, `sequence` its update id; times are the matching engine's.

    A trade's `order_id` is its id: spot's number, or the first 63 bits of a perpetual's UUID.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        super().__init__(book, link)
        self._product = book.product.removesuffix(".P")
        self._last = 0
        self._late = 0
        self._trades: dict[str, None] = {}

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self._last = self._late = 0

    def depth(self, message: wire.Message, depth: wire.Depth) -> None:
        """Take a snapshot or delta, of which each must follow the one before."""
        time, number = (message.cts or message.ts) * MILLISECOND, depth.u
        if message.type == "snapshot" or number == 1:
            self._last, self._late = number, 0
            self.snapshot(depth.b, depth.a, time, number)
        elif message.type != "delta":
            raise ValueError(f"an order book message of type {message.type!r}")
        elif not self.synchronised:
            return
        elif number == self._last + 1:
            self._last, self._late = number, 0
            self.update(depth.b, depth.a, time, number)
        elif number > self._last:
            self._link.lose(self.book, StateReason.GAP, f"update {number} does not follow {self._last}")
        else:
            self._passed(number)

    def trades(self, trades: Sequence[wire.Trade]) -> None:
        """Write the trades of a message as one unit. Raises ValueError or DataError."""
        book = self.book
        for trade in trades:
            if trade.s != self._product:
                raise ValueError(f"a trade of {trade.s} among those of {book.product}")
            if trade.BT or self._repeated(trade.i):
                continue
            book.begin(trade.T * MILLISECOND, self._link.receive_time, trade.seq, apart=True)
            book.trade(_number(trade.i), Side.BID if trade.S == "Buy" else Side.ASK, trade.p, trade.v)
        book.end()

    def _passed(self, number: int) -> None:
        """A number that was passed already: a repeat, or where there are many the numbers began again."""
        self._late += 1
        if self._late >= LATE_IN_A_ROW:
            self._late = 0
            self._link.lose(self.book, StateReason.RESET, f"update {number} after {self._last}")
        else:
            where = f"{self.book.product} update {number}"
            self._link.statistics.problems.add("late message", where, "repeated or out of order")

    def _repeated(self, trade_id: str) -> bool:
        if trade_id in self._trades:
            where = f"{self.book.product} trade {trade_id}"
            self._link.statistics.problems.add("late trade", where, "repeated")
            return True
        self._trades[trade_id] = None
        if len(self._trades) > _REMEMBERED:
            del self._trades[next(iter(self._trades))]
        return False


def _number(trade_id: str) -> int:
    """A trade's id as events carry it. Raises ValueError."""
    if trade_id.isascii() and trade_id.isdigit() and int(trade_id) < 2**63:
        return int(trade_id)
    return UUID(trade_id).int >> 65
