"""A plain model of order books: dictionaries of orders and levels, one event at a time."""

from collections import Counter
from typing import Any

from orderbook.core.changes import NULL_CODE
from orderbook.market.events import Action, BookState, Flag, Side

LIMIT = 10**18 - 1
AGGRESSOR = {Side.BID: "buy", Side.ASK: "sell", Side.NONE: ""}


class BookModel:
    """Books of instruments given as (venue, symbol, tick_scale, lot_scale)."""

    def __init__(self, instruments: list[tuple[str, str, int, int]]) -> None:
        self.instruments = instruments
        self.orders: list[dict[int, tuple[Any, ...]]] = [{} for _ in instruments]
        self.levels: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in instruments]
        self.states = [BookState.SYNCING] * len(instruments)
        self.problems: Counter[str] = Counter()
        self.changed: set[int] = set()

    def rows(self) -> Counter[Any]:
        """The multiset of rows of bids and asks."""
        rows: Counter[Any] = Counter()
        for i in range(len(self.instruments)):
            rows.update(self._order_row(i, order_id) for order_id in self.orders[i])
            rows.update(self._level_row(i, key) for key in self.levels[i])
        return rows

    def depth(self, i: int, side: int) -> list[tuple[int, int, int]]:
        """(price, volume, orders) of each level, best first."""
        found: dict[int, list[int]] = {}
        for s, price, volume, *_ in self.orders[i].values():
            if s == side:
                level = found.setdefault(price, [0, 0])
                level[0] += volume
                level[1] += 1
        for (s, price), (volume, _) in self.levels[i].items():
            if s == side:
                found[price] = [volume, 1]
        return [(p, found[p][0], found[p][1]) for p in sorted(found, reverse=side == Side.BID)]

    def apply(self, event: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
        """The signed tuples of an event: ("+" or "-", (relation, values…))."""
        changes = self._change(event)
        if changes:
            self.changed.add(event["instrument"])
        if event["flags"] & Flag.LAST:
            for i in self.changed:
                bids, asks = self.depth(i, Side.BID), self.depth(i, Side.ASK)
                if self.states[i] == BookState.VALID and bids and asks and bids[0][0] >= asks[0][0]:
                    self.problems["crossed"] += 1
            self.changed = set()
        return changes

    def _change(self, event: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
        i, action, side = event["instrument"], event["action"], event["side"]
        order_id, price, volume = event["order_id"], event["price"], event["volume"]
        if not 0 <= i < len(self.instruments):
            return self._problem("unknown_instrument")
        if not Action.ADD <= action <= Action.LIQUIDATION:
            return self._problem("bad_action")
        if action == Action.INSTRUMENT:
            return []
        if action == Action.STATE:
            if volume not in (0, 1, 2):
                return self._problem("bad_state")
            self.states[i] = BookState(volume)
            return []
        if action in (Action.FUNDING, Action.MARK, Action.OPEN_INTEREST):
            return self._tell(i, event)
        printed = action in (Action.TRADE, Action.LIQUIDATION)
        if side > (Side.NONE if printed or action == Action.CLEAR else Side.ASK) and (
            printed or action in (Action.ADD, Action.LEVEL, Action.CLEAR)
        ):
            return self._problem("bad_side")
        if action == Action.CLEAR:
            return self._clear(i, side)
        _, _, tick_scale, lot_scale = self.instruments[i]
        if action != Action.DELETE:
            if volume < (0 if action == Action.LEVEL else 1):
                return self._problem("bad_volume")
            if volume * lot_scale > LIMIT:
                return self._problem("volume_out_of_range")
        priced = printed or action in (Action.ADD, Action.LEVEL, Action.MODIFY)
        if priced and abs(price) * tick_scale > LIMIT:
            return self._problem("price_out_of_range")
        ts = event["exchange_time"] or event["receive_time"]
        if printed:
            venue, symbol, _, _ = self.instruments[i]
            row = (ts, venue, symbol, order_id, volume * lot_scale, price * tick_scale, AGGRESSOR[side])
            return [("+", ("trades" if action == Action.TRADE else "liquidations", *row))]
        if action == Action.LEVEL:
            return self._set_level(i, (side, price), volume, ts)
        if action == Action.ADD:
            return self._add(i, event, ts)
        return self._act_on_order(i, event, ts)

    def _tell(self, i: int, event: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
        order_id, price, volume = event["order_id"], event["price"], event["volume"]
        row = (event["exchange_time"] or event["receive_time"], *self.instruments[i][:2])
        if event["action"] == Action.FUNDING:
            if order_id < 0:
                return self._problem("bad_state")
            if abs(price) > LIMIT:
                return self._problem("price_out_of_range")
            return [("+", ("funding", *row, price, order_id or NULL_CODE))]
        if event["action"] == Action.MARK:
            if max(abs(price), abs(volume)) > LIMIT:
                return self._problem("price_out_of_range")
            return [("+", ("mark_prices", *row, price, volume or NULL_CODE))]
        if not 0 <= volume <= LIMIT:
            return self._problem("bad_volume" if volume < 0 else "volume_out_of_range")
        return [("+", ("open_interest", *row, volume))]

    def _add(self, i: int, event: dict[str, Any], ts: int) -> list[tuple[str, tuple[Any, ...]]]:
        order_id = event["order_id"]
        if self.levels[i]:
            return self._problem("mixed_depth")
        if order_id in self.orders[i]:
            return self._problem("duplicate_order")
        self.orders[i][order_id] = (event["side"], event["price"], event["volume"], ts, event["broker_id"])
        return [("+", self._order_row(i, order_id))]

    def _act_on_order(self, i: int, event: dict[str, Any], ts: int) -> list[tuple[str, tuple[Any, ...]]]:
        action, order_id, orders = event["action"], event["order_id"], self.orders[i]
        if order_id not in orders:
            return self._problem("unknown_order")
        old = self._order_row(i, order_id)
        side, price, volume, _, broker = orders[order_id]
        if action == Action.MODIFY:
            price, volume = event["price"], event["volume"]
        elif action == Action.DELETE:
            volume = 0
        else:
            if event["volume"] > volume:
                self.problems["beyond_resting"] += 1
            volume = max(0, volume - event["volume"])
        if volume == 0:
            del orders[order_id]
            return [("-", old)]
        orders[order_id] = (side, price, volume, ts, broker)
        return [("-", old), ("+", self._order_row(i, order_id))]

    def _set_level(
        self, i: int, key: tuple[int, int], volume: int, ts: int
    ) -> list[tuple[str, tuple[Any, ...]]]:
        if self.orders[i]:
            return self._problem("mixed_depth")
        levels, changes = self.levels[i], []
        if levels.get(key, (0, 0))[0] == volume:
            return []
        if key in levels:
            changes.append(("-", self._level_row(i, key)))
            del levels[key]
        if volume:
            levels[key] = (volume, ts)
            changes.append(("+", self._level_row(i, key)))
        return changes

    def _clear(self, i: int, side: int) -> list[tuple[str, tuple[Any, ...]]]:
        changes = []
        for order_id in [k for k, v in self.orders[i].items() if side in (v[0], Side.NONE)]:
            changes.append(("-", self._order_row(i, order_id)))
            del self.orders[i][order_id]
        for key in [k for k in self.levels[i] if side in (k[0], Side.NONE)]:
            changes.append(("-", self._level_row(i, key)))
            del self.levels[i][key]
        return changes

    def _order_row(self, i: int, order_id: int) -> tuple[Any, ...]:
        side, price, volume, ts, broker = self.orders[i][order_id]
        return self._row(i, side, ts, order_id, broker, volume, price)

    def _level_row(self, i: int, key: tuple[int, int]) -> tuple[Any, ...]:
        volume, ts = self.levels[i][key]
        return self._row(i, key[0], ts, 0, 0, volume, key[1])

    def _row(
        self, i: int, side: int, ts: int, order_id: int, broker: int, volume: int, price: int
    ) -> tuple[Any, ...]:
        venue, symbol, tick_scale, lot_scale = self.instruments[i]
        relation = "bids" if side == Side.BID else "asks"
        return (relation, ts, venue, symbol, order_id, broker, volume * lot_scale, price * tick_scale)

    def _problem(self, name: str) -> list[tuple[str, tuple[Any, ...]]]:
        self.problems[name] += 1
        return []
