"""Bybit v5: documented frames, and a market that plays the exchange's side, with faults."""

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from bybit_support import DELTA, SNAPSHOT, driven
from hypothesis import given
from hypothesis import strategies as st
from session_support import instrument

from orderbook.core.errors import ConfigurationError, SourceError
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.session import Connect, Disconnect, Send, Session
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instruments

BTC, ETH, PERPETUAL, INVERSE = "BTCUSDT", "ETHUSDT", "BTCUSDT.P", "BTCUSD.P"
VALID, SYNCING = BookState.VALID, BookState.SYNCING
TRADES = """{"topic": "publicTrade.BTCUSDT", "type": "snapshot", "ts": 1672304486868, "data": [
    {"T": 1672304486865, "s": "BTCUSDT", "S": "Buy", "v": "0.001", "p": "16578.50", "L": "PlusTick",
     "i": "20f43950-d8dd-5b31-9112-a178eb6023af", "BT": false, "seq": 1783284617},
    {"T": 1672304486866, "s": "BTCUSDT", "S": "Sell", "v": "0.002", "p": "16578.00", "L": "MinusTick",
     "i": "2290000000061666327", "BT": false}]}"""
SPOT = """{"retCode": 0, "retMsg": "OK", "result": {"category": "spot", "list": [{"symbol": "BTCUSDT",
    "baseCoin": "BTC", "quoteCoin": "USDT", "innovation": "0", "status": "Trading", "lotSizeFilter":
    {"basePrecision": "0.000001", "quotePrecision": "0.00000001", "minOrderQty": "0.000048"},
    "priceFilter": {"tickSize": "0.01"}}]}, "retExtInfo": {}, "time": 1672712468011}"""
LINEAR = """{"retCode": 0, "retMsg": "OK", "result": {"category": "linear", "list": [{"symbol": "BTCUSDT",
    "contractType": "LinearPerpetual", "status": "Trading", "priceScale": "2", "priceFilter":
    {"minPrice": "0.10", "maxPrice": "1999999.80", "tickSize": "0.10"}, "lotSizeFilter":
    {"maxOrderQty": "1190.000", "minOrderQty": "0.001", "qtyStep": "0.001"}}],
    "nextPageCursor": ""}, "time": 1707186451514}"""


def test_the_documented_frames() -> None:
    one = driven()
    one.frame(SNAPSHOT)
    assert one.state(BTC) is VALID
    assert one.levels(BTC) == ([(1649350, 6), (1649300, 100)], [(1661100, 29), (1661200, 213)])
    one.frame(DELTA)
    assert one.levels(BTC) == ([(1649325, 30028), (1649300, 100)], [(1661100, 30), (1661200, 213)])
    trades = one.frame(TRADES)
    uuid = 0x20F43950D8DD5B319112A178EB6023AF >> 65
    assert trades == [
        (0, Action.TRADE, Side.BID, 1657850, 1, uuid),
        (0, Action.TRADE, Side.ASK, 1657800, 2, 2290000000061666327),
    ]
    one.frame('{"success":true,"ret_msg":"pong","conn_id":"0970e817","req_id":"","op":"ping"}')
    one.frame('{"op":"pong","args":["1675418560633"],"req_id":"1"}')
    assert one.problems == {}


def test_times_are_the_matching_engines() -> None:
    instruments = Instruments([instrument("bybit", BTC, "0.01", "0.001")])
    session = Session(Bybit, instruments, [0], ExchangeOptions(), float)
    session.connected(5)
    session.frame(SNAPSHOT.encode(), 7)
    session.frame(TRADES.encode(), 8)
    events = session.take()
    level = events[events["action"] == Action.LEVEL][0]
    assert (level["exchange_time"], level["receive_time"]) == (1672304484976000000, 7)
    assert level["sequence"] == 18521288
    trades = events[events["action"] == Action.TRADE]
    assert trades["exchange_time"].tolist() == [1672304486865000000, 1672304486866000000]
    assert trades["flags"].tolist() == [0, 1]


