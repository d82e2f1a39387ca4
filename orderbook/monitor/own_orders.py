"""The strategies' own working orders and fills, by instrument, for ladders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orderbook.instruments import Instrument
from orderbook.monitor.letters import encoded

Fills = Callable[[Sequence[bytes]], object]
# The orders of an instrument that rest, as messages have them.
Places = Callable[[int], list[dict[str, Any]]]


class OwnOrders:
    """Working orders are asked for, fills go to those who listen; prices and volumes are in ticks and lots.

    instruments: of the run, with ticks and lots as pages count by them. places: see ExecutionClient.places.
    """

    def __init__(self, instruments: Sequence[Instrument], places: Places) -> None:
        self._places = places
        self.instruments = instruments
        self._indexes = {(one.venue, one.symbol): i for i, one in enumerate(instruments)}
        self._listeners: dict[int, list[Fills]] = {}

    def working(self, instrument: int) -> list[dict[str, Any]]:
        """The orders that rest."""
        one = self.instruments[instrument]
        found = self._places(instrument)
        for place in found:
            price, place["left"] = one.in_steps(place["price"] or 0, place["left"])
            place["price"] = None if place["price"] is None else price
            place["ahead"] = one.in_steps(0, place["ahead"])[1]
        return found

    def fill(self, row: Mapping[str, Any]) -> None:
        """A row of `fills`."""
        index = self._indexes.get((row["venue"], row["symbol"]))
        listeners = [] if index is None else self._listeners.get(index, [])
        if index is None or not listeners:
            return
        one = self.instruments[index]
        units = int(row["price"] / one.price_unit), int(row["volume"] / one.volume_unit)
        ticks, lots = one.in_steps(*units)
        told = encoded([str(row["ts"]), row["strategy"], row["side"], ticks, lots])
        for listener in listeners:
            listener([told])

    def listen(self, instrument: int, listener: Fills) -> None:
        """`listener` gets the fills of an instrument from now on, each encoded."""
        self._listeners.setdefault(instrument, []).append(listener)

    def unlisten(self, instrument: int, listener: Fills) -> None:
        """End `listen`."""
        self._listeners[instrument].remove(listener)
