"""Kraken's protocol version 1: a recording in full, documented frames, and a market with faults."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraken_market import Market, frame_v1
from kraken_server import Server, changes, faulty_run
from recorded_support import recorded
from session_support import Driven, instrument, plain_crc32

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.kraken import KrakenV1
from orderbook.feeds.live.session import Connect
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instrument, Instruments

XBT = instrument("kraken", "XBT/USD")
ETH = instrument("kraken", "ETH/USD")
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE


class PlainLevels:
    """A recorded book: price and size as text, by price; and the exchange's checksum of them."""

    def __init__(self) -> None:
        self.sides: dict[str, dict[Decimal, tuple[str, str]]] = {"a": {}, "b": {}}

    def take(self, parts: list[dict[str, Any]]) -> str | None:
        checksum = None
        for part in parts:
            checksum = part.get("c", checksum)
            for name, rows in part.items():
                if name in ("as", "bs"):
                    self.sides[name[0]] = {}
                for price, size, *_ in rows if name != "c" else ():
                    self.sides[name[0]].pop(Decimal(price), None)
                    if Decimal(size):
                        self.sides[name[0]][Decimal(price)] = price, size
        for name, side in self.sides.items():
            while len(side) > 1000:
                del side[min(side) if name == "b" else max(side)]
        return checksum

    def counted(self, one: Instrument) -> dict[int, dict[int, int]]:
        """Volumes by prices, of both sides, in units."""
        unit, lot = one.price_unit, one.volume_unit
        return {
            side: {int(price / unit): int(Decimal(size) / lot) for price, (_, size) in levels.items()}
            for side, levels in ((Side.BID, self.sides["b"]), (Side.ASK, self.sides["a"]))
        }

    def checksum(self) -> int:
        best = [self.sides["a"][price] for price in sorted(self.sides["a"])[:10]]
        best += [self.sides["b"][price] for price in sorted(self.sides["b"], reverse=True)[:10]]
        return plain_crc32("".join(t.replace(".", "").lstrip("0") for level in best for t in level))


def test_the_recording(shared_data: Path) -> None:
    lines = list(recorded(shared_data / "cryptofeed" / "KRAKEN.jsonl.zst"))
    bodies = [line["data"].encode() for line in lines if line["t"] == "http"]
    asked = next(json.loads(line["data"]) for line in lines if line["t"] == "send")
    instruments = KrakenV1.instruments(asked["pair"], bodies)
    assert {one.native_symbol: one.symbol for one in instruments}["XBT/CHF"] == "BTC-CHF"
    driven = Driven(KrakenV1, instruments, 1000)
    plain = {one.native_symbol: PlainLevels() for one in instruments}
    counts: Counter[str] = Counter()
    for line in lines:
        if line["t"] != "recv" or not line["conn"].endswith((".48", ".50")):
            continue
        events = driven.frame(line["data"])
        message = json.loads(line["data"])
        if not isinstance(message, list):
            continue
        *parts, channel, product = message[1:]
        if channel == "trade":
            counts["trades"] += len(events)
            assert len(events) == len(parts[0])
            continue
        checksum = plain[product].take(parts)
        assert driven.state(product) is VALID
        counts["checksums"] += checksum is not None
        counts["snapshots"] += checksum is None
        if checksum is not None and counts["checksums"] % 20 == 0:
            counts["checksums by another implementation"] += 1
            assert plain[product].checksum() == int(checksum)
        if counts["checksums"] % 20 == 0:
            counts["books compared"] += 1
            one = next(one for one in instruments if one.native_symbol == product)
            assert driven.books[product].levels == plain[product].counted(one)
    assert set(driven.problems) <= {"exchange clock backwards"}
    assert driven.statistics.gaps == driven.statistics.malformed == 0
    print(dict(counts))
    assert counts["checksums"] == 2221 + 2047 + 1
    assert counts["snapshots"] == 10
    assert counts["books compared"] > 200
    assert counts["trades"] >= 8


def test_the_recording_replays(shared_data: Path) -> None:
    source = CaptureSource(shared_data / "cryptofeed" / "KRAKEN.jsonl.zst")
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    states = [books.state(n) for n in range(len(source.instruments))]
    assert states == [VALID] * 10
    assert source.statistics.checksums == 4269
    assert source.counts == {"frames": 4430, "gaps": 0, "resyncs": 0}
    assert books.problems() == {}
    # The recording's other connection has tickers.
    assert set(source.statistics.problems.counts) == {"unknown type", "exchange clock backwards"}


