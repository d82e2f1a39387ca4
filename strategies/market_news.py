"""What strategies are told of the market besides views: trades, and states of books."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from orderbook.books import AGGRESSORS
from orderbook.events import Action, BookState, StateReason
from orderbook.instruments import Instruments

_TRADE, _STATE = int(Action.TRADE), int(Action.STATE)
_AGGRESSORS = dict(enumerate(AGGRESSORS))


@dataclass(frozen=True, slots=True)
class Trade:
    """A trade that the market printed.

    ts: ns, of its receipt, else at the exchange. price, volume: in the relation's units. side: who took,
    "buy" or "sell", "" where that is not told.
    """

    ts: int
    venue: str
    symbol: str
    side: str
    volume: Decimal
    price: Decimal


@dataclass(frozen=True, slots=True)
class BookStateChange:
    """A book's state: "syncing", "valid" or "stale", and why, such as "gap" or "halted"; ts as of a Trade."""

    ts: int
    venue: str
    symbol: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class NewsWanted:
    """What a class of strategies overrides, and so wants to be told."""

    trades: bool
    states: bool

    @classmethod
    def of(cls, kind: type) -> "NewsWanted":
        """What a class wants: what is not as its first base that has it."""
        return cls(*(_overrides(kind, name) for name in ("on_trade", "on_book_state")))

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return self.trades or self.states


def _overrides(kind: type, name: str) -> bool:
    """Whether a method is defined more than once among a class's bases."""
    return sum(name in vars(base) for base in kind.__mro__) > 1


def trades_of(parts: Sequence[np.ndarray], instruments: Instruments) -> Iterator[tuple[int, Trade]]:
    """The trades among market events (EVENT[n]), in order, with the places of their instruments."""
    for event in _chosen(parts, _TRADE):
        index = int(event["instrument"])
        if not 0 <= index < len(instruments):
            continue
        one = instruments[index]
        yield index, Trade(
            _time(event), one.venue, one.symbol, _AGGRESSORS.get(int(event["side"]), ""),
            one.volume(int(event["volume"])), one.price(int(event["price"])),
        )  # fmt: skip


def states_of(parts: Sequence[np.ndarray], instruments: Instruments) -> Iterator[tuple[int, BookStateChange]]:
    """The states of books among market events (EVENT[n]), in order, with the places of their instruments."""
    for event in _chosen(parts, _STATE):
        index, state, reason = int(event["instrument"]), int(event["volume"]), int(event["order_id"])
        if 0 <= index < len(instruments) and 0 <= state <= BookState.STALE:
            known = StateReason(reason if 0 <= reason <= max(StateReason) else 0)
            one = instruments[index]
            texts = BookState(state).name.lower(), known.name.lower()
            yield index, BookStateChange(_time(event), one.venue, one.symbol, *texts)


def _chosen(parts: Sequence[np.ndarray], action: int) -> Iterator[np.void]:
    for part in parts:
        # Most messages have a few events, and none of these.
        if action in part["action"].tolist():
            yield from part[part["action"] == action]


def _time(event: np.void) -> int:
    return int(event["receive_time"]) or int(event["exchange_time"])
