"""nautilus_trader's side of the section `strategies`, in an interpreter that has it.

    PYTHON -P benchmarks/nautilus_quotes.py FILE TICK LOT PRICE VOLUME LATENCY RUNS

FILE is an array of EVENT, PRICE and VOLUME what its prices and volumes count. It prints a line of JSON: by
what was done, [CPU seconds of each run] and how many orders were sent. "every message" is called at each;
"quotes" has an order of ten lots rest at the best bid, and cancels it where that is another price. Latencies
are ns each way.
"""

import json
import sys
import time
from decimal import Decimal
from typing import Any

import numpy as np
from nautilus_trader.backtest.engine import (  # type: ignore[import-not-found]
    BacktestEngine,
    BacktestEngineConfig,
)
from nautilus_trader.backtest.models import LatencyModel  # type: ignore[import-not-found]
from nautilus_trader.config import LoggingConfig  # type: ignore[import-not-found]
from nautilus_trader.model import currencies, data, enums, identifiers, objects  # type: ignore[import-not-found]
from nautilus_trader.model.instruments import CryptoPerpetual  # type: ignore[import-not-found]
from nautilus_trader.trading.strategy import Strategy  # type: ignore[import-not-found]

_VENUE = identifiers.Venue("BINANCE")
_ID = identifiers.InstrumentId(identifiers.Symbol("BTCUSDT-PERP"), _VENUE)
# Of EVENT: kinds of changes, the side of bids, and the last of a message.
_LEVEL, _TRADE, _BID, _LAST = 6, 8, 0, 1


class Nothing(Strategy):  # type: ignore[misc]
    """Is told of each message."""

    orders = 0

    def on_start(self) -> None:
        """Asks to be told."""
        self.subscribe_order_book_deltas(_ID, book_type=enums.BookType.L2_MBP)

    def on_order_book_deltas(self, deltas: Any) -> None:
        """A message was applied to the book."""


class Quotes(Nothing):
    """Joins the best bid."""

    def on_start(self) -> None:
        """Begins without an order."""
        super().on_start()
        self.instrument = self.cache.instrument(_ID)
        self.volume = self.instrument.make_qty(10 * self.instrument.size_increment.as_decimal())
        self.bid = self.order = None

    def on_order_book_deltas(self, deltas: Any) -> None:
        """See the class."""
        bid = self.cache.order_book(_ID).best_bid_price()
        if bid is None or bid == self.bid:
            return
        if self.order is not None and not self.order.is_closed:
            self.cancel_order(self.order)
        self.bid = bid
        self.order = self.order_factory.limit(_ID, enums.OrderSide.BUY, self.volume, bid, post_only=True)
        self.submit_order(self.order)
        self.orders += 1


def _instrument(tick: Decimal, lot: Decimal) -> Any:
    price = objects.Price(tick, -int(tick.normalize().as_tuple().exponent))
    size = objects.Quantity(lot, -int(lot.normalize().as_tuple().exponent))
    return CryptoPerpetual(
        instrument_id=_ID, raw_symbol=_ID.symbol, base_currency=currencies.BTC,
        quote_currency=currencies.USDT, settlement_currency=currencies.USDT, is_inverse=False,
        price_precision=price.precision, size_precision=size.precision, price_increment=price,
        size_increment=size, ts_event=0, ts_init=0, margin_init=Decimal(0), margin_maint=Decimal(0),
        maker_fee=Decimal(0), taker_fee=Decimal(0),
    )  # fmt: skip


def _messages(events: Any, units: tuple[Decimal, Decimal], instrument: Any) -> list[Any]:
    """What the events are there: a message's levels, or a trade."""
    found, levels = list[Any](), list[Any]()
    for number, event in enumerate(events):
        price = objects.Price(units[0] * int(event["price"]), instrument.price_precision)
        size = objects.Quantity(units[1] * int(event["volume"]), instrument.size_precision)
        at, bid = int(event["receive_time"]), event["side"] == _BID
        if event["action"] == _TRADE:
            side = enums.AggressorSide.BUYER if bid else enums.AggressorSide.SELLER
            trade = identifiers.TradeId(str(number))
            found.append(data.TradeTick(_ID, price, size, side, trade, at, at))
        elif event["action"] == _LEVEL:
            side = enums.OrderSide.BUY if bid else enums.OrderSide.SELL
            action = enums.BookAction.UPDATE if event["volume"] else enums.BookAction.DELETE
            order = data.BookOrder(side, price, size, 0)
            flags = enums.RecordFlag.F_LAST.value if event["flags"] & _LAST else 0
            levels.append(data.OrderBookDelta(_ID, action, order, flags, 0, at, at))
        if event["flags"] & _LAST and levels:
            found.append(data.OrderBookDeltas(_ID, levels))
            levels = []
    return found


def _run(kind: type[Nothing], messages: list[Any], instrument: Any, latency: int) -> tuple[float, int]:
    """CPU seconds, and how many orders were sent."""
    engine = BacktestEngine(BacktestEngineConfig(logging=LoggingConfig(bypass_logging=True)))
    engine.add_venue(
        _VENUE, enums.OmsType.NETTING, enums.AccountType.MARGIN, [objects.Money(10**8, currencies.USDT)],
        latency_model=LatencyModel(latency), book_type=enums.BookType.L2_MBP,
    )  # fmt: skip
    engine.add_instrument(instrument)
    for own in (data.OrderBookDeltas, data.TradeTick):
        engine.add_data([one for one in messages if isinstance(one, own)])
    strategy = kind()
    engine.add_strategy(strategy)
    start = time.process_time()
    engine.run()
    taken = time.process_time() - start
    engine.dispose()
    return taken, strategy.orders


def main() -> None:
    """Measures, in turn, and prints."""
    file, tick, lot, price, volume, latency, runs = sys.argv[1:]
    instrument = _instrument(Decimal(tick), Decimal(lot))
    messages = _messages(np.load(file), (Decimal(price), Decimal(volume)), instrument)
    found: dict[str, list[Any]] = {}
    for _ in range(int(runs)):
        for name, kind in (("every message", Nothing), ("quotes", Quotes)):
            taken, count = _run(kind, messages, instrument, int(latency))
            own = found.setdefault(name, [[], count])
            own[0].append(taken)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
