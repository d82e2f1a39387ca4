"""Bitfinex: a recorded session against books by hand, checksums, and an exchange played, with faults."""

import json
import re
from decimal import Decimal
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages
from recorded_support import recorded
from session_support import Driven, instrument, plain_crc32

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.bitfinex import Bitfinex, BitfinexRaw
from orderbook.feeds.exchanges.books import bitfinex_checksum
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions
from orderbook.feeds.live.session import Disconnect, Session
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instruments

BTC, ETH = (instrument("bitfinex", name, "0.00000001") for name in ("tBTCUSD", "tETHUSD"))
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE
ONE = 10**8


def signed_crc32(text: str) -> int:
    number = crc32(text.encode())
    return number - 2**32 if number >= 2**31 else number


class Server:
    """Numbers the frames of a connection, and knows the books of its channels: rows by price or id."""

    def __init__(self, driven: Driven, raw: bool = False) -> None:
        self.driven = driven
        self.raw = raw
        self.number = 1
        self.rows: dict[int, dict[str, tuple[str, str, str]]] = {}

    def text(self, channel: int, *rest: str) -> str:
        text = f"[{channel},{','.join(rest)},{self.number}]"
        self.number += 1
        return text

    def send(self, channel: int, *rest: str) -> list[tuple[int, ...]]:
        return self.driven.frame(self.text(channel, *rest))

    def acknowledge(self, channel: int, product: str, name: str = "book") -> None:
        self.driven.frame({"event": "subscribed", "channel": name, "chanId": channel, "symbol": product})

    def begin(self, channel: int, *rows: str) -> list[tuple[int, ...]]:
        """The snapshot of a channel: rows such as "100 1 2.5"."""
        found = [tuple(row.split()) for row in rows]
        self.rows[channel] = {row[0]: row for row in found}  # type: ignore[misc]
        return self.send(channel, f"[{','.join(map(_json, rows))}]")

    def change(self, channel: int, row: str) -> list[tuple[int, ...]]:
        return self.send(channel, self.changed(channel, row))

    def changed(self, channel: int, row: str) -> str:
        key, second, third = row.split()
        self.rows[channel].pop(key, None)
        if second != "0":
            self.rows[channel][key] = (key, second, third)
        return _json(row)

    def checksum(self, channel: int) -> int:
        """As the exchange computes it."""
        rows = list(self.rows[channel].values())
        if self.raw:
            rows.sort(key=lambda row: int(row[0]))
        asks = sorted((r for r in rows if r[2][0] == "-"), key=lambda r: Decimal(r[self.raw]))
        bids = sorted((r for r in rows if r[2][0] != "-"), key=lambda r: -Decimal(r[self.raw]))
        parts: list[str] = []
        for place in range(25):
            for side in (bids, asks):
                if place < len(side):
                    parts += (side[place][0], side[place][2])
        return signed_crc32(":".join(parts))

    def check(self, channel: int) -> list[tuple[int, ...]]:
        return self.send(channel, '"cs"', str(self.checksum(channel)))


def _json(row: str) -> str:
    return f"[{','.join(row.split())}]"


def served(kind: type[Exchange] = Bitfinex) -> tuple[Driven, Server]:
    """Valid books: 100 bid and 101 asked, on channels 1 and 2 (trades of tBTCUSD on 3); ids 11 and 12."""
    driven = Driven(kind, [BTC, ETH])
    driven.sent(0.0)
    server = Server(driven, raw=kind is BitfinexRaw)
    rows = ("11 100 1", "12 101 -2") if server.raw else ("100 1 1", "101 1 -2")
    for channel, product in ((1, "tBTCUSD"), (2, "tETHUSD")):
        server.acknowledge(channel, product)
        server.begin(channel, *rows)
        assert driven.state(product) is VALID
    server.acknowledge(3, "tBTCUSD", "trades")
    return driven, server


