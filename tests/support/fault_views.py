"""Books and views behind a session's events, compared with the exchange's own."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from fault_follower import Follower
from simulated_venue import LOT, TICK, SideSums, Venue

from orderbook.core.changes import Dictionary
from orderbook.engine.runtime.program_start import Backend
from orderbook.market.events import BookState, Side
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

SQL = """
CREATE VIEW bid_side AS
SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume, SUM(price * volume) AS amount FROM bids GROUP BY symbol;
CREATE VIEW ask_side AS
SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume, SUM(price * volume) AS amount FROM asks GROUP BY symbol;
CREATE VIEW all_bids AS SELECT COUNT(*) AS n, SUM(volume) AS volume FROM bids;
CREATE VIEW traded AS SELECT symbol, COUNT(*) AS n, SUM(volume) AS volume FROM trades GROUP BY symbol;
"""
# Slow in the interpreter.
BEST = """
CREATE VIEW best AS
SELECT b.symbol, MAX(b.price) AS bid, MIN(a.price) AS ask
FROM bids b, asks a WHERE a.symbol = b.symbol GROUP BY b.symbol;
"""


@functools.cache
def _compiled(sql: str) -> CompiledProgram:
    return compile_views(sql, {}, Dictionary())


class Views:
    """A pipeline; what it calls back with must be what the followers, which are ahead of it, know."""

    def __init__(self, venue: Venue, followers: Mapping[str, Follower], backend: Backend) -> None:
        self.venue = venue
        self.followers = followers
        self.callbacks = 0
        compiled = _compiled(SQL + BEST if backend == "numba" else SQL)
        self.pipeline = Pipeline(GatedEngine(compiled, backend), venue.instruments)
        self.pipeline.start()
        for view in ("bid_side", "ask_side", "all_bids", "traded"):
            self.pipeline.engine.subscribe(view, self._called)
        self._by_symbol = {one.symbol: one.native_symbol for one in venue.instruments}

    def apply(self, unit: np.ndarray) -> None:
        """Apply one message's events (EVENT[n])."""
        self.pipeline.apply(unit)

    def compare_books(self, follower: Follower) -> None:
        """The rows in `Books` are those that the events tell."""
        books = self.pipeline.books
        assert books is not None
        index = self.venue.products.index(follower.book.product)
        assert books.state(index) is follower.state
        found = {
            (int(row["id"]) or (int(row["side"]), int(row["price"]))): (
                int(row["side"]),
                int(row["price"]),
                int(row["volume"]),
            )
            for row in books.resting(index)
        }
        assert found == follower.rows.rows

    def compare_end(self) -> None:
        """Books and views are the exchange's own."""
        engine = self.pipeline.engine
        assert self.pipeline.book_problems.keys() <= {"crossed"}, self.pipeline.book_problems
        assert not self.pipeline.problems.counts
        whole = [0, 0]
        for symbol, product in self._by_symbol.items():
            follower = self.followers[product]
            assert follower.rows.rows == self.venue.rows(product), f"{product} is not the exchange's"
            self.compare_books(follower)
            for side, view in ((Side.BID, "bid_side"), (Side.ASK, "ask_side")):
                rows = [row for row in self.venue.rows(product).values() if row[0] == side]
                found = engine[view].get((symbol,))
                assert (found is None) == (not rows)
                if found is not None:
                    assert found["n"] == len(rows)
                    assert found["volume"] == sum(volume for _, _, volume in rows) * LOT
                    assert found["amount"] == sum(price * volume for _, price, volume in rows) * LOT * TICK
                if side == Side.BID:
                    whole[0] += len(rows)
                    whole[1] += sum(volume for _, _, volume in rows)
            traded = engine["traded"].get((symbol,))
            assert (traded["n"] if traded else 0) == len(follower.trades)
            assert len(set(follower.trades)) == len(follower.trades)
            best = engine["best"].get((symbol,)) if "best" in engine.views else None
            if best is not None:
                rows = list(follower.rows.rows.values())
                prices = [[price for other, price, _ in rows if other == side] for side in Side]
                assert (best["bid"], best["ask"]) == (max(prices[0]) * TICK, min(prices[1]) * TICK)
        found = engine["all_bids"][()]
        assert (found["n"], found["volume"] or 0) == (whole[0], whole[1] * LOT)

    def _called(self, event: Any) -> None:
        self.callbacks += 1
        if not event.key:
            states = {follower.state for follower in self.followers.values()}
            assert states == {BookState.VALID}, "called back with a book that is not valid"
            sums = [follower.rows.sums().bids for follower in self.followers.values()]
            expected = (sum(s.rows for s in sums), sum(s.lots for s in sums) * LOT)
            assert event.new is not None and (event.new["n"], event.new["volume"] or 0) == expected
            return
        follower = self.followers[self._by_symbol[event.key[0]]]
        assert follower.state is BookState.VALID, "called back with a book that is not valid"
        if event.view == "traded":
            assert event.new["n"] == len(follower.trades)
            assert event.new["volume"] == follower.volume * LOT
            return
        sums = getattr(follower.rows.sums(), "bids" if event.view == "bid_side" else "asks")
        shown = SideSums(0, 0, 0)
        if event.new is not None:
            new = event.new
            shown = SideSums(new["n"], int(new["volume"] / LOT), int(new["amount"] / (LOT * TICK)))
        assert shown == sums
