"""Funding, mark prices, open interest and liquidations: from frames to events, relations and views."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from session_support import Driven, instrument

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.binance import BinanceDelivery, BinanceFutures, BinanceSpot
from orderbook.feeds.exchanges.contract_values import rounded
from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.market.events import Action, Side

PERPETUAL = "BTCUSD_PERP"
MARK = {
    "e": "markPriceUpdate", "E": 1596095725000, "s": PERPETUAL, "p": "10934.62615417", "P": "10962.17178236",
    "r": "0.00038167", "T": 1596096000000,
}  # fmt: skip
FORCE = {
    "e": "forceOrder", "E": 1591154240950, "o": {"s": PERPETUAL, "ps": "BTCUSD", "S": "SELL", "o": "LIMIT",
    "f": "IOC", "q": "1", "p": "9425.5", "ap": "9496.5", "X": "FILLED", "l": "1", "z": "1",
    "T": 1591154240949},
}  # fmt: skip


def stream(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"stream": f"{PERPETUAL.lower()}@{kind}", "data": data}


def driven(kind: type[Exchange] = BinanceDelivery) -> Driven:
    return Driven(kind, [instrument(kind.venue, PERPETUAL, "0.1", "1")])


def test_the_documented_frames_of_binance() -> None:
    one = driven()
    told = [
        (0, Action.MARK, Side.NONE, 1093462615417, 0, 0),
        (0, Action.FUNDING, Side.NONE, 381670000, 0, 1596096000000 * 10**6),
    ]
    assert one.frame(stream("markPrice@1s", MARK)) == told
    assert one.frame(stream("forceOrder", FORCE)) == [(0, Action.LIQUIDATION, Side.ASK, 94255, 1, 0)]
    # A dated contract has no funding; USD-M futures tell the index price.
    dated = stream("markPrice", MARK | {"r": "", "T": 0, "i": "10930.5"})
    assert one.frame(dated) == [(0, Action.MARK, Side.NONE, 1093462615417, 1093050000000, 0)]
    assert one.problems == {}


def test_what_cannot_be_used_writes_nothing() -> None:
    one = driven()
    for change in ({"p": "x"}, {"r": "1e30"}, {"s": "ETHUSD_PERP"}, {"T": -1}, {"E": 2**62}, {"p": "NaN"}):
        assert one.frame(stream("markPrice", MARK | change)) == []
    for change in ({"S": "LEFT"}, {"q": "-1"}, {"p": "1.000000001"}):
        assert one.frame(stream("forceOrder", FORCE | {"o": FORCE["o"] | change})) == []  # type: ignore[operator]
    assert one.statistics.malformed == 9
    # Spot has none.
    assert driven(BinanceSpot).frame(stream("markPrice", MARK)) == []


def test_subscriptions() -> None:
    one = driven()
    (sent,) = one.sent(1.0)
    kinds = ("depth@100ms", "trade", "markPrice@1s", "forceOrder")
    assert sent["params"] == [f"btcusd_perp@{kind}" for kind in kinds]
    # Another address has them, which a feed of USD-M futures does not connect to.
    (sent,) = driven(BinanceFutures).sent(1.0)
    assert sent["params"] == [f"btcusd_perp@{kind}" for kind in kinds[:2]]


def test_instruments_of_coin_margined_futures() -> None:
    listed = {"symbols": [{
        "symbol": PERPETUAL, "pricePrecision": 1, "quantityPrecision": 0, "contractSize": 100, "filters": [
            {"filterType": "PRICE_FILTER", "tickSize": "0.1"}, {"filterType": "LOT_SIZE", "stepSize": "1"}],
    }]}  # fmt: skip
    (one,) = BinanceDelivery.instruments([PERPETUAL], [json.dumps(listed).encode()])
    assert (str(one), one.contract) == ("binance_delivery:BTC-USD-PERP", "inverse")
    assert (one.tick, one.lot) == (Decimal("0.1"), Decimal(1))


@examples(60)
@given(st.decimals(-(10**9), 10**9, places=14), st.sampled_from([8, 12]))
def test_rounding_is_half_even(number: Decimal, places: int) -> None:
    text = f"{number:f}"
    if abs(number) >= 10 ** (18 - places):
        with pytest.raises(DataError, match="does not fit"):
            rounded(text, places)
    else:
        assert rounded(text, places) == round(number * 10**places)


@pytest.mark.parametrize("text", ["", "x", "1_0", "Infinity", "9999999999.999999999"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(DataError):
        rounded(text)
