"""Binance captures: the recorded ones against their own bookTickers, invented ones against the truth."""

import gzip
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pytest
from binance_market import Market
from book_tickers import book_tickers
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.recording import capture_replay
from orderbook.feeds.recording.capture_replay import ReplayedLines
from orderbook.feeds.source_kinds import open_source
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Flag, Side

CAPTURES = ("spot_btcusdt_20240808.gz", "usdm_btcusdt_20240808.gz")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CAPTURES)
def test_every_book_ticker_with_a_books_update_id_equals_that_book(name: str, shared_data: Path) -> None:
    source = open_source(f"binance:{shared_data / 'hftbacktest' / name}")
    assert isinstance(source, BinanceCaptureSource)
    tickers = {ticker.update_id: ticker for ticker in book_tickers(source)}
    book = PlainBook()
    books = Books(source.instruments, Dictionary())
    compared = 0
    for events in messages(source):
        book.apply_all(events)
        books.apply(events)
        ticker = tickers.get(int(events["sequence"][-1]))
        if events["action"][0] != Action.LEVEL or ticker is None:
            continue
        bid, ask = (ticker.bid_price, ticker.bid_volume), (ticker.ask_price, ticker.ask_volume)
        assert (book.best(Side.BID, 1), book.best(Side.ASK, 1)) == ([bid], [ask])
        for side, best in ((Side.BID, bid), (Side.ASK, ask)):
            level = books.levels(0, side, 1)[0]
            assert (level["price"], level["volume"]) == best
        compared += 1
    print(f"\n{name}: {compared} bookTickers equal the book, of {len(tickers)}; {dict(source.counts)}")
    assert compared > 500
    # One level of spot is off its lot: 25.426189.
    assert set(source.problems.counts) <= {"off the lot"}
    assert books.state(0) is book.state is BookState.VALID
    assert books.problems() == {}


@pytest.mark.parametrize("name", CAPTURES)
def test_recorded_trades_and_times_are_the_wires(name: str, shared_data: Path) -> None:
    path = shared_data / "hftbacktest" / name
    trades = []
    with gzip.open(path, "rt") as file:
        for line in file:
            local, _, text = line.partition(" ")
            if "@trade" in text:
                trade = json.loads(text)["data"]
                price, volume = Decimal(trade["p"]), Decimal(trade["q"])
                trades.append((int(local), trade["T"] * 10**6, trade["t"], price, volume, trade["m"]))
    source = BinanceCaptureSource(path)
    instrument = source.instruments[0]
    events = np.concatenate(list(source))
    events = events[events["action"] == Action.TRADE]
    assert len(trades) > 5000
    assert [
        (
            int(event["receive_time"]),
            int(event["exchange_time"]),
            int(event["order_id"]),
            instrument.price(int(event["price"])),
            instrument.volume(int(event["volume"])),
            event["side"] == Side.ASK,
        )
        for event in events
    ] == trades


class Exchange(Market):
    """An invented market as the lines of a capture."""

    clock = 10**18

    def stamped(self, message: dict[str, object]) -> str:
        self.clock += 1000
        return f"{self.clock} {json.dumps(message)}"

    def diff(self) -> str:
        return self.stamped(self.depth())

    def snapshot(self, update_id: int) -> str:
        return self.stamped(self.answer(update_id))


def capture(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def as_text(source: BinanceCaptureSource, book: PlainBook) -> dict[str, dict[str, str]]:
    instrument = source.instruments[0]
    return {
        name: {
            f"{instrument.price(price):.2f}": f"{instrument.volume(volume):.3f}"
            for price, volume in book.best(side)
        }
        for name, side in (("b", Side.BID), ("a", Side.ASK))
    }


@given(seed=st.integers(0, 10**6), futures=st.booleans(), lost=st.integers(0, 25))
def test_a_valid_book_is_the_truth_whatever_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, futures: bool, lost: int
) -> None:
    random = Random(seed)
    exchange = Exchange(random, futures)
    lines = [exchange.diff() for _ in range(20)]
    known = list(exchange.history)
    # The same history with REST answers in it, each as of an id from a little before it came.
    for position in (15, 5):
        ids = [u for u in known if u <= json.loads(lines[position].split(" ", 1)[1])["data"]["u"]]
        lines.insert(position, exchange.snapshot(random.choice(ids[-12:])))
    whole = lost >= len(lines)
    if not whole:
        del lines[lost]
    source = BinanceCaptureSource(capture(tmp_path_factory.mktemp("binance") / "capture", lines))
    book = PlainBook()
    valid = 0
    for events in messages(source):
        book.apply_all(events)
        if book.state is BookState.VALID:
            valid += 1
            assert as_text(source, book) == exchange.history[int(events["sequence"][-1])]
    if whole and not futures:
        assert valid >= 14
        assert int(events["sequence"][-1]) == exchange.update_id


