"""The detectors of views/surveillance in plain Python: loops over rows of book_events and over trades.

Prices and volumes are Decimals, times ns. A row has the columns of a detector but for those `LEFT_OUT`.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from plain_events import PlainEvents

from orderbook.market.events import Action
from orderbook.market.instruments import Instruments

SECOND = 10**9
DAY = 24 * 3_600 * SECOND
Rows = list[tuple[Any, ...]]


class Told(NamedTuple):
    """A row of book_events, as far as detectors read it; None: NULL."""

    ts: int
    place: tuple[str, str]
    number: int
    side: str
    id: int
    broker_id: int
    action: str
    reason: str
    price: Decimal
    volume: Decimal
    remaining: Decimal
    placed_at: int
    level_volume: Decimal
    bid: Decimal | None
    ask: Decimal | None

    @property
    def other(self) -> str:
        return "ask" if self.side == "bid" else "bid"


class Traded(NamedTuple):
    """A row of trades; `sign` 1: bought, -1: sold, 0: nobody says."""

    ts: int
    place: tuple[str, str]
    id: int
    price: Decimal
    volume: Decimal
    sign: int


class Watched:
    """What books and trades of events were, whatever the state of the books."""

    def __init__(self, instruments: Instruments) -> None:
        self.instruments = instruments
        self.told: list[Told] = []
        self.trades: list[Traded] = []
        self._books = [PlainEvents(n, (one.max_ticks, one.max_lots)) for n, one in enumerate(instruments)]

    def apply(self, event: Mapping[str, Any]) -> None:
        """Look at an event, by the names of its fields."""
        number = event["instrument"]
        one = self.instruments[number]
        tick, lot, place = Decimal(one.price_unit), Decimal(one.volume_unit), (one.venue, one.symbol)
        for row in self._books[number].apply(dict(event)):
            self.told.append(
                Told(
                    row.ts, place, row.number, row.side, row.id, row.broker_id, row.action, row.reason,
                    row.price * tick, row.volume * lot, row.remaining * lot, row.placed_at,
                    row.level_volume * lot, None if row.bid is None else row.bid * tick,
                    None if row.ask is None else row.ask * tick,
                )
            )  # fmt: skip
        if event["action"] == Action.TRADE:
            ts = event["exchange_time"] or event["receive_time"]
            sign = {0: 1, 1: -1}.get(event["side"], 0)
            price, volume = event["price"] * tick, event["volume"] * lot
            self.trades.append(Traded(ts, place, event["order_id"], price, volume, sign))


def _by(rows: Iterable[Any], key: Callable[[Any], Hashable]) -> dict[Any, list[Any]]:
    found = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def iceberg(seen: Watched) -> Rows:
    fills = [r for r in seen.told if r.action == "execute" and r.reason != "late"]
    refilled: set[tuple[Any, ...]] = set()
    for at_price in _by(fills, lambda r: (r.place, r.side, r.price)).values():
        for last, r in pairwise(sorted(at_price, key=lambda r: r.number)):
            if 0 <= r.placed_at - last.ts <= SECOND // 100:
                refilled.add((r.place, r.number))
    found: Rows = []
    for (place, side, price, span), group in _by(
        fills, lambda r: (r.place, r.side, r.price, r.ts - r.ts % (10 * SECOND))
    ).items():
        executed = sum((r.volume for r in group), Decimal(0))
        shown = max(r.level_volume + r.volume for r in group)
        again = [r for r in group if (place, r.number) in refilled]
        if len(group) >= 5 and executed >= 3 * shown and len(again) >= 2:
            numbers = [r.number for r in group]
            row = (*place, side, price, span, len(group), len(again), executed, shown)
            found.append((*row, min(numbers), max(numbers)))
    return found


def _executed(seen: Watched) -> dict[Any, list[tuple[int, Decimal]]]:
    """What was executed of a side at each time, in order."""
    at: dict[Any, Decimal] = defaultdict(Decimal)
    for r in seen.told:
        if r.action == "execute":
            at[r.place, r.side, r.ts] += r.volume
    found = defaultdict(list)
    for (place, side, ts), volume in sorted(at.items()):
        found[place, side].append((ts, volume))
    return found


def _filled(seen: Watched) -> dict[Any, list[int]]:
    """When orders of a side and broker were executed whole within a second, or a level in part."""
    found = defaultdict(list)
    for r in seen.told:
        if r.action == "execute" and (not r.id or (not r.remaining and r.ts - r.placed_at <= SECOND)):
            found[r.place, r.side, r.broker_id].append(r.ts)
    return found


def layering(seen: Watched) -> Rows:
    executed, filled = _executed(seen), _filled(seen)
    cancelled = [
        r
        for r in seen.told
        if r.action == "cancel"
        and not r.remaining
        and r.reason != "snapshot"
        and r.ts - r.placed_at <= 2 * SECOND
        and r.price * r.volume >= 40_000
    ]
    found: Rows = []
    for (place, side, broker, span), group in _by(
        cancelled, lambda r: (r.place, r.side, r.broker_id, r.ts - r.ts % (SECOND // 2))
    ).items():
        value = sum(r.price * r.volume for r in group)
        placed, broken = min(r.placed_at for r in group), min(r.ts for r in group)
        prices = len({r.price for r in group})
        if prices < 4 or value < 160_000 or max(r.placed_at for r in group) > broken:
            continue
        volume, numbers = sum(r.volume for r in group), [r.number for r in group]
        parts = [part for ts, part in executed[place, group[0].other] if placed <= ts <= broken]
        since, times = max(placed, broken - SECOND // 2), filled[place, group[0].other, broker]
        covered = sum(since <= ts <= broken for ts in times)
        if parts and sum(parts) * 4 <= volume and covered:
            row = (*place, side, broker, span, prices, len(group), volume, value, placed, broken)
            found.append((*row, min(numbers), max(numbers), sum(parts), covered))
    return found


def marking_the_close(seen: Watched) -> Rows:
    close = 20 * 3_600 * SECOND
    late = [t for t in seen.trades if close - 60 * SECOND <= t.ts % DAY < close]
    found: Rows = []
    for (place, day), group in _by(late, lambda t: (t.place, t.ts - t.ts % DAY)).items():
        volume, net = sum(t.volume for t in group), sum(t.sign * t.volume for t in group)
        low, high = min(t.price for t in group), max(t.price for t in group)
        if low > 0 and abs(net) >= Decimal("0.4") * volume and (high - low) * 10_000 >= 20 * low:
            ids = [t.id for t in group]
            side = "buy" if net > 0 else "sell"
            found.append((*place, day, side, len(group), volume, net, low, high, min(ids), max(ids)))
    return found


def momentum_ignition(seen: Watched) -> Rows:
    found: Rows = []
    for place, trades in _by(seen.trades, lambda t: t.place).items():
        spans = sorted(_by(trades, lambda t: t.ts - t.ts % SECOND).items())
        for n, (span, group) in enumerate(spans):
            after = [[t.price for t in later] for _, later in spans[n + 1 : n + 3]]
            volume, net = sum(t.volume for t in group), sum(t.sign * t.volume for t in group)
            low, high = min(t.price for t in group), max(t.price for t in group)
            if not after or len({t.ts for t in group}) < 5 or low <= 0 or not net:
                continue
            back = min(map(min, after)) if net > 0 else max(map(max, after))
            came_back = high - back if net > 0 else back - low
            if (
                abs(net) >= Decimal("0.8") * volume
                and (high - low) * 10_000 >= 10 * low
                and came_back * 2 >= high - low
            ):
                side = "buy" if net > 0 else "sell"
                found.append((*place, span, side, len(group), volume, net, low, high, back))
    return found


def pinging(seen: Watched) -> Rows:
    small = [
        r
        for r in seen.told
        if r.action == "cancel"
        and r.reason == "order"
        and r.id
        and not r.remaining
        and r.ts - r.placed_at <= SECOND // 200
        and r.price * r.volume <= 20_000
        and (
            (r.side == "bid" and r.bid is not None and r.price >= r.bid)
            or (r.side == "ask" and r.ask is not None and r.price <= r.ask)
        )
    ]
    found: Rows = []
    for (place, side, span), group in _by(small, lambda r: (r.place, r.side, r.ts - r.ts % SECOND)).items():
        if len(group) >= 20:
            prices, numbers = [r.price for r in group], [r.number for r in group]
            row = (*place, side, span, len(group), sum(r.volume for r in group), min(prices), max(prices))
            found.append((*row, min(numbers), max(numbers)))
    return found


def quote_stuffing(seen: Watched) -> Rows:
    rows = [r for r in seen.told if r.reason != "snapshot" and r.action != "clear"]
    found: Rows = []
    for (place, span), group in _by(rows, lambda r: (r.place, r.ts - r.ts % (SECOND // 10))).items():
        fills = sum(r.action == "execute" for r in group)
        if len(group) >= 1000 and fills * 100 <= len(group):
            numbers = [r.number for r in group]
            cancels = sum(r.action == "cancel" for r in group)
            found.append((*place, span, len(group), cancels, fills, min(numbers), max(numbers)))
    return found


def spoofing(seen: Watched) -> Rows:
    executed, filled, found = _executed(seen), _filled(seen), []
    for r in seen.told:
        if r.action != "cancel" or r.reason != "order" or not r.id or r.remaining:
            continue
        if r.price * r.volume < 100_000 or r.volume * 2 < r.level_volume + r.volume:
            continue
        best = r.bid if r.side == "bid" else r.ask
        if r.ts - r.placed_at > 2 * SECOND or best is None:
            continue
        away = best - r.price if r.side == "bid" else r.price - best
        if away * 10_000 > 10 * best:
            continue
        parts = [v for ts, v in executed[r.place, r.other] if r.placed_at <= ts <= r.ts]
        since, times = max(r.placed_at, r.ts - SECOND // 2), filled[r.place, r.other, r.broker_id]
        covered = sum(since <= ts <= r.ts for ts in times)
        if parts and sum(parts) * 4 <= r.volume and covered:
            row = (*r.place, r.number, r.id, r.side, r.broker_id, r.price, r.volume, r.placed_at, r.ts)
            found.append((*row, sum(parts), covered))
    return found


def flipping(seen: Watched) -> Rows:
    executed, found = _executed(seen), []
    for r in seen.told:
        if r.action != "cancel" or r.reason != "order" or not r.id or r.remaining:
            continue
        best = r.bid if r.side == "bid" else r.ask
        if r.price * r.volume < 100_000 or r.ts - r.placed_at > 2 * SECOND or best is None:
            continue
        away = best - r.price if r.side == "bid" else r.price - best
        parts = [v for ts, v in executed[r.place, r.side] if 0 <= ts - r.ts <= SECOND // 50]
        if away * 10_000 <= 5 * best and parts and sum(parts) * 2 >= r.volume:
            row = (*r.place, r.number, r.id, r.side, r.broker_id, r.price, r.volume, r.placed_at, r.ts)
            found.append((*row, sum(parts)))
    return found


def wash_brokers(seen: Watched) -> Rows:
    fills = [r for r in seen.told if r.action == "execute" and r.broker_id]
    found: Rows = []
    for (place, broker, price, span), group in _by(
        fills, lambda r: (r.place, r.broker_id, r.price, r.ts - r.ts % SECOND)
    ).items():
        bought, sold = ([r.volume for r in group if r.side == side] for side in ("bid", "ask"))
        traded, numbers = sum(r.volume for r in group), [r.number for r in group]
        if len(bought) >= 3 and len(sold) >= 3 and abs(sum(bought) - sum(sold)) * 5 <= traded:
            row = (*place, broker, price, span, len(bought), len(sold), traded)
            found.append((*row, min(numbers), max(numbers)))
    return found


def wash_trades(seen: Watched) -> Rows:
    large = [t for t in seen.trades if t.price * t.volume >= 10_000]
    found: Rows = []
    for (place, price, volume, span), group in _by(
        large, lambda t: (t.place, t.price, t.volume, t.ts - t.ts % SECOND)
    ).items():
        bought, sold = (sum(t.sign == sign for t in group) for sign in (1, -1))
        if bought >= 3 and sold >= 3:
            ids = [t.id for t in group]
            row = (*place, price, volume, span, bought, sold, volume * len(group))
            found.append((*row, min(ids), max(ids)))
    return found


DETECTORS: Sequence[Callable[[Watched], Rows]] = (
    flipping, iceberg, layering, marking_the_close, momentum_ignition, pinging, quote_stuffing, spoofing,
    wash_brokers, wash_trades,
)  # fmt: skip
# What is computed of the other columns, or would take the order of trades of one time.
LEFT_OUT = {"close", "move_bps"}
