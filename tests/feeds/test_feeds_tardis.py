"""Tardis files: the documented layout, generated, against a plain book and exact decimals."""

import gzip
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds import byte_stream
from orderbook.feeds.files import tardis
from orderbook.feeds.files.tardis import TardisSource, open_tardis
from orderbook.feeds.files.tardis_text import NOTHING, Kind, Status, name_hash, read_rows
from orderbook.feeds.source_kinds import open_source, open_sources
from orderbook.market.events import Action, BookState, Flag, Side
from orderbook.market.instruments import fixed_point, normalise_symbol

L2 = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"
TRADES = "exchange,symbol,timestamp,local_timestamp,id,side,price,amount"
QUOTES = "exchange,symbol,timestamp,local_timestamp,ask_amount,ask_price,bid_price,bid_amount"
START = 1_700_000_000_000_000

Book = dict[tuple[str, Decimal], Decimal]


def snapshot_header(depth: int) -> str:
    names = (f"{s}[{k}].{n}" for k in range(depth) for s in ("asks", "bids") for n in ("price", "amount"))
    return ",".join(["exchange,symbol,timestamp,local_timestamp", *names])


@dataclass
class Market:
    """Rows of incremental_book_L2, and the book after every message as the documentation says it is."""

    seed: int
    symbols: Sequence[str] = ("BTCUSDT",)
    exchange: str = "binance"
    rows: list[str] = field(default_factory=list)
    books: list[tuple[int, str, Book]] = field(default_factory=list)

    def generate(self, messages: int, early: int = 2) -> "Market":
        chance = random.Random(self.seed)
        time = START
        current: dict[str, Book] = {symbol: {} for symbol in self.symbols}
        begun: set[str] = set()
        in_snapshot: dict[str, bool] = {}
        for number in range(messages):
            time += chance.choice((0, 1, 7, 1000)) if len(self.symbols) > 1 else chance.randrange(1, 2000)
            symbol = chance.choice(self.symbols)
            if self.books and self.books[-1][:2] == (time, symbol):
                time += 1
            book = current[symbol]
            snapshot = number >= early and (symbol not in begun or chance.random() < 0.05)
            if snapshot:
                begun.add(symbol)
                if not in_snapshot.get(symbol):
                    book.clear()
            in_snapshot[symbol] = snapshot
            for _ in range(chance.randrange(5, 30) if snapshot else chance.randrange(1, 6)):
                side = chance.choice(("bid", "ask"))
                price = Decimal(chance.randrange(1, 60)).scaleb(-1) + (100 if side == "bid" else 107)
                amount = Decimal(chance.randrange(0 if not snapshot else 1, 5000)).scaleb(-3)
                texts = [f"{price}", f"{price:f}00", f"{price:.3e}"]
                marked = str(snapshot).lower()
                names = f"{self.exchange},{symbol},{time - 55},{time}"
                self.rows.append(f"{names},{marked},{side},{chance.choice(texts)},{amount}")
                if symbol in begun:
                    book.pop((side, price), None)
                    if amount:
                        book[side, price] = amount
            if symbol in begun:
                self.books.append((time, symbol, dict(book)))
        return self


def write(path: Path, header: str, rows: Iterable[str]) -> Path:
    data = "".join(f"{line}\n" for line in (header, *rows)).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, 1)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def messages(source: TardisSource) -> Iterator[np.ndarray]:
    """The events of each message."""
    for batch in source:
        assert batch[-1]["flags"] & Flag.LAST
        ends = np.flatnonzero(batch["flags"] & Flag.LAST) + 1
        yield from np.split(batch, ends[:-1])


