"""What a venue says of a run's orders, and what a run asks of a venue: the two sides of an order gateway.

Reports come in through the run's queue, are logged, and then change what strategies know; so a log that is
applied again gives the same rows, and nothing is asked of the venue again. Prices, volumes and fees are the
venue's texts, times its own in ms since 1970 UTC.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import msgspec

from orderbook.strategies.execution.account import OrderSide

VenueStatus = Literal["open", "filled", "cancelled", "expired", "rejected"]


class _Report(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Opened(_Report, frozen=True):
    """The first report of all: the name that client order ids of the run have from now on."""

    session: str


class Rules(_Report, frozen=True):
    """What orders of a symbol must keep to; "" is no limit."""

    symbol: str
    tick: str
    lot: str
    least: str = ""
    most: str = ""
    most_at_market: str = ""
    least_value: str = ""


class Ready(_Report, frozen=True):
    """Everything that happened at the venue so far has been reported: orders are taken."""


class Lost(_Report, frozen=True):
    """From now on things happen at the venue that are not reported; orders are refused."""

    reason: str


class OrderState(_Report, frozen=True):
    """An order as it stands at the venue."""

    client_id: str
    order_id: int
    status: VenueStatus
    volume: str
    price: str
    filled: str
    time: int


class VenueTrade(_Report, frozen=True):
    """An execution of the account; client_id "" where the venue has told the order by its own id alone."""

    symbol: str
    trade_id: int
    order_id: int
    client_id: str
    side: OrderSide
    volume: str
    price: str
    fee: str
    fee_asset: str
    maker: bool
    time: int


class Refused(_Report, frozen=True):
    """An order was not accepted, and never will be."""

    client_id: str
    reason: str
    time: int


class Missing(_Report, frozen=True):
    """The venue has no order of this id, and one that was sent cannot arrive any more."""

    client_id: str
    time: int


class NotModified(_Report, frozen=True):
    """An order stays as it was."""

    client_id: str
    reason: str
    time: int


class Reconciled(_Report, frozen=True):
    """All executions of a symbol up to this id have been reported, and the orders that they are of."""

    symbol: str
    trade_id: int
    time: int


class PositionIs(_Report, frozen=True):
    """What the account holds of a symbol, below 0 when short; settled: its executions have been reported."""

    symbol: str
    volume: str
    time: int
    settled: bool = False


Report = (
    Opened
    | Rules
    | Ready
    | Lost
    | OrderState
    | VenueTrade
    | Refused
    | Missing
    | NotModified
    | Reconciled
    | PositionIs
)


@dataclass(frozen=True, slots=True)
class ReportItem:
    """Reports of one venue that came together, at a time of the run, ns."""

    venue: str
    time: int
    reports: list[Report]


@dataclass(frozen=True, slots=True)
class HaltItem:
    """The kill switch of a run: from a time of the run, ns, every order is cancelled and none is taken, until
    it is released."""

    time: int
    halted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """An order is to be sent; price None: at market."""

    client_id: str
    symbol: str
    side: OrderSide
    volume: str
    price: str | None
    ioc: bool
    post_only: bool


@dataclass(frozen=True, slots=True)
class Modify:
    """An order is to have this volume, what is filled included, and this price."""

    client_id: str
    symbol: str
    side: OrderSide
    volume: str
    price: str


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """An order is to be cancelled."""

    client_id: str
    symbol: str


@dataclass(frozen=True, slots=True)
class CancelAll:
    """Every order of a symbol is to be cancelled, at once."""

    symbol: str


Intent = Place | Modify | CancelOrder | CancelAll

_CLIENT_ID = re.compile(r"ob([0-9a-z]{8})-([0-9a-f]{8})-(\d{1,16})")


def line_of(strategy: str) -> str:
    """What client order ids name an instance of a strategy by."""
    return blake2b(strategy.encode(), digest_size=4).hexdigest()


def client_id_of(session: str, line: str, order_id: int) -> str:
    """The client order id of a strategy's order: the same whenever it is asked for."""
    return f"ob{session}-{line}-{order_id}"


def parts_of(client_id: str) -> tuple[str, str, int] | None:
    """The session, line and order of a client order id; None for one that is not of this program."""
    found = _CLIENT_ID.fullmatch(client_id)
    return None if found is None else (found[1], found[2], int(found[3]))
