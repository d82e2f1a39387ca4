"""Whatever an exchange sends costs an error and a new synchronisation, never more: every exchange, fuzzed."""

import json
import logging
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hostile_samples import REFERENCE, SAMPLES
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from session_support import instrument

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, OrderbookError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.exchanges.exchange import EXCHANGES, ExchangeOptions, FeedBook, exchange
from orderbook.feeds.live import session as session_module
from orderbook.feeds.live.http_requests import instruments_of
from orderbook.feeds.live.session import Connect, Disconnect, Get, Send, Session
from orderbook.feeds.source import FeedStatistics
from orderbook.market.books import Books
from orderbook.market.events import BookState, Flag, Side
from orderbook.market.instruments import Instruments

VALID = BookState.VALID
every_exchange = pytest.mark.parametrize("name", EXCHANGES)


@pytest.fixture(autouse=True)
def _nothing_is_unexpected(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that no module foresaw fails the test; a session only counts it."""

    def unexpected(*_: Any, **__: Any) -> None:
        raise

    monkeypatch.setattr(session_module._log, "exception", unexpected)
    monkeypatch.setattr(session_module._log, "warning", lambda *_, **__: None)


class Victim:
    """A session of one product whose exchange is a good one but for the frames that `frame` is given."""

    def __init__(self, name: str) -> None:
        self.sample = SAMPLES[name]
        self.now = 1000.0
        instruments = Instruments([self.sample.instrument])
        self.session = Session(exchange(name), instruments, [0], ExchangeOptions(), lambda: self.now, seed=1)
        self.books = Books(instruments, Dictionary())
        self.recover()

    @property
    def time(self) -> int:
        return round(self.now * 1e9)

    @property
    def state(self) -> BookState:
        return self.session.books[self.sample.instrument.native_symbol].state

    def frame(self, data: bytes) -> None:
        self.session.frame(data, self.time)
        self.take()

    def answer(self, body: bytes) -> None:
        self.session.answered(self.sample.instrument.native_symbol, body, self.time)
        self.take()

    def take(self) -> np.ndarray:
        """What the session gives out is whole messages that books can take."""
        events = self.session.take()
        if len(events):
            assert events["flags"][-1] & Flag.LAST
            self.books.apply(events)
            assert self.books.state(0) is self.state
        return events

    def begin(self) -> None:
        """A new connection whose book waits for its snapshot."""
        self.session.disconnected("broken off", self.time)
        self.now = max(self.now, self.session.wake_at)
        self.session.wake(self.time)
        assert [type(command) for command in self.session.commands()] == [Connect]
        self.session.connected(self.time)
        for text in self.sample.frames:
            self.frame(text.encode())

    def recover(self) -> None:
        """A new connection, on which the exchange is good: the book is valid in the end."""
        session = self.session
        if session.open:
            session.disconnected("broken off", self.time)
        for _ in range(50):
            self.step()
            if session.open and self.state is VALID:
                break
        assert self.state is VALID, dict(session.statistics.problems.examples)
        self.take()

    def step(self) -> None:
        """Let time pass until the session wants something, and do it."""
        session = self.session
        self.now = max(self.now + 0.5, session.wake_at)
        # As heartbeats do: the exchange is not silent.
        session.resumed()
        session.wake(self.time)
        for command in session.commands():
            match command:
                case Connect():
                    session.connected(self.time)
                    for text in self.sample.frames:
                        self.frame(text.encode())
                case Disconnect(reason):
                    session.disconnected(reason, self.time)
                case Send(text) if '"SUBSCRIBE"' in text:
                    self.frame(json.dumps({"result": None, "id": json.loads(text)["id"]}).encode())
                case Send(text) if "subscribe" in text and self.state is BookState.SYNCING:
                    for good in self.sample.frames:
                        self.frame(good.encode())
                case Get():
                    self.answer(self.sample.answer.encode())


@every_exchange
def test_the_samples_are_good(name: str) -> None:
    victim = Victim(name)
    assert victim.session.statistics.malformed == 0
    assert victim.session.statistics.problems.counts.keys() <= {"old snapshot"}
    for text in victim.sample.more:
        victim.frame(text.encode())
        assert victim.session.statistics.malformed == 0, text


# What no exchange should send where it sends a number, a text or a list.
HOSTILE: list[Any] = [
    None, True, -1, 0, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 0.1, -0.0, 1e-300, 1e300, "", "0", "-1",
    "NaN", "Infinity", "1e999999999", "1e-999999999", "0e999999999", "9" * 5000, "1" + "0" * 30, "\ud800",
    "\x00", "1_000", "\u0661", " 1 ", "1.", ".5", "+1", "2026-13-45T99:99:99Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "x" * 300, [], {}, [[]], [[[]]], [None], [1, 2, 3, 4, 5, 6, 7], {"": None},
]  # fmt: skip
_plain = st.sampled_from(HOSTILE) | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
json_values = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def widened(value: Any) -> Any:
    """With seven levels, the last of them at 6, where one is: many are read in another way than few."""
    if isinstance(value, dict):
        return {key: widened(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    plain = len(value) == 1 and {len(place) for place in places(value[0])} == {0, 1}
    return value * 7 if plain else [widened(one) for one in value]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


@st.composite
def spoiled_values(draw: st.DrawFn, texts: tuple[str, ...]) -> bytes:
    """A good text in which one or two values are others, or are gone."""
    value = json.loads(draw(st.sampled_from(texts)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(value)))
        if path and isinstance(path[-1], str) and draw(st.integers(0, 4)) == 0:
            holder = value
            for key in path[:-1]:
                holder = holder[key]
            del holder[path[-1]]
        else:
            value = replaced(value, path, draw(_plain))
    return json.dumps(value).encode()


@st.composite
def spoiled_bytes(draw: st.DrawFn, texts: tuple[str, ...]) -> bytes:
    """A good text that is cut, has other bytes, or a part of it twice."""
    data = bytearray(draw(st.sampled_from(texts)).encode())
    for _ in range(draw(st.integers(1, 3))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 20))
        piece = bytes(data[start : start + length])
        data[start : start + length] = draw(st.sampled_from([b"", piece * 2]) | st.binary(max_size=6))
    return bytes(data)


def hostile(texts: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    good = st.sampled_from([text.encode() for text in texts])
    other = json_values.map(lambda value: json.dumps(value).encode())
    values, other_bytes = spoiled_values(texts), spoiled_bytes(texts)
    return st.one_of(values, values, other_bytes, good, other, st.binary(max_size=40))


@pytest.mark.sampled(6)
@every_exchange
def test_every_hostile_value_in_every_place(name: str) -> None:
    victim = Victim(name)
    session, tried = victim.session, 0
    counts = session.statistics.problems.counts
    good = [json.loads(text) for text in (*victim.sample.frames, *victim.sample.more)]
    wide = [widened(one) for one in good if widened(one) != one]
    for value in (*good, *wide):
        for path in [place for place in places(value) if value in good or 6 in place]:
            for new in HOSTILE:
                frame, late = json.dumps(replaced(value, path, new)).encode(), counts["late message"]
                victim.frame(frame)
                if counts["late message"] > late and not session.closing:
                    # Its number was passed; on a new connection it is the next.
                    victim.recover()
                    victim.frame(frame)
                tried += 1
                if session.closing or victim.state is not VALID:
                    victim.recover()
    print(f"{name}: {tried} frames, {dict(counts)}")
    assert tried > 200 and session.statistics.malformed > 0


@every_exchange
@examples(5)
@given(data=st.data())
def test_hostile_frames(name: str, data: st.DataObject) -> None:
    victim = Victim(name)
    texts = victim.sample.frames + victim.sample.more
    malformed = victim.session.statistics.malformed
    frames = data.draw(st.lists(hostile(texts), min_size=1, max_size=8))
    for frame in frames:
        if data.draw(st.integers(0, 4)) == 0:
            victim.step()
        victim.frame(frame)
    assert victim.session.statistics.malformed <= malformed + 2 * len(frames)
    victim.recover()


@every_exchange
def test_every_hostile_value_in_reference_data(name: str) -> None:
    """One clear error, or instruments."""
    kind, product = exchange(name), SAMPLES[name].instrument.native_symbol
    assert instruments_of(kind, [product], [REFERENCE[name].encode()])
    value = json.loads(REFERENCE[name])
    bodies = [json.dumps(replaced(value, path, new)).encode() for path in places(value) for new in HOSTILE]
    refused: list[str] = []
    for body in (*bodies, b"", b"[" * 100_000, b'{"a":' * 100_000, b'{"a":"\xff"}'):
        try:
            assert instruments_of(kind, [product], [body])
        except OrderbookError as error:
            refused.append(str(error))
    assert len(refused) > len(HOSTILE)
    assert not any("\n" in error or len(error) > 6000 for error in refused)


@pytest.mark.parametrize("name", [name for name in EXCHANGES if exchange(name).snapshots == "request"])
def test_every_hostile_value_in_answers(name: str) -> None:
    victim = Victim(name)
    value = json.loads(victim.sample.answer)
    for path in places(value):
        for new in HOSTILE:
            victim.begin()
            victim.answer(json.dumps(replaced(value, path, new)).encode())
    victim.recover()


@pytest.mark.parametrize("name", [name for name in EXCHANGES if exchange(name).snapshots == "request"])
@examples(5)
@given(data=st.data())
def test_hostile_answers(name: str, data: st.DataObject) -> None:
    victim = Victim(name)
    victim.begin()
    texts = (victim.sample.answer, *victim.sample.frames)
    for _ in range(3):
        victim.answer(data.draw(hostile(texts)))
    victim.recover()


def monsters(name: str) -> list[bytes]:
    """Frames of a few megabytes that are deep, long, or numbers that take for ever to write out."""
    good = SAMPLES[name].frames[-1].encode()
    level = good.replace(b"100.5", b"1e999999999").replace(b"100.0", b"1e-999999999")
    return [
        b"[" * 2_000_000,
        b'{"a":' * 500_000,
        b"[" * 100_000 + b"]" * 100_000,
        good[:-1] + b',"extra":' + b"[" * 1_000_000,
        good.replace(b"1", b"9" * 1_000_000, 1),
        good.replace(b"0", b"0" * 1_000_000),
        b'"' + b"x" * 4_000_000 + b'"',
        b"\xff" * 4_000_000,
        b" " * (exchange(name).largest_frame + 1),
        level,
    ]


@every_exchange
def test_monsters(name: str) -> None:
    victim = Victim(name)
    for frame in monsters(name):
        if victim.session.closing or victim.state is not VALID:
            victim.recover()
        errors = sum(victim.session.statistics.problems.counts.values())
        tracemalloc.start()
        victim.frame(frame)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10 * len(frame) + 4_000_000
        assert sum(victim.session.statistics.problems.counts.values()) <= errors + 2
        assert victim.session.statistics.problems.report()
    assert max(len(line) for line in victim.session.statistics.problems.report()) < 1500
    assert victim.session.statistics.problems.counts["malformed JSON"] >= 3
    victim.recover()


@pytest.mark.sampled(6)
@every_exchange
def test_what_is_remembered_of_hostile_frames_is_bounded(name: str, caplog: pytest.LogCaptureFixture) -> None:
    # What the test's own log keeps is no memory of the feed's.
    caplog.set_level(logging.CRITICAL, "feeds")
    victim = Victim(name)
    texts = (*victim.sample.frames, *victim.sample.more)
    product = victim.sample.instrument.native_symbol

    def attack(first: int, count: int) -> None:
        for number in range(first, first + count):
            for text in texts:
                victim.frame(text.replace(product, f"P{number}").encode())
                victim.frame(text.replace('"', f'"{number}', 1).encode())
                for key in ("chanId", "id", "U", "trade_id"):
                    victim.frame(text.replace(f'"{key}":', f'"{key}":{number}').encode())
            if victim.session.closing or victim.state is not VALID:
                victim.recover()

    # Until books that are watched for being crossed have been followed once; 2,000 events may wait for it.
    attack(0, 200)
    tracemalloc.start()
    attack(200, 100)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 500_000
    assert len(victim.session.statistics.problems.counts) < 30


@pytest.mark.parametrize("name", ["bitfinex", "bitfinex_l3"])
def test_channels_that_nobody_asked_for_end_the_connection(name: str) -> None:
    victim = Victim(name)
    frame = '{"event":"subscribed","channel":"%s","chanId":%d,"symbol":"tBTCUSD"}'
    for number in range(10, 1100):
        victim.frame((frame % ("book" if number % 2 else "ticker", number)).encode())
    assert victim.session.closing
    assert victim.session.statistics.problems.counts["unknown channel"] == 1
    victim.recover()


_texts = st.sampled_from(
    [*(one for one in HOSTILE if isinstance(one, str)), "1\n2", "1\n", "\n", "1e1", "0.5"]
)
_numbers = st.decimals(0, 10**10, places=8).map(lambda number: f"{number:f}")


@given(st.lists(st.tuples(_texts | _numbers, _texts | _numbers), min_size=1, max_size=3))
def test_many_levels_are_read_as_few(levels: list[tuple[str, str]]) -> None:
    """Whatever the texts are: the same events, or both ways refuse them."""
    instruments = Instruments([instrument("x", "X", "0.00000001")])
    found: list[list[tuple[int, ...]] | None] = []
    for wide in (False, True):
        events = EventWriter()
        book = FeedBook(instruments, 0, events, FeedStatistics())
        book.begin(1, 2, 3)
        try:
            for part in [levels * 8] if wide else [[level] for level in levels * 8]:
                book.levels(Side.BID, part)
            book.end()
            found.append(events.take().tolist())
        except (DataError, ValueError):
            found.append(None)
    assert found[0] == found[1]
