"""Bitfinex' derivatives besides books: mark price, funding and open interest.

Source: Bitfinex API documentation v2, "WebSocket Public: Status", "Derivatives Status".

    {"event": "subscribe", "channel": "status", "key": "deriv:tBTCF0:USTF0"}
    {"event": "subscribed", "channel": "status", "chanId": 335856, "key": "deriv:tBTCF0:USTF0"}
    [335856, [1596124822000, null, 0.896, 0.771995, null, 1396531.67460709, null, 1596153600000, 0.0001056, 6,
     null, -0.01381344, null, null, 0.7664, null, null, 246.94, null, null, null, 0.0005, 0.0025], 4]

By place: 0 time (ms), 7 when funding is paid next (ms), 11 the rate that is applied then, 14 mark price, 17
open interest; more may be appended. What accrues for the period after (8) and the mid of the spot book (3),
which is no index price, are left out. Liquidations come in one feed of all derivatives, which is not read.
"""

from typing import Any

import msgspec

from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import FeedBook

KEY = "deriv:"
_TIME, _PAID, _RATE, _MARK, _INTEREST = 0, 7, 11, 14, 17
_LATEST = (2**63 - 1) // 1_000_000
_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_time = msgspec.json.Decoder(int).decode


def is_derivative(product: str) -> bool:
    """Whether a product is a perpetual, as tBTCF0:USTF0."""
    return product.endswith("F0")


def write_status(body: Any, book: FeedBook, receive_time: int, number: int) -> None:
    """Write a status as a unit. Raises what msgspec raises, DataError and ValueError."""
    texts = [bytes(value).decode() for value in _decode(body)]
    if len(texts) <= _INTEREST:
        raise ValueError(f"a status of {len(texts)} values")
    time, paid = (0 if texts[at] == "null" else _decode_time(texts[at]) for at in (_TIME, _PAID))
    if not (0 <= time <= _LATEST and 0 <= paid <= _LATEST):
        raise ValueError(f"a time that is none: {time}, {paid}")
    rate, mark, interest = ("" if texts[at] == "null" else texts[at] for at in (_RATE, _MARK, _INTEREST))
    values = ContractValues(book)
    book.begin(time * 1_000_000, receive_time, number, apart=True)
    if mark:
        values.mark(mark)
    if rate:
        values.funding(rate, paid * 1_000_000)
    if interest:
        values.open_interest(interest)
    values.end()