def test_checksums() -> None:
    asks, bids = [("6100", "-3"), ("6200", "-4")], [("6000", "1"), ("5900", "2.5e-7")]
    text = "6000:1:6100:-3:5900:2.5e-7:6200:-4"
    assert bitfinex_checksum(asks, bids) == signed_crc32(text)
    assert bitfinex_checksum(asks, bids) % 2**32 == plain_crc32(text)
    assert bitfinex_checksum(asks, []) == signed_crc32("6100:-3:6200:-4")
    many = [(str(price), "1") for price in range(100, 50, -1)]
    assert bitfinex_checksum(asks, many) == bitfinex_checksum(asks, many[:25])
    numbers = [bitfinex_checksum([], [(str(price), "1")]) for price in range(20)]
    assert min(numbers) < 0 < max(numbers)
    assert plain_crc32("123456789") == 0xCBF43926


def test_the_recorded_session(shared_data: Path) -> None:
    path = shared_data / "cryptofeed" / "BITFINEX.jsonl.zst"
    source = CaptureSource(path)
    events = np.concatenate(list(source))
    statistics = source.statistics
    assert statistics.problems.counts == {}
    assert (statistics.frames, statistics.gaps, statistics.malformed) == (1693, 0, 0)
    names = {one.native_symbol: index for index, one in enumerate(source.instruments)}
    assert len(names) == 7
    books, plain = Books(source.instruments, Dictionary()), [PlainBook() for _ in names]
    units = iter(list(messages([events])))
    channels: dict[int, str] = {}
    by_hand: dict[str, dict[Side, dict[str, str]]] = {}
    compared = crossed = 0
    for record in recorded(path):
        if record["t"] != "recv":
            continue
        frame = json.loads(record["data"], parse_float=str, parse_int=str)
        if isinstance(frame, dict):
            if frame["event"] == "subscribed" and frame["channel"] == "book":
                channels[frame["chanId"]] = frame["symbol"]
            continue
        if frame[0] not in channels or frame[1] == "hb":
            continue
        product, rows = channels[frame[0]], frame[1]
        if not rows or isinstance(rows[0], list):
            by_hand[product] = {Side.BID: {}, Side.ASK: {}}
        for price, count, amount in rows if isinstance(rows[0], list) else [rows]:
            own = by_hand[product][Side.ASK if amount[0] == "-" else Side.BID]
            own.pop(price, None)
            if count != "0":
                own[price] = amount.removeprefix("-")
        for unit in units:
            books.apply(unit)
            for event in unit:
                plain[event["instrument"]].apply(event)
            if str(unit["sequence"][0]) == frame[2] and unit["action"][-1] == Action.LEVEL:
                break
        index = names[product]
        one = source.instruments[index]
        for side, levels in by_hand[product].items():
            assert plain[index].levels[side] == {one.ticks(p): one.lots(s) for p, s in levels.items()}
            assert books.levels(index, side, 100)[["price", "volume"]].tolist() == plain[index].best(side)
            # The exchange removes what falls out of the best 100.
            assert 0 < len(levels) <= 100
        best_bid, best_ask = books.best(index)
        crossed += best_bid is None or best_ask is None or best_bid >= best_ask
        compared += 1
    print(f"bitfinex: {compared} books compared, {crossed} crossed")
    assert (compared, crossed) == (1600, 0)


def test_the_recorded_books_with_checksums_of_our_own(shared_data: Path) -> None:
    """The recording has none: they are computed from its text, and sent after every frame of a book."""
    path = shared_data / "cryptofeed" / "BITFINEX.jsonl.zst"
    source = CaptureSource(path)
    driven = Driven(Bitfinex, list(source.instruments))
    server = Server(driven)
    books: set[int] = set()
    sent = 0
    for record in recorded(path):
        if record["t"] != "recv":
            continue
        text = record["data"]
        if text[0] == "{":
            message = json.loads(text)
            if message["event"] == "subscribed" and message["channel"] == "book":
                books.add(message["chanId"])
            driven.frame(text)
            continue
        found = re.fullmatch(r"\[(\d+),(.*),\d+\]", text)
        assert found is not None
        channel, body = int(found[1]), found[2]
        if channel in books and body[0] == "[":
            rows = re.findall(r"\[([^\[\]]+),([^\[\]]+),([^\[\]]+)\]", body)
            if body.startswith("[["):
                server.rows[channel] = {}
            for row in rows:
                server.changed(channel, " ".join(row))
        server.send(channel, body)
        if channel in server.rows:
            server.check(channel)
            sent += 1
    print(f"bitfinex: {sent} checksums")
    assert driven.problems == {}
    assert all(driven.state(product) is VALID for product in driven.books)
    assert sent > 1600
    channel = 232955
    server.send(channel, '"cs"', str(server.checksum(channel) ^ 1))
    assert driven.state("tIOTETH") is SYNCING


