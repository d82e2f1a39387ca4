"""Orders and fills as strategies and the relations `orders` and `fills` see them."""

from decimal import Decimal
from typing import Any, Literal

import msgspec

OrderSide = Literal["buy", "sell"]
Liquidity = Literal["maker", "taker"]
OrderStatus = Literal["sent", "resting", "filled", "cancelled", "refused"]


class Order(msgspec.Struct, frozen=True):
    """An order as it stands: a row of the relation `orders`, whose key is (strategy, id).

    ts: ns of its last change, by the event clock. id: the strategy's own count, from 1. venue: "" where
    none was found. volume, price, filled: in the relation's units; volume is 0 and price None where what
    was asked for is not one (the reason quotes it); price is None for a market order. status: "sent" while
    the exchange has not answered. reason: why it was refused or cancelled, or could not be modified.
    """

    ts: int
    strategy: str
    id: int
    venue: str
    symbol: str
    side: OrderSide
    volume: Decimal
    price: Decimal | None
    filled: Decimal
    status: OrderStatus
    reason: str | None = None


class Fill(msgspec.Struct, frozen=True):
    """An execution of an order: a row of the relation `fills`. Units are those of `Order`.

    fee: in the quote currency, below 0 a rebate. liquidity: "maker" where the order rested, else "taker".
    """

    ts: int
    strategy: str
    order_id: int
    venue: str
    symbol: str
    side: OrderSide
    volume: Decimal
    price: Decimal
    fee: Decimal = Decimal(0)
    liquidity: Liquidity = "taker"


class OrderUpdate(msgspec.Struct, frozen=True):
    """One change of an order: as it was (None: new), as it is, and the fills that changed it."""

    old: Order | None
    new: Order
    fills: tuple[Fill, ...] = ()


ORDER_COLUMNS = Order.__struct_fields__
FILL_COLUMNS = Fill.__struct_fields__


def row_of(value: Order | Fill) -> dict[str, Any]:
    """The row of a relation that an order or a fill is."""
    return msgspec.structs.asdict(value)
