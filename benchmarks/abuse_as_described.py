"""Abuse as regulators describe it, added to a stream for the detectors to be tried on: a second injector.

It shares nothing with orderbook/market/abuse_*.py but the form of events. Sizes, speeds and prices are drawn
from ranges that the texts below and the cases in them name, and know no threshold. Whole episodes are planned
on the prices that the stream shows, at times when it neither trades with them nor crosses them; orders that a
price move takes come back under other ids, which the stream's later events then have.

Sources: Commission Delegated Regulation (EU) 2016/522, annex II, section 1; CFTC, interpretive guidance on
disruptive practices (2013), orders against Coscia (2013), Sarao (2015) and Oystacher (2016); FINRA,
Regulatory Notice 12-46 and the case of Trillium (2010); FCA, case of Swift Trade (2011); SEC, orders against
Athena (2014) and Briargate (2015); SEC and CFTC, findings on May 6, 2010; ESMA, MAR guidelines and its report
on high-frequency trading (2014).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side

_MS, _S, _DAY = 10**6, 10**9, 86_400 * 10**9
_BID, _ASK = int(Side.BID), int(Side.ASK)
_TRIES = 400


@dataclass(slots=True)
class Case:
    """An episode: what it is, the side of its deceptive orders or of its aggressor, and its span in ns."""

    kind: str
    side: int
    begin: int
    end: int
    cut_short: bool = False


@dataclass(slots=True)
class _Resting:
    """An injected order: when it comes and leaves (ns), and when parts of it are executed, (time, volume)."""

    side: int
    price: int
    volume: int
    begin: int
    end: int
    fills: list[tuple[int, int]] = field(default_factory=list)
    moves: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Sweep:
    """All of the other side up to so many steps beyond its best is bought or sold, and a volume there."""

    time: int
    aggressor: int
    steps: int
    volume: int


class _Shown:
    """What the stream shows: times of messages, the touch after each, its trades, and what is usual."""

    def __init__(self, events: Events) -> None:
        orders: dict[int, list[int]] = {}
        levels: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.times: list[int] = []
        self.touch: list[tuple[int, int] | None] = []
        self.trades: list[tuple[int, int, int, int]] = []
        self.step, valid = 0, False
        sizes = []
        for event in events:
            action, order, side = int(event["action"]), int(event["order_id"]), int(event["side"])
            price, volume, time = int(event["price"]), int(event["volume"]), int(event["exchange_time"])
            if action == Action.ADD:
                self._change(orders, levels, order, [side, price, volume])
                self.step = gcd(self.step, price)
                sizes.append(volume)
            elif action == Action.MODIFY:
                self._change(orders, levels, order, [orders[order][0], price, volume])
            elif action in (Action.DELETE, Action.REDUCE, Action.EXECUTE):
                own = orders[order]
                left = 0 if action == Action.DELETE else own[2] - volume
                self._change(orders, levels, order, [own[0], own[1], left])
            elif action == Action.TRADE:
                self.trades.append((time, side, price, volume))
            elif action == Action.STATE:
                valid = volume == BookState.VALID
            if event["flags"] & Flag.LAST:
                self.times.append(time)
                both = valid and levels[_BID] and levels[_ASK]
                self.touch.append((max(levels[_BID]), min(levels[_ASK])) if both else None)
        self._trade_times = [trade[0] for trade in self.trades]
        self.usual = float(np.mean(np.clip(sizes, 0, np.quantile(sizes, 0.95))))
        self.lot: int = gcd(*sizes)
        self.first, self.last = self.times[0], self.times[-1]

    @staticmethod
    def _change(
        orders: dict[int, list[int]],
        levels: tuple[dict[int, int], dict[int, int]],
        order: int,
        now: list[int],
    ) -> None:
        before = orders.pop(order, None)
        for sign, one in ((-1, before), (1, now)):
            if one is not None and one[2] > 0:
                left = levels[one[0]].get(one[1], 0) + sign * one[2]
                levels[one[0]][one[1]] = left
                if left == 0:
                    del levels[one[0]][one[1]]
        if now[2] > 0:
            orders[order] = now

    def at(self, time: int) -> tuple[int, int] | None:
        place = bisect_right(self.times, time) - 1
        return self.touch[place] if place >= 0 else None

    def free(self, order: _Resting) -> bool:
        """Whether the stream neither crosses an order nor trades past it while it rests."""
        start, end = bisect_right(self.times, order.begin) - 1, bisect_right(self.times, order.end)
        for touch in self.touch[max(0, start) : end]:
            if touch is None or (touch[1] <= order.price if order.side == _BID else touch[0] >= order.price):
                return False
        start, end = (
            bisect_right(self._trade_times, order.begin - 1),
            bisect_right(self._trade_times, order.end),
        )
        for _, side, price, _ in self.trades[start:end]:
            if side == 1 - order.side and (
                price <= order.price if order.side == _BID else price >= order.price
            ):
                return False
        return True

    def traded(self, begin: int, end: int) -> int:
        return sum(trade[3] for trade in self.trades if begin <= trade[0] <= end)


Plan = tuple[Case, list[_Resting], list[_Sweep]]


class _Planner:
    def __init__(self, shown: _Shown, random: np.random.Generator) -> None:
        self.shown, self.random = shown, random

    def size(self, low: float, high: float) -> int:
        """So many times the usual, evenly by its logarithm."""
        times = float(np.exp(self.random.uniform(np.log(low), np.log(high))))
        return self.shown.lot * max(1, round(times * self.shown.usual / self.shown.lot))

    def ms(self, low: float, high: float) -> int:
        return int(np.exp(self.random.uniform(np.log(low), np.log(high))) * _MS)

    def steps(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1)) * self.shown.step

    def side(self) -> int:
        return int(self.random.integers(0, 2))

    def better(self, time: int, side: int) -> int | None:
        """A price inside the spread, of a side."""
        touch = self.shown.at(time)
        if touch is None or touch[1] - touch[0] < 2 * self.shown.step:
            return None
        room = (touch[1] - touch[0]) // self.shown.step - 1
        offset = self.shown.step * int(self.random.integers(1, room + 1))
        return touch[0] + offset if side == _BID else touch[1] - offset

    def deceptive(self, kind: str, time: int) -> Plan | None:
        """Orders to give the impression of demand or supply, a trade on the other side, and they go."""
        side, touch = self.side(), self.shown.at(time)
        price = self.better(time, 1 - side)
        if touch is None or price is None:
            return None
        best, away = touch[side], -1 if side == _BID else 1
        count = 1 if kind == "spoofing" else int(self.random.integers(4, 9))
        offset = self.steps(0, 3) if kind == "spoofing" else self.steps(1, 2)
        stride = self.steps(1, 2)
        placed, orders = time, []
        for k in range(count):
            volume = self.size(8, 40) if kind == "spoofing" else self.size(3, 10)
            orders.append(_Resting(side, best + away * (offset + k * stride), volume, placed, 0))
            placed += self.ms(1, 30)
        first = placed + self.ms(20, 800)
        parts = int(self.random.integers(1, 4))
        volume = max(parts, self.size(0.5, 1.5) // parts) * parts
        fills = [(first + k * self.ms(1, 20), volume // parts) for k in range(parts)]
        fills = [(first + k * 2 * _MS, part) for k, (_, part) in enumerate(fills)]
        genuine = _Resting(1 - side, price, volume, time - self.ms(1, 60), fills[-1][0], fills)
        gone = fills[-1][0] + self.ms(10, 300)
        for order in orders if self.random.random() < 0.5 else orders[::-1]:
            order.end = gone
            gone += self.ms(0.1, 20)
        return Case(kind, side, genuine.begin, gone), [genuine, *orders], []

    def stuffing(self, kind: str, time: int) -> Plan | None:
        """Orders and cancellations, and changes of them, at rates that slow others down."""
        touch = self.shown.at(time)
        if touch is None:
            return None
        side, rate, until = self.side(), self.random.uniform(8_000, 25_000), time + self.ms(200, 1_500)
        orders, now = [], float(time)
        while now < until:
            own = side if self.random.random() < 0.8 else 1 - side
            away = -self.steps(1, 20) if own == _BID else self.steps(1, 20)
            life = int(self.random.exponential(3e9 / rate)) + 1_000
            order = _Resting(own, touch[own] + away, self.size(0.3, 2), int(now), int(now) + life)
            if self.random.random() < 0.3:
                order.moves.append((int(now) + life // 2, order.price))
            orders.append(order)
            now += self.random.exponential(2.3e9 / rate)
        return Case(kind, side, time, max(order.end for order in orders)), orders, []

    def ignition(self, kind: str, time: int) -> Plan | None:
        """A series of trades that starts a trend, and the position is closed at the better price."""
        touch = self.shown.at(time)
        if touch is None:
            return None
        aggressor, bps = self.side(), self.random.uniform(25, 80)
        trades, span = int(self.random.integers(10, 41)), self.ms(150, 900)
        reach = touch[1 - aggressor] * bps / 10_000 / self.shown.step
        sweeps = [
            _Sweep(
                time + span * k // trades,
                aggressor,
                max(1, round(reach * (k + 1) / trades)),
                self.size(0.5, 3),
            )
            for k in range(trades)
        ]
        back, orders = sweeps[-1].time + self.ms(300, 4_000), []
        for _ in range(int(self.random.integers(2, 6))):
            price = self.better(back, aggressor)
            if price is None:
                return None
            volume = self.size(0.5, 2)
            orders.append(
                _Resting(aggressor, price, volume, back, back + 2 * _MS, [(back + 2 * _MS, volume)])
            )
            back += self.ms(5, 200)
        return Case(kind, aggressor, time, back), orders, sweeps

    def close(self, kind: str, _: int) -> Plan | None:
        """Buying or selling in the last seconds, most of what trades then, to move the closing price."""
        aggressor, span = self.side(), self.ms(8_000, 50_000)
        begin = self.shown.last - span
        touch = self.shown.at(begin)
        if touch is None:
            return None
        trades = int(self.random.integers(15, 50))
        times = np.sort(self.random.integers(begin, self.shown.last - 20 * _MS, trades)).tolist()
        reach = touch[1 - aggressor] * self.random.uniform(30, 80) / 10_000 / self.shown.step
        share = self.random.uniform(0.7, 0.85)
        total = share / (1 - share) * max(self.shown.traded(begin, self.shown.last), 10 * self.shown.usual)
        lots = self.shown.lot * max(1, round(total / trades / self.shown.lot))
        sweeps = [
            _Sweep(time, aggressor, max(1, round(reach * (k + 1) / trades)), lots)
            for k, time in enumerate(times)
        ]
        return Case(kind, aggressor, begin, self.shown.last), [], sweeps

    def wash(self, kind: str, time: int) -> Plan | None:
        """Trades with oneself at one price, that leave nobody with more than before."""
        price, rounds, volume = self.better(time, _BID), int(self.random.integers(5, 13)), self.size(1, 5)
        if price is None:
            return None
        sides, now, orders = [_BID, _ASK] * rounds, time, []
        if self.random.random() < 0.5:
            self.random.shuffle(sides)
        pause = self.ms(5, 150)
        for side in sides:
            done = now + self.ms(0.2, 5)
            orders.append(_Resting(side, price, volume, now, done, [(done, volume)]))
            now = done + int(pause * self.random.uniform(0.5, 1.5))
        return Case(kind, sides[0], time, now), orders, []

    def hidden(self, kind: str, time: int) -> Plan | None:
        """An order that shows a part of itself, and the next part when that is gone."""
        side, now, orders = self.side(), time, []
        price, shown = self.better(time, side), self.size(0.5, 2)
        if price is None:
            return None
        for _ in range(int(self.random.integers(8, 26))):
            first = now + self.ms(20, 400)
            parts = [shown] if shown < 2 or self.random.random() < 0.7 else [shown // 2, shown - shown // 2]
            fills = [(first + 3 * _MS * k, part) for k, part in enumerate(parts)]
            orders.append(_Resting(side, price, shown, now, fills[-1][0], fills))
            now = fills[-1][0] + self.ms(0.1, 5)
        return Case(kind, side, time, now), orders, []

    def ping(self, kind: str, time: int) -> Plan | None:
        """Small orders, cancelled at once where they find nothing, to learn of orders that are not shown."""
        side, now, orders = self.side(), time, []
        volume, pause = self.size(0.02, 0.15), self.ms(3, 20)
        for _ in range(int(self.random.integers(30, 90))):
            price = self.better(now, side)
            if price is None:
                return None
            orders.append(_Resting(side, price, volume, now, now + self.ms(0.2, 4)))
            now = orders[-1].end + int(pause * self.random.uniform(0.5, 1.5))
        return Case(kind, side, time, now), orders, []

    def flip(self, kind: str, time: int) -> Plan | None:
        """Large passive orders that others join; they leave as the trader turns and trades with these."""
        side = self.side()
        price = self.better(time, side)
        if price is None:
            return None
        turned, orders, placed = time + self.ms(250, 1_200), [], time
        for _ in range(int(self.random.integers(1, 4))):
            orders.append(_Resting(side, price, self.size(8, 25), placed, turned))
            placed += self.ms(1, 20)
        shown = max(order.volume for order in orders)
        left, now = round(shown * self.random.uniform(0.6, 1.2)), turned + self.ms(0.1, 6)
        others = int(self.random.integers(2, 6))
        for _ in range(others):
            came = placed + int(self.random.uniform(0.1, 0.9) * (turned - placed))
            volume = self.shown.lot * max(1, left // others // self.shown.lot)
            orders.append(_Resting(side, price, volume, came, now, [(now, volume)]))
        return Case(kind, side, time, now), orders, []


_KINDS: dict[str, Callable[[_Planner, str, int], Plan | None]] = {
    "spoofing": _Planner.deceptive,
    "layering": _Planner.deceptive,
    "quote_stuffing": _Planner.stuffing,
    "momentum_ignition": _Planner.ignition,
    "marking_the_close": _Planner.close,
    "wash_trades": _Planner.wash,
    "iceberg": _Planner.hidden,
    "pinging": _Planner.ping,
    "flipping": _Planner.flip,
}


def with_abuse(events: Events, episodes: int, seed: int) -> tuple[Events, list[Case]]:
    """A stream of one instrument with so many episodes of each kind, one of the close; and what they are."""
    random, shown = np.random.default_rng([seed, 2016, 522]), _Shown(events)
    planner, plans = _Planner(shown, random), []
    taken: list[tuple[int, int]] = []
    for kind, plan in _KINDS.items():
        for _ in range(1 if kind == "marking_the_close" else episodes):
            for _ in range(_TRIES):
                start = int(random.integers(shown.first + 30 * _S, shown.last - 70 * _S))
                one = plan(planner, kind, start)
                if one is None or not all(order.price > 0 and shown.free(order) for order in one[1]):
                    continue
                case = one[0]
                if kind != "marking_the_close" and (
                    case.end > shown.last - 60 * _S
                    or any(case.begin < end + 15 * _S and begin < case.end + 15 * _S for begin, end in taken)
                ):
                    continue
                taken.append((case.begin, case.end))
                plans.append(one)
                break
    return _Writer(events, shown, plans).written(), [case for case, _, _ in plans]


class _Writer:
    """One pass over the stream, with what was planned between its messages."""

    def __init__(self, events: Events, shown: _Shown, plans: list[Plan]) -> None:
        self._events, self._step = events, shown.step
        ordered = events["action"] <= int(Action.EXECUTE)
        self._next = int(events["order_id"][ordered].max()) + 1_000_000
        trades = events["order_id"][events["action"] == int(Action.TRADE)]
        self._trade = int(trades.max()) + 1_000_000 if len(trades) and trades.max() > 0 else 0
        self._out: list[tuple[int, ...]] = []
        self._now = self._received = self._sequence = self._instrument = 0
        # Ids of the stream's orders that were taken, and those that they have since.
        self._names: dict[int, int] = {}
        self._orders: dict[int, list[int]] = {}
        self._brokers = sorted(set(events["broker_id"].tolist()) - {0})
        self._due = sorted(self._steps(plans), key=lambda one: one[0])

    def _steps(self, plans: list[Plan]) -> Iterator[tuple[int, Callable[[], None]]]:
        for number, (_, orders, sweeps) in enumerate(plans):
            broker = self._brokers[number % len(self._brokers)] if self._brokers else 0
            for order in orders:
                own, self._next = self._next, self._next + 1
                side, price = order.side, order.price

                def message(action: int, volume: int, own: int = own, side: int = side, price: int = price,
                            broker: int = broker) -> None:  # fmt: skip
                    self._write(action, own, price, volume, side, broker)
                    self._end()

                def fill(volume: int, own: int = own, side: int = side, price: int = price,
                         broker: int = broker) -> None:  # fmt: skip
                    self._execute(own, price, volume, side, broker)
                    self._end()

                yield order.begin, lambda m=message, v=order.volume: m(int(Action.ADD), v)  # type: ignore[misc]
                for time, _ in order.moves:
                    yield time, lambda m=message, v=order.volume: m(int(Action.MODIFY), v + 1)  # type: ignore[misc]
                for time, volume in order.fills:
                    yield time, lambda f=fill, v=volume: f(v)  # type: ignore[misc]
                left = order.volume - sum(volume for _, volume in order.fills)
                if left:
                    yield order.end, lambda m=message, v=left: m(int(Action.DELETE), v)  # type: ignore[misc]
            for sweep in sweeps:
                yield sweep.time, lambda s=sweep, b=broker: self._sweep(s, b)  # type: ignore[misc]

    def written(self) -> Events:
        place = 0
        fresh = True
        for event in self._events:
            row = event.item()
            if fresh:
                while place < len(self._due) and self._due[place][0] < row[0]:
                    time, step = self._due[place]
                    self._received = max(self._received, time + self._received - self._now)
                    self._received = min(self._received, max(row[1], self._now))
                    self._now = max(self._now, time)
                    step()
                    place += 1
                self._now, self._received = row[0], max(self._received, row[1])
                self._sequence, self._instrument = row[2], row[6]
            self._follow(row)
            fresh = bool(row[10] & Flag.LAST)
        for _, step in self._due[place:]:
            step()
        return np.array(self._out, EVENT)

    def _follow(self, row: tuple[int, ...]) -> None:
        action, order = row[8], row[3]
        if action == Action.ADD:
            self._names.pop(order, None)
            self._orders[order] = [row[9], row[4], row[5], row[7]]
        elif action in (Action.REDUCE, Action.MODIFY, Action.DELETE, Action.EXECUTE):
            own = self._orders[order]
            if action == Action.MODIFY:
                own[1:3] = row[4], row[5]
            else:
                own[2] -= own[2] if action == Action.DELETE else row[5]
                if own[2] <= 0:
                    del self._orders[order]
            row = (*row[:3], self._names.get(order, order), *row[4:])
            if order not in self._orders:
                self._names.pop(order, None)
        elif action == Action.CLEAR:
            self._orders = {k: own for k, own in self._orders.items() if row[9] not in (own[0], Side.NONE)}
        self._out.append(row)

    def _sweep(self, sweep: _Sweep, broker: int) -> None:
        """Others quote up to a price, all up to there trades, and what the stream had comes back."""
        side, towards = 1 - sweep.aggressor, 1 if sweep.aggressor == _BID else -1
        best = min((towards * own[1] for own in self._orders.values() if own[0] == side), default=None)
        if best is None:
            return
        limit = towards * best + towards * sweep.steps * self._step
        quote, self._next = self._next, self._next + 1
        self._write(int(Action.ADD), quote, limit, sweep.volume, side, broker)
        self._end()
        hit = [(towards * own[1], order) for order, own in self._orders.items()
               if own[0] == side and towards * own[1] <= towards * limit]  # fmt: skip
        for _, order in sorted(hit, key=lambda one: one[0]):
            _, price, volume, whose = self._orders[order]
            self._execute(self._names.get(order, order), price, volume, side, whose)
        self._execute(quote, limit, sweep.volume, side, broker)
        for _, order in hit:
            _, price, volume, whose = self._orders[order]
            self._names[order], self._next = self._next, self._next + 1
            self._write(int(Action.ADD), self._names[order], price, volume, side, whose)
        self._end()

    def _execute(self, order: int, price: int, volume: int, side: int, broker: int) -> None:
        self._write(int(Action.EXECUTE), order, price, volume, side, broker)
        self._write(int(Action.TRADE), self._trade, price, volume, 1 - side, 0)
        self._trade += self._trade > 0

    def _write(self, action: int, order: int, price: int, volume: int, side: int, broker: int) -> None:
        self._out.append(
            (self._now, self._received, self._sequence, order, price, volume, self._instrument, broker,
             action, side, 0, 0)
        )  # fmt: skip

    def _end(self) -> None:
        row = self._out[-1]
        self._out[-1] = (*row[:10], row[10] | int(Flag.LAST), row[11])
