"""What abusers do, step by step, each a generator that yields how long it waits, ns.

Strength 1 is a clear case, as those that authorities have published; sizes, rates and moves grow with it.
Sizes are multiples of the volume that orders usually have, and more where that would be little beside what
rests or trades around them. Where so much trades that the market would not stand still for a case, as fast
as those published were, it goes as much faster. Orders meant to be executed lie inside the spread, so that
nothing of the stream comes before them.

Sources: Commission Delegated Regulation (EU) 2016/522, annex II, section 1; CFTC, In re Panther Energy
Trading and Coscia (2013); FCA, final notice to Swift Trade (2011), and FINRA to Trillium (2010), on layering;
SEC, In re Athena Capital Research (2014), on marking the close; NASDAQ and others to Citadel Securities
(2014), on bursts of 10,000 orders a second; CFTC v. Oystacher and 3Red Trading (2015), on flipping.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np

from orderbook.market.abuse_book import Order, Role
from orderbook.market.events import Side

Script = Iterator[int]
MILLISECOND = 10**6
SECOND = 10**9
_BID, _ASK = int(Side.BID), int(Side.ASK)
# Times that an order is looked at before it is given up.
_PATIENCE = 100


class NoRoomError(Exception):
    """The book leaves no room for what a script needs now; nothing was done."""


class Desk(Protocol):
    """What a script acts through: each call is a message of its own, now."""

    random: np.random.Generator
    side: int  # of orders that are not meant to be executed, or the aggressor's
    strength: float
    step: int  # between prices, ticks
    close: int  # ns, the time of the instrument's last event of the day
    pace: float  # lots traded a ns in the last minute
    tempo: float  # of pauses, 1 or less where much trades
    rate: float  # events of the instrument a ns

    now: int  # ns

    def best(self, side: int) -> int | None: ...
    def lots(self, times: float) -> int: ...
    def depth(self, side: int) -> int: ...
    def place(self, side: int, price: int, volume: int, role: Role) -> Order: ...
    def cancel(self, order: Order) -> None: ...
    def is_first(self, order: Order) -> bool: ...
    def fill(self, order: Order) -> None: ...
    def sweep(self, aggressor: int, limit: int) -> None: ...


def _wait(desk: Desk, low: float, high: float) -> int:
    """ns between two numbers of ms."""
    return int(desk.random.uniform(low, high) * MILLISECOND)


def _pause(desk: Desk, low: float, high: float) -> int:
    """The same, or as much less as the market is faster."""
    return int(_wait(desk, low, high) * desk.tempo)


def _touch(desk: Desk) -> tuple[int, int]:
    bid, ask = desk.best(_BID), desk.best(_ASK)
    if bid is None or ask is None:
        raise NoRoomError
    return bid, ask


def _inside(desk: Desk, side: int, most: int = 3) -> int:
    """A price inside the spread for an order of a side, one to `most` steps better than its best."""
    bid, ask = _touch(desk)
    room = (ask - bid) // desk.step - 1
    if room < 1:
        raise NoRoomError
    better = desk.step * (1 + int(desk.random.integers(0, min(room, most))))
    return bid + better if side == _BID else ask - better


def _behind(desk: Desk, side: int, steps: int) -> int:
    """So many steps worse than the best price of a side."""
    bid, ask = _touch(desk)
    price = bid - steps * desk.step if side == _BID else ask + steps * desk.step
    if price <= 0:
        raise NoRoomError
    return price


def _filled(desk: Desk, order: Order) -> Script:
    """Somebody takes an order, as soon as nothing rests before it."""
    for _ in range(_PATIENCE):
        if not order.volume:
            return
        if desk.is_first(order):
            desk.fill(order)
            return
        yield int(20 * MILLISECOND * desk.tempo)
    raise NoRoomError


def _deceive(desk: Desk, prices: Callable[[], list[int]], lots: int) -> Script:
    """A small order of the other side is executed while large ones of this side rest, which then leave."""
    other = 1 - desk.side
    genuine = desk.place(other, _inside(desk, other), desk.lots(1), Role.BONA_FIDE)
    yield _pause(desk, 5, 40)
    large = []
    for price in prices():
        large.append(desk.place(desk.side, price, lots, Role.NON_BONA_FIDE))
        yield _pause(desk, 1, 15)
    yield _pause(desk, 30, 250)
    yield from _filled(desk, genuine)
    yield _pause(desk, 20, 150)
    for order in reversed(large):
        desk.cancel(order)
        yield _pause(desk, 0.2, 5)


def spoofing(desk: Desk) -> Script:
    """An order one or two steps behind the best, for as long as the other side fills.

    It is ten times the usual, and at least twice what rests at a price near it.
    """
    steps, large = 1 + int(desk.random.integers(0, 2)), 10 * desk.strength
    lots = max(desk.lots(large), round(2 * desk.strength * desk.depth(desk.side)))
    return _deceive(desk, lambda: [_behind(desk, desk.side, steps)], lots)


def layering(desk: Desk) -> Script:
    """Orders of five times the usual at six prices behind the best."""
    lots = desk.lots(5 * desk.strength)
    return _deceive(desk, lambda: [_behind(desk, desk.side, k) for k in range(1, 7)], lots)


def quote_stuffing(desk: Desk) -> Script:
    """10,000 orders a second, each cancelled at once, well behind the best, for 0.3 to 0.6 s.

    Ten times as many events as the market has, where that is more.
    """
    gap = SECOND / (max(20_000, 10 * desk.rate * SECOND) * desk.strength)
    until = desk.now + _wait(desk, 300, 600)
    steps, volume = 3 + int(desk.random.integers(0, 8)), desk.lots(1)
    while desk.now < until:
        price = _behind(desk, desk.side, steps + int(desk.random.integers(0, 3)))
        order = desk.place(desk.side, price, volume, Role.NON_BONA_FIDE)
        yield max(1, int(desk.random.uniform(0.5, 1.5) * gap))
        desk.cancel(order)
        yield max(1, int(desk.random.uniform(0.5, 1.5) * gap))


def _push(desk: Desk, bps: float, trades: int, lots: int, gap: Callable[[], int]) -> Script:
    """Trades by which the price goes so far, with all that is quoted up to there; others quote beyond."""
    towards = 1 if desk.side == _BID else -1
    start, other = _touch(desk)[1 - desk.side], 1 - desk.side
    reach = max(1, round(start * bps / 10_000 / desk.step))
    limits = [start + towards * desk.step * -(-reach * k // trades) for k in range(1, trades + 2)]
    if limits[-1] <= 0:
        raise NoRoomError
    quoted = 0
    for limit, beyond in pairwise(limits):
        best = desk.best(other)
        # The market may have gone further by itself.
        limit = limit if best is None or (limit - best) * towards > 0 else best
        if not quoted or (quoted - limit) * towards > 0:
            desk.place(other, limit, lots, Role.COUNTERPARTY)
        quoted = beyond if (beyond - limit) * towards > 0 else limit + towards * desk.step
        desk.place(other, quoted, lots, Role.COUNTERPARTY)
        desk.sweep(desk.side, limit)
        yield gap()


def momentum_ignition(desk: Desk) -> Script:
    """Sixteen trades of one side within 0.4 s move the price by 40 basis points, and it comes back.

    They are most of what trades in that second.
    """
    lots = max(desk.lots(2), round(6 * desk.pace * SECOND / 16))
    yield from _push(desk, 40 * desk.strength, 16, lots, lambda: _wait(desk, 8, 25))
    yield _wait(desk, 600, 1_500)
    for _ in range(3):
        order = desk.place(desk.side, _inside(desk, desk.side), lots, Role.COUNTERPARTY)
        desk.sweep(1 - desk.side, order.price)
        yield _pause(desk, 5, 200)


# How long an episode may take, s; it takes less in a market that is faster.
LONGEST = {
    "spoofing": 0.5, "layering": 0.6, "quote_stuffing": 0.6, "momentum_ignition": 2.6, "wash_trades": 1.1,
    "iceberg": 4.2, "pinging": 1.3, "flipping": 0.8,
}  # fmt: skip
# How long before the close trades begin at most, and what share of the day.
CLOSE_SPAN, CLOSE_SHARE = 60 * SECOND, 0.25


def marking_the_close(desk: Desk) -> Script:
    """Trades of one side in the last minute, three times what trades otherwise, by 40 basis points."""
    trades, left = 40, desk.close - desk.now
    lots = max(desk.lots(1), round(3 * desk.strength * desk.pace * left / trades))
    gap = left / (trades + 1)
    return _push(desk, 40 * desk.strength, trades, lots, lambda: int(desk.random.uniform(0.7, 1.2) * gap))


def wash_trades(desk: Desk) -> Script:
    """Six times bought from oneself and as often sold to oneself, all at one price and volume."""
    price, lots, side = _inside(desk, desk.side), desk.lots(2), desk.side
    for _ in range(2 * max(1, round(6 * desk.strength))):
        bid, ask = _touch(desk)
        if not bid < price < ask:
            raise NoRoomError
        order = desk.place(side, price, lots, Role.BONA_FIDE)
        yield _pause(desk, 1, 10)
        yield from _filled(desk, order)
        yield _pause(desk, 10, 70)
        side = 1 - side


def iceberg(desk: Desk) -> Script:
    """An order of ten times what it shows, as much as rests at a price, filled up after each execution.

    That takes 1 to 4 s.
    """
    price, shown = _inside(desk, desk.side), max(desk.lots(1), desk.depth(desk.side) // 2)
    for _ in range(max(1, round(10 * desk.strength))):
        order = desk.place(desk.side, price, shown, Role.BONA_FIDE)
        yield _pause(desk, 100, 400)
        yield from _filled(desk, order)
        yield _pause(desk, 0.1, 2)


def pinging(desk: Desk) -> Script:
    """Forty orders of a tenth of the usual inside the spread, cancelled within 4 ms, within 0.8 s."""
    lots = desk.lots(0.1)
    for _ in range(max(1, round(40 * desk.strength))):
        order = desk.place(desk.side, _inside(desk, desk.side), lots, Role.NON_BONA_FIDE)
        yield _pause(desk, 0.3, 4)
        desk.cancel(order)
        yield _pause(desk, 6, 25)


def flipping(desk: Desk) -> Script:
    """An order of ten times the usual a step behind the best, for 0.1 to 0.4 s, before which others come.

    Three others, with three quarters of it, at one price; they are taken within 3 ms of its cancellation.
    """
    price = _inside(desk, desk.side)
    lots = max(desk.lots(10 * desk.strength), round(2 * desk.strength * desk.depth(desk.side)))
    large = desk.place(desk.side, _behind(desk, desk.side, 1), lots, Role.NON_BONA_FIDE)
    yield _pause(desk, 50, 200)
    for _ in range(3):
        desk.place(desk.side, price, max(1, lots // 4), Role.COUNTERPARTY)
        yield _pause(desk, 10, 60)
    desk.cancel(large)
    yield _wait(desk, 0.1, 3)
    desk.sweep(1 - desk.side, price)


SCRIPTS: dict[str, Callable[[Desk], Script]] = {
    "spoofing": spoofing,
    "layering": layering,
    "quote_stuffing": quote_stuffing,
    "momentum_ignition": momentum_ignition,
    "marking_the_close": marking_the_close,
    "wash_trades": wash_trades,
    "iceberg": iceberg,
    "pinging": pinging,
    "flipping": flipping,
}
