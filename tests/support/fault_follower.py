"""One book as a session's events tell it."""

import numpy as np
from simulated_venue import BookRows

from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.market.events import Action, BookState


class Follower:
    """One book as the session's events tell it, which must not contradict themselves."""

    def __init__(self, book: FeedBook) -> None:
        self.book = book
        self.rows = BookRows()
        self.state = BookState.SYNCING
        self.sequence = 0
        self.trades: list[int] = []
        self.volume = 0
        # The sequence number of the last snapshot, and how many trades there had been.
        self.snapshot = (0, 0)
        # The exchange's numbers: the last that arrived on this connection; the snapshot's until it is passed.
        self.arrived: int | None = None
        self.ahead: int | None = None
        self.late = 0
        self.timed = False

    def apply(self, event: np.void) -> None:
        action, side = Action(event["action"]), int(event["side"])
        key, price, volume = int(event["order_id"]), int(event["price"]), int(event["volume"])
        rows = self.rows.rows
        match action:
            case Action.ADD:
                assert key not in rows and volume > 0
                self.rows.set(key, side, price, volume)
            case Action.REDUCE | Action.EXECUTE:
                assert rows[key][:2] == (side, price) and 0 < volume <= rows[key][2]
                self.rows.set(key, side, price, rows[key][2] - volume)
            case Action.MODIFY:
                assert rows[key][0] == side
                self.rows.set(key, side, price, volume)
            case Action.DELETE:
                assert rows[key][0] == side
                self.rows.remove(key)
            case Action.LEVEL:
                self.rows.set((side, price), side, price, volume)
            case Action.CLEAR:
                self.rows.clear()
            case Action.STATE:
                self.state = BookState(volume)
            case Action.TRADE:
                self.trades.append(key)
                self.volume += volume
