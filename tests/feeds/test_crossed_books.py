"""Books that stay crossed: found by the times of messages, and the same wherever a source is read."""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_support import Driven

from orderbook.backtesting.sources import run_instruments, source_specs
from orderbook.core.errors import Problems
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.exchanges.okx import Okx
from orderbook.feeds.live.session import Session
from orderbook.feeds.merge import Merger, read_slices
from orderbook.feeds.raw_log import InstrumentText, Line
from orderbook.feeds.recording.capture_files import CaptureHead
from orderbook.feeds.recording.capture_replay import CaptureSessions
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.market.crossed_books import CrossedWatch
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.market.instruments import Instrument, Instruments

SECOND = 10**9
INSTRUMENTS = Instruments(Instrument("V", name, name, Decimal(1), Decimal(1)) for name in ("A", "B"))
LIMIT = 5


def event(
    instrument: int, action: Action, time: int, side: int = 2, price: int = 0, volume: int = 0
) -> np.ndarray:
    found = np.zeros(1, EVENT)
    found["instrument"], found["action"], found["receive_time"] = instrument, action, time
    found["side"], found["price"], found["volume"], found["flags"] = side, price, volume, Flag.LAST
    return found


# (instrument, what, time since the last): a level near the touch, a state, or a clearing.
_LEVEL = st.tuples(st.just("level"), st.integers(0, 1), st.integers(1, 4), st.sampled_from([0, 0, 1, 2]))
_STATE = st.tuples(st.just("state"), st.sampled_from([*BookState, BookState.VALID]))
_STEP = st.tuples(st.integers(0, 1), st.one_of(_LEVEL, _LEVEL, _LEVEL, _STATE), st.integers(0, 4))
STEPS = st.lists(_STEP, max_size=60)
Step = tuple[int, tuple[Any, ...], int]
Quoted = list[tuple[str, str]]


def stream(steps: Sequence[Step]) -> list[np.ndarray]:
    """Messages, in which both books are VALID from the first on."""
    time = 100
    found = [event(i, Action.STATE, time, volume=BookState.VALID) for i in range(2)]
    for instrument, what, passed in steps:
        time += passed
        if what[0] == "state":
            found.append(event(instrument, Action.STATE, time, volume=what[1]))
        else:
            found.append(event(instrument, Action.LEVEL, time, what[1], what[2], what[3]))
    return found


def expected(messages: Sequence[np.ndarray]) -> list[tuple[int, int, int]]:
    """(messages before it, instrument, state) of every state that is to be told, by plain books."""
    books: list[dict[int, set[int]]] = [{0: set(), 1: set()} for _ in range(2)]
    states, doubted = [BookState.SYNCING] * 2, [False, False]
    since: list[int | None] = [None, None]
    told: list[tuple[int, int, int]] = []
    for place, message in enumerate(messages):
        one = message[0]
        for i in range(2):
            start = since[i]
            if start is not None and not doubted[i] and one["receive_time"] >= start + LIMIT:
                doubted[i], states[i] = True, BookState.STALE
                told.append((place, i, BookState.STALE))
        i = int(one["instrument"])
        if one["action"] == Action.STATE:
            states[i], since[i] = BookState(int(one["volume"])), None
            doubted[i] = False
        else:
            prices = books[i][int(one["side"])]
            (prices.add if one["volume"] else prices.discard)(int(one["price"]))
        bids, asks = books[i][0], books[i][1]
        if not (bids and asks and max(bids) > min(asks)):
            since[i] = None
            if doubted[i]:
                doubted[i], states[i] = False, BookState.VALID
                told.append((place + 1, i, BookState.VALID))
        elif states[i] is BookState.VALID and since[i] is None:
            since[i] = int(one["receive_time"])
    return told


def split(messages: Sequence[np.ndarray], cuts: Sequence[int]) -> Iterator[np.ndarray]:
    places = sorted({0, *(cut for cut in cuts if 0 < cut < len(messages)), len(messages)})
    for first, last in pairwise(places):
        yield np.concatenate(messages[first:last])