def test_subscriptions_pings_and_addresses() -> None:
    one = driven(BTC, ETH, depth=51)
    first, second = one.sent(1.0)
    topics = ["orderbook.200.BTCUSDT", "publicTrade.BTCUSDT"]
    assert first == {"req_id": BTC, "op": "subscribe", "args": topics}
    assert second["args"] == ["orderbook.200.ETHUSDT", "publicTrade.ETHUSDT"]
    one.frame({"success": True, "ret_msg": "", "conn_id": "a", "req_id": BTC, "op": "subscribe"})
    for name in (BTC, ETH):
        one.frame(SNAPSHOT.replace(BTC, name))
    assert one.sent(20.0) == [{"op": "ping"}]
    perpetual = driven(PERPETUAL)
    kinds = ("orderbook.50", "publicTrade", "tickers", "allLiquidation")
    assert perpetual.sent(0)[0]["args"] == [f"{kind}.BTCUSDT" for kind in kinds]
    perpetual.frame(SNAPSHOT)
    assert perpetual.state(PERPETUAL) is VALID and perpetual.problems == {}
    for products, address in (((BTC,), "spot"), ((PERPETUAL,), "linear"), ((INVERSE,), "inverse")):
        session = Session(
            Bybit, Instruments([instrument("bybit", p) for p in products]), [0], ExchangeOptions(), float
        )
        session.wake(1)
        assert session.commands() == [Connect(f"wss://stream.bybit.com/v5/public/{address}")]
    with pytest.raises(ConfigurationError, match="bybit: no book has 1001 levels; at most 1000"):
        driven(BTC, depth=1001)


def test_instruments() -> None:
    (spot,) = Bybit.instruments([BTC], [SPOT.encode()])
    assert (str(spot), spot.native_symbol) == ("bybit:BTC-USDT", BTC)
    assert (spot.tick, spot.lot) == (Decimal("0.01"), Decimal("0.000001"))
    (linear,) = Bybit.instruments([PERPETUAL], [LINEAR.encode()])
    assert (str(linear), linear.native_symbol) == ("bybit:BTC-USDT-PERP", PERPETUAL)
    assert (linear.tick, linear.lot) == (Decimal("0.1"), Decimal("0.001"))
    listed = LINEAR.replace("linear", "inverse").replace(BTC, "BTCUSD")
    (inverse,) = Bybit.instruments([INVERSE], [listed.encode()])
    assert (str(inverse), inverse.contract, linear.contract) == ("bybit:BTC-USD-PERP", "inverse", "linear")
    assert Bybit.instrument_urls([INVERSE], "https://x")[0].endswith("category=inverse&symbol=BTCUSD")
    assert Bybit.product(Bybit.market(Bybit.inverse_url), "BTCUSD") == INVERSE
    urls = [Bybit.instrument_urls([name], "https://x")[0].partition("?")[2] for name in (BTC, PERPETUAL)]
    assert urls == ["category=spot&symbol=BTCUSDT", "category=linear&symbol=BTCUSDT"]
    with pytest.raises(SourceError, match=r"bybit: no product 'BTCUSDT\.P'; names are as in BTCUSDT"):
        Bybit.instruments([PERPETUAL], [SPOT.encode()])
    with pytest.raises(SourceError, match=r"spot, linear and inverse .* make them feeds of their own"):
        Bybit.instruments([BTC, PERPETUAL], [SPOT.encode(), LINEAR.encode()])
    with pytest.raises(SourceError, match="not instruments"):
        Bybit.instruments([BTC], [b"<html>"])


def test_a_refused_subscription_is_of_its_product() -> None:
    one = driven(BTC, ETH)
    text = "Invalid symbol :[orderbook.50.ETHUSDT]"
    one.frame({"success": False, "ret_msg": text, "conn_id": "a", "req_id": ETH, "op": "subscribe"})
    assert one.problems == {"refused": 1}
    assert one.statistics.problems.examples["refused"] == [f"{ETH}: {text}"]
    one.frame(SNAPSHOT)
    assert one.state(BTC) is VALID