def test_what_is_sent() -> None:
    driven = Driven(BitfinexRaw, [BTC], depth=30)
    conf, book, trades = driven.sent(0.0)
    assert conf == {"event": "conf", "flags": 65536 + 131072}
    common = {"event": "subscribe", "symbol": "tBTCUSD"}
    assert book == common | {"channel": "book", "prec": "R0", "freq": "F0", "len": "100"}
    assert trades == common | {"channel": "trades"}
    *_, status = Driven(Bitfinex, [instrument("bitfinex", "tBTCF0:USTF0")]).sent(0.0)
    assert status == {"event": "subscribe", "channel": "status", "key": "deriv:tBTCF0:USTF0"}
    with pytest.raises(SourceError, match="no book has 251 levels; at most 250"):
        Session(Bitfinex, Instruments([BTC]), [0], ExchangeOptions(depth=251), lambda: 0.0)


def test_instruments() -> None:
    bodies = [b'[["BTCUSD","AVAX:USD"]]', b'[["BTCF0:USTF0"]]']
    found = Bitfinex.instruments(["tAVAX:USD", "tBTCF0:USTF0"], bodies)
    assert [str(one) for one in found] == ["bitfinex:AVAX-USD", "bitfinex:BTC-USDT-PERP"]
    assert {str(step) for one in found for step in (one.tick, one.lot)} == {"1E-8"}
    for product in ("tFOOUSD", "BTCUSD"):
        with pytest.raises(SourceError, match=f"no product '{product}'"):
            Bitfinex.instruments([product], bodies)


