"""OKX: a recording in full, the documented sequence numbers, and a market with faults."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_support import recorded
from session_support import Driven, instrument, plain_crc32

from orderbook.core.changes import Dictionary
from orderbook.core.errors import ConfigurationError, DataError, SourceError
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.exchanges.okx import Okx
from orderbook.feeds.live.session import Disconnect, Send, Session
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instrument, Instruments

BTC = instrument("okx", "BTC-USDT")
SWAP = instrument("okx", "BTC-USDT-SWAP", "0.1", "0.01")
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE
Rows = list[tuple[str, str]]


def signed_crc(asks: Rows, bids: Rows) -> int:
    texts = [":".join(side[place]) for place in range(25) for side in (bids, asks) if place < len(side)]
    number = plain_crc32(":".join(texts))
    return number - 2**32 if number >= 2**31 else number


class Plain:
    """A book as text, by price."""

    def __init__(self) -> None:
        self.asks: dict[Decimal, tuple[str, str]] = {}
        self.bids: dict[Decimal, tuple[str, str]] = {}

    def take(self, one: dict[str, Any], action: str) -> None:
        for side, rows in ((self.asks, one["asks"]), (self.bids, one["bids"])):
            if action == "snapshot":
                side.clear()
            for price, size, *_ in rows:
                side.pop(Decimal(price), None)
                if Decimal(size):
                    side[Decimal(price)] = price, size

    def best(self) -> tuple[Rows, Rows]:
        """Asks and bids, best first."""
        return [self.asks[p] for p in sorted(self.asks)], [
            self.bids[p] for p in sorted(self.bids, reverse=True)
        ]

    def counted(self, one: Instrument) -> dict[int, dict[int, int]]:
        unit, lot = one.price_unit, one.volume_unit
        return {
            side: {int(price / unit): int(Decimal(size) / lot) for price, (_, size) in levels.items()}
            for side, levels in ((Side.BID, self.bids), (Side.ASK, self.asks))
        }


def test_the_recording(shared_data: Path) -> None:
    lines = list(recorded(shared_data / "cryptofeed" / "OKX.jsonl.zst"))
    bodies = [line["data"].encode() for line in lines if line["t"] == "http"]
    instruments = Okx.instruments(["BTC-USDT", "UNI-USD-SWAP", "BTC-USD-220527"], bodies)
    assert [(str(one.tick), str(one.lot)) for one in instruments[1:]] == [("0.001", "1"), ("0.1", "1")]
    driven = Driven(Okx, instruments)
    plain = {one.native_symbol: Plain() for one in instruments}
    counts: Counter[str] = Counter()
    seen = set()
    for line in lines:
        if line["t"] != "recv":
            continue
        events = driven.frame(line["data"])
        message = json.loads(line["data"])
        channel, product = message["arg"]["channel"], message["arg"]["instId"]
        if "event" in message or channel == "tickers":
            continue
        if channel == "trades":
            for one, event in zip(message["data"] if product in seen else [], events, strict=True):
                assert event[-1] == int(one["tradeId"])
                assert event[2] == (Side.BID if one["side"] == "buy" else Side.ASK)
                counts["trades"] += 1
            counts["old trades"] += product not in seen
            seen.add(product)
            continue
        (one,) = message["data"]
        plain[product].take(one, message["action"])
        asks, bids = plain[product].best()
        assert signed_crc(asks, bids) == one["checksum"]
        counts["checksums"] += 1
        own = next(own for own in instruments if own.native_symbol == product)
        assert driven.books[product].levels == plain[product].counted(own)
        assert driven.state(product) is VALID
        assert Decimal(bids[0][0]) < Decimal(asks[0][0])
    print(dict(counts))
    assert counts == {"checksums": 3 + 287, "trades": 71, "old trades": 3}
    assert set(driven.problems) <= {"unknown type", "exchange clock backwards"}
    assert driven.statistics.gaps == driven.statistics.malformed == 0


def test_the_recording_replays(shared_data: Path) -> None:
    source = CaptureSource(shared_data / "cryptofeed" / "OKX.jsonl.zst")
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    assert [books.state(n) for n in range(3)] == [VALID] * 3
    assert source.statistics.checksums == 290
    assert source.counts == {"frames": 410, "gaps": 0, "resyncs": 0}
    assert books.problems() == {}


class Server:
    """Books of OKX's side; checksums are sent where `sums` says so."""

    def __init__(self, driven: Driven, *, sums: bool = True) -> None:
        self.driven, self.sums = driven, sums
        self.books = {name: Plain() for name in driven.books}
        self.numbers = dict.fromkeys(driven.books, 10)
        self.subscribed: set[str] = set()
        for book in self.books.values():
            book.take({"asks": [self.row(110 + n, 5) for n in range(40)], "bids": []}, "update")
            book.take({"asks": [], "bids": [self.row(100 - n, 5) for n in range(40)]}, "update")

    @staticmethod
    def row(ticks: int, lots: int) -> tuple[str, str, str, str]:
        return f"{ticks / 10:g}", f"{lots}", "0", "1"

    def message(self, product: str, action: str, asks: Any, bids: Any, previous: int, number: int) -> Any:
        one = {"asks": asks, "bids": bids, "ts": "1652459225464", "prevSeqId": previous, "seqId": number}
        one["checksum"] = signed_crc(*self.books[product].best()) if self.sums else 0
        return {"arg": {"channel": "books", "instId": product}, "action": action, "data": [one]}

    def snapshot(self, product: str) -> Any:
        asks, bids = self.books[product].best()
        shown = [[[*level, "0", "1"] for level in side] for side in (asks, bids)]
        return self.message(product, "snapshot", shown[0], shown[1], -1, self.numbers[product])

    def update(self, product: str, changes: list[tuple[str, int, int]], step: int = 3) -> Any:
        sides = {name: [self.row(t, q) for s, t, q in changes if s == name] for name in ("asks", "bids")}
        self.books[product].take(sides, "update")
        previous, self.numbers[product] = self.numbers[product], self.numbers[product] + step
        return self.message(product, "update", sides["asks"], sides["bids"], previous, self.numbers[product])

    def answer(self, seconds: float) -> list[Any]:
        """Answer what the session sends in the next seconds, which is returned."""
        found, end = [], self.driven.now + seconds
        while self.driven.now < end:
            self.driven.frame(b"pong")
            step = min(self.driven.now + 5.0, end)
            while commands := self.driven.commands(step - self.driven.now):
                assert all(isinstance(command, Send) for command in commands), commands
                for text in [command.text for command in commands if isinstance(command, Send)]:
                    if text != "ping":
                        found.append(json.loads(text))
                        self._take(found[-1])
            self.driven.now = step
        return found

    def _take(self, message: Any) -> None:
        for one in message["args"]:
            if one["channel"] == "books" and message["op"] == "unsubscribe":
                self.subscribed.remove(one["instId"])
            elif one["channel"] == "books":
                assert one["instId"] not in self.subscribed, "subscribed to twice"
                self.subscribed.add(one["instId"])
                self.driven.frame({"event": "subscribe", "arg": one, "connId": "a4d3ae55"})
                self.driven.frame(self.snapshot(one["instId"]))

    def agrees(self, product: str) -> bool:
        own = next(own for own in self.driven.instruments if own.native_symbol == product)
        return self.driven.books[product].levels == self.books[product].counted(own)


