"""The strategies' own working orders and fills, by instrument, for ladders."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from orderbook.instruments import Instruments
from orderbook.monitor.letters import encoded

Fills = Callable[[Sequence[bytes]], object]
# The orders of an instrument that rest, as messages have them.
Places = Callable[[int], list[dict[str, object]]]


class OwnOrders:
    """Working orders are asked for, fills go to those who listen."""

    def __init__(self, instruments: Instruments, places: Places) -> None:
        self.working = places
        self._instruments = instruments
        self._indexes = {(one.venue, one.symbol): i for i, one in enumerate(instruments)}
        self._listeners: dict[int, list[Fills]] = {}

    def fill(self, row: Mapping[str, Any]) -> None:
        """A row of `fills`."""
        index = self._indexes.get((row["venue"], row["symbol"]))
        listeners = [] if index is None else self._listeners.get(index, [])
        if index is None or not listeners:
            return
        one = self._instruments[index]
        ticks, lots = _units(row["price"], one.tick), _units(row["volume"], one.lot)
        told = encoded([str(row["ts"]), row["strategy"], row["side"], ticks, lots])
        for listener in listeners:
            listener([told])

    def listen(self, instrument: int, listener: Fills) -> None:
        """`listener` gets the fills of an instrument from now on, each encoded."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: Fills) -> None:
        """End `listen`."""
        self._listeners[instrument].remove(listener)


def _units(value: Decimal, unit: Decimal) -> int:
    return int(value / unit)
