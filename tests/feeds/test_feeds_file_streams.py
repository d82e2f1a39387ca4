"""Several files of one feed as one stream, whatever order they are named in."""

import base64
import gzip
import json
import zipfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import pytest
from binance_market import Market
from book_tickers import book_tickers
from capture_support import kraken_recording
from command_line_support import Program, orderbook, write  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages

from orderbook.backtesting.sources import run_instruments, source_specs
from orderbook.configuration.options import feed_table
from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.files.bybit_history import BybitHistorySource
from orderbook.feeds.merge import Merger, read_slices
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import Opened, open_source, open_sources
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side

Events = np.ndarray


class Capture(Market):
    """An invented market as the lines of a capture: a snapshot, diffs, and a trade now and then."""

    def lines(self, count: int) -> list[str]:
        clock, lines = 1_700_000_000 * 10**9, []
        for number in range(count):
            clock += self.random.choice((1, 1000, 10**9))
            if number == 3:
                lines.append(f"{clock} {json.dumps(self.answer(self.update_id))}")
            elif self.random.random() < 0.3:
                trade = {"s": "ABCUSDT", "t": number, "p": "10.00", "q": "1.000", "T": number, "m": True}
                lines.append(f"{clock} {json.dumps({'stream': 'abcusdt@trade', 'data': trade})}")
            else:
                lines.append(f"{clock} {json.dumps(self.depth())}")
        return lines


def joined(source: Opened) -> Events:
    return np.concatenate(list(source)) if source is not None else np.empty(0)


def parts(folder: Path, lines: Sequence[str], cuts: Sequence[int], random: Random) -> list[Path]:
    """The lines cut into files with names in another order; some are compressed."""
    bounds = [0, *sorted(set(cuts) & set(range(1, len(lines)))), len(lines)]
    names = [f"{number}.txt" for number in range(len(bounds))]
    random.shuffle(names)
    paths = []
    for start, end, name in zip(bounds, bounds[1:], names, strict=False):
        data = "".join(f"{line}\n" for line in lines[start:end]).encode()
        paths.append(folder / name)
        paths[-1].write_bytes(gzip.compress(data) if random.random() < 0.3 else data)
    return paths


@given(seed=st.integers(0, 10**6), futures=st.booleans(), cuts=st.sets(st.integers(1, 79), max_size=6))
def test_a_capture_in_several_files_is_the_one_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, futures: bool, cuts: set[int]
) -> None:
    random = Random(seed)
    folder = tmp_path_factory.mktemp("days")
    lines = Capture(random, futures).lines(80)
    whole = folder / "whole"
    whole.write_text("".join(f"{line}\n" for line in lines))
    expected = BinanceCaptureSource(whole)
    events = joined(expected).tobytes()
    files = [str(path) for path in parts(folder, lines, sorted(cuts), random)]
    random.shuffle(files)
    for named in ([f"binance:{folder}/*.txt"], [f"binance:{file}" for file in files]):
        (source,) = open_sources(named)
        assert joined(source).tobytes() == events
        assert source.counts == expected.counts and source.problems.counts == {}
        assert source.progress == 1.0
    specs = source_specs([f"binance:{folder}/*.txt"])
    slices = list(read_slices(list(enumerate(specs)), run_instruments(specs)))
    assert np.concatenate([part.events.events for part in slices]).tobytes() == events


def test_files_that_overlap_are_merged_by_time(tmp_path: Path) -> None:
    lines = Capture(Random(5), False).lines(60)
    (tmp_path / "whole").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(lines[::2]) + "\n")
    (tmp_path / "a.txt").write_text("\n".join(lines[1::2]) + "\n")
    (source,) = open_sources([f"{tmp_path}/*.txt"])
    assert joined(source).tobytes() == joined(open_source(f"{tmp_path}/whole")).tobytes()