def states_of(source: TardisSource) -> list[tuple[int, BookState]]:
    """The states that books were said to have: (local_timestamp in µs, state)."""
    events = np.concatenate(list(source))
    said = events[events["action"] == Action.STATE]
    return [(int(event["receive_time"]) // 1000, BookState(event["volume"])) for event in said]


def books_of(source: TardisSource) -> list[tuple[int, str, Book]]:
    """The book after every message that is not of trades: (local_timestamp in µs, native symbol, book)."""
    found: list[tuple[int, str, Book]] = []
    books: dict[int, Book] = {}
    for message in messages(source):
        index = int(message[0]["instrument"])
        assert {int(i) for i in message["instrument"]} == {index}
        assert len(np.unique(message["receive_time"])) == 1
        instrument, book = source.instruments[index], books.setdefault(index, {})
        for event in message:
            if event["action"] == Action.CLEAR:
                book.clear()
            elif event["action"] == Action.LEVEL:
                key = ("bid", "ask")[event["side"]], instrument.price(int(event["price"]))
                book.pop(key, None)
                if event["volume"]:
                    book[key] = instrument.volume(int(event["volume"]))
        if message[0]["action"] != Action.TRADE:
            found.append((int(message[0]["receive_time"]) // 1000, instrument.native_symbol, dict(book)))
    return found


def small_blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """So that messages lie across their ends."""
    monkeypatch.setattr(tardis, "BLOCK_BYTES", size)
    monkeypatch.setattr(byte_stream, "CHUNK_BYTES", 64)
    monkeypatch.setattr(byte_stream, "PLAIN_BYTES", 64)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst"])
@pytest.mark.parametrize("symbols", [("BTCUSDT",), ("BTCUSDT", "ETHUSDT", "XRPUSDT")])
def test_books_equal_a_plain_book_after_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, symbols: Sequence[str]
) -> None:
    small_blocks(monkeypatch, 700)
    market = Market(len(symbols), symbols).generate(1500)
    source = open_tardis(str(write(tmp_path / f"l2.{ending}", L2, market.rows)))
    assert books_of(source) == market.books
    assert source.problems.report() == []
    assert source.counts["rows"] == len(market.rows)
    assert source.progress == 1.0
    assert [i.venue for i in source.instruments] == ["binance"] * len(symbols)
    assert {i.symbol for i in source.instruments} == {s.replace("USDT", "-USDT") for s in symbols}
    assert {(i.tick, i.lot) for i in source.instruments} == {(Decimal("0.1"), Decimal("0.001"))}


def test_a_book_is_valid_after_its_first_snapshot_and_begins_anew_with_each(tmp_path: Path) -> None:
    def row(time: int, snapshot: str, side: str, price: str, amount: str) -> str:
        return f"deribit,BTC-PERPETUAL,{time - 1},{time},{snapshot},{side},{price},{amount}"

    rows = [
        row(5, "false", "bid", "9", "1"),
        row(6, "true", "bid", "10", "1"),
        row(6, "true", "ask", "11", "2.5"),
        row(7, "false", "bid", "10", "0"),
        row(8, "true", "bid", "9", "3"),
        row(9, "true", "ask", "12", "3"),
    ]
    source = open_tardis(str(write(tmp_path / "x.csv", L2, rows)))
    events = np.concatenate(list(source))
    level, clear, state = int(Action.LEVEL), int(Action.CLEAR), int(Action.STATE)
    snapshot, last = int(Flag.SNAPSHOT), int(Flag.LAST)
    assert [(int(e["action"]), int(e["flags"]), int(e["receive_time"])) for e in events] == [
        (clear, snapshot, 6000),
        (level, snapshot, 6000),
        (level, snapshot, 6000),
        (state, last, 6000),
        (level, last, 7000),
        (clear, snapshot, 8000),
        (level, snapshot | last, 8000),
        # What goes on with a snapshot does not begin it again.
        (level, snapshot | last, 9000),
    ]
    assert events[3]["volume"] == BookState.VALID
    assert events["exchange_time"].tolist() == [t - 1000 for t in events["receive_time"].tolist()]
    assert source.counts["rows before the first snapshot"] == 1
    assert [str(i) for i in source.instruments] == ["deribit:BTC-PERPETUAL"]


def test_venues_and_symbols_are_those_of_live_feeds(tmp_path: Path) -> None:
    rows = [f"{exchange},BTCUSDT,1,2,1,buy,1,1" for exchange in ("binance-futures", "okex-swap", "bybit")]
    source = open_tardis(str(write(tmp_path / "x.csv", TRADES, rows)))
    assert [i.venue for i in source.instruments] == ["binance_futures", "okx_swap", "bybit"]
    assert [i.symbol for i in source.instruments] == [
        normalise_symbol(i.venue, "BTCUSDT") for i in source.instruments
    ]


def test_trades_of_one_time_are_a_message_and_keep_their_ids(tmp_path: Path) -> None:
    rows = [
        "okex,BTC-USDT,1,2,77,buy,100.5,0.25",
        "okex,BTC-USDT,1,2,78,sell,100,1e-3",
        "okex,BTC-USDT,1,3,,unknown,100,3",
        "okex,BTC-USDT,1,4,aaf0-11,buy,100,3",
    ]
    source = open_source(str(write(tmp_path / "okex_trades.csv.gz", TRADES, rows)))
    assert isinstance(source, TardisSource)
    events = np.concatenate(list(source))
    assert set(events["action"].tolist()) == {Action.TRADE}
    assert events["side"].tolist() == [Side.BID, Side.ASK, Side.NONE, Side.BID]
    assert events["order_id"].tolist()[:3] == [77, 78, 0]
    assert events["order_id"][3] > 0
    assert (events["flags"] & Flag.LAST).tolist() == [0, 1, 1, 1]
    (instrument,) = source.instruments
    assert str(instrument) == "okx:BTC-USDT"
    assert (instrument.tick, instrument.lot) == (Decimal("0.1"), Decimal("0.001"))
    assert [instrument.volume(int(v)) for v in events["volume"]] == [
        Decimal(t) for t in ("0.25", "0.001", "3", "3")
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("depth", [1, 5, 25])
def test_snapshots_are_given_as_what_changed(tmp_path: Path, depth: int) -> None:
    chance = random.Random(depth)
    book: dict[str, dict[int, int]] = {"asks": {}, "bids": {}}
    rows: list[str] = []
    expected: list[tuple[int, str, Book]] = []
    for number in range(400):
        for name, sign in (("asks", 1), ("bids", -1)):
            for _ in range(2):
                book[name][1000 + sign * chance.randrange(1, 40)] = chance.randrange(0, 9)
        shown = {name: sorted((p, a) for p, a in book[name].items() if a) for name in ("asks", "bids")}
        levels = {"asks": shown["asks"][:depth], "bids": shown["bids"][::-1][:depth]}
        fields = []
        for k in range(depth):
            for name in ("asks", "bids"):
                level = levels[name][k] if k < len(levels[name]) else None
                fields += ["", ""] if level is None else [f"{level[0] / 10:.1f}", f"{level[1]}"]
        if depth == 1:
            fields = [fields[1], fields[0], fields[2], fields[3]]
        time = START + number
        rows.append(",".join(["bitmex", "XBTUSD", str(time), str(time), *fields]))
        now = {(name[:3], Decimal(p).scaleb(-1)): Decimal(a) for name in levels for p, a in levels[name]}
        if not expected or expected[-1][2] != now:
            expected.append((time, "XBTUSD", now))
    path = write(tmp_path / "x.csv", QUOTES if depth == 1 else snapshot_header(depth), rows)
    source = open_tardis(str(path))
    assert books_of(source) == expected
    events = sum(len(batch) for batch in source)
    assert events < 400 * (2 * depth + 2) or depth == 1
    assert source.problems.report() == []


def test_files_are_one_source_in_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 900)
    names = (("BTCUSDT", "binance"), ("ETHUSDT", "binance"), ("BTC-USD", "coinbase"))
    markets = [Market(i, (symbol,), exchange).generate(600) for i, (symbol, exchange) in enumerate(names)]
    for i, market in enumerate(markets):
        write(tmp_path / f"{i}.csv.gz", L2, market.rows)
    trades = [f"binance,BTCUSDT,{START},{START + 500 * i},{i},buy,100,1" for i in range(1000)]
    write(tmp_path / "t.csv.zst", TRADES, trades)
    source = open_tardis(str(tmp_path))
    times = np.concatenate([batch["receive_time"] for batch in source])
    assert np.all(np.diff(times) >= 0)
    found = books_of(source)
    for market in markets:
        assert [b for b in found if b[1] == market.symbols[0]] == market.books
    assert sum(np.count_nonzero(batch["action"] == Action.TRADE) for batch in source) == 1000
    assert len(source.instruments) == 3
    pattern = open_tardis(str(tmp_path / "[01].csv.gz"))
    assert len(pattern.instruments) == 2


def test_days_of_one_symbol_follow_each_other(tmp_path: Path) -> None:
    rows = ["x,A,{0},{0},true,bid,10,1", "x,A,{1},{1},false,bid,9,1"]
    write(tmp_path / "b.csv", L2, [row.format(10, 11) for row in rows])
    write(tmp_path / "a.csv", L2, ["x,A,20,20,false,bid,8,1", "x,A,21,21,true,bid,10,2"])
    source = open_tardis(str(tmp_path))
    assert [(t, sorted(b)) for t, _, b in books_of(source)] == [
        (10, [("bid", Decimal(10))]),
        (11, [("bid", Decimal(9)), ("bid", Decimal(10))]),
        # The second day does not begin with a snapshot: the book is stale until there is one.
        (20, [("bid", Decimal(9)), ("bid", Decimal(10))]),
        (21, [("bid", Decimal(10))]),
    ]
    assert states_of(source) == [(10, BookState.VALID), (20, BookState.STALE), (21, BookState.VALID)]
    named = open_sources([f"tardis:{tmp_path}/{name}.csv" for name in ("b", "a")])
    assert [np.concatenate(list(one)).tobytes() for one in named] == [np.concatenate(list(source)).tobytes()]


BAD = {
    "x,A,1,2,true,bid,10": "too few or too many columns",
    "x,A,1,2,true,bid,10,1,1": "too few or too many columns",
    "x,A,,2,true,bid,10,1": "a time is not in microseconds since 1970",
    "x,A,1,99999999999999999,true,bid,10,1": "a time is not in microseconds since 1970",
    "x,A,1,2,TRUE,bid,10,1": "is_snapshot is neither true nor false",
    "x,A,1,2,true,buyer,10,1": "the side is none of bid, ask, buy, sell and unknown",
    "x,A,1,2,true,unknown,10,1": "the side is none of bid, ask, buy, sell and unknown",
    "x,A,1,2,true,bid,ten,1": "a price or amount is not a number",
    "x,A,1,2,true,bid,,1": "a price or amount is not a number",
    "x,A,1,2,true,bid,nan,1": "a price or amount is not a number",
    "x,A,1,2,true,bid,10,0.000000001": "a price or amount has more than 8 decimal places",
    "x,A,1,2,true,bid,1e10,1": "a price or amount does not fit DECIMAL(18, 8)",
    "x,A,1,2,true,bid,10,-1": "the amount is negative",
}


@pytest.mark.parametrize(("row", "reason"), BAD.items())
def test_wrong_rows_are_counted_and_left_out(tmp_path: Path, row: str, reason: str) -> None:
    good = ["x,A,1,2,true,bid,10,1", "", "x,A,1,2,true,ask,11,1"]
    path = write(tmp_path / "x.csv", L2, [*good, row, *good, *[row] * 9])
    source = open_tardis(str(path))
    events = np.concatenate(list(source))
    assert np.count_nonzero(events["action"] == Action.LEVEL) == 4
    assert source.problems.counts == {reason: 10}
    assert len(source.problems.examples[reason]) == 5
    assert source.problems.examples[reason][0] == f"x.csv:5: {row}"
    assert source.problems.examples[reason][1] == f"x.csv:9: {row}"


def test_finer_rows_than_the_first_are_wrong_unless_all_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tardis, "HEAD_ROWS", 2)
    small_blocks(monkeypatch, 60)
    rows = [f"x,A,1,{i},true,bid,10.{i},1" for i in range(6)]
    path = write(tmp_path / "x.csv", L2, [*rows, "x,A,1,7,false,bid,10.25,1", "x,A,1,8,false,bid,10,0.5"])
    source = open_tardis(str(path))
    list(source)
    assert sorted(source.problems.counts.values()) == [1, 1]
    assert "tick" in source.problems.report()[0] and "lot" in source.problems.report()[1]
    for options in ("scan=all", "tick=0.05&lot=0.1"):
        source = open_tardis(f"{path}?{options}")
        assert len(books_of(source)) == 8
        assert source.problems.counts == ({} if options == "scan=all" else source.problems.counts)
    (instrument,) = open_tardis(f"{path}?scan=all").instruments
    assert (instrument.tick, instrument.lot) == (Decimal("0.01"), Decimal("0.1"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst"])
def test_a_cut_file_gives_everything_before_the_cut(tmp_path: Path, ending: str) -> None:
    market = Market(3).generate(20_000)
    whole = write(tmp_path / f"whole.{ending}", L2, market.rows)
    cut = tmp_path / f"cut.{ending}"
    data = whole.read_bytes()
    cut.write_bytes(data[: int(len(data) * 0.7)])
    source = open_tardis(str(cut))
    found: list[np.ndarray] = []
    with pytest.raises(SourceError, match=r"cut\.csv.*: truncated after line \d+: .*get the whole file"):
        found.extend(source)
    events, expected = np.concatenate(found), np.concatenate(list(open_tardis(str(whole))))
    assert len(events) > 0.6 * len(expected)
    assert np.array_equal(events[:-1], expected[: len(events) - 1])


def test_half_a_snapshot_makes_no_book(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{L2}\nx,A,1,2,true,bid,10,1\nx,A,1,2,true,bid,11")
    events: list[np.ndarray] = []
    with pytest.raises(SourceError, match=r"truncated after line 2: the last line has no end"):
        events.extend(open_tardis(str(path)))
    assert [int(a) for a in events[0]["action"]] == [Action.CLEAR, Action.LEVEL]


def test_the_other_files_go_on_after_a_cut_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{L2}\nx,A,1,2,true,bid,10,1\nx,A,1")
    write(tmp_path / "b.csv", TRADES, ["x,B,1,9,1,buy,1,1"])
    found: list[np.ndarray] = []
    with pytest.raises(SourceError, match=r"a\.csv: truncated"):
        found.extend(open_tardis(str(tmp_path)))
    assert [int(a) for batch in found for a in batch["action"]] == [Action.CLEAR, Action.LEVEL, Action.TRADE]


@pytest.mark.parametrize(
    ("files", "text", "message"),
    [
        ({}, "none.csv", "cannot read"),
        ({}, "*.csv", "no .csv, .csv.gz or .csv.zst files there"),
        ({"x.csv": ""}, "x.csv", "empty"),
        ({"x.csv": "a,b\n1,2\n"}, "x.csv", "its first line has no columns exchange"),
        ({"x.csv": f"{L2.replace('amount', 'funding_rate')}\n"}, "x.csv", "data type that is not read"),
        ({"x.csv": f"{L2}\n"}, "x.csv?tick=0", "tick is a number above 0"),
        ({"x.csv": f"{L2}\n"}, "x.csv?tik=1", "did you mean 'tick'"),
        ({"x.csv": f"{L2}\n"}, "x.csv?scan=some", "scan is 'head' or 'all'"),
        (
            {"x.csv": f"{L2}\nx,A,1,2,true,bid,10,1\n", "y.csv": f"{QUOTES}\nx,A,1,2,1,1,1,1\n"},
            "*.csv",
            "both tell the book of x:A",
        ),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, files: dict[str, str], text: str, message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(SourceError) as raised:
        open_tardis(str(tmp_path / text))
    assert message in str(raised.value)


def test_a_file_without_rows_has_nothing(tmp_path: Path) -> None:
    source = open_tardis(str(write(tmp_path / "x.csv", L2, [])))
    assert list(source) == [] and len(source.instruments) == 0


numbers = st.from_regex(r"[+-]?[0-9]{0,12}\.?[0-9]{0,12}([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@given(texts=st.lists(numbers | st.text("0123456789.eE+-x", max_size=12), min_size=1, max_size=20))
@example(["0.1", "1e-8", "9999999999.99999999", "1e10", "0.000000001", "1.", ".5", "-0", "", "1e-9", "10e-9"])
def test_numbers_are_read_exactly(texts: list[str]) -> None:
    block = "".join(f"a,{text}\n" for text in texts).encode()
    count = len(texts)
    values, status = np.zeros((count, 2), np.int64), np.zeros(count, np.uint8)
    hashes, starts, lines = np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    kinds = np.array([Kind.NAME, Kind.NUMBER], np.int8)
    got = read_rows(np.frombuffer(block, np.uint8), kinds, values, hashes, status, starts, lines)
    assert got == (count, count)
    assert set(hashes.tolist()) == {name_hash([b"a"])}
    for text, value, state in zip(texts, values[:, 1].tolist(), status.tolist(), strict=True):
        if not text:
            assert (value, state) == (NOTHING, Status.GOOD)
            continue
        try:
            assert (value, state) == (fixed_point(text), Status.GOOD), text
        except DataError:
            assert state in (Status.NUMBER, Status.FINE, Status.LARGE), text


BAD_ROWS = (
    "x,A,12,12,false,bid,9.123456789,1",
    "x,A,12,12,false,bid,nothing,1",
    "x,A,12,12,false,bid,9,-1",
    "x,A,12,12,false,middle,9,1",
    "x,A,12,12,perhaps,bid,9,1",
    "x,A,12,now,false,bid,9,1",
    "x,A,12,12,false,bid,9",
    "garbled",
)


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_row_that_is_lost_leaves_no_book_that_looks_right(tmp_path: Path, row: str) -> None:
    rows = ["x,A,10,10,true,bid,10,1", "x,A,11,11,false,bid,9,1", row, "x,A,13,13,false,ask,11,1"]
    path = write(tmp_path / "l2.csv", L2, [*rows, "x,A,14,14,true,bid,8,1", "x,A,15,15,false,bid,7,1"])
    source = open_tardis(str(path))
    assert [state for _, state in states_of(source)] == [BookState.VALID, BookState.STALE, BookState.VALID]
    assert [time for time, _ in states_of(source)][::2] == [10, 14]
    assert sum(source.problems.counts.values()) == 1
    said = next(iter(source.problems.examples.values()))[0]
    assert said.startswith("l2.csv:4: ")


def test_a_row_lost_in_a_snapshot_makes_no_valid_book(tmp_path: Path) -> None:
    rows = ["x,A,10,10,true,bid,10,1", "x,A,10,10,true,bid,x,1", "x,A,11,11,false,bid,9,1"]
    path = write(tmp_path / "l2.csv", L2, [*rows, "x,A,14,14,true,bid,8,1"])
    assert states_of(open_tardis(str(path))) == [(14, BookState.VALID)]


def test_a_quote_that_is_lost_makes_the_book_stale_until_the_next(tmp_path: Path) -> None:
    rows = [f"x,A,{t},{t},1,{ask},9,1" for t, ask in ((10, "10"), (11, "ten"), (12, "10"))]
    source = open_tardis(str(write(tmp_path / "quotes.csv", QUOTES, rows)))
    assert states_of(source) == [(10, BookState.VALID), (11, BookState.STALE), (12, BookState.VALID)]