def served(*, sums: bool = True) -> tuple[Driven, Server]:
    """A session with valid books of BTC-USDT and BTC-USDT-SWAP, and the server behind it."""
    driven = Driven(Okx, [BTC, SWAP])
    server = Server(driven, sums=sums)
    server.answer(2.0)
    assert driven.state("BTC-USDT") == driven.state("BTC-USDT-SWAP") == VALID
    return driven, server


def test_what_is_sent() -> None:
    driven = Driven(Okx, [BTC, SWAP])
    products = ("BTC-USDT", "BTC-USDT-SWAP")
    channels = [{"channel": name, "instId": one} for name in ("books", "trades") for one in products]
    states = [{"channel": "instruments", "instType": kind} for kind in ("SPOT", "SWAP")]
    (command,) = driven.commands(1.0)
    assert isinstance(command, Send)
    kinds = ("funding-rate", "mark-price", "open-interest")
    told = [{"channel": name, "instId": "BTC-USDT-SWAP"} for name in kinds]
    told.append({"channel": "liquidation-orders", "instType": "SWAP"})
    assert json.loads(command.text) == {"op": "subscribe", "args": channels + states + told}
    pings = driven.commands(20.0)
    assert [command.text for command in pings if isinstance(command, Send)][-1] == "ping"
    driven.frame(b"pong")
    assert driven.problems.keys() <= {"no synchronisation"}


