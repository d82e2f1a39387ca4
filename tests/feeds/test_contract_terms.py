"""What venues list of their products, as documented, and as the relation `instruments` has it."""

import json
from decimal import Decimal
from typing import Any

import pytest

from orderbook.feeds.exchanges.binance import BinanceDelivery, BinanceFutures, BinanceSpot
from orderbook.feeds.exchanges.bitfinex import Bitfinex
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.coinbase import Coinbase
from orderbook.feeds.exchanges.deribit import Deribit
from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.feeds.exchanges.okx import Okx
from orderbook.feeds.raw_log import InstrumentText
from orderbook.market.contract_terms import (
    PERPETUAL,
    SPOT,
    Terms,
    amount,
    expiry_of,
    expiry_of_text,
    option_type_of,
)

ONE = Decimal(1)
MS = 1_000_000
FILTERS = [
    {"filterType": "PRICE_FILTER", "tickSize": "0.1"},
    {"filterType": "LOT_SIZE", "stepSize": "1"},
]


def binance(**stated: Any) -> dict[str, Any]:
    return {"symbols": [{"pricePrecision": 1, "quantityPrecision": 0, "filters": FILTERS, **stated}]}


def bybit(category: str, symbol: str, **stated: Any) -> dict[str, Any]:
    sizes = {"priceFilter": {"tickSize": "0.10"}, "lotSizeFilter": {"qtyStep": "0.001"}}
    return {"retCode": 0, "result": {"category": category, "list": [{"symbol": symbol, **sizes, **stated}]}}


def okx(name: str, **stated: str) -> dict[str, Any]:
    return {"code": "0", "data": [{"instId": name, "tickSz": "0.1", "lotSz": "1", **stated}]}


def deribit(name: str, **stated: Any) -> dict[str, Any]:
    return {"result": {"instrument_name": name, "tick_size": 0.5, "min_trade_amount": 10, **stated}}


def coinbase(name: str, **stated: Any) -> dict[str, Any]:
    return {"products": [{"product_id": name, "price_increment": "5", "base_increment": "1", **stated}]}