def test_captures_of_different_markets_are_sources_of_their_own(tmp_path: Path) -> None:
    for name, futures in (("spot", False), ("futures", True)):
        lines = Capture(Random(1), futures).lines(40)
        (tmp_path / f"1-{name}").write_text("\n".join(lines[:20]) + "\n")
        (tmp_path / f"2-{name}").write_text("\n".join(lines[20:]) + "\n")
    sources = open_sources([f"binance:{tmp_path}/*"])
    assert sorted(str(source.instruments[0]) for source in sources) == [  # type: ignore[union-attr]
        "binance:ABC-USDT",
        "binance_futures:ABC-USDT-PERP",
    ]
    assert all(source.problems.counts == {} for source in sources if list(source))
    with pytest.raises(SourceError, match="name them as sources of their own"):
        open_source(*(f"binance:{tmp_path}/1-{name}" for name in ("spot", "futures")))


def test_a_file_that_is_missing_between_two_loses_the_book_and_says_where(tmp_path: Path) -> None:
    lines = Capture(Random(2), False).lines(90)
    for day, start in enumerate((0, 30, 60)):
        (tmp_path / f"day{day}").write_text("\n".join(lines[start : start + 30]) + "\n")
    (tmp_path / "day1").unlink()
    (source,) = open_sources([f"binance:{tmp_path}/day*"])
    book = PlainBook()
    for events in messages(list(cast(EventSource, source))):
        book.apply_all(events)
    assert book.state is BookState.SYNCING and book.levels == {Side.BID: {}, Side.ASK: {}}
    (example,) = source.problems.examples["gap"]
    assert example.startswith("day2:")
    assert example.endswith("; the file before is day0: is one missing between the two?")


def test_a_file_without_a_snapshot_says_that_its_book_was_never_valid(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
) -> None:
    lines = Capture(Random(3), False).lines(60)
    path = write(tmp_path / "second", "\n".join(lines[30:]) + "\n")
    result = orderbook("replay", f"binance:{path}", "--view", "depth")
    assert "1 x no snapshot: " in result.out and "its book was never valid" in result.out
    trades = write(tmp_path / "trades", "\n".join(line for line in lines if "@trade" in line) + "\n")
    with pytest.raises(SourceError, match="no Binance depth diff in the first"):
        open_sources([str(trades)])


def test_one_capture_in_two_files_through_replay_run_and_backtest(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
) -> None:
    lines = Capture(Random(4), False).lines(120)
    days = tmp_path / "days"
    days.mkdir()
    write(days / "b.txt", "\n".join(lines[:50]) + "\n")
    write(days / "a.txt", "\n".join(lines[50:]) + "\n")
    whole = write(tmp_path / "whole", "\n".join(lines) + "\n")
    config = write(tmp_path / "c.toml", "[run]\nstrategies = []\nbackend = 'interpreter'\n")
    common = ("--view", "depth", "--config", config)
    shown = {}
    for name, arguments in {
        "whole": ("replay", whole),
        "replay": ("replay", f"binance:{days}/*"),
        "named": ("replay", days / "a.txt", days / "b.txt"),
        "folder": ("replay", days),
        "run": ("run", "--no-monitor", "--feed", f"binance:{days}/*"),
        "run named": ("run", "--no-monitor", "--feed", days / "a.txt", "--feed", days / "b.txt"),
    }.items():
        result = orderbook(*arguments, *common)
        assert result.status == 0, result.err
        shown[name] = [line for line in result.out.splitlines() if "bid_volume=" in line]
    assert shown["whole"] and all(lines == shown["whole"] for lines in shown.values()), shown
    rows = {}
    for name, path in (("whole", str(whole)), ("two", f"binance:{days}/*")):
        result = orderbook("backtest", path, *common, "--out", tmp_path / f"job-{name}")
        assert result.status == 0, result.err
        rows[name] = orderbook("query", "--job", tmp_path / f"job-{name}", "SELECT * FROM depth").out
    assert rows["two"] == rows["whole"] != ""


