"""The simulated exchange's matching side: an event flow as Coinbase `full` messages, without I/O.

Source of the message forms: Coinbase Exchange documentation, "WebSocket Channels" and "Get product book".

Order ids are version-4-shaped UUIDs derived from a seed.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError
from orderbook.market.events import Action, Events, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def order_uuids(seed: int, stream: int, numbers: NDArray[np.int64]) -> list[str]:
    """UUID texts of order numbers (int64[n]); the same seed, stream and number give the same UUID.

    Steele, Lea and Flood's SplitMix64 finaliser scrambles the number, so UUIDs of neighbours look
    unrelated, and two of n orders share their first 63 bits as rarely as random UUIDs do.
    """
    start = _mix(np.array([seed], np.uint64) + _mix(np.array([stream], np.uint64)))
    high = _mix(numbers.astype(np.uint64) * _GOLDEN + start)
    low = _mix(high + _GOLDEN)
    halves = np.empty((len(numbers), 2), ">u8")
    halves[:, 0] = (high & ~np.uint64(0xF000)) | np.uint64(0x4000)
    halves[:, 1] = (low >> np.uint64(2)) | np.uint64(1 << 63)
    digits = halves.tobytes().hex()
    texts = (digits[i : i + 32] for i in range(0, len(digits), 32))
    return [f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts]


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_SIDE_NAMES = ("buy", "sell")
_OPPOSITE = (1, 0)
_CACHE_SIZE = 1 << 16
_TAKER_STREAM = 1 << 32
_encode = msgspec.json.Encoder().encode

Order = tuple[int, int, int]  # side, price in ticks, volume in lots
Row = tuple[Any, ...]  # one EVENT as a tuple, its order id's UUID appended


def iso_time(nanoseconds: int) -> str:
    """ns since 1970 UTC as Coinbase writes times, to the microsecond."""
    second, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


class _Decimals(dict[int, str]):
    """Ticks or lots to wire text, remembering the texts."""

    __slots__ = ("_value",)

    def __init__(self, value: Callable[[int], Any]) -> None:
        self._value = value

    def __missing__(self, count: int) -> str:
        if len(self) >= _CACHE_SIZE:
            self.clear()
        text = self[count] = format(self._value(count), "f")
        return text


class SimulatedBook:
    """One product: its resting orders, in time priority, and the messages that changed them."""

    def __init__(self, instrument: Instrument, index: int, seed: int) -> None:
        self.product = instrument.native_symbol
        self.instrument = instrument
        self.sequence = 1_000_000 * (index + 1)
        self.trade_id = 1000 * (index + 1)
        self.orders: dict[int, Order] = {}
        self._prices = _Decimals(instrument.price)
        self._sizes = _Decimals(instrument.volume)
        self._seed = seed
        self._index = index
        self._takers = 0
        self._messages: list[bytes] = []

    def uuids(self, numbers: NDArray[np.int64]) -> list[str]:
        """The UUIDs under which this product's orders (int64[n]) are known outside."""
        return order_uuids(self._seed, self._index, numbers)

    def speak(self, unit: list[Row], time: str) -> list[bytes]:
        """Apply one message of the flow; what the `full` channel says of it, in sequence."""
        executions = [row for row in unit if row[8] == Action.EXECUTE]
        if executions:
            self._cross(executions, [row for row in unit if row[8] == Action.ADD], time)
            unit = [row for row in unit if row[8] not in (Action.EXECUTE, Action.ADD)]
        for row in unit:
            action = row[8]
            if action == Action.ADD:
                self._receive(row[12], row[9], time, row[5], row[4])
                self._rest(row, time)
            elif action in (Action.REDUCE, Action.MODIFY):
                self._change(row, time)
            elif action == Action.DELETE:
                self._cancel(row, time)
            elif action not in (Action.TRADE, Action.STATE):
                raise DataError(f"{self.product}: {Action(action).name} has no message on the `full` channel")
        messages, self._messages = self._messages, []
        return messages

    def heartbeat(self, time: str) -> bytes:
        return _encode(
            {
                "type": "heartbeat",
                "last_trade_id": self.trade_id,
                "product_id": self.product,
                "sequence": self.sequence,
                "time": time,
            }
        )

    def snapshot(self, time: str) -> bytes:
        """The answer to `GET /products/<id>/book?level=3`: best prices first, then oldest first."""
        numbers = np.fromiter(self.orders, np.int64, len(self.orders))
        sides: tuple[list[tuple[int, str, str, str]], ...] = ([], [])
        for (side, price, volume), uuid in zip(self.orders.values(), self.uuids(numbers), strict=True):
            sides[side].append((price, self._prices[price], self._sizes[volume], uuid))
        bids, asks = (
            [row[1:] for row in sorted(rows, key=lambda row: row[0], reverse=side == Side.BID)]
            for side, rows in enumerate(sides)
        )
        return _encode({"sequence": self.sequence, "bids": bids, "asks": asks, "time": time})

    def _say(self, kind: str, time: str, fields: dict[str, Any]) -> None:
        self.sequence += 1
        message = {"type": kind, "product_id": self.product, "sequence": self.sequence, "time": time}
        self._messages.append(_encode(message | fields))

    def _resting(self, row: Row) -> Order:
        try:
            return self.orders[row[3]]
        except KeyError:
            action = Action(row[8]).name
            raise DataError(f"{self.product}: {action} of order {row[3]}, which is not on the book") from None

    def _receive(self, uuid: str, side: int, time: str, volume: int, price: int | None) -> None:
        fields = {"order_id": uuid, "size": self._sizes[volume], "side": _SIDE_NAMES[side]}
        kind = {"order_type": "market"}
        if price is not None:
            kind = {"order_type": "limit", "price": self._prices[price]}
        self._say("received", time, fields | kind)

    def _rest(self, row: Row, time: str) -> None:
        number, price, volume, side, uuid = row[3], row[4], row[5], row[9], row[12]
        if number in self.orders:
            raise DataError(f"{self.product}: order {number} is added twice")
        self.orders[number] = (side, price, volume)
        fields = {"order_id": uuid, "price": self._prices[price], "remaining_size": self._sizes[volume]}
        self._say("open", time, fields | {"side": _SIDE_NAMES[side]})

    def _cross(self, executions: list[Row], adds: list[Row], time: str) -> None:
        """One aggressor trades with resting orders; what is left of it, if anything, rests (`adds`)."""
        side = _OPPOSITE[executions[0][9]]
        volume = sum(row[5] for row in executions) + sum(row[5] for row in adds)
        if adds:
            taker = adds[0][12]
            self._receive(taker, side, time, volume, adds[0][4])
        else:
            self._takers += 1
            taker = order_uuids(self._seed, _TAKER_STREAM + self._index, np.array([self._takers]))[0]
            self._receive(taker, side, time, volume, None)
        for row in executions:
            self._execute(row, taker, time)
        for row in adds:
            self._rest(row, time)
        if not adds:
            fields = {"order_id": taker, "side": _SIDE_NAMES[side], "reason": "filled"}
            self._say("done", time, fields)

    def _execute(self, row: Row, taker: str, time: str) -> None:
        side, price, left = self._resting(row)
        number, volume, uuid = row[3], row[5], row[12]
        if not 0 < volume <= left:
            raise DataError(f"{self.product}: {volume} lots of order {number} execute, which has {left}")
        self.trade_id += 1
        match = {
            "trade_id": self.trade_id,
            "maker_order_id": uuid,
            "taker_order_id": taker,
            "side": _SIDE_NAMES[side],
            "size": self._sizes[volume],
            "price": self._prices[price],
        }
        self._say("match", time, match)
        if volume < left:
            self.orders[number] = (side, price, left - volume)
        else:
            self._finish(number, uuid, "filled", 0, time)

    def _change(self, row: Row, time: str) -> None:
        side, price, left = self._resting(row)
        number, volume, uuid = row[3], row[5], row[12]
        fields = {"order_id": uuid, "side": _SIDE_NAMES[side], "old_size": self._sizes[left]}
        if row[8] == Action.MODIFY:
            self.orders[number] = (side, row[4], volume)
            new = {"new_size": self._sizes[volume], "new_price": self._prices[row[4]]}
            old = {"old_price": self._prices[price], "reason": "modify_order"}
            self._say("change", time, fields | new | old)
        elif volume >= left:
            self._finish(number, uuid, "canceled", left, time)
        else:
            self.orders[number] = (side, price, left - volume)
            new = {"new_size": self._sizes[left - volume], "price": self._prices[price], "reason": "STP"}
            self._say("change", time, fields | new)

    def _cancel(self, row: Row, time: str) -> None:
        _, _, left = self._resting(row)
        self._finish(row[3], row[12], "canceled", left, time)

    def _finish(self, number: int, uuid: str, reason: str, left: int, time: str) -> None:
        side, price, _ = self.orders.pop(number)
        fields = {"order_id": uuid, "side": _SIDE_NAMES[side], "reason": reason}
        rest = {"price": self._prices[price], "remaining_size": self._sizes[left]}
        self._say("done", time, fields | rest)


