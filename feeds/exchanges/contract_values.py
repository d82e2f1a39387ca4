"""What exchanges tell of contracts besides books and trades, from wire text to events.

Funding rates, mark and index prices and open interest are numbers that an exchange computes: where they are
finer than their relation's column they are rounded, half to even. Liquidations are orders, and exact.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.market.events import Action, Side
from orderbook.market.instruments import LARGEST, SCALE

# Decimal places of funding.rate.
RATE_PLACES = 12


def rounded(text: str, places: int = SCALE) -> int:
    """The number written in `text` times 10^places, rounded half to even.

    Raises DataError for what is no finite decimal number, or has more than 18 digits then.
    """
    try:
        # Decimal takes 1_000, which no exchange writes.
        number = Decimal(text if "_" not in text else "")
    except InvalidOperation:
        raise DataError(f"{text!r} is not a decimal number") from None
    if not number.is_finite():
        raise DataError(f"{text!r} is not a finite number")
    if not number:
        return 0
    if number.adjusted() >= 18 - places:
        raise DataError(f"{text} does not fit DECIMAL(18, {places})")
    value = int(number.scaleb(places).to_integral_value(ROUND_HALF_EVEN))
    if abs(value) > LARGEST:
        raise DataError(f"{text} does not fit DECIMAL(18, {places})")
    return value


class ContractValues:
    """Writes what is told of one contract, each call a unit of its own or, after `begin`, a part of one.

    Times are ns; texts are the wire's. All raise DataError for what cannot be held; nothing is written then.
    """

    __slots__ = ("_book",)

    def __init__(self, book: FeedBook) -> None:
        self._book = book

    def begin(self, exchange_time: int, receive_time: int) -> None:
        """Open a unit, which is not ordered with the book's."""
        self._book.begin(exchange_time, receive_time, self._book.sequence, apart=True)

    def end(self) -> None:
        """Close the unit."""
        self._book.end()

    def funding(self, rate: str, next_time: int = 0) -> None:
        """Add a funding rate, and when it is paid next (0: not told)."""
        if next_time < 0:
            raise DataError(f"a next time of funding of {next_time} ns")
        price = rounded(rate, RATE_PLACES)
        self._book.add(Action.FUNDING, Side.NONE, price=price, order_id=next_time)

    def mark(self, price: str, index_price: str = "") -> None:
        """Add a mark price, and the index price where it is told."""
        index = rounded(index_price) if index_price else 0
        self._book.add(Action.MARK, Side.NONE, price=rounded(price), volume=index)

    def open_interest(self, volume: str) -> None:
        """Add the open interest, in what the exchange's volumes count."""
        value = rounded(volume)
        if value < 0:
            raise DataError(f"an open interest of {volume}")
        self._book.add(Action.OPEN_INTEREST, Side.NONE, volume=value)

    def liquidation(self, side: Side, price: str, size: str, order_id: int = 0) -> None:
        """Add an order by which a position is closed; side is the order's."""
        book = self._book
        book.add(Action.LIQUIDATION, side, order_id=order_id, price=book.ticks[price], volume=book.lots[size])
