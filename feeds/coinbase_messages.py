"""Messages of Coinbase Exchange's `full` channel and level-3 book, as a client reads them.

Source: Coinbase Exchange documentation, "WebSocket Channels" (Full Channel, Heartbeat) and "Get product
book". Prices and sizes stay text, so that nothing passes through a float; unknown fields are ignored.

    {"type": "open", "time": "2014-11-07T08:19:27.028459Z", "product_id": "BTC-USD", "sequence": 10,
     "order_id": "d50ec984-77a8-460a-b958-66f114b0de9b", "price": "200.2", "remaining_size": "1.00",
     "side": "sell"}
"""

from typing import Annotated, Literal
from uuid import UUID

import msgspec

Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MakerSide = Literal["buy", "sell"]


class _Message(msgspec.Struct, tag_field="type", tag=str.lower, gc=False, frozen=True):
    """Tagged by `type`, the class name in lower case."""


class Received(_Message, frozen=True):
    """An order reached the matching engine; the book does not change."""

    product_id: str
    sequence: Sequence


class Open(_Message, frozen=True):
    """An order rests on the book with `remaining_size`."""

    product_id: str
    sequence: Sequence
    order_id: UUID
    side: MakerSide
    price: str
    remaining_size: str
    time: str


class Match(_Message, frozen=True):
    """A trade of `size`; `side` is the maker's, whose resting order shrinks."""

    product_id: str
    sequence: Sequence
    trade_id: Sequence
    maker_order_id: UUID
    side: MakerSide
    price: str
    size: str
    time: str


class Done(_Message, frozen=True):
    """An order is finished, filled or canceled; it may never have rested."""

    product_id: str
    sequence: Sequence
    order_id: UUID
    side: MakerSide
    time: str


class Change(_Message, frozen=True):
    """An order's size (self-trade prevention, or its owner's request) or price (request) changed.

    `new_price` comes with a request, `price` with self-trade prevention, neither for a market order.
    """

    product_id: str
    sequence: Sequence
    order_id: UUID
    side: MakerSide
    time: str
    new_size: str | None = None
    price: str | None = None
    old_price: str | None = None
    new_price: str | None = None


class Activate(_Message, frozen=True):
    """A stop order was placed; the book does not change. It may come outside the sequence."""

    product_id: str
    sequence: Sequence | None = None


class Heartbeat(_Message, frozen=True):
    """Once a second: the product's last sequence."""

    product_id: str
    sequence: Sequence


class Channel(msgspec.Struct, frozen=True):
    """A channel of an acknowledgement."""

    name: str
    product_ids: list[str] = []


class Subscriptions(_Message, frozen=True):
    """What the connection is subscribed to now."""

    channels: list[Channel]


class Error(_Message, frozen=True):
    """The exchange refused something."""

    message: str = ""
    reason: str = ""


Sequenced = Received | Open | Match | Done | Change | Activate
Message = Sequenced | Heartbeat | Subscriptions | Error


class Envelope(msgspec.Struct, gc=False, frozen=True):
    """What places a message in a product's sequence, read from messages that are otherwise unusable."""

    product_id: str
    sequence: Sequence


class Snapshot(msgspec.Struct, gc=False, frozen=True):
    """The answer to `GET /products/<id>/book?level=3`; entries are (price, size, order id)."""

    sequence: Sequence
    bids: list[tuple[str, str, UUID]]
    asks: list[tuple[str, str, UUID]]
    time: str | None = None


class Product(msgspec.Struct, frozen=True):
    """An entry of `GET /products`: the tick is `quote_increment`, the lot `base_increment`."""

    id: str
    quote_increment: str
    base_increment: str


decode_message = msgspec.json.Decoder(Message).decode
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_snapshot = msgspec.json.Decoder(Snapshot).decode