def test_depth_is_what_the_channel_has() -> None:
    Session(Okx, Instruments([BTC]), [0], ExchangeOptions(depth=400), lambda: 0.0)
    with pytest.raises(ConfigurationError, match="okx: depth 5 is not offered; it is 400"):
        Session(Okx, Instruments([BTC]), [0], ExchangeOptions(depth=5), lambda: 0.0)


@pytest.mark.parametrize("sums", [True, False])
def test_the_documented_sequence(sums: bool) -> None:
    driven, server = served(sums=sums)
    server.numbers["BTC-USDT"] = 10
    driven.frame(server.snapshot("BTC-USDT"))
    for previous, number, changes in (
        (10, 15, [("bids", 101, 3)]),
        (15, 15, []),
        (15, 3, [("asks", 108, 4)]),
        (3, 5, [("asks", 108, 0)]),
    ):
        message = server.update("BTC-USDT", changes, number - previous)
        assert message["data"][0]["prevSeqId"] == previous
        driven.frame(message)
        assert driven.state("BTC-USDT") is VALID
        assert server.agrees("BTC-USDT")
    assert driven.problems == {}


@pytest.mark.parametrize("sums", [True, False])
def test_gaps_and_repetitions(sums: bool) -> None:
    driven, server = served(sums=sums)
    first = server.update("BTC-USDT", [("bids", 101, 3)])
    driven.frame(first)
    driven.frame(first)
    assert driven.problems == {"late message": 1}
    assert server.agrees("BTC-USDT")
    second, third = (server.update("BTC-USDT", [("bids", 101, size)]) for size in (4, 5))
    driven.frame(third)
    assert driven.state("BTC-USDT") is SYNCING
    assert driven.problems == {"late message": 1, "gap": 1}
    driven.frame(second)
    driven.frame(server.update("BTC-USDT", [("bids", 99, 6)]))
    sent = server.answer(2.0)
    assert [(one["op"], one["args"]) for one in sent] == [
        (op, [{"channel": "books", "instId": "BTC-USDT"}]) for op in ("unsubscribe", "subscribe")
    ]
    assert driven.state("BTC-USDT") is driven.state("BTC-USDT-SWAP") is VALID
    assert server.agrees("BTC-USDT")
    assert driven.problems == {"late message": 1, "gap": 1}
    assert (driven.statistics.resyncs, driven.statistics.reconnects) == (1, 0)


def test_a_quiet_book_shows_a_gap_by_its_heartbeat() -> None:
    driven, server = served(sums=False)
    server.update("BTC-USDT", [("bids", 101, 3)])
    driven.frame(server.update("BTC-USDT", [], step=0))
    assert driven.problems == {"gap": 1}


def spoiled(**fields: Any) -> Any:
    return lambda message: message | {"data": [message["data"][0] | fields]}


