"""The exchanges that there are, by the name a configuration gives them."""

from importlib import import_module
from typing import Any

from feeds.exchange import Exchange

# Modules are imported when they are asked for.
_CLASSES = {
    "binance": "binance:BinanceSpot",
    "binance_futures": "binance:BinanceFutures",
    "bitfinex": "bitfinex:Bitfinex",
    "bitfinex_l3": "bitfinex:BitfinexRaw",
    "bitstamp": "bitstamp:Bitstamp",
    "bitstamp_l3": "bitstamp:BitstampOrders",
    "bybit": "bybit:Bybit",
    "coinbase": "coinbase:Coinbase",
    "coinbase_full": "coinbase_full:CoinbaseFull",
    "kraken": "kraken:Kraken",
    "kraken_v1": "kraken_v1:KrakenV1",
    "okx": "okx:Okx",
}
EXCHANGES = tuple(_CLASSES)


def exchange(name: str) -> type[Exchange]:
    """The class of an exchange. Raises KeyError for a name that is not among EXCHANGES."""
    module, _, kind = _CLASSES[name].partition(":")
    found: Any = getattr(import_module(f"feeds.exchanges.{module}"), kind)
    return found