def served(depth: int = 10) -> tuple[Driven, Server]:
    """A session with valid books of XBT/USD and ETH/USD, and the server behind it."""
    driven = Driven(KrakenV1, [XBT, ETH], depth)
    server = Server(driven, frame_v1, depth)
    server.answer(2.0)
    assert driven.state("XBT/USD") == driven.state("ETH/USD") == VALID
    return driven, server


def test_what_is_sent() -> None:
    driven = Driven(KrakenV1, [XBT, ETH], 100)
    products = ["XBT/USD", "ETH/USD"]
    assert driven.sent() == [
        {"event": "subscribe", "pair": products, "subscription": {"name": "book", "depth": 100}},
        {"event": "subscribe", "pair": products, "subscription": {"name": "trade"}},
    ]


def test_a_message_in_two_parts_is_one_unit() -> None:
    driven, server = served()
    events = driven.frame(server.frame("XBT/USD", [("a", 10_100, 0), ("b", 10_001, 5)]))
    # The level that comes into view, and the one that leaves it.
    assert [event[1:5] for event in events] == [
        (Action.LEVEL, Side.BID, 10_001, 5),
        (Action.LEVEL, Side.BID, 9_991, 0),
        (Action.LEVEL, Side.ASK, 10_100, 0),
        (Action.LEVEL, Side.ASK, 10_110, 110),
    ]
    assert driven.levels("XBT/USD") == server.markets["XBT/USD"].best()


def test_a_level_that_was_published_before_has_a_fourth_field() -> None:
    driven, server = served()
    frame = server.frame("XBT/USD", [("b", 10_001, 5)])
    assert '"1618678145.920470"]' in frame
    driven.frame(frame.replace('"1618678145.920470"]', '"1618678145.920470","r"]'))
    assert driven.levels("XBT/USD") == server.markets["XBT/USD"].best()
    assert driven.problems == {}


def test_trades() -> None:
    driven = Driven(KrakenV1, [XBT])
    rows = [
        ["354.1", "0.89594024", "1618678142.557535", "s", "l", ""],
        ["354.2", "1", "1618678142.6", "b", "m", ""],
    ]
    assert driven.frame([993, rows, "trade", "XBT/USD"]) == [
        (0, Action.TRADE, Side.ASK, 3541, 89_594_024, 0),
        (0, Action.TRADE, Side.BID, 3542, 100_000_000, 0),
    ]
    rows[1][3] = "x"
    assert driven.frame([993, rows[1:], "trade", "XBT/USD"]) == []
    assert driven.problems == {"unusable message": 1}


def test_halts() -> None:
    driven, _ = served()
    states = (("online", VALID), ("maintenance", STALE), ("limit_only", VALID), ("post_only", STALE))
    for status, state in states:
        driven.frame({"event": "systemStatus", "status": status, "connectionID": 18239578009413566319})
        assert driven.state("XBT/USD") is driven.state("ETH/USD") is state
    driven.session.disconnected("gone", driven.time)
    driven.now = driven.session.wake_at
    driven.session.wake(driven.time)
    assert isinstance(driven.session.commands()[0], Connect)
    driven.session.connected(driven.time)
    market = Market("XBT/USD", 10, {1: 1}, {2: 2})
    driven.frame(frame_v1(market, "snapshot", market.snapshot()))
    assert driven.state("XBT/USD") is VALID


@pytest.mark.parametrize(
    ("event", "refusal"),
    [
        (
            {"event": "subscriptionStatus", "status": "error", "pair": "XBT/USD",
             "errorMessage": "Subscription depth not supported", "subscription": {"name": "book"}},
            "Subscription depth not supported",
        ),
        ({"event": "error", "errorMessage": "Malformed request"}, "Malformed request"),
        (
            {"event": "subscriptionStatus", "status": "error", "pair": "XBT/USD",
             "errorMessage": "Subscription Not Found", "subscription": {"name": "book"}},
            None,
        ),
    ],
)  # fmt: skip
def test_refusals(event: dict[str, Any], refusal: str | None) -> None:
    driven = Driven(KrakenV1, [XBT])
    driven.frame(event)
    assert driven.session.refusal == refusal
    assert driven.problems == {"refused": 1}


