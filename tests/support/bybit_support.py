"""Bybit's documented frames, and a session that takes them."""

from session_support import Driven, instrument

from orderbook.feeds.exchanges.bybit import Bybit

SNAPSHOT = """{"topic": "orderbook.50.BTCUSDT", "type": "snapshot", "ts": 1672304484978, "data": {
    "s": "BTCUSDT", "b": [["16493.50", "0.006"], ["16493.00", "0.100"]],
    "a": [["16611.00", "0.029"], ["16612.00", "0.213"]], "u": 18521288, "seq": 7961638724},
    "cts": 1672304484976}"""
DELTA = """{"topic": "orderbook.50.BTCUSDT", "type": "delta", "ts": 1687940967466, "data": {"s": "BTCUSDT",
    "b": [["16493.50", "0"], ["16493.25", "30.028"]], "a": [["16611.00", "0.030"], ["16620.00", "0"]],
    "u": 18521289, "seq": 66544703342}, "cts": 1687940967464}"""


def driven(*products: str, depth: int | None = None) -> Driven:
    return Driven(
        Bybit, [instrument("bybit", name, "0.01", "0.001") for name in products or ("BTCUSDT",)], depth
    )