def changed(text: str, update: int, **fields: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    message["data"] |= {"u": update} | fields
    return message


def test_a_gap_loses_one_book_until_it_is_sent_again() -> None:
    one = driven(BTC, ETH)
    one.sent(1.0)
    for name in (BTC, ETH):
        one.frame(SNAPSHOT.replace(BTC, name))
    one.frame(changed(DELTA, 18521290))
    assert (one.state(BTC), one.state(ETH)) == (SYNCING, VALID)
    assert one.levels(BTC) == ([], []) and one.problems == {"gap": 1}
    sent = one.sent(2.0)
    assert [(m["op"], m["args"]) for m in sent] == [
        ("unsubscribe", ["orderbook.50.BTCUSDT"]),
        ("subscribe", ["orderbook.50.BTCUSDT"]),
    ]
    assert one.frame(changed(DELTA, 18521291)) == []
    one.frame(changed(SNAPSHOT, 18521300))
    assert one.frame(changed(DELTA, 18521301)) != []
    assert one.state(BTC) is VALID and one.problems == {"gap": 1}


def test_the_service_restarts() -> None:
    """Update 1 is a snapshot, whatever its type says; and numbers may begin again without one."""
    one = driven()
    one.frame(SNAPSHOT)
    one.frame(changed(DELTA, 1, b=[["7", "1"]], a=[["8", "1"]]))
    assert one.levels(BTC) == ([(700, 1000)], [(800, 1000)])
    assert one.state(BTC) is VALID and one.problems == {}
    one.frame(changed(DELTA, 2, b=[["7", "2"]], a=[]))
    assert one.levels(BTC)[0] == [(700, 2000)]
    one.frame(SNAPSHOT)
    for number in range(2, 10):
        one.frame(changed(DELTA, number))
    assert one.problems == {"late message": 7, "reset": 1}
    assert one.state(BTC) is SYNCING


@pytest.mark.parametrize(
    "fields",
    [
        {"b": [["1.001", "1"]]},
        {"a": [["x", "1"]]},
        {"a": [["1", "-1"]]},
        {"b": [[1, 2]]},
        {"a": None},
        {"s": ETH},
    ],
)
@pytest.mark.parametrize("text", [SNAPSHOT, DELTA])
def test_an_order_book_message_that_cannot_be_used_loses_its_book_alone(
    text: str, fields: dict[str, Any]
) -> None:
    one = driven(BTC, ETH)
    for name in (BTC, ETH):
        one.frame(SNAPSHOT.replace(BTC, name))
    events = one.frame(changed(text, 18521289, **fields))
    assert (one.state(BTC), one.state(ETH)) == (SYNCING, VALID)
    assert one.statistics.malformed == 1 and one.problems["malformed"] == 1
    assert all(action != Action.LEVEL for _, action, *_ in events)


def test_what_else_may_come() -> None:
    one = driven()
    one.frame(SNAPSHOT)
    one.frame({"topic": "tickers.BTCUSDT", "data": {}})
    one.frame({"weather": "fine"})
    one.frame(SNAPSHOT.replace(BTC, "NOUSDT"))
    one.frame(TRADES.replace(BTC, "NOUSDT"))
    one.frame("{")
    one.frame(b"\xff")
    one.frame([])
    assert one.problems == {
        "unknown message": 2,
        "unknown product": 2,
        "malformed JSON": 2,
        "invalid field": 1,
    }
    assert one.state(BTC) is VALID


def test_trades_are_given_once_and_block_trades_not() -> None:
    one = driven()
    assert len(one.frame(TRADES)) == 2
    assert one.frame(TRADES) == []
    assert one.problems == {"late trade": 2}
    message = json.loads(TRADES)
    message["data"][0] |= {"i": "1", "BT": True}
    message["data"][1] |= {"i": "2"}
    assert len(one.frame(message)) == 1
    for number, fields in enumerate(({"i": "x"}, {"p": "0.001"}, {"S": "Hold"}, {"s": ETH}), 3):
        message["data"][1] |= {"i": str(number)} | fields
        assert one.frame(message) == []
        message["data"][1] |= {"p": "1", "S": "Buy", "s": BTC}
    assert one.statistics.malformed == 4
    for number in range(3000):
        message["data"][1]["i"] = str(number + 100)
        one.frame(message)
    late = one.problems["late trade"]
    # The last 1,024 are remembered.
    for number, repeated in ((3000 - 1024, True), (3000 - 1025, False)):
        message["data"][1]["i"] = str(number + 100)
        assert len(one.frame(message)) == (0 if repeated else 1)
    assert one.problems["late trade"] == late + 1


class Market:
    """One product's book as the exchange has it, in ticks and lots, and the messages for it."""

    def __init__(self, random: Random, symbol: str) -> None:
        self.random, self.symbol, self.update = random, symbol, 100
        self.book: dict[str, dict[int, int]] = {"b": {}, "a": {}}

    def message(self, kind: str, levels: dict[str, dict[int, int]]) -> dict[str, Any]:
        sides = {
            side: [[f"{price / 100:.2f}", f"{size / 1000:.3f}"] for price, size in levels[side].items()]
            for side in "ba"
        }
        data = {"s": self.symbol, "u": self.update, "seq": 1, **sides}
        return {"topic": f"orderbook.50.{self.symbol}", "type": kind, "ts": 2, "cts": 1, "data": data}

    def snapshot(self) -> dict[str, Any]:
        return self.message("snapshot", self.book)

    def delta(self) -> dict[str, Any]:
        levels: dict[str, dict[int, int]] = {"b": {}, "a": {}}
        for _ in range(self.random.randint(0, 4)):
            side = self.random.choice("ba")
            price = 10_000 + self.random.randint(1, 9) * (1 if side == "a" else -1)
            levels[side][price] = size = self.random.choice((0, 1, 2500))
            self.book[side].pop(price, None)
            if size:
                self.book[side][price] = size
        self.update += 1
        return self.message("delta", levels)

    def restart(self) -> dict[str, Any]:
        self.update = 1
        return self.snapshot()

    def levels(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        return sorted(self.book["b"].items(), reverse=True), sorted(self.book["a"].items())


FAULTS = (
    "none",
    "none",
    "none",
    "none",
    "drop",
    "repeat",
    "swap",
    "cut",
    "spoil",
    "reconnect",
    "restart",
    "again",
)


@given(seed=st.integers(0, 10**6), faults=st.lists(st.sampled_from(FAULTS), min_size=5, max_size=40))
def test_a_valid_book_is_the_truth_whatever_happens(seed: int, faults: list[str]) -> None:
    random = Random(seed)
    one = driven(BTC, ETH)
    markets = {name: Market(random, name) for name in (BTC, ETH)}
    # The book after each message, by its number since the last restart.
    history = {name: {100: ([], [])} for name in (BTC, ETH)}  # type: ignore[var-annotated]

    def known(market: Market, message: dict[str, Any]) -> dict[str, Any]:
        if market.update == 1:
            history[market.symbol].clear()
        history[market.symbol][market.update] = market.levels()
        return message

    def settle(seconds: float) -> None:
        commands = one.commands(seconds)
        while commands:
            for command in commands:
                if isinstance(command, Disconnect):
                    one.session.disconnected("asked for", one.time)
                elif isinstance(command, Connect):
                    one.session.connected(one.time)
                elif isinstance(command, Send):
                    answer(json.loads(command.text))
            commands = one.commands(0)

    def answer(message: dict[str, Any]) -> None:
        market = markets.get(message.get("req_id", ""))
        if market is not None and message["op"] == "subscribe":
            one.frame({"success": True, "ret_msg": "", "req_id": market.symbol, "op": "subscribe"})
            one.frame(known(market, market.snapshot()))

    def compare() -> int:
        valid = [name for name in markets if one.state(name) is VALID]
        for name in valid:
            assert one.levels(name) == history[name][one.session.books[name].sequence]
        return len(valid)

    settle(1.0)
    assert compare() == 2
    for fault in faults:
        market = markets[random.choice((BTC, ETH))]
        if fault == "reconnect":
            one.session.disconnected("test", one.time)
        elif fault == "restart":
            one.frame(known(market, market.restart()))
        elif fault == "again":
            one.frame(known(market, market.snapshot()))
        else:
            message = known(market, market.delta())
            if fault == "spoil":
                message["data"]["a"] = [["1.001", "1"]]
            text = json.dumps(message)
            if fault == "swap":
                one.frame(known(market, market.delta()))
            if fault != "drop":
                one.frame(text[:-9] if fault == "cut" else text)
            if fault == "repeat":
                one.frame(text)
        settle(random.choice((0.0, 0.5)))
        compare()
    for _ in range(20):
        settle(4.0)
        for market in markets.values():
            one.frame(known(market, market.delta()))
    assert compare() == 2
    assert all(one.levels(name) == market.levels() for name, market in markets.items())
    assert one.statistics.problems.counts["unexpected frame"] == 0