def watched(batches: Iterator[np.ndarray], problems: Problems | None = None) -> np.ndarray:
    watch = CrossedWatch(INSTRUMENTS, LIMIT, problems or Problems())
    return np.concatenate([*map(watch.apply, batches), watch.apply(np.empty(0, EVENT))])


@given(STEPS, st.lists(st.integers(1, 60), max_size=6))
def test_a_book_is_stale_while_it_stays_crossed(steps: Sequence[Step], cuts: Sequence[int]) -> None:
    messages, problems = stream(steps), Problems()
    found = watched(split(messages, cuts), problems)
    told, place = [], 0
    own = np.concatenate(messages)
    for row in found:
        if place < len(own) and row == own[place] and row["order_id"] == 0:
            place += 1
        else:
            told.append((place, int(row["instrument"]), int(row["volume"])))
            assert row["action"] == Action.STATE and row["flags"] == Flag.LAST
            crossed = row["volume"] == BookState.STALE
            assert row["order_id"] == (StateReason.CROSSED if crossed else StateReason.SYNCHRONISED)
            assert row["receive_time"] == own[place if crossed else place - 1]["receive_time"]
    assert place == len(own)
    # What a source says itself at that place is not said twice.
    wanted = [
        one for one in expected(messages)
        if not (one[2] == BookState.VALID and one[0] < len(own) and own[one[0]]["action"] == Action.STATE
                and own[one[0]]["instrument"] == one[1] and own[one[0]]["volume"] == BookState.VALID)
    ]  # fmt: skip
    assert sorted(told) == sorted(wanted)
    assert problems.counts.get("crossed", 0) == sum(state == BookState.STALE for *_, state in told)
    again = watched(iter([found]))
    assert (again == found).all() and len(again) == len(found)


def crossing(seconds: float) -> list[np.ndarray]:
    """A book that is crossed for so long, then valid, then crossed for a moment."""
    start, end = 100 * SECOND, 100 * SECOND + round(seconds * SECOND)
    return [
        event(0, Action.STATE, start, volume=BookState.VALID),
        event(0, Action.LEVEL, start, Side.BID, 10, 1),
        event(0, Action.LEVEL, start, Side.ASK, 9, 1),
        *(event(1, Action.LEVEL, start + k * SECOND, Side.BID, 5, k) for k in range(1, 20)),
        *(event(0, Action.LEVEL, time, Side.ASK, 9, 0) for time in [end]),
        event(0, Action.LEVEL, end + 1, Side.ASK, 9, 1),
        event(0, Action.LEVEL, end + SECOND, Side.ASK, 9, 0),
    ]