@pytest.mark.parametrize(
    ("kind", "product", "answer", "terms"),
    [
        (BinanceSpot, "BTCUSDT", binance(symbol="BTCUSDT"), SPOT),
        (
            BinanceFutures,
            "BTCUSDT",
            binance(
                symbol="BTCUSDT", contractType="PERPETUAL", deliveryDate=4133404800000, marginAsset="USDT"
            ),
            Terms(kind="perpetual", settlement="USDT", multiplier=ONE),
        ),
        (
            BinanceDelivery,
            "BTCUSD_200925",
            binance(
                symbol="BTCUSD_200925",
                contractType="CURRENT_QUARTER",
                deliveryDate=1601020800000,
                contractSize=100,
                marginAsset="BTC",
            ),
            Terms(kind="future", settlement="BTC", multiplier=Decimal(100), expiry=1601020800000 * MS),
        ),
        (Bybit, "BTCUSDT", bybit("spot", "BTCUSDT"), SPOT),
        (
            Bybit,
            "BTCUSDT.P",
            bybit("linear", "BTCUSDT", contractType="LinearPerpetual", settleCoin="USDT", deliveryTime="0"),
            Terms(kind="perpetual", settlement="USDT", multiplier=ONE),
        ),
        (
            Bybit,
            "BTCUSDZ25.P",
            bybit(
                "inverse",
                "BTCUSDZ25",
                contractType="InverseFutures",
                settleCoin="BTC",
                deliveryTime="1766736000000",
            ),
            Terms(kind="future", settlement="BTC", multiplier=ONE, expiry=1766736000000 * MS),
        ),
        (Okx, "BTC-USDT", okx("BTC-USDT", instType="SPOT", expTime=""), SPOT),
        (
            Okx,
            "BTC-USDT-SWAP",
            okx(
                "BTC-USDT-SWAP",
                instType="SWAP",
                ctType="linear",
                ctVal="0.01",
                ctMult="1",
                settleCcy="USDT",
                expTime="",
                stk="",
                optType="",
            ),
            Terms(kind="perpetual", settlement="USDT", multiplier=Decimal("0.01")),
        ),
        (
            Okx,
            "BTC-USD-220527",
            okx(
                "BTC-USD-220527",
                instType="FUTURES",
                ctType="inverse",
                ctVal="100",
                ctMult="1",
                settleCcy="BTC",
                expTime="1653638400000",
            ),
            Terms(kind="future", settlement="BTC", multiplier=Decimal(100), expiry=1653638400000 * MS),
        ),
        (
            Deribit,
            "BTC-PERPETUAL",
            deribit(
                "BTC-PERPETUAL",
                kind="future",
                instrument_type="reversed",
                settlement_period="perpetual",
                settlement_currency="BTC",
                expiration_timestamp=32503708800000,
            ),
            Terms(kind="perpetual", settlement="BTC", multiplier=ONE),
        ),
        (
            Deribit,
            "BTC-13JAN23-16000-P",
            deribit(
                "BTC-13JAN23-16000-P",
                kind="option",
                settlement_period="week",
                settlement_currency="BTC",
                expiration_timestamp=1673596800000,
                strike=16000.0,
                option_type="put",
            ),
            Terms(
                kind="option",
                settlement="BTC",
                multiplier=ONE,
                expiry=1673596800000 * MS,
                strike=Decimal(16000),
                option_type="put",
            ),
        ),
        (Coinbase, "BTC-USD", coinbase("BTC-USD", product_type="SPOT"), SPOT),
        (
            Coinbase,
            "BIT-28FEB25-CDE",
            coinbase(
                "BIT-28FEB25-CDE",
                product_type="FUTURE",
                future_product_details={
                    "contract_expiry": "2025-02-28T16:00:00Z",
                    "contract_size": "0.01",
                    "contract_expiry_type": "EXPIRING",
                },
            ),
            Terms(kind="future", multiplier=Decimal("0.01"), expiry=1740758400 * 10**9),
        ),
    ],
)
def test_documented_answers(kind: type[Exchange], product: str, answer: Any, terms: Terms) -> None:
    (one,) = kind.instruments([product], [json.dumps(answer).encode()])
    assert one.terms == terms
    # As logs, records and captures keep it.
    kept = InstrumentText.of(one).instrument
    assert kept == one and kept.terms == terms


def test_names_say_what_bitfinex_lists() -> None:
    names = [json.dumps([["BTCUSD", "BTCF0:USTF0"]]).encode()]
    spot, derivative = Bitfinex.instruments(["tBTCUSD", "tBTCF0:USTF0"], names)
    assert spot.terms == SPOT
    assert derivative.terms == Terms(kind="perpetual", settlement="USDT", multiplier=ONE) != PERPETUAL


@pytest.mark.parametrize(
    "stated",
    ["", "x", "0", "-1", "NaN", "Infinity", "1e-9", "1e10", "1.000000000000000000000000000000001", None],
)
def test_what_no_column_can_hold_is_not_told(stated: str | None) -> None:
    assert amount(stated) is None


def test_texts_of_terms() -> None:
    assert [amount(text) for text in ("100", "1E+2", "0.00000001")] == [Decimal(100), 100, Decimal("1e-8")]
    assert [expiry_of(stated) for stated in ("5", 5, "", None, "0", "x", -1, 2**62)] == [5 * MS, 5 * MS] + [
        None
    ] * 6
    assert [expiry_of_text(text) for text in ("2025-02-28T16:00:00", None, "", "soon")] == [
        1740758400 * 10**9, None, None, None]  # fmt: skip
    assert [option_type_of(text) for text in ("C", "put", "")] == ["call", "put", None]
