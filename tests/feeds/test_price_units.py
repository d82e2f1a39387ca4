"""Prices and volumes finer than the tick and lot: no book is lost for them, and instruments may change."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_book import read
from session_support import Driven

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.books import kraken_checksum
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.coinbase import Coinbase
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions
from orderbook.feeds.exchanges.kraken import Kraken
from orderbook.feeds.exchanges.okx import Okx
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.files.tardis import TardisSource
from orderbook.feeds.live import live_feed
from orderbook.feeds.merge import Merger
from orderbook.feeds.raw_log import InstrumentText, Line
from orderbook.feeds.recording.capture_files import CaptureHead
from orderbook.feeds.recording.capture_replay import CaptureSessions
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Side
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition, on_view
from orderbook.views.compilation import compile_views

SIDES = (Side.BID, Side.ASK)
Levels = Sequence[tuple[str, str]]


@st.composite
def numbers(draw: st.DrawFn, least: int, most: int) -> str:
    """Decimal text with at most eight places, as exchanges write it."""
    places = draw(st.integers(0, 8))
    units = draw(st.integers(least * 10**places, most * 10**places))
    return f"{Decimal(units).scaleb(-places):.{places + draw(st.integers(0, 8 - places))}f}"


# Bids below 1,000, asks from there on, so that no book is crossed.
BIDS = st.lists(st.tuples(numbers(1, 900), numbers(0, 10**6)), max_size=9)
ASKS = st.lists(st.tuples(numbers(1000, 2000), numbers(0, 10**6)), max_size=9)
MESSAGES = st.lists(st.tuples(BIDS, ASKS), min_size=1, max_size=6)


class DecimalBook:
    """Levels as they are written, by price."""

    def __init__(self) -> None:
        self.sides: dict[Side, dict[Decimal, tuple[str, str]]] = {side: {} for side in SIDES}

    def take(self, *sides: Levels) -> None:
        for side, levels in zip(SIDES, sides, strict=True):
            for price, size in levels:
                self.sides[side].pop(Decimal(price), None)
                if Decimal(size):
                    self.sides[side][Decimal(price)] = (price, size)

    @property
    def levels(self) -> dict[Side, dict[Decimal, Decimal]]:
        return {side: {p: Decimal(t[1]) for p, t in own.items()} for side, own in self.sides.items()}

    def best(self, side: Side, count: int) -> list[tuple[str, str]]:
        prices = sorted(self.sides[side], reverse=side is Side.BID)[:count]
        return [self.sides[side][price] for price in prices]


def held(one: Instrument, book: Any) -> dict[Side, dict[Decimal, Decimal]]:
    return {
        side: {one.price(price): one.volume(volume) for price, volume in book.levels[side].items()}
        for side in SIDES
    }


def okx(number: int, bids: Levels, asks: Levels, book: DecimalBook) -> Any:
    data = {"bids": [[*one, "0", "1"] for one in bids], "asks": [[*one, "0", "1"] for one in asks]}
    numbers = {"ts": "1652459225464", "seqId": number, "prevSeqId": number - 1 if number else -1}
    action = "update" if number else "snapshot"
    return {"arg": {"channel": "books", "instId": "A-B"}, "action": action, "data": [data | numbers]}


def bybit(number: int, bids: Levels, asks: Levels, book: DecimalBook) -> Any:
    data = {"s": "AB", "b": bids, "a": asks, "u": number + 7, "seq": number}
    kind = "delta" if number else "snapshot"
    return {"topic": "orderbook.50.AB", "type": kind, "ts": 1672304484978, "data": data, "cts": 1672304484978}


def coinbase(number: int, bids: Levels, asks: Levels, book: DecimalBook) -> Any:
    time = "2026-08-09T21:05:48.210883Z"
    updates = [
        {"side": side, "event_time": time, "price_level": price, "new_quantity": size}
        for side, levels in (("bid", bids), ("offer", asks))
        for price, size in levels
    ]
    event = {"type": "update" if number else "snapshot", "product_id": "A-B", "updates": updates}
    return {"channel": "l2_data", "timestamp": time, "sequence_num": number, "events": [event]}


def kraken(number: int, bids: Levels, asks: Levels, book: DecimalBook) -> Any:
    rows = [",".join(f'{{"price":{p},"qty":{s}}}' for p, s in levels) for levels in (bids, asks)]
    checksum = kraken_checksum(book.best(Side.ASK, 10), book.best(Side.BID, 10))
    kind = "update" if number else "snapshot"
    return (
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"A/B","bids":[{rows[0]}],"asks":[{rows[1]}],'
        f'"checksum":{checksum},"timestamp":"2023-10-06T17:35:55.440295Z"}}]}}'
    )


EXCHANGES: Mapping[str, tuple[type[Exchange], str, Callable[..., Any]]] = {
    "okx": (Okx, "A-B", okx),
    "bybit": (Bybit, "AB", bybit),
    "coinbase": (Coinbase, "A-B", coinbase),
    "kraken": (Kraken, "A/B", kraken),
}


@pytest.mark.parametrize("name", EXCHANGES)
@given(messages=MESSAGES)
def test_a_live_book_is_the_exchanges_whatever_its_decimals(
    name: str, messages: Sequence[tuple[Levels, Levels]]
) -> None:
    kind, product, frame = EXCHANGES[name]
    one = Instrument.listed(name, product, Decimal("0.5"), Decimal("0.01"))
    driven, plain, off = Driven(kind, [one], 1000 if name == "kraken" else None), DecimalBook(), 0
    for number, (bids, asks) in enumerate(messages):
        plain.take(bids, asks)
        driven.frame(frame(number, bids, asks, plain))
        assert driven.state(product) is BookState.VALID
        assert held(one, driven.books[product]) == plain.levels
        off += sum(Decimal(size) % one.lot != 0 for _, size in (*bids, *asks))
    assert driven.problems.get("off the lot", 0) == off
    assert set(driven.problems) <= {"off the lot", "off the tick"}
    assert driven.statistics.gaps == 0


@given(messages=MESSAGES, finer=MESSAGES)
def test_a_binance_capture_holds_volumes_finer_than_its_first_lines(
    tmp_path_factory: pytest.TempPathFactory,
    messages: Sequence[tuple[Levels, Levels]],
    finer: Sequence[tuple[Levels, Levels]],
) -> None:
    path = tmp_path_factory.mktemp("binance") / "capture"
    lines, plain = [], DecimalBook()
    coarse = [([("500", "1")], [("1500", "2")])] * 2_100
    for number, (bids, asks) in enumerate((*coarse, *messages, *finer)):
        data = {"e": "depthUpdate", "E": number, "s": "ABC", "U": number, "u": number, "b": bids, "a": asks}
        lines.append(f"{number + 1} " + json.dumps({"stream": "abc@depth", "data": data}))
        if not number:
            lines.append('1 {"lastUpdateId": 0, "bids": [["500", "1"]], "asks": [["1500", "2"]]}')
        plain.take(bids, asks)
    path.write_text("\n".join(lines) + "\n")
    source = BinanceCaptureSource(path)
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    one = source.instruments[0]
    assert books.state(0) is BookState.VALID
    found = {side: books.levels(0, side, 100)[["price", "volume"]].tolist() for side in SIDES}
    assert {s: {one.price(p): one.volume(v) for p, v in own} for s, own in found.items()} == plain.levels
    assert set(source.problems.counts) <= {"off the lot", "off the tick"}


@given(messages=MESSAGES)
def test_rows_of_tardis_that_are_finer_than_its_first_are_kept(
    tmp_path_factory: pytest.TempPathFactory, messages: Sequence[tuple[Levels, Levels]]
) -> None:
    path = tmp_path_factory.mktemp("tardis") / "okx_incremental_book_L2_2024-01-01_A-B.csv"
    rows, plain = ["exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"], DecimalBook()
    plain.take([("500", "1")], [])
    rows += ["okx,A-B,1,1,true,bid,500,1"] + ["okx,A-B,2,2,false,bid,500,1"] * 20_000
    for number, (bids, asks) in enumerate(messages):
        plain.take(bids, asks)
        for side, levels in (("bid", bids), ("ask", asks)):
            rows += [f"okx,A-B,{number + 3},{number + 3},false,{side},{p},{s}" for p, s in levels]
    path.write_text("\n".join(rows) + "\n")
    source = TardisSource([path])
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    one = source.instruments[0]
    found = {side: books.levels(0, side, 100)[["price", "volume"]].tolist() for side in SIDES}
    assert {s: {one.price(p): one.volume(v) for p, v in own} for s, own in found.items()} == plain.levels
    assert all(kind.startswith("off the") for kind in source.problems.counts)


def test_orders_keep_to_tick_and_lot() -> None:
    one = Instrument.listed("okx", "BTC-USDT", Decimal("0.5"), Decimal("0.01"))
    assert one.check_price("100.5") == one.ticks("100.5") == 10_050_000_000
    assert one.check_volume("0.02") == one.lots("0.02")
    with pytest.raises(DataError, match=r"price 100\.25 is not a multiple of the tick 0\.5"):
        one.check_price("100.25")
    with pytest.raises(DataError, match=r"volume 0\.005 is not a multiple of the lot 0\.01"):
        one.check_volume("0.005")
    changed = one.with_steps(Decimal("0.25"), Decimal("0.001"))
    assert changed == one
    assert changed.check_price("100.25") == 10_025_000_000


STEPS = [("0.5", "0.01"), ("0.1", "0.001"), ("0.00000001", "1"), ("", ""), ("-1", "x"), ("1e-12", "1")]


def listing(tick: str, lot: str) -> dict[str, Any]:
    data = [{"instId": "A-B", "state": "live", "tickSz": tick, "lotSz": lot}]
    return {"arg": {"channel": "instruments", "instType": "SPOT"}, "data": data}


@given(st.lists(st.one_of(st.tuples(BIDS, ASKS), st.sampled_from(STEPS)), max_size=12), st.integers(0, 12))
def test_an_instrument_changes_at_its_place_in_feeds_recordings_and_records(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[Any], cut: int
) -> None:
    first = Instrument.listed("okx", "A-B", Decimal("0.5"), Decimal("0.01"))
    plain, wanted, number = DecimalBook(), list[tuple[str, str]](), 0
    frames = [okx(0, [], [], plain)]
    for step in steps:
        if isinstance(step[0], str):
            frames.append(listing(*step))
            if step in STEPS[:3] and step != (wanted[-1] if wanted else STEPS[0]):
                wanted.append(step)
        else:
            number += 1
            plain.take(*step)
            bids, asks = step
            frames.append(okx(number, bids, asks, plain))
    lines = [Line("recv", "c", 10**18 + time, json.dumps(frame)) for time, frame in enumerate(frames)]
    lines.insert(0, Line("connect", "c", 10**18))
    head = Line("session", "c", 10**18, exchange="okx", instruments=[InstrumentText.of(first)])
    played = CaptureSessions(CaptureHead((), "okx", (first,)))
    parts = []
    for place, line in enumerate([head, *lines]):
        played.apply(line)
        if place == cut:
            parts.append(played.take())
    events = np.concatenate([*parts, played.take()])
    changes = events[events["action"] == Action.INSTRUMENT][["price", "volume"]].tolist()
    told = [first.with_steps(Decimal(tick), Decimal(lot)) for tick, lot in wanted]
    assert changes == [(one.tick_units, one.lot_units) for one in told]
    books = Books(Instruments([first]), Dictionary())
    books.apply(events)
    found = {side: books.levels(0, side, 100)[["price", "volume"]].tolist() for side in SIDES}
    assert {s: {first.price(p): first.volume(v) for p, v in own} for s, own in found.items()} == plain.levels
    assert books.problems() == {}
    assert books.state(0) is BookState.VALID
    path = tmp_path_factory.mktemp("record") / "events.parquet"
    with RecordWriter(path, Instruments([first])) as writer:
        writer.write(events)
    assert np.concatenate(list(Merger([RecordSource([path])]))).tolist() == events.tolist()


def test_a_record_begins_with_what_changed_since_the_file_before(tmp_path: Path) -> None:
    first = Instrument.listed("okx", "A-B", Decimal("0.5"), Decimal("0.01"))
    second = first.with_steps(Decimal("0.1"), Decimal("0.01"))
    level = np.zeros(1, EVENT)
    level["action"], level["price"], level["volume"], level["flags"] = Action.LEVEL, 10**8, 10**8, 1
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet", tmp_path / "3.parquet"]
    for day, (path, one) in enumerate(zip(paths, (first, second, second), strict=True)):
        level["receive_time"] = day + 1
        with RecordWriter(path, Instruments([one])) as writer:
            writer.write(level)
    source = RecordSource(paths)
    events = read(source)
    assert events["action"].tolist() == [Action.LEVEL, Action.INSTRUMENT, Action.LEVEL, Action.LEVEL]
    assert events[["price", "volume", "receive_time"]].tolist()[1] == (second.tick_units, second.lot_units, 2)


def test_a_live_feed_asks_for_the_listing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Instrument.listed("bybit", "AB", Decimal("0.5"), Decimal("0.01"))
    finer = [first.with_steps(Decimal("0.1"), Decimal("0.01"))]
    answers: Iterator[SourceError | list[Instrument]] = iter([SourceError("no answer"), [first], finer])

    async def listed(*_: Any) -> list[Instrument]:
        answer = next(answers, finer)
        if isinstance(answer, SourceError):
            raise answer
        return answer

    monkeypatch.setattr(live_feed, "exchange_instruments", listed)
    monkeypatch.setattr(live_feed, "LISTING_SECONDS", 0.001)
    told: list[Any] = []

    class Raw(Mock):
        def relisted(self, instruments: Any, time: int) -> None:
            told.extend(one.instrument for one in instruments)

    async def main() -> tuple[np.ndarray, dict[str, int]]:
        options = ExchangeOptions(url="ws://127.0.0.1:9")
        async with live_feed.LiveFeed(Bybit, Instruments([first]), [0], options, lambda *_: Raw()) as feed:
            async for events in feed:
                if (events["action"] == Action.INSTRUMENT).any():
                    return events, dict(feed.statistics.problems.counts)
        raise AssertionError

    events, problems = asyncio.run(main())
    change = events[events["action"] == Action.INSTRUMENT]
    assert change[["price", "volume"]].tolist() == [(10_000_000, 1_000_000)]
    assert problems["no reference data"] == problems["instrument changed"] == 1
    assert [(one.tick, one.lot) for one in told] == [(Decimal("0.1"), Decimal("0.01"))]


def test_coinbase_and_kraken_announce_changes() -> None:
    one = Instrument.listed("coinbase", "A-B", Decimal("0.5"), Decimal("0.01"))
    driven = Driven(Coinbase, [one])
    status = {"id": "A-B", "status": "online", "quote_increment": "0.5", "base_increment": "0.01"}
    found = []
    for number, tick in enumerate(("0.5", "0.1", "0.1")):
        event = {"type": "snapshot", "products": [{**status, "quote_increment": tick}]}
        found.append(driven.frame({"channel": "status", "sequence_num": number, "events": [event]}))
    assert found == [[], [(0, Action.INSTRUMENT, Side.NONE, 10_000_000, 1_000_000, 0)], []]
    driven = Driven(Kraken, [Instrument.listed("kraken", "A/B", Decimal("0.1"), Decimal("0.01"))])
    pair = {"symbol": "A/B", "status": "online", "price_precision": 2, "qty_precision": 2}
    told = driven.frame({"channel": "instrument", "type": "update", "data": {"pairs": [pair]}})
    assert told == [(0, Action.INSTRUMENT, Side.NONE, 1_000_000, 1_000_000, 0)]


class Quoter(Strategy):
    """Quotes a price that only the later tick allows."""

    @on_view("top")
    def moved(self, event: Any) -> None:
        self.buy(event.new.symbol, 1, "1.05")


def test_orders_are_checked_by_the_tick_of_their_moment() -> None:
    first = Instrument.listed("okx", "A-B", Decimal("0.5"), Decimal("0.01"))
    sql = "CREATE VIEW top AS SELECT symbol, MAX(price) AS best FROM bids GROUP BY symbol"
    pipeline = Pipeline(
        GatedEngine(compile_views(sql), "interpreter"), Instruments([first]), [StrategyDefinition(Quoter)]
    )
    rows: list[Any] = []
    pipeline.engine.observe(order=rows.append)
    unit, second = 10**8, first.with_steps(Decimal("0.05"), Decimal("0.01"))
    actions = [
        (Action.STATE, 2, 0, BookState.VALID), (Action.LEVEL, 0, unit, unit),
        (Action.INSTRUMENT, 2, second.tick_units, second.lot_units), (Action.LEVEL, 0, unit + 1, unit),
        (Action.INSTRUMENT, 2, first.tick_units, first.lot_units), (Action.LEVEL, 0, unit + 2, unit),
    ]  # fmt: skip
    events = np.zeros(len(actions), EVENT)
    for time, (row, (action, side, price, volume)) in enumerate(zip(events, actions, strict=True), 1):
        row["action"], row["side"], row["price"], row["volume"] = action, side, price, volume
        row["receive_time"], row["flags"] = time, 1
    pipeline.start()
    pipeline.apply(events)
    assert [row["status"] for row in rows] == ["refused", "resting", "refused"]
    assert "not a multiple of the tick 0.5" in rows[0]["reason"]
    assert pipeline.instruments[0].tick == Decimal("0.5")