@pytest.mark.parametrize("batch", [1, 1000])
def test_every_reader_of_a_record_finds_the_same(tmp_path: Path, batch: int) -> None:
    messages = sorted(crossing(12.5), key=lambda one: int(one["receive_time"][0]))
    path = tmp_path / "record.parquet"
    with RecordWriter(path, INSTRUMENTS) as writer:
        for one in messages:
            writer.write(one)
    merged = np.concatenate(list(Merger([RecordSource([path], batch)])))
    states = merged[merged["action"] == Action.STATE]
    assert states[["volume", "order_id", "receive_time"]].tolist() == [
        (BookState.VALID, 0, 100 * SECOND),
        (BookState.STALE, StateReason.CROSSED, 105 * SECOND),
        (BookState.VALID, StateReason.SYNCHRONISED, 112 * SECOND + SECOND // 2),
    ]
    specs = source_specs([str(path)])
    slices = list(read_slices(list(enumerate(specs)), run_instruments(specs)))
    assert np.concatenate([part.events.events for part in slices]).tolist() == merged.tolist()
    sequences = np.concatenate([part.events.versions["sequence"] for part in slices])
    assert sequences.tolist() == list(range(1, len(merged) + 1))
    for limit, count in ((0, 1), (13 * SECOND, 1), (SECOND // 2, 5)):
        plain = np.concatenate(list(Merger([RecordSource([path])], limit)))
        assert np.count_nonzero(plain["action"] == Action.STATE) == count


def okx_book(
    number: int, action: str, bids: list[tuple[str, str]], asks: list[tuple[str, str]]
) -> dict[str, Any]:
    levels = [[[price, size, "0", "1"] for price, size in side] for side in (asks, bids)]
    before = -1 if action == "snapshot" else number - 1
    data = {"asks": levels[0], "bids": levels[1], "ts": "1652459225464", "seqId": number, "prevSeqId": before}
    return {"arg": {"channel": "books", "instId": "BTC-USDT"}, "action": action, "data": [data]}


OKX = Instrument.listed("okx", "BTC-USDT", Decimal("0.1"), Decimal("0.001"))


@given(st.lists(st.tuples(st.floats(0.1, 3), st.booleans(), st.booleans()), min_size=1, max_size=25))
def test_a_live_feed_loses_the_book_and_its_recording_says_the_same(
    steps: list[tuple[float, bool, bool]],
) -> None:
    now = 1000.0
    session = Session(Okx, Instruments([OKX]), [0], ExchangeOptions(), lambda: now, seed=1)
    lines: list[Line] = []
    taken = []

    def hear(frame: dict[str, Any]) -> None:
        lines.append(Line("recv", "c", round(now * 1e9), json.dumps(frame)))
        session.frame(lines[-1].payload, lines[-1].time)

    lines.append(Line("connect", "c", round(now * 1e9)))
    session.connected(lines[-1].time)
    number, since, lost = 1, None, False
    hear(okx_book(1, "snapshot", [("9", "1")], [("11", "1")]))
    assert session.books["BTC-USDT"].state is BookState.VALID
    for passed, crosses, takes in steps:
        now += passed
        number += 1
        ask = ("8", "1" if crosses else "0")
        hear(okx_book(number, "update", [], [ask]))
        time = round(now * 1e9)
        lost = lost or (since is not None and time >= since + 5 * SECOND)
        since = (time if since is None else since) if crosses else None
        if takes:
            taken.append(session.take())
        assert session.books["BTC-USDT"].state is (BookState.SYNCING if lost else BookState.VALID)
    taken.append(session.take())
    assert session.statistics.problems.counts.get("crossed", 0) == lost
    live = np.concatenate(taken)
    first = Line("session", "c", lines[0].ts, exchange="okx", instruments=[InstrumentText.of(OKX)])
    first.crossed_limit = 5 * SECOND
    played = CaptureSessions(CaptureHead((), "okx", (OKX,)))
    for line in [first, *lines]:
        played.apply(line)
    assert played.take().tolist() == live.tolist()
    # What is watched in a file stays as it is.
    again = CrossedWatch(Instruments([OKX]), 5 * SECOND, Problems()).apply(live)
    assert again.tolist() == live.tolist()


def test_a_lost_book_is_fetched_again() -> None:
    driven = Driven(Okx, [OKX])
    driven.frame(okx_book(1, "snapshot", [("9", "1")], [("11", "1")]))
    driven.frame(okx_book(2, "update", [("12", "1")], []))
    driven.now += 4.9
    driven.frame(okx_book(3, "update", [("8", "1")], []))
    assert driven.state("BTC-USDT") is BookState.VALID
    driven.now += 0.2
    state, clear = driven.frame("pong")
    assert state[1:] == (Action.STATE, Side.NONE, 0, BookState.SYNCING, StateReason.CROSSED)
    assert clear[1] == Action.CLEAR
    assert driven.state("BTC-USDT") is BookState.SYNCING
    asked = driven.commands(1.0)
    assert any("unsubscribe" in getattr(command, "text", "") for command in asked)
    driven.frame(okx_book(9, "snapshot", [("9", "1")], [("11", "1")]))
    assert driven.state("BTC-USDT") is BookState.VALID
    assert driven.problems["crossed"] == 1