def spot_lines() -> tuple[Exchange, list[str]]:
    exchange = Exchange(Random(7), futures=False)
    lines = [exchange.diff() for _ in range(3)]
    lines.append(exchange.snapshot(1000))
    lines += [exchange.diff() for _ in range(6)]
    return exchange, lines


def test_a_gap_clears_the_book_until_the_next_snapshot(tmp_path: Path) -> None:
    exchange, lines = spot_lines()
    del lines[6]
    lines.append(exchange.snapshot(exchange.update_id))
    lines.append(exchange.diff())
    source = BinanceCaptureSource(capture(tmp_path / "capture", lines))
    book = PlainBook()
    states = []
    for events in messages(source):
        book.apply_all(events)
        states.append(book.state)
        snapshot = events["flags"][0] & Flag.SNAPSHOT
        if book.state is BookState.SYNCING and BookState.VALID in states and not snapshot:
            assert book.levels == {Side.BID: {}, Side.ASK: {}}
    assert states[-1] is BookState.VALID
    assert as_text(source, book) == exchange.book
    assert source.problems.counts == {"gap": 1}
    assert source.problems.examples["gap"][0].startswith("capture:7: ")


def test_malformed_frames_are_counted_with_their_line(tmp_path: Path) -> None:
    _, lines = spot_lines()
    number = lines[5].split(" ", 1)[0]
    trade = '{"stream":"abcusdt@trade","data":{"s":"ABCUSDT","t":1,"p":"%s","q":"1","T":1,"m":true}}'
    lines[6:6] = [
        "no time at all",
        f"{number} {{broken",
        f'{number} {{"stream":"abcusdt@depth","data":{{"E":1}}}}',
        f"{number} " + trade % "1.000000001",
        f"{number} " + trade % "NaN",
        f"{number} " + trade.replace("ABCUSDT", "XYZUSDT") % "1",
        f"{'9' * 19} " + trade % "1",
        f"{number} " + trade % "1.50",
        f'{number} {{"stream":"abcusdt@kline_1m","data":{{}}}}',
        f'{number} {{"stream":"abcusdt@weather","data":{{}}}}',
    ]
    source = BinanceCaptureSource(capture(tmp_path / "capture", lines))
    events = np.concatenate(list(source))
    assert source.problems.counts == {
        "malformed line": 2,
        "malformed JSON": 1,
        "missing field": 1,
        "unusable message": 3,
        "unknown message": 1,
    }
    examples = source.problems.examples.items()
    places = {kind: [place.split(":")[1] for place in places] for kind, places in examples}
    assert places == {
        "malformed line": ["7", "13"],
        "malformed JSON": ["8"],
        "missing field": ["9"],
        "unusable message": ["10", "11", "12"],
        "unknown message": ["16"],
    }
    assert (events["action"] == Action.TRADE).sum() == 1
    states = events[events["action"] == Action.STATE]["volume"]
    assert states.tolist() == [BookState.SYNCING, BookState.VALID]