def test_levels() -> None:
    driven, server = served()
    assert server.change(1, "99.5 2 3e-7") == [(0, Action.LEVEL, Side.BID, 9_950_000_000, 30, 0)]
    server.change(1, "101 0 -1")
    server.change(1, "102.5 1 -0.25")
    server.check(1)
    assert driven.levels("tBTCUSD") == ([(100 * ONE, ONE), (9_950_000_000, 30)], [(10_250_000_000, ONE // 4)])
    assert driven.problems == {}


def test_orders() -> None:
    driven, server = served(BitfinexRaw)

    def events(row: str) -> list[tuple[int, ...]]:
        found = [event[1:] for event in server.change(1, row)]
        server.check(1)
        return found

    assert events("13 100 2") == [(Action.ADD, Side.BID, 100 * ONE, 2 * ONE, 13)]
    assert events("13 100 1.5") == [(Action.REDUCE, Side.BID, 100 * ONE, ONE // 2, 13)]
    assert events("13 100 1.5") == []
    assert events("13 99 1.5") == [(Action.MODIFY, Side.BID, 99 * ONE, 3 * ONE // 2, 13)]
    assert events("13 99 4") == [(Action.MODIFY, Side.BID, 99 * ONE, 4 * ONE, 13)]
    assert [event[0] for event in events("13 102 -4")] == [Action.DELETE, Action.ADD]
    assert events("12 0 -1") == [(Action.DELETE, Side.ASK, 101 * ONE, 2 * ONE, 12)]
    assert events("77 0 1") == []
    assert driven.problems == {}
    assert set(driven.books["tBTCUSD"].orders) == {11, 13}
    for row in ("14 100 0", "-1 100 1", "1.5 100 1", "9223372036854775808 100 1", "14 -5 1"):
        driven, server = served(BitfinexRaw)
        server.change(1, row)
        assert (driven.state("tBTCUSD"), driven.problems) == (SYNCING, {"malformed": 1})


@pytest.mark.parametrize("kind", [Bitfinex, BitfinexRaw])
def test_a_wrong_checksum_loses_its_book_alone_which_is_subscribed_anew(kind: type[Exchange]) -> None:
    driven, server = served(kind)
    server.send(1, '"cs"', str(server.checksum(1) + 1))
    assert (driven.state("tBTCUSD"), driven.state("tETHUSD")) == (SYNCING, VALID)
    assert driven.problems == {"checksum": 1}
    sent = driven.sent(1.0)
    assert [message["event"] for message in sent] == ["unsubscribe", "subscribe"]
    assert (sent[0]["chanId"], sent[1]["symbol"]) == (1, "tBTCUSD")
    # What still comes on the old channel is of no use; its number may be given again.
    server.begin(1, "5 1 1")
    assert driven.state("tBTCUSD") is SYNCING
    driven.frame({"event": "unsubscribed", "status": "OK", "chanId": 1})
    server.begin(1, "50 1 1", "60 70 -1")
    server.acknowledge(1, "tBTCUSD")
    server.check(1)
    assert driven.state("tBTCUSD") is VALID
    assert driven.statistics.resyncs == 1
    assert driven.problems == {"checksum": 1}


def test_frames_before_the_acknowledgement_wait() -> None:
    driven = Driven(Bitfinex, [BTC])
    server = Server(driven)
    server.send(9, '"hb"')
    server.begin(9, "100 1 1")
    server.change(9, "99 1 1")
    server.check(9)
    assert driven.state("tBTCUSD") is SYNCING
    server.acknowledge(9, "tBTCUSD")
    assert driven.state("tBTCUSD") is VALID
    assert [price for price, _ in driven.levels("tBTCUSD")[0]] == [100 * ONE, 99 * ONE]
    for _ in range(1001):
        server.send(77, "[1,1,1]")
    assert driven.problems == {"unknown channel": 1}


def test_a_gap_loses_all_books_and_the_frames_that_wait() -> None:
    driven, server = served()
    server.begin(4, "100 1 1")
    server.number += 1
    server.send(3, '"hb"')
    assert driven.state("tBTCUSD") is driven.state("tETHUSD") is SYNCING
    server.acknowledge(4, "tETHUSD")
    assert driven.state("tETHUSD") is SYNCING
    assert driven.problems == {"gap": 2}
    server.number -= 1
    server.change(1, "99 1 1")
    assert driven.problems == {"gap": 2, "late message": 1}


def test_trades() -> None:
    driven, server = served()
    assert server.send(3, "[[6,1000,1,100],[7,1001,-1,100]]") == []
    assert server.send(3, '"te"', "[7,1001,-1,100]") == []
    assert server.send(3, '"te"', "[8,1002,-0.5,100.5]") == [
        (0, Action.TRADE, Side.ASK, 10_050_000_000, ONE // 2, 8)
    ]
    assert server.send(3, '"tu"', "[8,1002,-0.5,100.5]") == []
    server.send(3, '"te"', '[9,1002,"x",1]')
    server.send(3, '"te"', "[9]")
    assert driven.statistics.malformed == 2
    assert driven.state("tBTCUSD") is VALID


BODIES = ["[100,1]", '[100,1,"a"]', "[null,1,1]", "[1e-9,1,1]", "[1e400,1,1]", '"cs",{}', "{}"]


@pytest.mark.parametrize("body", BODIES)
def test_an_unusable_message_loses_its_book_alone(body: str) -> None:
    driven, server = served()
    server.send(1, *body.split(",", 1)) if body.startswith('"cs"') else server.send(1, body)
    assert (driven.state("tBTCUSD"), driven.state("tETHUSD")) == (SYNCING, VALID)
    assert driven.problems == {"malformed": 1}
    assert len(driven.sent(1.0)) == 2


def test_what_cannot_be_read_shows_as_a_gap() -> None:
    driven, server = served()
    driven.frame(server.text(1, "[99,1,1]")[:-4])
    server.send(3, '"hb"')
    assert driven.problems == {"malformed JSON": 1, "gap": 2}


def test_what_changes_no_book() -> None:
    driven, server = served()
    driven.frame({"event": "info", "version": 2, "platform": {"status": 1}})
    driven.frame({"event": "conf", "status": "OK", "flags": 196608})
    driven.frame({"event": "pong", "ts": 1})
    server.acknowledge(5, "tBTCUSD", "ticker")
    server.send(5, "[1,2,3]")
    assert driven.problems == {}
    driven.frame({"event": "tea"})
    server.send(1, '"tea"', "[1]")
    server.acknowledge(6, "tFOOUSD")
    assert driven.problems == {"unknown message": 2, "unknown product": 1}
    assert driven.state("tBTCUSD") is driven.state("tETHUSD") is VALID


def test_maintenance_and_restarts() -> None:
    driven, server = served()
    driven.frame({"event": "info", "code": 20060, "msg": "entering maintenance"})
    assert driven.state("tBTCUSD") is driven.state("tETHUSD") is STALE
    driven.frame({"event": "info", "code": 20061, "msg": "maintenance ended"})
    assert any(isinstance(command, Disconnect) for command in driven.commands(0.0))
    driven.session.disconnected("closed", driven.time)
    driven.connect()
    server.number = 1
    server.acknowledge(1, "tBTCUSD")
    server.begin(1, "100 1 1")
    assert driven.state("tBTCUSD") is VALID
    driven.frame({"event": "info", "code": 20051, "msg": "restarting"})
    assert driven.problems["reconnect requested"] == 1


def test_refusals() -> None:
    driven = Driven(Bitfinex, [BTC])
    driven.frame({"event": "error", "msg": "symbol: invalid", "code": 10300, "symbol": "tBTCUSD"})
    assert driven.session.refusal == "symbol: invalid (code 10300)"
    driven = Driven(Bitfinex, [BTC])
    driven.frame({"event": "conf", "status": "FAILED"})
    assert driven.session.refusal == "sequence numbers and checksums: FAILED"


FAULTS = ("lose", "repeat", "cut", "swap", "checksum")


@pytest.mark.parametrize("kind", [Bitfinex, BitfinexRaw])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("", "", "", *FAULTS)), st.integers(1, 40), st.integers(0, 3)), max_size=40
    )
)
def test_a_valid_book_is_the_exchanges(kind: type[Exchange], steps: list[tuple[str, int, int]]) -> None:
    driven, server = served(kind)
    channel, waiting = 1, ""
    for fault, key, size in steps:
        place = f"{key} {size and 100 + key}" if server.raw else f"{80 + key} {size}"
        row = f"{place} {'-' if key > 20 else ''}{size or 1}"
        text = server.text(channel, server.changed(channel, row))
        if fault == "swap" and not waiting:
            waiting = text
            continue
        damaged = {"lose": [], "repeat": [text, text], "cut": [text[:-3]]}
        for frame in (*damaged.get(fault, [text]), waiting):
            if frame:
                driven.frame(frame)
        waiting = ""
        server.send(channel, '"cs"', str(server.checksum(channel) + (fault == "checksum")))
        if driven.state("tBTCUSD") is SYNCING:
            driven.sent(1.0)
            channel += 10
            server.rows[channel] = server.rows[channel - 10]
            server.acknowledge(channel, "tBTCUSD")
            server.begin(channel, *map(" ".join, server.rows[channel].values()))
        book = driven.books["tBTCUSD"]
        rows = [book.levels[side] for side in (Side.BID, Side.ASK)]
        expected: list[dict[int, int]] = [{}, {}]
        for first, second, amount in server.rows[channel].values():
            price, side = int(second if server.raw else first) * ONE, int(amount[0] == "-")
            expected[side][price] = expected[side].get(price, 0) + abs(int(amount)) * ONE
        assert driven.state("tBTCUSD") is VALID
        assert rows == expected