FAULTS: dict[str, tuple[Any, str, set[str]]] = {
    "wrong checksum": (lambda text: text.replace('"c":"', '"c":"1'), "checksum", {"XBT/USD"}),
    "another size": (lambda text: text.replace("0.00000077", "0.00000078"), "checksum", {"XBT/USD"}),
    "between ticks": (lambda text: text.replace("1000.0", "1000.05"), "malformed", {"XBT/USD"}),
    "no checksum": (lambda text: text.replace('"c":"', '"c":"x'), "unusable message", {"XBT/USD"}),
    "wrong type": (lambda text: text.replace('"0.00000077"', "0.00000077"), "invalid field", {"XBT/USD"}),
    "missing field": (lambda text: text.replace(',"1618678145.920470"', ""), "invalid field", {"XBT/USD"}),
    "bad time": (lambda text: text.replace("1618678145.9", "-1618678145.9"), "unusable message", {"XBT/USD"}),
    "bad depth": (lambda text: text.replace("book-10", "book-ten"), "unusable message", {"XBT/USD"}),
    "no pair": (
        lambda text: text.replace('"XBT/USD"', "6"), "unusable message", {"XBT/USD", "ETH/USD"}
    ),
    "cut off": (lambda text: text[:-3], "malformed JSON", {"XBT/USD", "ETH/USD"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_loses_a_book_that_is_resubscribed(name: str) -> None:
    spoil, kind, lost = FAULTS[name]
    driven, server = served()
    frame = server.frame("XBT/USD", [("b", 10_000, 77)])
    assert spoil(frame) != frame
    events = driven.frame(spoil(frame))
    assert {event[1] for event in events} == {Action.STATE, Action.CLEAR}
    assert driven.problems[kind] >= 1, driven.problems
    for product in ("XBT/USD", "ETH/USD"):
        assert driven.state(product) is (SYNCING if product in lost else VALID), driven.problems
    server.update("XBT/USD", [("a", 10_200, 5)])
    sent = server.answer(2.0)
    assert {text["pair"][0] for text in sent} == lost
    assert [text["event"] for text in sent] == ["unsubscribe", "subscribe"] * len(lost)
    for product in ("XBT/USD", "ETH/USD"):
        assert driven.levels(product) == server.markets[product].best()
    assert driven.statistics.resyncs == len(lost)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ([1668, {"a": ["13.25", 35, "35.7"], "b": ["13.2", 1, "1"]}, "ticker", "XBT/USD"], "unknown type"),
        ([1668, ["1", "2"], "spread", "XBT/USD"], "unknown type"),
        ({"event": "surprise"}, "unknown type"),
        ({"event": "pong", "reqid": 42}, None),
        ([993, [["1.0", 5]], "trade", "XBT/USD"], "invalid field"),
        ([993, [], "trade", "XYZ/USD"], "unknown product"),
        ([993, {"b": []}, "book-10", "XYZ/USD"], "unknown product"),
    ],
)
def test_what_leaves_books_alone(frame: Any, kind: str | None) -> None:
    driven, _ = served()
    driven.frame(frame)
    assert driven.problems == ({kind: 1} if kind else {})
    assert driven.state("XBT/USD") == driven.state("ETH/USD") == VALID


@given(st.data(), st.sampled_from([10, 25]))
def test_books_equal_the_exchanges_after_faults(data: st.DataObject, depth: int) -> None:
    faulty_run(data, Driven(KrakenV1, [XBT, ETH], depth), frame_v1, depth)


@given(st.lists(changes, max_size=20), st.sampled_from([10, 25]))
def test_books_equal_the_exchanges_at_every_message(steps: list[Any], depth: int) -> None:
    driven, server = served(depth)
    for step in steps:
        server.update("XBT/USD", step)
        assert driven.levels("XBT/USD") == server.markets["XBT/USD"].best()
    assert driven.problems == {}


def test_instruments() -> None:
    body = json.dumps(
        {"error": [], "result": {"XXBTZUSD": {"wsname": "XBT/USD", "pair_decimals": 1, "lot_decimals": 8}}}
    ).encode()
    (one,) = KrakenV1.instruments(["XBT/USD"], [body])
    assert (one.venue, one.symbol, one.native_symbol) == ("kraken", "BTC-USD", "XBT/USD")
    assert Instruments([one]).index("kraken", "BTC-USD") == 0
    with pytest.raises(SourceError, match="kraken: BTC/USD: Kraken has no such pair"):
        KrakenV1.instruments(["BTC/USD"], [body])
