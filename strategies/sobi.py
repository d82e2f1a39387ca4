"""Static order book imbalance (SOBI), of whole books (views/sobi.sql) and near the touch (sobi_band.sql)."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from typing import ClassVar

import msgspec

from orderbook import BookStateChange, Parameter, Strategy, ViewEvent, on_view

_SECOND = 10**9


class Sobi(Strategy):
    """Holds `volume` of a symbol once its bids press, and is short of it once its asks do.

    A side presses when the best `:k` of its volume stands `:threshold` times nearer to the mid than the
    other side's. Source: "DBToaster: Agile Views in a Dynamic Data Management System" (CIDR 2011),
    example 1.1. Generated books of 100 levels and more stay below 2.2 when they are balanced.
    """

    defaults: ClassVar[Mapping[str, Parameter]] = {"threshold": Decimal("2.6"), "volume": 1}

    @on_view("sobi", when="pressure > :threshold")
    def bids_press(self, event: ViewEvent) -> None:
        self.hold(str(event.key[0]), self.parameters["volume"])

    @on_view("sobi", when="pressure * :threshold < 1")
    def asks_press(self, event: ViewEvent) -> None:
        self.hold(str(event.key[0]), -self.parameters["volume"])


@dataclass(slots=True)
class Usual:
    """A running mean and variance that weigh what is a half-life old half; times in ns, 0: none yet."""

    mean: float = 0.0
    variance: float = 0.0
    since: int = 0
    time: int = 0

    def score(self, value: float, time: int, half_life: int) -> float:
        """How many deviations a value is from the mean, which then takes it in; 0 in the first half-life."""
        if not self.since:
            self.mean, self.since, self.time = value, time, time
            return 0.0
        apart, kept = value - self.mean, 0.5 ** ((time - self.time) / half_life)
        found = apart / sqrt(self.variance) if self.variance > 0 and time - self.since >= half_life else 0.0
        self.mean += (1 - kept) * apart
        self.variance = kept * (self.variance + (1 - kept) * apart * apart)
        self.time = time
        return found


class SobiBand(Strategy):
    """Holds `volume` of a symbol once its bids press more than they usually do, and is short of it once its
    asks do: once the pressure within `:band` of the touch is `threshold` deviations from its running mean,
    which weighs what is `half_life` seconds old half.

    Source: as Sobi, over views/sobi_band.sql. On the recordings of docs/strategies.md the pressure foretells
    the mid as Sobi's does not, and less than half the spread and a taker's fee.
    """

    partition_by = "symbol"
    signal = "sobi_band.pressure"
    defaults: ClassVar[Mapping[str, Parameter]] = {
        "threshold": Decimal(1), "half_life": Decimal(30), "volume": 1,
    }  # fmt: skip

    def __init__(self) -> None:
        self.usual: dict[str, Usual] = {}

    @on_view("sobi_band", fire="change", every="100ms")
    def changed(self, event: ViewEvent) -> None:
        """Trades where the pressure is far from what it usually is."""
        venue, symbol = map(str, event.key)
        if event.new is None or event.new.pressure is None:
            return
        half_life = int(self.parameters["half_life"] * _SECOND)
        usual = self.usual.setdefault(venue, Usual())
        score = usual.score(float(event.new.pressure), self.now, half_life)
        if abs(score) >= self.parameters["threshold"]:
            self.hold(symbol, self.parameters["volume"] * (1 if score > 0 else -1), venue)

    def on_book_state(self, state: BookStateChange) -> None:
        """Begins anew with a book that was lost."""
        self.usual.pop(state.venue, None)

    def on_save(self) -> bytes:
        """What is usual, for a restart."""
        return msgspec.msgpack.encode(self.usual)

    def on_load(self, state: bytes) -> None:
        """Goes on from `on_save`."""
        self.usual = msgspec.msgpack.decode(state, type=dict[str, Usual])