class SimulatedMarket:
    """All products of a flow. Raises DataError where the flow contradicts its own books."""

    def __init__(self, instruments: Instruments, seed: int) -> None:
        self.books = {one.native_symbol: SimulatedBook(one, i, seed) for i, one in enumerate(instruments)}
        self._by_index = list(self.books.values())
        self._unit: list[Row] = []

    def apply(self, events: Events, nanoseconds: int) -> list[tuple[str, bytes]]:
        """Apply events (EVENT[n], in order); the messages of those units that ended, with their products.

        `nanoseconds` since 1970 UTC is the exchange's time of them all.
        """
        time = iso_time(nanoseconds)
        messages: list[tuple[str, bytes]] = []
        for row in zip(*self._columns(events), strict=True):
            self._unit.append(row)
            if row[10] & Flag.LAST:
                book = self._by_index[row[6]]
                unit, self._unit = self._unit, []
                messages.extend((book.product, message) for message in book.speak(unit, time))
        return messages

    def _columns(self, events: Events) -> list[list[Any]]:
        uuids = np.empty(len(events), object)
        for index, book in enumerate(self._by_index):
            mine = events["instrument"] == index
            uuids[mine] = book.uuids(events["order_id"][mine])
        return [events[name].tolist() for name in events.dtype.names or ()] + [uuids.tolist()]
