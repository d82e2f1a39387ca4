"""Every recorded session through the live decoder path: directly, and over a server that speaks it."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_server import CaptureServer
from capture_support import (
    binance_recording,
    coinbase_recording,
    joined,
    kraken_recording,
    served,
    session,
    toml_feeds,
    up_to_the_cut,
    without_receive_times,
    write_lines,
)
from command_line_support import Program, orderbook, write  # noqa: F401
from plain_book import messages
from session_support import instrument

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges import bitstamp
from orderbook.feeds.live.http_requests import exchange_instruments, http_get
from orderbook.feeds.recording.capture_replay import CapturePlayer, CaptureSource
from orderbook.feeds.source_kinds import open_source
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side
from orderbook.market.instruments import Instrument

HARMLESS = {"unknown type", "exchange clock backwards", "off the lot"}
LINES = 3000


@dataclass(frozen=True)
class Capture:
    """A recorded session; how many checksums, bookTickers and trades it has at least, where it has any.

    `thin`: products of it have books with an empty side.
    """

    name: str
    products: int
    checksums: int = 0
    tickers: int = 0
    trades: int = 1
    thin: bool = False


CAPTURES = [
    Capture("cryptofeed/BINANCE.jsonl.zst", 4, tickers=12, trades=0),
    Capture("cryptofeed/BINANCE_FUTURES.jsonl.zst", 4, tickers=50),
    Capture("cryptofeed/BITFINEX.jsonl.zst", 7, trades=0),
    Capture("cryptofeed/BITSTAMP.jsonl.zst", 10, trades=10),
    Capture("cryptofeed/COINBASE.jsonl.zst", 2, trades=79),
    Capture("cryptofeed/KRAKEN.jsonl.zst", 10, checksums=4269, trades=8),
    Capture("cryptofeed/OKX.jsonl.zst", 3, checksums=290, trades=71),
    Capture("hftbacktest/spot_btcusdt_20240808.gz", 1, tickers=40, trades=100),
    Capture("hftbacktest/usdm_btcusdt_20240808.gz", 1, tickers=10, trades=100),
    Capture("coinbase_l3/gdax_full_2017-06-25.jsonl", 1, trades=0, thin=True),
]
_names = [Path(capture.name).name.partition(".")[0] for capture in CAPTURES]


def recording(capture: Capture, data: Path, folder: Path, most: int) -> Path:
    """The capture as a recording that CaptureSource reads."""
    path = data / capture.name
    if capture.name.startswith("hftbacktest"):
        return binance_recording(path, folder / "binance.jsonl", most)
    if capture.name.startswith("coinbase_l3"):
        return coinbase_recording(path, folder / "coinbase.jsonl")
    return path


def book_tickers(path: Path) -> dict[tuple[str, int], dict[str, str]]:
    """What Binance says of the touch, by product and update id."""
    found = {}
    for line in CaptureSource(path)._lines:
        if line.t == "recv" and "@bookTicker" in line.data[:60]:
            ticker = json.loads(line.data)["data"]
            found[ticker["s"], ticker["u"]] = ticker
    return found


def compared_books(source: CaptureSource, events: np.ndarray, tickers: Any, thin: bool) -> Counter[str]:
    """Apply the events: books that are valid are never crossed, and equal the tickers of their update id."""
    books, counts = Books(source.instruments, Dictionary()), Counter[str]()
    for unit in messages([events]):
        books.apply(unit)
        index = int(unit["instrument"][0])
        counts["trades"] += int((unit["action"] == Action.TRADE).sum())
        if books.state(index) is not BookState.VALID or unit["action"][-1] == Action.TRADE:
            continue
        bid, ask = books.best(index)
        if bid is None or ask is None:
            assert thin
            continue
        assert bid < ask, f"{source.instruments[index]} is crossed at {unit['sequence'][0]}"
        counts["books not crossed"] += 1
        one = source.instruments[index]
        ticker = tickers.get((one.native_symbol, int(unit["sequence"][0])))
        if ticker is None or unit["action"][-1] != Action.LEVEL:
            continue
        for side, price, size in ((Side.BID, "b", "B"), (Side.ASK, "a", "A")):
            (best,) = books.levels(index, side, 1)
            assert (one.price(int(best["price"])), one.volume(int(best["volume"]))) == (
                Decimal(ticker[price]),
                Decimal(ticker[size]),
            )
        counts["bookTickers equal"] += 1
    assert books.problems() == {}
    states = [books.state(number) for number in range(len(source.instruments))]
    assert states == [BookState.VALID] * len(states)
    return counts


@pytest.mark.sampled(4)
@pytest.mark.parametrize("capture", CAPTURES, ids=_names)
def test_a_capture_directly_and_over_sockets(
    capture: Capture,
    shared_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    most = 10**9 if request.config.getoption("exhaustive") else LINES
    path = recording(capture, shared_data, tmp_path, most)
    source = CaptureSource(path)
    direct = joined(source)
    assert len(source.instruments) == capture.products
    statistics = source.statistics
    assert (statistics.gaps, statistics.malformed, statistics.resyncs) == (0, 0, 0)
    assert set(source.problems.counts) <= HARMLESS, source.problems.report()
    assert statistics.checksums >= capture.checksums
    counts = compared_books(source, direct, book_tickers(path), capture.thin)
    print(f"\n{capture.name}: {statistics.frames:,} frames, {len(direct):,} events, {dict(counts)}")
    assert counts["trades"] >= capture.trades
    assert counts["bookTickers equal"] >= capture.tickers
    assert counts["books not crossed"] > 0 or capture.thin

    # The recorded program asked for Bitstamp's books before it had subscribed.
    monkeypatch.setattr(bitstamp, "SETTLED", 0)
    live, live_statistics = served(path)
    assert without_receive_times(live) == without_receive_times(direct)
    assert (live["receive_time"] > 10**18).all() and (np.diff(live["receive_time"]) >= 0).all()
    assert live_statistics.checksums == statistics.checksums
    assert (live_statistics.frames, live_statistics.gaps) == (statistics.frames, 0)
    assert live_statistics.reconnects == live_statistics.malformed == 0
    print(f"over sockets: {len(live):,} events equal, {statistics.checksums:,} checksums")


def test_reference_data_come_from_the_recording(shared_data: Path) -> None:
    async def asked(path: Path, products: list[str]) -> list[Instrument]:
        async with CaptureServer(path) as server:
            with pytest.raises(SourceError, match=r"404 .*the recording has no answer for this"):
                await http_get(f"{server.rest_url}/elsewhere")
            return await exchange_instruments(server.kind, products, server.rest_url)

    for name in ("OKX", "KRAKEN", "BINANCE", "BITSTAMP"):
        path = shared_data / "cryptofeed" / f"{name}.jsonl.zst"
        known = CaptureSource(path).instruments
        assert asyncio.run(asked(path, [one.native_symbol for one in known])) == list(known)


def test_what_is_found_by_content_is_what_the_kind_says(tmp_path: Path) -> None:
    path = kraken_recording(tmp_path / "alpha.jsonl", "alpha", 10**18, 1000, 1, messages=5)
    expected = joined(open_source(f"capture:{path}"))  # type: ignore[arg-type]
    for text in (str(path), str(tmp_path), f"capture:{tmp_path}", f"capture:{tmp_path}/al*.jsonl"):
        source = open_source(text)
        assert isinstance(source, CaptureSource)
        assert joined(source).tobytes() == expected.tobytes()
        assert source.progress == 1.0
    assert set(expected["receive_time"].tolist()) == {10**18 + n * 10**7 for n in (0, *range(2, 8))}


def test_options_name_what_a_foreign_recording_does_not(tmp_path: Path) -> None:
    pair = {"pair_decimals": 1, "lot_decimals": 8, "wsname": "XBT/USD"}
    pairs = {"XXBTZUSD": pair, "XETHZUSD": {**pair, "wsname": "ETH/USD"}}
    answer = json.dumps({"error": [], "result": pairs})
    frame = '[1,{"as":[["101.0","1.0","1.0"]],"bs":[["100.0","1.0","1.0"]]},"book-10","XBT/USD"]'
    lines: list[dict[str, Any]] = [
        {"t": "header", "exchange": "OTHER"},
        {"t": "http", "conn": "http", "ts": 1.0, "url": "https://x/0/public/AssetPairs", "data": answer},
        {"t": "connect", "conn": "ws", "ts": 2.0, "addr": "wss://x"},
        {"t": "recv", "conn": "ws", "ts": 3.0, "data": frame},
    ]
    path = write(tmp_path / "other.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    source = open_source(f"capture:{path}?exchange=kraken_v1&products=XBT/USD")
    assert [str(one) for one in source.instruments] == ["kraken:BTC-USD"]  # type: ignore[union-attr]
    events = joined(source)  # type: ignore[arg-type]
    assert (events["action"] == Action.LEVEL).sum() == 2 and set(events["receive_time"][3:]) == {3 * 10**9}
    for options, message in (
        ("", "is no exchange that is known; name one: .exchange=NAME"),
        ("?exchange=krakn", "no exchange is called 'krakn'; known: binance, "),
        ("?exchange=kraken_v1", "name them: .products=A,B"),
        ("?exchange=kraken_v1&products=FOO", "FOO: Kraken has no such pair"),
        ("?exchang=kraken_v1", "no option is called 'exchang'; did you mean 'exchange'"),
    ):
        with pytest.raises(SourceError, match=message):
            open_source(f"capture:{path}{options}")


def test_recordings_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    kraken_recording(tmp_path / "a.jsonl", "alpha", 10**18, 1000, 1, messages=2)
    write_lines(tmp_path / "b.jsonl", [session("okx", [instrument("okx", "BTC-USDT")])])
    with pytest.raises(SourceError, match=r"a.jsonl and .*b.jsonl are recordings of different feeds"):
        CaptureSource(tmp_path)
    with pytest.raises(SourceError, match="no recordings there"):
        CaptureSource(tmp_path / "*.zst")
    write_lines(tmp_path / "c.jsonl", [session("nothing", [])])
    with pytest.raises(SourceError, match="'nothing', which is no exchange that is known"):
        CaptureSource(tmp_path / "c.jsonl")
    write(tmp_path / "d.jsonl", '{"t": "recv"}\n')
    with pytest.raises(SourceError, match="first line is 'recv', not session or header"):
        CaptureSource(tmp_path / "d.jsonl")


def played(path: Path, speed: float) -> tuple[np.ndarray, float]:
    """What a recording gives, played, and how many seconds that took."""

    async def play() -> np.ndarray:
        return np.concatenate([events async for events in CapturePlayer(path, speed=speed)])

    start = time.monotonic()
    return asyncio.run(play()), time.monotonic() - start


def test_a_recording_is_played_as_if_it_happened_now(tmp_path: Path) -> None:
    path = kraken_recording(tmp_path / "a.jsonl", "alpha", 10**18, 1000, 1, messages=40)
    direct = joined(CaptureSource(path))
    before = time.time_ns()
    for speed, least in ((2.0, 0.2), (0.0, 0.0)):
        live, seconds = played(path, speed)
        assert seconds >= least
        end, live = live[-1], live[:-1]
        assert (end["action"], end["volume"]) == (Action.STATE, BookState.STALE)
        assert before <= live["receive_time"][0] and (np.diff(live["receive_time"]) >= 0).all()
        latency = direct["receive_time"] - direct["exchange_time"]
        known = direct["exchange_time"] != 0
        assert known.sum() > 40 and not live["exchange_time"][~known].any()
        assert (live["receive_time"] - live["exchange_time"])[known].tolist() == latency[known].tolist()
        for events in (live, direct):
            events["exchange_time"] = 0
        assert without_receive_times(live) == without_receive_times(direct)
        direct = joined(CaptureSource(path))


ARBITRAGE = """
[run]
views = ["arbitrage"]
strategies = []
backend = "interpreter"
"""


def test_two_captures_side_by_side_show_their_arbitrage(orderbook: Program, tmp_path: Path) -> None:  # noqa: F811
    day = 86_400 * 10**9
    alpha = kraken_recording(tmp_path / "alpha.jsonl", "alpha", 10**18, 10_000, 1, messages=200)
    beta = kraken_recording(tmp_path / "beta.jsonl", "beta", 10**18 - 300 * day, 10_300, 2, messages=200)
    log, live, again = tmp_path / "log", tmp_path / "live.ndjson", tmp_path / "again.ndjson"
    text = f"{ARBITRAGE}[log]\nfolder = '{log}'\nsync = 'never'\n{toml_feeds([alpha, beta], speed=1)}"
    config = write(tmp_path / "both.toml", text)
    result = orderbook("run", "--config", config, "--out", live)
    assert result.status == 0, result.err
    assert f"feed capture:{alpha}: frames 202" in result.out
    shown = [line for line in result.out.splitlines() if "arbitrage BTC-USD" in line]
    assert shown, result.out
    # While it runs; at the end the books of both are stale, and there is nothing to trade at.
    assert any("arbitrage BTC-USD beta alpha bid=" in line and "spread=" in line for line in shown)
    assert "view arbitrage: 0 rows" in result.out
    replayed = orderbook("replay", f"log:{log}", "--config", config, "--out", again)
    assert replayed.status == 0, replayed.err
    assert again.read_bytes() == live.read_bytes()
    assert len(live.read_bytes().splitlines()) > 100


def test_the_arbitrage_view_equals_the_books_after_every_message(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
) -> None:
    paths = [tmp_path / "x.jsonl", tmp_path / "y.jsonl"]
    for seed, path in enumerate(paths, 1):
        kraken_recording(path, path.stem, 10**18, 10_000 + seed, seed, messages=100)
    config = write(tmp_path / "c.toml", ARBITRAGE)
    out = tmp_path / "out.ndjson"
    sources = [f"capture:{path}" for path in paths]
    result = orderbook("replay", *sources, "--config", config, "--out", out)
    assert result.status == 0, result.err
    rows: dict[tuple[str, str], tuple[Decimal, ...]] = {}
    history = []
    for text in out.read_text().splitlines():
        event = json.loads(text, parse_float=Decimal)
        key, row = event["key"], event["row"]
        place = key["venue"], key["venue_2"]
        if row is None:
            del rows[place]
        else:
            rows[place] = tuple(Decimal(row[name]) for name in ("bid", "ask", "spread"))
        history.append((event["ts"], dict(rows)))
    shown = dict(history)

    merged = joined(CaptureSource(paths[0])), joined(CaptureSource(paths[1]))
    books = [Books(CaptureSource(path).instruments, Dictionary()) for path in paths]
    ends = sorted({int(t) for events in merged for t in events["receive_time"]})
    compared = crossing = 0
    current: dict[tuple[str, str], tuple[Decimal, ...]] = {}
    for moment in ends:
        for book, events in zip(books, merged, strict=True):
            book.apply(events[events["receive_time"] == moment])
        if any(book.state(0) is not BookState.VALID for book in books):
            continue
        touches = [(name, *touch(book)) for name, book in zip("xy", books, strict=True)]
        bid, ask = max(t[1] for t in touches), min(t[2] for t in touches)
        expected = {
            (b[0], a[0]): tuple(Decimal(n) / 10 for n in (bid, ask, bid - ask))
            for b in touches
            for a in touches
            if b[1] == bid and a[2] == ask
        }
        current = shown.get(moment, current)
        assert current == expected
        compared += 1
        crossing += bid > ask
    print(f"{compared} moments compared, {crossing} with venues that cross")
    assert compared > 90 and crossing > 0


def touch(book: Books) -> tuple[int, int]:
    bid, ask = book.best(0)
    assert bid is not None and ask is not None
    return bid, ask


def test_explain_of_arbitrage_has_no_scan(orderbook: Program) -> None:  # noqa: F811
    result = orderbook("explain", "arbitrage")
    assert result.status == 0 and "no statement scans a map" in result.out


def test_a_line_that_is_no_json_is_counted_and_the_next_is_read(tmp_path: Path) -> None:
    path = kraken_recording(tmp_path / "a.jsonl", "alpha", 10**18, 1000, 1, messages=5)
    lines = path.read_bytes().splitlines(keepends=True)
    whole = joined(CaptureSource(path))
    path.write_bytes(b"".join([*lines[:3], b"{nothing\n", *lines[3:]]))
    source = CaptureSource(path)
    assert joined(source).tobytes() == whole.tobytes()
    assert source.problems.counts == {"malformed line": 1}
    path.write_bytes(b"".join(lines)[:-20])
    events = up_to_the_cut(CaptureSource(path), "truncated after line 9")
    assert 0 < len(events) < len(whole)
    assert events.tobytes() == whole[: len(events)].tobytes()