FAULTS: dict[str, tuple[Any, str, set[str]]] = {
    "wrong checksum": (spoiled(checksum=7), "checksum", {"BTC-USDT"}),
    "another size": (spoiled(bids=[["10.1", "78", "0", "1"]]), "checksum", {"BTC-USDT"}),
    "between ticks": (spoiled(bids=[["10.15", "77", "0", "1"]]), "malformed", {"BTC-USDT"}),
    "negative": (spoiled(bids=[["10.1", "-77", "0", "1"]]), "malformed", {"BTC-USDT"}),
    "wrong type": (spoiled(bids=[[10.1, 77, 0, 1]]), "invalid field", {"BTC-USDT"}),
    "no asks": (spoiled(asks=None), "invalid field", {"BTC-USDT"}),
    "bad time": (spoiled(ts="-1"), "unusable message", {"BTC-USDT"}),
    "cut off": (lambda message: json.dumps(message)[:-2], "malformed JSON", {"BTC-USDT", "BTC-USDT-SWAP"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_loses_a_book_that_is_resubscribed(name: str) -> None:
    spoil, kind, lost = FAULTS[name]
    driven, server = served()
    events = driven.frame(spoil(server.update("BTC-USDT", [("bids", 101, 77)])))
    assert {event[1] for event in events} == {Action.STATE, Action.CLEAR}
    assert driven.problems[kind] >= 1, driven.problems
    products = ("BTC-USDT", "BTC-USDT-SWAP")
    assert {one for one in products if driven.state(one) is SYNCING} == lost
    driven.frame(server.update("BTC-USDT", [("asks", 109, 5)]))
    sent = server.answer(3.0)
    assert {one["args"][0]["instId"] for one in sent} == lost
    for product in products:
        assert driven.state(product) is VALID
        assert server.agrees(product)
    assert (driven.statistics.resyncs, driven.statistics.reconnects) == (len(lost), 0)


def trade(number: int, **other: Any) -> dict[str, Any]:
    fields = {"instId": "BTC-USDT", "tradeId": str(number), "px": "10.5", "sz": "2", "side": "sell"}
    return fields | {"ts": "1652459225464", "count": "3"} | other


def trades(*data: dict[str, Any]) -> dict[str, Any]:
    return {"arg": {"channel": "trades", "instId": "BTC-USDT"}, "data": data}


def test_trades_are_passed_on_once_and_old_ones_never() -> None:
    driven = Driven(Okx, [BTC, SWAP])
    assert driven.frame(trades(trade(1))) == []
    server = Server(driven)
    server.answer(2.0)
    assert driven.frame(trades(trade(2, ts="1652459225463"))) == []
    sold, bought = ((0, Action.TRADE, side, 105, 200_000_000) for side in (Side.ASK, Side.BID))
    assert driven.frame(trades(trade(3), trade(4, side="buy"))) == [(*sold, 3), (*bought, 4)]
    assert driven.frame(trades(trade(4), trade(5))) == [(*sold, 5)]
    assert driven.problems == {}


def test_old_trades_are_those_before_a_connections_first_snapshot() -> None:
    driven, server = served()
    later = server.snapshot("BTC-USDT")
    later["data"][0]["ts"] = "1652459229999"
    driven.frame(later)
    assert len(driven.frame(trades(trade(1)))) == 1
    driven.session.disconnected("gone", driven.time)
    driven.connect()
    assert driven.frame(trades(trade(2))) == []
    server.subscribed.clear()
    server.answer(2.0)
    assert len(driven.frame(trades(trade(3)))) == 1


def test_halts() -> None:
    driven, server = served()
    for state, expected in (("live", VALID), ("suspend", STALE), ("preopen", STALE), ("live", VALID)):
        data = [{"instId": name, "state": state, "instType": "SPOT"} for name in ("BTC-USDT", "XYZ-USDT")]
        driven.frame({"arg": {"channel": "instruments", "instType": "SPOT"}, "data": data})
        assert (driven.state("BTC-USDT"), driven.state("BTC-USDT-SWAP")) == (expected, VALID)
        driven.frame(server.update("BTC-USDT", [("bids", 101, 3)]))
        assert server.agrees("BTC-USDT")
    assert driven.problems == {}


def test_a_refused_subscription() -> None:
    driven = Driven(Okx, [BTC])
    text = "Wrong URL or channel:books,instId:BTC-USDT doesn't exist. Please use the correct URL."
    driven.frame({"event": "error", "msg": text, "code": "60018", "connId": "a4d3ae55"})
    assert driven.session.refusal == f"{text} (code 60018)"
    assert driven.statistics.problems.examples["refused"][0].startswith("BTC-USDT: ")


def test_a_notice_makes_a_new_connection() -> None:
    driven, _ = served()
    driven.frame({"event": "notice", "code": "64008", "msg": "The connection will soon be closed"})
    assert driven.commands(0.1) == [Disconnect("notice: The connection will soon be closed (code 64008)")]


@pytest.mark.parametrize("seconds", [12.0, 20.0])
def test_the_hourly_limit_makes_a_new_connection(seconds: float) -> None:
    driven, server = served()

    def lose() -> None:
        driven.frame(spoiled(checksum=7)(server.update("BTC-USDT", [("bids", 101, 3)])))
        assert driven.state("BTC-USDT") is SYNCING

    for _ in range(239):
        lose()
        server.answer(seconds)
        assert driven.state("BTC-USDT") is VALID
    lose()
    if 240 * seconds < 3600:
        assert driven.commands(1.0) == [Disconnect("subscription limit: 480 in an hour")]
        driven.session.disconnected("as asked", driven.time)
        driven.connect()
        server.subscribed.clear()
        server.answer(2.0)
        lose()
    server.answer(2.0)
    assert driven.state("BTC-USDT") is VALID
    assert server.agrees("BTC-USDT")


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"arg": {"channel": "tickers", "instId": "BTC-USDT"}, "data": [{"last": "1"}]}, "unknown type"),
        ({"event": "surprise"}, "unknown type"),
        ({"event": "channel-conn-count", "channel": "books", "connCount": "2"}, None),
        ({"event": "unsubscribe", "arg": {"channel": "books", "instId": "BTC-USDT"}}, None),
        (trades(trade(1, side="left")), "invalid field"),
        (trades(trade(1, px="1.05")), "unusable message"),
        ({"arg": {"channel": "books", "instId": "X"}, "action": "update", "data": []}, "unknown product"),
    ],
)
def test_what_leaves_books_alone(frame: dict[str, Any], kind: str | None) -> None:
    driven, _ = served()
    driven.frame(frame)
    assert driven.problems == ({kind: 1} if kind else {})
    assert driven.state("BTC-USDT") == driven.state("BTC-USDT-SWAP") == VALID