def test_the_second_days_of_recorded_captures_go_on_from_the_first(shared_data: Path) -> None:
    first = shared_data / "hftbacktest" / "spot_btcusdt_20240808.gz"
    second = shared_data / "hftbacktest_more" / "spot_btcusdt_20240809.gz"
    (source,) = open_sources([str(second), str(first)])
    assert isinstance(source, BinanceCaptureSource)
    tickers = {ticker.update_id: ticker for ticker in book_tickers(source)}
    books, compared = Books(source.instruments, Dictionary()), 0
    for events in messages(Merger([source])):  # type: ignore[arg-type]
        books.apply(events)
        ticker = tickers.get(int(events["sequence"][-1]))
        if events["action"][0] != Action.LEVEL or ticker is None:
            continue
        bid, ask = books.levels(0, Side.BID, 1)[0], books.levels(0, Side.ASK, 1)[0]
        assert (bid["price"], bid["volume"]) == (ticker.bid_price, ticker.bid_volume)
        assert (ask["price"], ask["volume"]) == (ticker.ask_price, ticker.ask_volume)
        compared += 1
    assert compared > 1000 and books.state(0) is BookState.VALID
    assert set(source.problems.counts) <= {"off the lot"} and books.problems() == {}


class Bybit:
    """An invented day of Bybit: messages of the book, the truth after each, and trades."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.book: dict[str, dict[str, str]] = {"b": {}, "a": {}}
        self.update, self.time = 100, 1_700_000_000_000
        self.history: dict[int, dict[str, dict[str, str]]] = {}

    def level(self, side: str) -> list[str]:
        price = self.random.randrange(1, 20)
        text = f"{100 - price / 2:.1f}" if side == "b" else f"{100.5 + price / 2:.1f}"
        size = self.random.choice(("0", f"{self.random.randrange(1, 9999) / 1000:.3f}"))
        return [text, size]

    def message(self, snapshot: bool = False) -> str:
        self.update += 1
        self.time += self.random.randrange(1, 200)
        if snapshot:
            data = {side: [[price, size] for price, size in own.items()] for side, own in self.book.items()}
        else:
            data = {side: [self.level(side) for _ in range(self.random.randrange(3))] for side in self.book}
            for side, levels in data.items():
                for price, size in levels:
                    self.book[side].pop(price, None)
                    if size != "0":
                        self.book[side][price] = size
        self.history[self.update] = {side: dict(own) for side, own in self.book.items()}
        return json.dumps(
            {
                "topic": "orderbook.500.BTCUSDT",
                "ts": self.time,
                "type": "snapshot" if snapshot else "delta",
                "data": {"s": "BTCUSDT", **data, "u": self.update, "seq": self.update},
                "cts": self.time - 1,
            }
        )

    def day(self, messages: int) -> list[str]:
        return [self.message(snapshot=number == 0) for number in range(messages)]


def compared_books(source: BybitHistorySource, truth: Bybit) -> int:
    """How many books were valid; each equals the truth of its update id."""
    (one,) = source.instruments
    book, valid = PlainBook(), 0
    for events in messages(source):
        book.apply_all(events)
        if book.state is BookState.VALID and events["action"][-1] == Action.LEVEL:
            expected = truth.history[int(events["sequence"][-1])]
            for side, name in ((Side.BID, "b"), (Side.ASK, "a")):
                found = {str(one.price(p).normalize()): one.volume(v) for p, v in book.best(side)}
                wanted = {str(Decimal(p).normalize()): Decimal(v) for p, v in expected[name].items()}
                assert found == wanted
            valid += 1
    return valid


def zipped(path: Path, lines: Sequence[str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(path.name.removesuffix(".zip"), "\n".join(lines) + "\n")
    return path


def test_prices_of_bybits_history_off_its_tick_are_counted_and_kept(tmp_path: Path) -> None:
    market = Bybit(2)
    path = zipped(tmp_path / "2023-11-14_BTCUSDT_ob500.data.zip", market.day(60))
    source = open_source(f"bybit:{path}?tick=1&category=spot")
    assert isinstance(source, BybitHistorySource)
    assert compared_books(source, market) > 50
    assert set(source.problems.counts) == {"off the tick"}


def test_a_book_of_bybits_history_that_stays_crossed_keeps_its_levels(tmp_path: Path) -> None:
    steps = [
        ("snapshot", 0, [["100", "1"]], [["101", "1"]]),
        ("delta", 1_000, [["102", "1"]], []),
        ("delta", 20_000, [["99", "1"]], []),
        ("delta", 21_000, [["102", "0"]], []),
    ]
    lines = [
        json.dumps({
            "topic": "orderbook.500.BTCUSDT", "type": kind, "ts": 1_700_000_000_000 + time,
            "data": {"s": "BTCUSDT", "b": bids, "a": asks, "u": 7 + number, "seq": number},
        })
        for number, (kind, time, bids, asks) in enumerate(steps)
    ]  # fmt: skip
    path = zipped(tmp_path / "2023-11-14_BTCUSDT_ob500.data.zip", lines)
    merged = Merger([BybitHistorySource([path])])
    books, states = Books(merged.instruments, Dictionary()), []
    for events in merged:
        assert isinstance(events, np.ndarray)
        books.apply(events)
        states += events[events["action"] == Action.STATE]["volume"].tolist()
    assert states[-3:] == [BookState.VALID, BookState.STALE, BookState.VALID]
    one = merged.instruments[0]
    assert [one.price(p) for p in books.levels(0, Side.BID, 9)["price"].tolist()] == [100, 99]


@pytest.mark.parametrize(("symbol", "contract"), [("BTCUSDT", "linear"), ("BTCUSD", "inverse")])
def test_bybits_history_of_a_coin_margined_contract_is_inverse(
    tmp_path: Path, symbol: str, contract: str
) -> None:
    lines = [line.replace("BTCUSDT", symbol) for line in Bybit(3).day(5)]
    path = zipped(tmp_path / f"2023-11-14_{symbol}_ob500.data.zip", lines)
    (one,) = BybitHistorySource([path], {}).instruments
    assert one.contract == contract


def test_bybits_history_of_two_days_and_its_trades_are_one_stream(tmp_path: Path) -> None:
    market = Bybit(1)
    days = [market.day(60), market.day(60)]
    for day, lines in zip(("15", "14"), reversed(days), strict=True):
        zipped(tmp_path / f"2023-11-{day}_BTCUSDT_ob500.data.zip", lines)
    header = "timestamp,symbol,side,size,price,tickDirection,trdMatchID,grossValue,homeNotional"
    rows = [
        f"{1_700_000_000 + n}.{n:04d}5,BTCUSDT,{('Buy', 'Sell')[n % 2]},0.{n + 1:03d},100.5,PlusTick,"
        f"{n:08x}-469b-58d9-85cb-84344e001234,1,1,1,0"
        for n in range(8)
    ]
    text = "\n".join([header, *rows, ""])
    (tmp_path / "BTCUSDT2023-11-14.csv.gz").write_bytes(gzip.compress(text.encode()))
    (source,) = open_sources([f"bybit:{tmp_path}/*"])
    assert isinstance(source, BybitHistorySource)
    assert [str(one) for one in source.instruments] == ["bybit:BTC-USDT-PERP"]
    assert compared_books(source, market) > 100
    assert source.counts["snapshots applied"] == 2 and source.problems.counts == {}
    events = joined(source)
    trades = events[events["action"] == Action.TRADE]
    assert trades["exchange_time"].tolist() == [
        (1_700_000_000 + n) * 10**9 + n * 100_000 + 50_000 for n in range(8)
    ]
    assert trades["side"].tolist() == [Side.BID, Side.ASK] * 4 and len(set(trades["order_id"].tolist())) == 8
    assert (np.diff(events["receive_time"]) >= 0).all()
    assert joined(open_sources([str(tmp_path)])[0]).tobytes() == events.tobytes()


def test_what_bybits_history_lacks_is_said(tmp_path: Path) -> None:
    market = Bybit(2)
    lines = market.day(60)
    zipped(tmp_path / "2023-11-14_BTCUSDT_ob500.data.zip", lines[30:])
    (source,) = open_sources([str(tmp_path)])
    assert compared_books(source, market) == 0  # type: ignore[arg-type]
    assert source.problems.counts == {"no snapshot": 1}
    broken = [*lines[:20], "{broken", *lines[20:40], *lines[41:]]
    path = zipped(tmp_path / "whole.zip", broken)
    source = BybitHistorySource([path])
    assert 30 < compared_books(source, market) < 40
    assert source.problems.counts == {"malformed JSON": 1, "gap": 1}


def test_spot_trades_of_bybit_are_named_by_their_file(tmp_path: Path) -> None:
    text = "id,timestamp,price,volume,side,rpi\n7,1672531202252,16542.75,0.017389,buy,0\n8,x,1,1,sell,0\n"
    path = tmp_path / "BTCUSDT_2023-01-01.csv"
    path.write_text(text)
    source = open_source(str(path))
    events = joined(source)
    (trade,) = events[events["action"] == Action.TRADE]
    assert (int(trade["exchange_time"]), int(trade["order_id"])) == (1672531202252 * 10**6, 7)
    assert str(source.instruments[0]) == "bybit:BTC-USDT"  # type: ignore[union-attr]
    assert source.problems.counts == {"malformed trade": 1}
    assert source.problems.examples["malformed trade"][0].endswith("timestamp 'x' is not a decimal number")
    unnamed = path.rename(tmp_path / "trades.csv")
    with pytest.raises(SourceError, match=r"does not tell its symbol; write it as \?symbol=BTCUSDT"):
        open_source(str(unnamed))
    assert str(open_source(f"bybit:{unnamed}?symbol=ETHUSDT").instruments[0]) == "bybit:ETH-USDT"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bybit:BTCUSDT,ETHUSDT", "bybit"),
        ("bybit:BTCUSDT.P", "bybit"),
        ("bybit:days/2023-11-14_BTCUSDT_ob500.data.zip", "file"),
        ("bybit:2023-11-14_BTCUSDT_ob500.data.zip", "file"),
        ("bybit:days/*", "file"),
        ("binance:BTCUSDT", "binance"),
        ("binance:days/*", "file"),
        ("binance:spot.gz", "file"),
    ],
)
def test_an_exchanges_products_and_its_files_are_told_apart(text: str, kind: str) -> None:
    table = feed_table(text)
    assert isinstance(table, dict) and table["kind"] == kind


def test_cryptofeeds_text_gives_what_its_json_gives(shared_data: Path) -> None:
    (text,) = open_sources([f"capture:{shared_data}/cryptofeed/original/KRAKEN*"])
    (lines,) = open_sources([str(shared_data / "cryptofeed" / "KRAKEN.jsonl.zst")])
    found, expected = joined(text), joined(lines)
    for events in (found, expected):
        events["receive_time"] = 0
    assert found.tobytes() == expected.tobytes() and len(found) > 10_000
    assert text.problems.counts == lines.problems.counts
    book = open_source(str(shared_data / "cryptofeed" / "original" / "KRAKEN.ws.50.0"))
    assert (joined(book)["action"] == Action.LEVEL).sum() == (found["action"] == Action.LEVEL).sum()


def test_what_is_no_recording_of_an_exchange_that_is_followed_says_which_are(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "cryptofeed" / "original"
    (tmp_path / "PHEMEX.ws.1.0").write_bytes((folder / "DERIBIT.ws.1.0").read_bytes())
    for text, message in (
        (
            f"{tmp_path}/PHEMEX.ws.1.0",
            "a recording of 'phemex', .* of binance, .*, kraken_l3, kraken_v1, okx",
        ),
        (f"capture:{tmp_path}/PHEMEX*", "a recording of 'phemex'"),
        (f"{folder}", r"recordings of 2 exchanges; name one: .*DERIBIT\.\*, .*KRAKEN\.\*"),
        (f"capture:{folder}/KRAKEN.0", "has no connection to an exchange; name the files of those, too"),
    ):
        with pytest.raises(SourceError, match=message):
            open_sources([text])
    (ticker,) = open_sources([f"{folder}/KRAKEN.ws.49.0"])
    assert len(list(ticker)) > 0 and ticker.problems.counts["no snapshot"] == 10


def test_a_line_of_cryptofeed_that_cannot_be_read_is_counted(shared_data: Path, tmp_path: Path) -> None:
    original = shared_data / "cryptofeed" / "original"
    for name in ("KRAKEN.0", "KRAKEN.ws.48.0"):
        (tmp_path / name).write_bytes((original / name).read_bytes())
    lines = (original / "KRAKEN.ws.50.0").read_bytes().splitlines(keepends=True)
    (tmp_path / "KRAKEN.ws.50.0").write_bytes(b"".join([*lines[:50], b"half a li\n", b"\n", *lines[50:200]]))
    (tmp_path / "KRAKEN.ws.50.1").write_bytes(b"".join(lines[200:]))
    (source,) = open_sources([f"capture:{tmp_path}"])
    (whole,) = open_sources([f"{original}/KRAKEN.ws.50.0"])
    found, expected = joined(source), joined(whole)
    levels = found[found["action"] == Action.LEVEL]
    assert levels.tobytes() == expected[expected["action"] == Action.LEVEL].tobytes()
    assert source.problems.examples["malformed line"][0].startswith("KRAKEN.ws.50.0:51: ")


def test_binary_frames_and_markets_of_cryptofeed_3(tmp_path: Path) -> None:
    answers = {
        category: {
            "retCode": 0,
            "result": {
                "category": category,
                "list": [
                    {
                        "symbol": "BTCUSDT",
                        "priceFilter": {"tickSize": "0.1"},
                        "lotSizeFilter": {"qtyStep": "0.001", "basePrecision": "0.000001"},
                    }
                ],
            },
        }
        for category in ("linear", "spot")
    }
    lines = [{"t": "header", "format": 2, "exchange": "BYBIT", "config": {}}]
    for number, (category, answer) in enumerate(answers.items()):
        conn, url = f"BYBIT.ws.{number}", f"https://x/v5/market/instruments-info?category={category}"
        lines.append({"t": "http", "conn": "BYBIT.http.1", "ts": 1.0, "url": url, "data": json.dumps(answer)})
        lines.append({"t": "connect", "conn": conn, "ts": 2.0, "addr": f"wss://x/v5/public/{category}"})
        asked = json.dumps({"op": "subscribe", "args": ["orderbook.200.BTCUSDT"]})
        lines.append({"t": "send", "conn": conn, "ts": 3.0, "addr": "wss://x", "data": asked})
    for number, price in enumerate(("100.0", "200.0")):
        frame = json.dumps(
            {
                "topic": "orderbook.200.BTCUSDT",
                "type": "snapshot",
                "ts": 5,
                "data": {"s": "BTCUSDT", "b": [[price, "1"]], "a": [], "u": 7 + number},
            }
        )
        payload = {"b64": base64.b64encode(frame.encode()).decode()} if number else {"data": frame}
        lines.append({"t": "recv", "conn": f"BYBIT.ws.{number}", "ts": 4.0 + number, **payload})
    path = tmp_path / "BYBIT.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (source,) = open_sources([str(path)])
    events = joined(source)
    levels = events[events["action"] == Action.LEVEL]
    found = {}
    for level in levels:
        one = source.instruments[int(level["instrument"])]  # type: ignore[union-attr]
        found[one.native_symbol] = one.price(int(level["price"]))
    assert found == {"BTCUSDT.P": 100, "BTCUSDT": 200}
    assert source.problems.counts == {}


def test_the_parts_of_a_recording_named_apart_are_the_folder(tmp_path: Path) -> None:
    path = kraken_recording(tmp_path / "whole.jsonl", "alpha", 10**18, 1000, 1, messages=30)
    first, *lines = path.read_text().splitlines(keepends=True)
    head = json.loads(first)
    folder = tmp_path / "parts"
    folder.mkdir()
    for part, name in enumerate(("c", "a", "b")):
        own = lines[part * 11 : part * 11 + 11]
        begin = json.dumps(head | {"part": part, "open": part > 0, "ts": json.loads(own[0])["ts"]}) + "\n"
        (folder / f"{name}.jsonl").write_text("".join([begin, *own]))
    expected = joined(open_source(str(path))).tobytes()
    for named in ([str(folder)], [f"capture:{folder}/{name}.jsonl" for name in "abc"]):
        (source,) = open_sources(named)
        assert joined(source).tobytes() == expected
    (folder / "a.jsonl").unlink()
    (source,) = open_sources([f"capture:{folder}/{name}.jsonl" for name in "bc"])
    assert joined(source)["action"][-1] != Action.LEVEL
    assert source.problems.counts["recording begins in between"] == 1
