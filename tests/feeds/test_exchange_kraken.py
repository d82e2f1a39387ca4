"""Kraken's protocol version 2: documented frames, and a market that plays the exchange, with faults."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraken_market import ASKS_V2, BIDS_V2, Market, frame_v2
from kraken_server import Server, changes, faulty_run
from session_support import Driven, instrument

from orderbook.core.errors import ConfigurationError, SourceError
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.exchanges.kraken import Kraken
from orderbook.feeds.live.session import Disconnect, Session
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instruments

BTC = instrument("kraken", "BTC/USD")
ETH = instrument("kraken", "ETH/USD")
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE


def levels(rows: Any) -> str:
    return ",".join(f'{{"price":{price},"qty":{size}}}' for price, size in rows)


def documented(checksum: int = 3310070434) -> str:
    """The snapshot of "Book checksum (WebSocket v2)"."""
    return (
        '{"channel":"book","type":"snapshot","data":[{"symbol":"BTC/USD",'
        f'"bids":[{levels(BIDS_V2)}],"asks":[{levels(ASKS_V2)}],"checksum":{checksum}}}]}}'
    )


def trade(number: int, symbol: str = "BTC/USD", **other: Any) -> dict[str, Any]:
    fields = {"symbol": symbol, "side": "sell", "price": 45283.4, "qty": 0.5, "ord_type": "market"}
    return fields | {"trade_id": number, "timestamp": "2023-09-25T07:49:37.708706Z"} | other


def trades(*data: dict[str, Any], kind: str = "update") -> dict[str, Any]:
    return {"channel": "trade", "type": kind, "data": data}


def served(depth: int = 10) -> tuple[Driven, Server]:
    """A session with valid books of BTC/USD (and ETH/USD), and the server behind it."""
    driven = Driven(Kraken, [BTC, ETH], depth)
    server = Server(driven, frame_v2, depth)
    server.answer(2.0)
    assert driven.state("BTC/USD") == driven.state("ETH/USD") == VALID
    return driven, server


def test_the_documented_snapshot() -> None:
    driven = Driven(Kraken, [BTC])
    driven.frame(documented())
    assert driven.problems == {}
    assert driven.state("BTC/USD") is VALID
    bids, asks = driven.levels("BTC/USD")
    assert bids[0] == (452835, 10_000_000)
    assert asks[-1] == (452995, 18_772_827)
    driven.frame(documented().replace("0.00100000", "0.001"))
    assert driven.problems == {"checksum": 1}
    assert driven.state("BTC/USD") is SYNCING
    assert driven.levels("BTC/USD") == ([], [])


def test_integers_on_the_wire_are_text_too() -> None:
    driven = Driven(Kraken, [instrument("kraken", "BTC/USD", "1", "1")])
    market = Market("BTC/USD", 10)
    frame = frame_v2(market, "snapshot", market.snapshot())
    driven.frame(frame)
    market.bids = {100: 7}
    text = f'{{"symbol":"BTC/USD","bids":[{{"price":100,"qty":7}}],"asks":[],"checksum":{market.checksum()}}}'
    driven.frame(f'{{"channel":"book","type":"update","data":[{text}]}}')
    assert driven.levels("BTC/USD") == ([(100, 7)], [])
    assert driven.problems == {}


def test_what_is_sent_on_connecting() -> None:
    driven = Driven(Kraken, [BTC, ETH], 100)
    books = {"channel": "book", "symbol": ["BTC/USD", "ETH/USD"], "depth": 100}
    assert driven.sent() == [
        {"method": "subscribe", "params": {"channel": "instrument"}},
        {"method": "subscribe", "params": books},
        {
            "method": "subscribe",
            "params": {"channel": "trade", "symbol": ["BTC/USD", "ETH/USD"], "snapshot": False},
        },
    ]


@pytest.mark.parametrize("depth", [1, 11, 5000])
def test_depths_that_are_not_offered(depth: int) -> None:
    with pytest.raises(ConfigurationError, match="choose one of 10, 25, 100, 500, 1000"):
        Session(Kraken, Instruments([BTC]), [0], ExchangeOptions(depth=depth), lambda: 0.0)


@pytest.mark.parametrize("depth", [10, 25, 100, 500, 1000])
def test_levels_beyond_the_depth_are_dropped(depth: int) -> None:
    driven, server = served(depth)
    market = server.markets["BTC/USD"]
    for step in range(30):
        server.update("BTC/USD", [("b", 10_000 + step, 5), ("a", 10_100 - step, 0), ("a", 10_101 + step, 9)])
        assert driven.levels("BTC/USD") == market.best()
    server.update("BTC/USD", [("b", 10_000 - n, 3) for n in range(1, 2 * depth)])
    assert len(driven.levels("BTC/USD")[0]) == depth
    assert driven.levels("BTC/USD") == market.best()
    assert driven.problems == {}


def test_several_changes_of_a_level_apply_in_their_order() -> None:
    driven, server = served()
    market = server.markets["BTC/USD"]
    market.change([("b", 10_000, 7)])
    frame = frame_v2(market, "update", ([(10_000, 5), (10_000, 0), (10_000, 7)], []), removed="0.00000000")
    driven.frame(frame)
    assert driven.levels("BTC/USD") == market.best()
    assert driven.problems == {}


def test_trades_are_passed_on_once() -> None:
    driven = Driven(Kraken, [BTC, ETH])
    assert driven.frame(trades(trade(1), trade(2), kind="snapshot")) == []
    expected = [(0, Action.TRADE, Side.ASK, 452834, 50_000_000, 3)]
    assert driven.frame(trades(trade(3))) == expected
    found = driven.frame(trades(trade(3), trade(4, side="buy"), trade(9, "ETH/USD", price=1.5), trade(4)))
    assert found == [
        (0, Action.TRADE, Side.BID, 452834, 50_000_000, 4),
        (1, Action.TRADE, Side.ASK, 15, 50_000_000, 9),
    ]
    assert driven.problems == {"late trade": 2}


def test_halts() -> None:
    driven, server = served()

    def pair(symbol: str, status: str) -> dict[str, Any]:
        return {"channel": "instrument", "type": "update", "data": {"pairs": [pairs(symbol, status)]}}

    def pairs(symbol: str, status: str) -> dict[str, Any]:
        return {"symbol": symbol, "status": status, "price_increment": 0.1, "qty_precision": 8}

    def system(status: str) -> dict[str, Any]:
        return {"channel": "status", "type": "update", "data": [{"system": status, "connection_id": 2**63}]}

    def states() -> tuple[BookState, BookState]:
        return driven.state("BTC/USD"), driven.state("ETH/USD")

    for frame, expected in (
        (system("online"), (VALID, VALID)),
        (pair("BTC/USD", "cancel_only"), (STALE, VALID)),
        (pair("XYZ/USD", "cancel_only"), (STALE, VALID)),
        (system("maintenance"), (STALE, STALE)),
        (pair("BTC/USD", "online"), (STALE, STALE)),
        (system("limit_only"), (VALID, VALID)),
        (system("post_only"), (STALE, STALE)),
    ):
        driven.frame(frame)
        assert states() == expected
    server.update("BTC/USD", [("b", 9_999, 77)])
    assert driven.levels("BTC/USD") == server.markets["BTC/USD"].best()
    driven.frame({"channel": "heartbeat"})
    assert driven.problems == {}


def test_a_new_connection_tells_halts_anew() -> None:
    driven, server = served()
    halted = [{"symbol": "BTC/USD", "status": "maintenance"}]
    driven.frame({"channel": "instrument", "type": "update", "data": {"pairs": halted}})
    driven.frame({"channel": "status", "type": "update", "data": [{"system": "maintenance"}]})
    driven.session.disconnected("gone", driven.time)
    driven.connect()
    server.subscribed.clear()
    server.answer(2.0)
    assert (driven.state("BTC/USD"), driven.state("ETH/USD")) == (VALID, VALID)
    pairs = [{"symbol": "ETH/USD", "status": "online"}]
    driven.frame({"channel": "instrument", "type": "snapshot", "data": {"pairs": pairs}})
    assert (driven.state("BTC/USD"), driven.state("ETH/USD")) == (VALID, VALID)
    driven.frame({"channel": "status", "type": "update", "data": [{"system": "online"}]})
    assert (driven.state("BTC/USD"), driven.state("ETH/USD")) == (VALID, VALID)


def test_a_refused_subscription() -> None:
    driven = Driven(Kraken, [BTC, ETH])
    refused = {"method": "subscribe", "success": False, "symbol": "ETH/USD"}
    driven.frame(refused | {"error": "Currency pair not supported ETH/USD"})
    assert driven.session.refusal == "Currency pair not supported ETH/USD"
    assert driven.problems == {"refused": 1}


def test_the_end_of_what_is_not_subscribed_to_is_no_refusal() -> None:
    driven = Driven(Kraken, [BTC])
    answer = {"method": "unsubscribe", "success": False, "symbol": "BTC/USD"}
    driven.frame(answer | {"error": "Subscription Not Found"})
    assert driven.session.refusal is None
    assert driven.problems == {"refused": 1}


def test_the_depth_is_what_the_exchange_grants() -> None:
    driven = Driven(Kraken, [BTC], 10)
    result = {"channel": "book", "symbol": "BTC/USD", "depth": 25, "snapshot": True}
    driven.frame({"method": "subscribe", "success": True, "result": result})
    market = Market("BTC/USD", 25, dict.fromkeys(range(100, 150), 1), dict.fromkeys(range(200, 250), 1))
    driven.frame(frame_v2(market, "snapshot", market.snapshot()))
    assert [len(side) for side in driven.levels("BTC/USD")] == [25, 25]


FAULTS: dict[str, tuple[Any, str, set[str]]] = {
    # What becomes of an update of BTC/USD, how it is counted, and whose books are lost.
    "wrong checksum": (
        lambda text: text.replace('"checksum":', '"checksum":1'), "checksum", {"BTC/USD"}
    ),
    "another size": (lambda text: text.replace("0.00000077", "0.00000078"), "checksum", {"BTC/USD"}),
    "another price": (lambda text: text.replace("1000.0", "999.9"), "checksum", {"BTC/USD"}),
    "between ticks": (lambda text: text.replace("1000.0", "1000.05"), "malformed", {"BTC/USD"}),
    "negative": (lambda text: text.replace("0.00000077", "-0.00000077"), "malformed", {"BTC/USD"}),
    "no number": (lambda text: text.replace("0.00000077", '{"a":1}'), "malformed", {"BTC/USD"}),
    "null": (lambda text: text.replace("0.00000077", "null"), "malformed", {"BTC/USD"}),
    "too large": (lambda text: text.replace("0.00000077", "1e300"), "malformed", {"BTC/USD"}),
    "missing field": (lambda text: text.replace('"qty"', '"amount"'), "missing field", {"BTC/USD"}),
    "wrong type": (lambda text: text.replace('"asks":', '"asks":null,"x":'), "invalid field", {"BTC/USD"}),
    "bad time": (lambda text: text.replace("2023-10-06T", "yesterday "), "unusable message", {"BTC/USD"}),
    "cut off": (lambda text: text[:-3], "malformed JSON", {"BTC/USD", "ETH/USD"}),
    "not UTF-8": (lambda text: text.encode() + b"\xff", "malformed JSON", {"BTC/USD", "ETH/USD"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_loses_a_book_that_is_resubscribed(name: str) -> None:
    spoil, kind, lost = FAULTS[name]
    driven, server = served()
    frame = server.frame("BTC/USD", [("b", 10_000, 77)])
    assert spoil(frame) != frame
    events = driven.frame(spoil(frame))
    assert {event[1] for event in events} == {Action.STATE, Action.CLEAR}
    assert driven.problems[kind] >= 1
    for product in ("BTC/USD", "ETH/USD"):
        assert driven.state(product) is (SYNCING if product in lost else VALID), driven.problems
    server.update("BTC/USD", [("a", 10_200, 5)])
    sent = server.answer(2.0)
    assert {text["params"]["symbol"][0] for text in sent} == lost
    assert [text["method"] for text in sent] == ["unsubscribe", "subscribe"] * len(lost)
    for product in ("BTC/USD", "ETH/USD"):
        assert driven.state(product) is VALID
        assert driven.levels(product) == server.markets[product].best()
    assert driven.statistics.resyncs == len(lost)
    assert driven.statistics.reconnects == 0


def test_a_dropped_message_shows_at_the_next_one() -> None:
    driven, server = served()
    server.frame("BTC/USD", [("b", 10_000, 0)])
    assert driven.state("BTC/USD") is VALID
    server.update("BTC/USD", [("a", 10_200, 5)])
    assert driven.state("BTC/USD") is SYNCING
    assert driven.problems == {"checksum": 1}
    server.answer(2.0)
    assert driven.levels("BTC/USD") == server.markets["BTC/USD"].best()
    assert driven.problems == {"checksum": 1}


def test_a_wrong_snapshot_leaves_no_rows_and_is_asked_for_again() -> None:
    driven = Driven(Kraken, [BTC])
    assert driven.frame(documented(checksum=1))[-1][1] == Action.CLEAR
    assert driven.levels("BTC/USD") == ([], [])
    assert [text["method"] for text in driven.sent()][-2:] == ["unsubscribe", "subscribe"]
    driven.frame(documented())
    assert driven.state("BTC/USD") is VALID


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"channel": "ticker", "type": "update", "data": [{"symbol": "BTC/USD"}]}, "unknown type"),
        (trades(trade(5, side="left")), "invalid field"),
        (trades(trade(5, price=0.05)), "unusable message"),
        (trades(trade(5, "XYZ/USD")), "unknown product"),
        ({"channel": "status", "data": [{}]}, "missing field"),
        ({"method": "subscribe", "success": "yes"}, "invalid field"),
        ({"method": "pong", "time_in": "2023-10-06T17:35:55.440295Z"}, None),
        ({"channel": "book", "type": "update", "data": [
            {"symbol": "XYZ/USD", "bids": [], "asks": [], "checksum": 0}]}, "unknown product"),
    ],
)  # fmt: skip
def test_what_leaves_books_alone(frame: dict[str, Any], kind: str | None) -> None:
    driven, _ = served()
    driven.frame(frame)
    assert driven.problems == ({kind: 1} if kind else {})
    assert driven.state("BTC/USD") == driven.state("ETH/USD") == VALID


def test_silence_makes_a_new_connection() -> None:
    driven, server = served()
    assert isinstance(driven.commands(11.0)[-1], Disconnect)
    driven.session.disconnected("silence", driven.time)
    driven.connect()
    server.subscribed.clear()
    server.answer(2.0)
    assert driven.levels("BTC/USD") == server.markets["BTC/USD"].best()


@given(st.data(), st.sampled_from([10, 25]))
def test_books_equal_the_exchanges_after_faults(data: st.DataObject, depth: int) -> None:
    faulty_run(data, Driven(Kraken, [BTC, ETH], depth), frame_v2, depth)


@given(st.lists(changes, max_size=30), st.sampled_from([10, 25, 100]))
def test_books_equal_the_exchanges_at_every_message(steps: list[Any], depth: int) -> None:
    driven, server = served(depth)
    for step in steps:
        server.update("BTC/USD", step)
        assert driven.levels("BTC/USD") == server.markets["BTC/USD"].best()
    assert driven.problems == {}


def answer_of_pairs(**pairs: dict[str, Any]) -> bytes:
    return json.dumps({"error": [], "result": pairs}).encode()


def test_instruments() -> None:
    body = answer_of_pairs(
        XXBTZUSD={"wsname": "XBT/USD", "pair_decimals": 1, "lot_decimals": 8, "tick_size": "0.5"},
        XDGEUR={"wsname": "XDG/EUR", "pair_decimals": 7, "lot_decimals": 2},
        **{"XXBTZUSD.d": {"pair_decimals": 1, "lot_decimals": 8}},
    )
    assert Kraken.instrument_urls(["BTC/USD"], "http://x") == ["http://x/0/public/AssetPairs"]
    bitcoin, dogecoin = Kraken.instruments(["BTC/USD", "DOGE/EUR"], [b"{}", body])
    assert (bitcoin.venue, bitcoin.symbol, bitcoin.native_symbol) == ("kraken", "BTC-USD", "BTC/USD")
    assert (bitcoin.tick, bitcoin.lot) == (Decimal("0.1"), Decimal("1E-8"))
    assert (dogecoin.symbol, dogecoin.tick, dogecoin.lot) == ("DOGE-EUR", Decimal("1E-7"), Decimal("0.01"))
    for product, bodies, problem in (
        ("XBT/USD", [body], "Kraken has no such pair"),
        ("BTC/USD", [b'{"error":["EService:Unavailable"]}'], "EService:Unavailable"),
        ("BTC/USD", [b"<html>"], "not an answer of AssetPairs"),
    ):
        with pytest.raises(SourceError, match=f"kraken: {product}: {problem}"):
            Kraken.instruments([product], bodies)
