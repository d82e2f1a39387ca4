"""What Binance's depth diffs, snapshots and trades do to a book, as events.

Source: Binance documentation, "How to manage a local order book correctly", of Spot and of USD-M Futures;
"Trade Streams", "Aggregate Trade Streams".
"""

from feeds import binance_messages as wire
from feeds.exchange import Link
from feeds.feed_book import FeedBook
from feeds.joined_book import JoinedBook
from feeds.snapshot_join import JoinRule, Span
from orderbook.events import Side

MILLISECOND = 1_000_000


class BinanceBook(JoinedBook[wire.Depth]):
    """One product: a depth diff is one unit of LEVEL events, `sequence` its last update id.

    With a snapshot L: spot drops u <= L, the first diff applied has U <= L + 1 <= u, then each has
    U == previous u + 1. Futures drop u < L, the first has U <= L <= u, then pu == previous u. Futures' ids
    count changes of all products, so L may lie between two diffs; as this book does not change between
    pu and U, the first is taken to begin at pu: pu <= L <= u.

    A trade's `order_id` and `sequence` are its id; each is given once, by increasing id. Trades outside the
    book (X: insurance fund, ADL, block) are left out.
    """

    def __init__(self, book: FeedBook, link: Link, *, futures: bool) -> None:
        super().__init__(book, link, JoinRule(overlapping=futures))
        self._futures = futures
        self._trade_kind = ""
        self._last_trade = -1

    def begin_connection(self) -> None:
        """Forget the connection before."""
        self.place.reset()
        self._trade_kind, self._last_trade = "", -1

    def depth(self, depth: wire.Depth) -> None:
        """Take a depth diff. Raises ValueError for one of another product or market."""
        if depth.s != self.book.product or depth.u < depth.U or (depth.pu is None) is self._futures:
            numbers = f"{depth.s}, {depth.U} to {depth.u} after {depth.pu}"
            raise ValueError(f"not a depth diff of {self.book.product}: {numbers}")
        self.message(depth.U if depth.pu is None else depth.pu, depth.u, depth, depth.pu)

    def apply(self, span: Span[wire.Depth]) -> None:
        """See JoinedBook."""
        depth, book = span.message, self.book
        book.begin(depth.E * MILLISECOND, self._link.receive_time, depth.u)
        book.levels(Side.BID, depth.b)
        book.levels(Side.ASK, depth.a)
        book.end()

    def join(self, snapshot: wire.Snapshot) -> bool:
        """Join a snapshot; False where it is older than the stream. Raises DataError."""

        def load(book: FeedBook) -> None:
            book.levels(Side.BID, snapshot.bids)
            book.levels(Side.ASK, snapshot.asks)

        return self.snapshot(snapshot.lastUpdateId, snapshot.E * MILLISECOND, load)

    def trade(self, kind: str, trade: wire.Trade | wire.AggregateTrade) -> None:
        """Write a trade of the stream `kind`; the first kind counts where both come. Raises ValueError."""
        if trade.s != self.book.product:
            raise ValueError(f"a trade of {trade.s} among those of {self.book.product}")
        if self._trade_kind != kind:
            if self._trade_kind:
                return
            self._trade_kind = kind
        if trade.id <= self._last_trade:
            where = f"{self.book.product} trade {trade.id}"
            self._link.statistics.problems.add("late trade", where, "repeated or out of order")
            return
        if trade.X == "MARKET":
            book = self.book
            book.begin(trade.T * MILLISECOND, self._link.receive_time, trade.id, apart=True)
            book.trade(trade.id, Side.ASK if trade.m else Side.BID, trade.p, trade.q)
            book.end()
        self._last_trade = trade.id