changes = st.lists(
    st.one_of(
        st.tuples(st.just("bids"), st.integers(60, 104), st.integers(0, 9)),
        st.tuples(st.just("asks"), st.integers(105, 150), st.integers(0, 9)),
    ),
    max_size=8,
)
faults = st.sampled_from(["", "", "", "drop", "repeat", "hold", "size", "cut", "reset", "wait"])


@given(st.lists(st.tuples(changes, faults), min_size=1, max_size=25), st.booleans())
def test_a_valid_book_is_never_wrong(steps: list[tuple[Any, str]], sums: bool) -> None:
    driven, server = served(sums=sums)
    held: list[Any] = []
    for change, fault in steps:
        if fault == "reset":
            message = server.update("BTC-USDT", change, -server.numbers["BTC-USDT"] + 1)
        else:
            message = server.update("BTC-USDT", change)
        if fault == "hold":
            held.append(message)
        elif fault == "cut":
            driven.frame(json.dumps(message)[:-3])
            assert driven.state("BTC-USDT") is SYNCING
        elif fault == "size":
            driven.frame(spoiled(bids=[["10.1", "-1", "0", "1"]])(message))
            assert driven.state("BTC-USDT") is SYNCING
        elif fault != "drop":
            for frame in [message] * (2 if fault == "repeat" else 1):
                driven.frame(frame)
                assert driven.state("BTC-USDT") is SYNCING or server.agrees("BTC-USDT")
            for frame in held:
                driven.frame(frame)
                assert driven.state("BTC-USDT") is SYNCING or server.agrees("BTC-USDT")
            held.clear()
        if fault == "wait":
            server.answer(1.0)
        driven.frame(server.update("BTC-USDT-SWAP", change))
        assert driven.state("BTC-USDT-SWAP") is SYNCING or server.agrees("BTC-USDT-SWAP")
    driven.frame(server.update("BTC-USDT", []))
    server.answer(60.0)
    for product in ("BTC-USDT", "BTC-USDT-SWAP"):
        assert driven.state(product) is VALID
        assert server.agrees(product)
    assert driven.statistics.reconnects == 0


def test_instruments() -> None:
    products = ["BTC-USDT", "ETH-USDC", "BTC-USDT-SWAP", "BTC-USD-220527"]
    urls = Okx.instrument_urls(products, "http://x")
    path = "http://x/api/v5/public/instruments?instType="
    assert urls == [path + one for one in ("SPOT", "SWAP", "FUTURES")]
    rows = [{"instId": one, "tickSz": "0.1", "lotSz": "0.00001", "state": "live"} for one in products]
    rows.append({"instId": "BABYDOGE-USDT", "tickSz": "0.000000000001", "lotSz": "1"})
    rows.append({"instId": "NEW-USDT", "tickSz": "", "lotSz": ""})
    body = json.dumps({"code": "0", "msg": "", "data": rows}).encode()
    found = Okx.instruments(products, [b"<html>", body])
    assert [one.symbol for one in found] == ["BTC-USDT", "ETH-USDC", "BTC-USDT-PERP", "BTC-USD-220527"]
    assert {(one.venue, one.tick, one.lot) for one in found} == {("okx", Decimal("0.1"), Decimal("0.00001"))}
    with pytest.raises(DataError, match="BABYDOGE-USDT: the tick 1E-12 is not a multiple of 1e-8"):
        Okx.instruments(["BABYDOGE-USDT"], [body])
    for product, bodies, problem in (
        ("X-Y", [body], "OKX has no such instrument"),
        ("NEW-USDT", [body], "no tick and lot"),
        ("BTC-USDT", [b'{"code":"50011","msg":"Too Many Requests","data":[]}'], "Too Many Requests"),
        ("BTC-USDT", [b"<html>"], "not an answer with instruments"),
    ):
        with pytest.raises(SourceError, match=f"okx: {product}: {problem}"):
            Okx.instruments([product], bodies)
