"""What tickers and streams of Bybit, OKX and Bitfinex tell of contracts: from frames to events."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from session_support import Driven, instrument

from orderbook.feeds.exchanges.bitfinex import Bitfinex, BitfinexRaw
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.okx import Okx
from orderbook.market.events import Action, Side

MARK, FUNDING, INTEREST, CLOSED = Action.MARK, Action.FUNDING, Action.OPEN_INTEREST, Action.LIQUIDATION
NONE, MS = Side.NONE, 1_000_000
TICKER = {
    "symbol": "BTCUSDT", "tickDirection": "PlusTick", "lastPrice": "17216.00", "markPrice": "17217.33",
    "indexPrice": "17227.36", "openInterest": "68744.761", "nextFundingTime": "1673280000000",
    "fundingRate": "-0.000212", "bid1Price": "17215.50", "bid1Size": "84.489",
}  # fmt: skip


def bybit() -> Driven:
    return Driven(Bybit, [instrument("bybit", "BTCUSDT.P", "0.01", "0.001")])


def ticker(data: dict[str, str], kind: str = "delta") -> dict[str, Any]:
    told = {"symbol": "BTCUSDT"} | data
    return {"topic": "tickers.BTCUSDT", "type": kind, "data": told, "cs": 1, "ts": 1673272861686}


def test_tickers_of_bybit() -> None:
    one = bybit()
    assert one.frame(ticker({"markPrice": "1"})) == []
    mark = (0, MARK, NONE, 1721733000000, 1722736000000, 0)
    paid = 1673280000000 * MS
    assert one.frame(ticker(TICKER, "snapshot")) == [
        mark,
        (0, FUNDING, NONE, -212000000, 0, paid),
        (0, INTEREST, NONE, 0, 6874476100000, 0),
    ]
    # A delta tells what has changed; what belongs to it is as before.
    assert one.frame(ticker({"lastPrice": "3"})) == []
    assert one.frame(ticker({"indexPrice": "17228"})) == [(0, MARK, NONE, 1721733000000, 1722800000000, 0)]
    assert one.frame(ticker({"fundingRate": "0.0001"})) == [(0, FUNDING, NONE, 100000000, 0, paid)]
    later = str(1673280000000 + 28800000)
    assert one.frame(ticker({"nextFundingTime": later})) == [
        (0, FUNDING, NONE, 100000000, 0, int(later) * MS)
    ]
    assert one.frame(ticker({"openInterest": "5"})) == [(0, INTEREST, NONE, 0, 5 * 10**8, 0)]
    assert one.problems == {"ticker before its snapshot": 1}


def test_a_bad_ticker_changes_nothing() -> None:
    one = bybit()
    one.frame(ticker(TICKER, "snapshot"))
    bad = ({"markPrice": "x"}, {"fundingRate": "1e9"}, {"nextFundingTime": "soon"}, {"openInterest": "-1"},
           {"symbol": "ETHUSDT"}, {"markPrice": "2", "openInterest": "NaN"})  # fmt: skip
    for change in bad:
        assert one.frame(ticker(change)) == []
    assert one.frame(ticker({"markPrice": "1"}, "whole")) == []
    assert one.statistics.malformed == 7
    # What was told before still holds.
    assert one.frame(ticker({"indexPrice": "1"})) == [(0, MARK, NONE, 1721733000000, 10**8, 0)]


def test_a_new_connection_waits_for_its_snapshot() -> None:
    one = bybit()
    one.frame(ticker(TICKER, "snapshot"))
    one.session.disconnected("gone", one.time)
    one.connect()
    assert one.frame(ticker({"indexPrice": "1"})) == []


@examples(30)
@given(st.integers(0, 10**6))
def test_deltas_come_to_the_whole(seed: int) -> None:
    """The last rows of a stream of deltas are those of the snapshot that they add up to."""
    chance, one, names = Random(seed), bybit(), tuple(TICKER)[3:8]
    whole = {name: TICKER[name] for name in names}
    last = kept(one.frame(ticker(whole, "snapshot")))
    for _ in range(20):
        told = {name: str(chance.randint(1, 9)) for name in chance.sample(names, chance.randint(0, 3))}
        whole |= told
        last |= kept(one.frame(ticker(told)))
    assert last == kept(bybit().frame(ticker(whole, "snapshot")))


def kept(events: Iterable[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {event[1]: event for event in events}


def test_liquidations_of_bybit() -> None:
    one = bybit()
    closed = {"T": 1739502302929, "s": "BTCUSDT", "S": "Sell", "v": "20", "p": "0.04"}
    frame = {"topic": "allLiquidation.BTCUSDT", "type": "snapshot", "ts": 1739502303204}
    # A short position is closed by buying.
    assert one.frame(frame | {"data": [closed, closed | {"S": "Buy"}]}) == [
        (0, CLOSED, Side.BID, 4, 20_000, 0),
        (0, CLOSED, Side.ASK, 4, 20_000, 0),
    ]
    for change in ({"S": "Left"}, {"v": "-1"}, {"p": "x"}, {"s": "ETHUSDT"}, {"T": -1}):
        assert one.frame(frame | {"data": [closed, closed | change]}) == []
    assert one.statistics.malformed == 5
    # Spot has none.
    spot = Driven(Bybit, [instrument("bybit", "BTCUSDT")])
    assert spot.frame(frame | {"data": [closed]}) == [] == spot.frame(ticker(TICKER, "snapshot"))
    assert spot.problems == {"unknown message": 2}


SWAP = "BTC-USD-SWAP"
DATA = {
    "funding-rate": {"fundingRate": "0.0001875391284828", "fundingTime": "1700726400000",
                     "nextFundingTime": "1700755200000", "ts": "1700724675402"},
    "mark-price": {"instType": "SWAP", "markPx": "42310.6", "ts": "1630049139746"},
    "open-interest": {"instType": "SWAP", "oi": "2216113.01", "oiCcy": "555.55", "ts": "1597026383085"},
}  # fmt: skip
DETAIL = {"bkLoss": "0", "bkPx": "42310.5", "ccy": "", "posSide": "short", "side": "buy", "sz": "13",
          "ts": "1692266434010"}  # fmt: skip


def okx() -> Driven:
    return Driven(Okx, [instrument("okx", SWAP, "0.1", "1")])


def channel(name: str, **change: str) -> dict[str, Any]:
    return {"arg": {"channel": name, "instId": SWAP}, "data": [{"instId": SWAP} | DATA[name] | change]}


def liquidations(name: str = SWAP, **change: str) -> dict[str, Any]:
    argument = {"channel": "liquidation-orders", "instType": "SWAP"}
    return {"arg": argument, "data": [{"details": [DETAIL | change], "instId": name, "instType": "SWAP"}]}


def test_the_documented_frames_of_okx() -> None:
    one = okx()
    # Finer than the column: rounded to twelve places.
    paid = 1700726400000 * MS
    assert one.frame(channel("funding-rate")) == [(0, FUNDING, NONE, 187539128, 0, paid)]
    assert one.frame(channel("mark-price")) == [(0, MARK, NONE, 4231060000000, 0, 0)]
    assert one.frame(channel("open-interest")) == [(0, INTEREST, NONE, 0, 221611301000000, 0)]
    assert one.frame(liquidations()) == [(0, CLOSED, Side.BID, 423105, 13, 0)]
    assert one.frame(liquidations("ETH-USD-SWAP")) == []
    assert one.problems == {}


def test_what_okx_sends_that_cannot_be_used() -> None:
    one = okx()
    bad: list[Any] = [channel("funding-rate", fundingRate=""), channel("funding-rate", fundingTime="")]
    bad += [channel("mark-price", markPx="x"), channel("open-interest", oi="-1")]
    bad += [channel("mark-price", instId="ETH-USD-SWAP"), channel("mark-price", ts="99999999999999")]
    bad += [liquidations(side="left"), liquidations(bkPx=""), liquidations(ts="x")]
    for frame in bad:
        assert one.frame(frame) == []
    assert one.statistics.malformed == len(bad)
    unknown = channel("mark-price")
    unknown["arg"]["instId"] = "ETH-USD-SWAP"
    assert one.frame(unknown) == [] and one.problems["unknown product"] == 1


PERPETUAL = "tBTCF0:USTF0"
STATUS = [
    1596124822000, None, 0.896, 0.771995, None, 1396531.67460709, None, 1596153600000, 0.0001056, 6, None,
    -0.01381344, None, None, 0.7664, None, None, 246.94, None, None, None, 0.0005, 0.0025,
]  # fmt: skip


@pytest.mark.parametrize("kind", [Bitfinex, BitfinexRaw])
def test_the_documented_status_of_bitfinex(kind: type[Bitfinex]) -> None:
    one = Driven(kind, [instrument("bitfinex", PERPETUAL, "0.00000001")])
    # The status comes before its channel is known, and waits.
    assert one.frame([335856, STATUS, 1]) == []
    told = [
        (0, MARK, NONE, 76640000, 0, 0),
        (0, FUNDING, NONE, -13813440000, 0, 1596153600000 * MS),
        (0, INTEREST, NONE, 0, 24694000000, 0),
    ]
    named = {"event": "subscribed", "channel": "status", "chanId": 335856, "key": f"deriv:{PERPETUAL}"}
    assert one.frame(named) == told
    assert one.frame([335856, [*STATUS, 1, 2], 2]) == told
    nothing = STATUS.copy()
    nothing[11] = nothing[14] = None
    assert one.frame([335856, nothing, 3]) == told[2:]
    assert one.frame([335856, "hb", 4]) == [] and one.problems == {}
    for number, (place, value) in enumerate([(0, -1), (7, "x"), (11, "x"), (14, 1e30), (17, -1)], 5):
        wrong: list[object] = [*STATUS]
        wrong[place] = value
        assert one.frame([335856, wrong, number]) == []
    assert one.frame([335856, STATUS[:17], 10]) == []
    assert one.statistics.malformed == 6


def test_a_status_is_not_taken_for_trades() -> None:
    one = Driven(Bitfinex, [instrument("bitfinex", PERPETUAL, "0.00000001")])
    for number, name in enumerate(("trades", "status"), 1):
        one.frame({"event": "subscribed", "channel": name, "chanId": number, "symbol": PERPETUAL,
                   "key": f"deriv:{PERPETUAL}"})  # fmt: skip
    trade = [670002570, 1618677535660, -7.5, 0.5]
    assert one.frame(json.dumps([1, "te", trade, 1])) == [
        (0, Action.TRADE, Side.ASK, 5 * 10**7, 75 * 10**7, 670002570)
    ]
    assert [event[1] for event in one.frame([2, STATUS, 2])] == [MARK, FUNDING, INTEREST]
