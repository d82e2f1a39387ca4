"""A book of one instrument in plain dicts, for comparison; it refuses what a source must not do."""

from collections.abc import Iterable, Iterator

import numpy as np

from orderbook.market.events import EVENT, Action, BookState, Flag, Side

_FIELDS = ("action", "side", "order_id", "price", "volume")


class PlainBook:
    """Orders or levels of one instrument, by the definitions of EVENT's actions."""

    def __init__(self) -> None:
        self.orders: dict[int, list[int]] = {}
        self.levels: dict[int, dict[int, int]] = {Side.BID: {}, Side.ASK: {}}
        self.state = BookState.SYNCING
        self.trades: list[tuple[int, int, int]] = []
        self.told: list[tuple[Action, int, int, int, int]] = []

    def apply(self, event: np.void) -> None:
        self._apply(*(int(event[name]) for name in _FIELDS))

    def apply_all(self, events: np.ndarray) -> None:
        """One after the other; fields are taken out by column, which is a few times faster."""
        for one in zip(*(events[name].tolist() for name in _FIELDS), strict=True):
            self._apply(*one)

    def _apply(self, number: int, side: int, order_id: int, price: int, volume: int) -> None:
        action = Action(number)
        if action is Action.ADD:
            assert order_id not in self.orders
            assert volume > 0
            self.orders[order_id] = [side, price, volume]
            self._change(side, price, volume)
        elif action in (Action.REDUCE, Action.EXECUTE):
            order = self.orders[order_id]
            assert order[:2] == [side, price]
            assert 0 < volume <= order[2]
            order[2] -= volume
            self._change(side, price, -volume)
            if not order[2]:
                del self.orders[order_id]
        elif action is Action.DELETE:
            self._change(*self._leaving(order_id))
        elif action is Action.MODIFY:
            self._change(*self._leaving(order_id))
            self.orders[order_id] = [side, price, volume]
            self._change(side, price, volume)
        elif action is Action.LEVEL:
            self.levels[side].pop(price, None)
            if volume:
                self.levels[side][price] = volume
        elif action is Action.CLEAR:
            assert side == Side.NONE
            self.orders.clear()
            self.levels = {Side.BID: {}, Side.ASK: {}}
        elif action is Action.STATE:
            self.state = BookState(volume)
        elif action is Action.TRADE:
            self.trades.append((side, price, volume))
        elif action in (Action.FUNDING, Action.MARK, Action.OPEN_INTEREST, Action.LIQUIDATION):
            self.told.append((action, side, order_id, price, volume))
        else:
            assert action is Action.INSTRUMENT
            assert price > 0 < volume

    def best(self, side: Side, depth: int | None = None) -> list[tuple[int, int]]:
        """(price, volume) of the best levels, best first."""
        return sorted(self.levels[side].items(), reverse=side is Side.BID)[:depth]

    def _leaving(self, order_id: int) -> tuple[int, int, int]:
        side, price, volume = self.orders.pop(order_id)
        return side, price, -volume

    def _change(self, side: int, price: int, volume: int) -> None:
        total = self.levels[side].get(price, 0) + volume
        assert total >= 0
        self.levels[side][price] = total
        if not total:
            del self.levels[side][price]


def messages(batches: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The events of each exchange message; batches must not split one."""
    for events in batches:
        ends = np.flatnonzero(events["flags"] & Flag.LAST) + 1
        assert ends[-1] == len(events)
        yield from np.split(events, ends[:-1])


def read(source: Iterable[np.ndarray]) -> np.ndarray:
    """All events of a source."""
    batches = list(source)
    return np.concatenate(batches) if batches else np.empty(0, EVENT)


def lost_after(events: np.ndarray, places: Iterable[int]) -> list[np.ndarray]:
    """The messages of one instrument's events, whose book is lost, and told anew, after some of them."""
    lost, found, book = set(places), list[np.ndarray](), PlainBook()
    for place, message in enumerate(messages([events])):
        found.append(message)
        for event in message:
            book.apply(event)
        if place in lost:
            found += _told_anew(book, message[-1])
    return found


def _told_anew(book: PlainBook, last: np.void) -> list[np.ndarray]:
    """Messages at the time of an event: the book is stale, then cleared, filled and valid."""
    events = np.zeros(3 + len(book.orders), EVENT)
    for name in ("instrument", "exchange_time", "receive_time", "sequence"):
        events[name] = last[name]
    events["side"] = Side.NONE
    events["action"][[0, -1]], events["flags"][[0, -1]] = Action.STATE, Flag.LAST
    events["volume"][[0, -1]] = BookState.STALE, BookState.VALID
    events["action"][1] = Action.CLEAR
    for event, (order_id, (side, price, volume)) in zip(events[2:], book.orders.items(), strict=False):
        event["action"], event["flags"], event["order_id"] = Action.ADD, Flag.SNAPSHOT, order_id
        event["side"], event["price"], event["volume"] = side, price, volume
    return [events[:1], events[1:]]