def test_a_cut_gzip_file_gives_what_it_holds(tmp_path: Path) -> None:
    exchange, lines = spot_lines()
    lines += [exchange.diff() for _ in range(400)]
    path = tmp_path / "capture.gz"
    data = gzip.compress("\n".join(lines).encode())
    path.write_bytes(data[: len(data) // 2])
    source = BinanceCaptureSource(path)
    book = PlainBook()
    batches: list[np.ndarray] = []
    with pytest.raises(SourceError, match="truncated after line"):
        batches.extend(source)
    for events in messages(batches):
        book.apply_all(events)
    assert int(batches[-1]["sequence"][-1]) > 1200
    assert as_text(source, book) == exchange.history[int(batches[-1]["sequence"][-1])]


def test_a_file_without_depth_diffs_is_refused(tmp_path: Path) -> None:
    path = capture(tmp_path / "capture", ['1 {"stream":"abcusdt@bookTicker","data":{}}'])
    with pytest.raises(SourceError, match="no Binance depth diff"):
        BinanceCaptureSource(path)


spellings = st.sampled_from(("{}", "{}", " {} ", "+{}", "{}e0", "{}E+0", "0{}", "{}0"))


@given(seed=st.integers(0, 10**6), spelled=st.lists(spellings, min_size=3, max_size=3))
def test_numbers_are_the_same_however_a_capture_writes_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, spelled: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("binance")
    exchange = Exchange(Random(seed), False)
    lines = [exchange.diff() for _ in range(3)]
    lines += [exchange.snapshot(1000), *(exchange.diff() for _ in range(8))]
    plain = BinanceCaptureSource(capture(folder / "plain", lines))
    local, price, volume = spelled[0].replace("{}0", "{}.0"), *spelled[1:]

    def written(line: str) -> str:
        time, text = line.split(" ", 1)
        message = json.loads(text)
        body = message.get("data", message)
        for name in ("b", "a", "bids", "asks"):
            if name in body:
                body[name] = [[price.format(p), volume.format(v)] for p, v in body[name]]
        return f"{local.format(time)} {json.dumps(message)}"

    source = BinanceCaptureSource(capture(folder / "spelled", map(written, lines)))
    events, expected = (np.concatenate(list(one)) for one in (source, plain))
    assert events.tobytes() == expected.tobytes()
    assert source.problems.counts == {}


def test_local_times_finer_than_ns_are_rounded_and_counted(tmp_path: Path) -> None:
    _, lines = spot_lines()
    time, text = lines[0].split(" ", 1)
    exact = BinanceCaptureSource(capture(tmp_path / "exact", lines))
    source = BinanceCaptureSource(capture(tmp_path / "finer", [f"{time}.4 {text}", *lines[1:]]))
    assert np.concatenate(list(source)).tobytes() == np.concatenate(list(exact)).tobytes()
    assert (source.counts["times rounded"], exact.counts["times rounded"]) == (1, 0)


def plain_levels(path: Path) -> dict[str, dict[Decimal, Decimal]]:
    """The book that a capture's own snapshot and diffs leave, as the exchange's documentation joins them."""
    book: dict[str, dict[Decimal, Decimal]] = {"b": {}, "a": {}}
    waiting, last = [], None

    def apply(levels: dict[str, list[tuple[str, str]]]) -> None:
        for side in book:
            for price, volume in levels[side]:
                book[side].pop(Decimal(price), None)
                if Decimal(volume):
                    book[side][Decimal(price)] = Decimal(volume)

    with gzip.open(path, "rt") as file:
        for line in file:
            message = json.loads(line.partition(" ")[2])
            if "lastUpdateId" in message:
                assert last is None
                last = message["lastUpdateId"]
                apply({"b": message["bids"], "a": message["asks"]})
            elif "@depth" in message.get("stream", ""):
                waiting.append(message["data"])
            while last is not None and waiting:
                diff = waiting.pop(0)
                # Those of futures that end at the snapshot are applied, and change nothing of it.
                if diff["u"] > last:
                    apply(diff)
    return book


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [*(f"hftbacktest/{name}" for name in CAPTURES), "hftbacktest_more/coinm_btcusd_perp_20240808.gz"],
)
def test_a_recorded_book_equals_the_decimals_of_the_wire(name: str, shared_data: Path) -> None:
    source = BinanceCaptureSource(shared_data / name)
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    one, plain = source.instruments[0], plain_levels(shared_data / name)
    for side, key in ((Side.BID, "b"), (Side.ASK, "a")):
        levels = books.levels(0, side, 10**6)[["price", "volume"]].tolist()
        assert {one.price(price): one.volume(volume) for price, volume in levels} == plain[key]
    assert books.state(0) is BookState.VALID


def spoilt(lines: list[bytes], random: Random) -> list[bytes]:
    """Lines of a capture, some of which are lost, doubled, cut, damaged, late or none of a capture."""
    found: list[bytes] = []
    snapshot = next(line for line in lines if b"lastUpdateId" in line)
    for line in lines:
        match random.randrange(200):
            case 0:
                continue
            case 1:
                found.append(line)
            case 2:
                line = line[: random.randrange(len(line))]
            case 3:
                place = random.randrange(len(line))
                line = line[:place] + bytes([random.randrange(256)]) + line[place + 1 :]
            case 4:
                line = random.choice([b"", b"0 {}", b"-5 {}", b"x", b"1.5 " + line.partition(b" ")[2]])
            case 5:
                line = b"%d " % (int(line.split(b" ")[0]) - 10**9) + line.partition(b" ")[2]
            case 6 if random.random() < 0.2:
                found.append(snapshot)
        found.append(line.replace(b"\n", b" "))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", CAPTURES)
def test_lines_that_are_handed_on_together_are_as_if_alone(
    name: str, seed: int, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"{name} {seed}")
    with gzip.open(shared_data / "hftbacktest" / name) as file:
        lines = spoilt([next(file).rstrip(b"\n") for _ in range(2_500)], random)
    cut = random.randrange(len(lines))
    ending = random.choice([b"", b"\n"])
    parts = [lines] if seed % 2 else [lines[:cut], lines[max(0, cut - 3) :]]
    paths = [tmp_path / f"part{number}" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(b"\n".join(part) + ending)

    def found() -> tuple[bytes, object, object, str]:
        source, error = BinanceCaptureSource(paths), ""
        events = []
        try:
            events += list(source)
        except SourceError as raised:
            error = str(raised)
        made = np.concatenate(events) if events else np.empty(0)
        return made.tobytes(), source.counts, source.problems.report(), error

    together = found()
    monkeypatch.setattr(capture_replay, "_LINES_TOGETHER", 1)
    assert found() == together
    monkeypatch.setattr(BinanceCaptureSource, "_take_all", ReplayedLines._take_all)
    assert found() == together
    monkeypatch.setattr(capture_replay, "_FRAMES_TOGETHER", 1)
    assert found() == together
