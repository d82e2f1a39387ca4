"""NASDAQ ITCH: files written by the specification read back as events and as the right books."""

import gzip
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import itch_writer as itch
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from plain_book import PlainBook, messages, read

from benchmarks.itch_day import write_day
from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.files.itch import ItchSource
from orderbook.feeds.files.itch_format import mpid_number, mpid_of
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source, open_sources
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason

NAME = "01302019.NASDAQ_ITCH50"
MIDNIGHT = 1_548_824_400_000_000_000  # 2019-01-30 00:00 in New York, UTC-5
SYMBOLS = {1: "AAPL", 2: "MSFT", 7: "ZVZZT"}
HEAD = [
    itch.system_event(1, b"O"),
    *(itch.stock_directory(locate, 2, symbol) for locate, symbol in SYMBOLS.items()),
    *(itch.trading_action(locate, 3, symbol, b"T") for locate, symbol in SYMBOLS.items()),
    itch.system_event(4, b"S"),
]


def written(folder: Path, *body: bytes, head: list[bytes] = HEAD, name: str = NAME) -> Path:
    path = folder / name
    path.write_bytes(itch.framed(*head, *body))
    return path


def until_error(source: ItchSource) -> tuple[np.ndarray, str]:
    """The events, and the error that ended them ("" for none)."""
    batches: list[np.ndarray] = [np.empty(0, EVENT)]
    try:
        batches.extend(source)
    except SourceError as error:
        return np.concatenate(batches), str(error)
    return np.concatenate(batches), ""


def body_of(source: ItchSource, head: list[bytes] = HEAD) -> list[tuple[int, ...]]:
    """(action, side, order_id, price, volume, flags) of the events after the head's."""
    events = read(source)
    events = events[events["sequence"] > len(head)]
    found: list[tuple[int, ...]] = events[["action", "side", "order_id", "price", "volume", "flags"]].tolist()
    return found


def test_every_message_type_by_hand(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        itch.add(1, 10, 100, b"B", 500, "AAPL", 1_500_000),
        itch.add(1, 11, 101, b"S", 300, "AAPL", 1_500_100, "GSCO"),
        *itch.without_effect(1, 12, "AAPL"),
        itch.executed(1, 13, 100, 200, 9001),
        itch.executed_with_price(1, 14, 101, 100, 9002, b"Y", 1_500_050),
        itch.executed_with_price(1, 15, 101, 50, 9003, b"N", 1_500_050),
        itch.cancelled(1, 16, 100, 100),
        itch.replaced(1, 17, 101, 102, 80, 1_500_200),
        itch.deleted(1, 18, 100),
        itch.trade(1, 19, 70, "AAPL", 1_500_150, 9004),
        itch.cross(1, 20, 12_345_678_901, "AAPL", 1_500_300, 9005),
        itch.cross(1, 21, 0, "AAPL", 0, 0),
        itch.broken_trade(1, 22, 9004),
        itch.executed(1, 23, 102, 80, 9006),
    )
    source = ItchSource(path)
    bid, ask, none = Side.BID, Side.ASK, Side.NONE
    assert body_of(source) == [
        (Action.ADD, bid, 100, 1_500_000, 500, 1),
        (Action.ADD, ask, 101, 1_500_100, 300, 1),
        (Action.EXECUTE, bid, 100, 1_500_000, 200, 0),
        (Action.TRADE, ask, 9001, 1_500_000, 200, 1),
        (Action.EXECUTE, ask, 101, 1_500_100, 100, 0),
        (Action.TRADE, bid, 9002, 1_500_050, 100, 1),
        (Action.EXECUTE, ask, 101, 1_500_100, 50, 1),
        (Action.REDUCE, bid, 100, 1_500_000, 100, 1),
        (Action.DELETE, ask, 101, 1_500_100, 150, Flag.REPLACED),
        (Action.ADD, ask, 102, 1_500_200, 80, 1),
        (Action.DELETE, bid, 100, 1_500_000, 200, 1),
        (Action.TRADE, none, 9004, 1_500_150, 70, 1),
        (Action.TRADE, none, 9005, 1_500_300, 12_345_678_901, 1),
        (Action.EXECUTE, ask, 102, 1_500_200, 80, 0),
        (Action.TRADE, bid, 9006, 1_500_200, 80, 1),
    ]
    assert source.problems.report() == []
    assert source.counts == {"broken trades": 1, "executions not printed": 1, "crosses without volume": 1}
    assert source.progress == 1.0


def test_times_numbers_and_instruments(tmp_path: Path) -> None:
    path = written(tmp_path, itch.add(7, 34_200_000_000_005, 2**40, b"S", 1, "ZVZZT", 4_000_000_000))
    source = ItchSource(path)
    assert [(i.venue, i.symbol, i.tick, i.lot) for i in source.instruments] == [
        ("nasdaq", symbol, Decimal("0.0001"), Decimal(1)) for symbol in SYMBOLS.values()
    ]
    event = read(source)[-1]
    assert event["exchange_time"] == event["receive_time"] == MIDNIGHT + 34_200_000_000_005
    assert event["sequence"] == len(HEAD) + 1
    assert (event["instrument"], event["price"], event["order_id"]) == (2, 4_000_000_000, 2**40)


def test_attribution_stays_with_an_order_that_is_replaced(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        itch.add(1, 10, 1, b"B", 5, "AAPL", 100, "GSCO"),
        itch.replaced(1, 11, 1, 2, 6, 101),
        itch.replaced(1, 12, 2, 3, 7, 102),
        itch.add(1, 13, 4, b"S", 5, "AAPL", 200),
    )
    events = read(ItchSource(path))
    adds = events[events["action"] == Action.ADD]
    number = mpid_number("GSCO")
    assert adds["broker_id"].tolist() == [number, number, number, 0]
    assert number == 0x4753434F
    assert [mpid_of(n) for n in (number, mpid_number("AB"), 0)] == ["GSCO", "AB", ""]


def test_states_follow_halts_and_the_day(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        itch.system_event(5, b"Q"),
        itch.trading_action(1, 10, "AAPL", b"H"),
        itch.trading_action(1, 11, "AAPL", b"P"),
        itch.trading_action(1, 12, "AAPL", b"Q"),
        itch.trading_action(1, 13, "AAPL", b"T"),
        itch.operational_halt(2, 14, "MSFT", b"B", b"H"),  # at another market
        itch.operational_halt(2, 15, "MSFT", b"Q", b"H"),
        itch.trading_action(2, 16, "MSFT", b"T"),
        itch.operational_halt(2, 17, "MSFT", b"Q", b"T"),
        itch.trading_action(7, 18, "ZVZZT", b"H"),
        itch.system_event(19, b"M"),
        itch.system_event(20, b"E"),
        itch.system_event(21, b"C"),
        head=HEAD,
    )
    events = read(ItchSource(path))
    start, events = events[events["sequence"] == 1], events[events["sequence"] > 1]
    assert start["action"].tolist() == [Action.STATE, Action.CLEAR] * 3
    assert start["flags"].tolist() == [0] * 5 + [1]
    valid, stale = BookState.VALID, BookState.STALE
    end = events[events["sequence"] == events["sequence"][-1]]
    assert end["action"].tolist() == [Action.STATE, Action.CLEAR] * 3
    assert end["instrument"].tolist() == [0, 0, 1, 1, 2, 2]
    assert end["volume"].tolist() == [0] * 6
    states = events[: -len(end)]
    assert set(states["action"].tolist()) == {Action.STATE}
    times = states["exchange_time"] - MIDNIGHT
    found = states[["instrument", "volume", "order_id"]].tolist()
    assert list(zip(times.tolist(), found, strict=True)) == [
        (3, (0, valid, StateReason.SYNCHRONISED)),
        (3, (1, valid, StateReason.SYNCHRONISED)),
        (3, (2, valid, StateReason.SYNCHRONISED)),
        (10, (0, stale, StateReason.HALTED)),
        (12, (0, stale, StateReason.AUCTION)),
        (13, (0, valid, StateReason.SYNCHRONISED)),
        (15, (1, stale, StateReason.HALTED)),
        (17, (1, valid, StateReason.SYNCHRONISED)),
        (18, (2, stale, StateReason.HALTED)),
        (20, (0, stale, StateReason.CLOSED)),
        (20, (1, stale, StateReason.CLOSED)),
    ]


def test_a_stock_that_was_not_released_does_not_become_valid(tmp_path: Path) -> None:
    head = [itch.system_event(1, b"O"), itch.stock_directory(1, 2, "AAPL")]
    path = written(tmp_path, itch.add(1, 10, 1, b"B", 5, "AAPL", 100), head=head)
    assert not (read(ItchSource(path))["volume"] == BookState.VALID).any()


@dataclass
class Market:
    """A market that writes ITCH as it goes, with its own books in plain dicts."""

    body: list[bytes] = field(default_factory=list)
    orders: dict[int, tuple[int, bytes, int, int]] = field(default_factory=dict)
    trades: list[tuple[int, int, int]] = field(default_factory=list)
    latest: int = 0
    time: int = 10

    def step(self, choice: int, place: int, shares: int, price: int) -> None:
        self.time += 1
        if choice <= 2 or not self.orders:
            locate = (1, 2, 7)[place % 3]
            side = b"BS"[place % 2 : place % 2 + 1]
            self.latest += 1 + place % 5
            mpid = "ABCD" if choice == 2 else ""
            fields = (self.latest, side, shares, SYMBOLS[locate], price, mpid)
            self.body.append(itch.add(locate, self.time, *fields))
            self.orders[self.latest] = (locate, side, shares, price)
            return
        reference = sorted(self.orders)[place % len(self.orders)]
        locate, side, left, old_price = self.orders.pop(reference)
        taken = 1 + shares % left
        if choice in (3, 4):
            if choice == 3:
                self.body.append(itch.executed(locate, self.time, reference, taken, self.time))
            else:
                taken_at = (reference, taken, self.time, b"Y", price)
                self.body.append(itch.executed_with_price(locate, self.time, *taken_at))
            self.trades.append((locate, old_price if choice == 3 else price, taken))
        elif choice == 5:
            self.body.append(itch.cancelled(locate, self.time, reference, taken))
        elif choice == 6:
            self.body.append(itch.deleted(locate, self.time, reference))
            return
        elif choice == 7:
            self.latest += 1
            self.body.append(itch.replaced(locate, self.time, reference, self.latest, shares, price))
            self.orders[self.latest] = (locate, side, shares, price)
            return
        else:
            self.body.extend(itch.without_effect(locate, self.time, SYMBOLS[locate]))
            taken = 0
        if left > taken:
            self.orders[reference] = (locate, side, left - taken, old_price)

    def levels(self, locate: int, side: bytes) -> dict[int, int]:
        totals: Counter[int] = Counter()
        for own, own_side, shares, price in self.orders.values():
            if (own, own_side) == (locate, side):
                totals[price] += shares
        return dict(totals)


steps = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 1000), st.integers(1, 900), st.integers(1, 9)), max_size=80
)


@given(steps=steps, batch_size=st.sampled_from([1, 2, 3, 7, 10_000]))
def test_books_equal_the_market_that_wrote_the_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, int]], batch_size: int
) -> None:
    market = Market()
    for step in steps:
        market.step(*step)
    source = ItchSource(written(tmp_path_factory.mktemp("itch"), *market.body), batch_size=batch_size)
    plain = [PlainBook() for _ in SYMBOLS]
    books = Books(source.instruments, Dictionary())
    trades = []
    for events in source:
        assert len(events) <= max(batch_size, 2) or events[0]["sequence"] == 1
        books.apply(events.copy())
        for message in messages([events]):
            assert len(set(message["sequence"].tolist())) == 1
            for event in message:
                plain[event["instrument"]].apply(event)
                if event["action"] == Action.TRADE:
                    locate = list(SYMBOLS)[event["instrument"]]
                    trades.append((locate, int(event["price"]), int(event["volume"])))
    assert trades == market.trades
    assert books.problems().keys() <= {"crossed"}
    assert source.problems.report() == []
    for index, locate in enumerate(SYMBOLS):
        for side, sign in ((Side.BID, b"B"), (Side.ASK, b"S")):
            expected = market.levels(locate, sign)
            assert plain[index].levels[side] == expected
            found = books.levels(index, side, 1000)
            assert dict(zip(found["price"].tolist(), found["volume"].tolist(), strict=True)) == expected


def test_a_table_of_many_orders_grows_and_is_reused(tmp_path: Path) -> None:
    """More orders than a chunk of memory or a batch holds, then none, by each way of leaving."""
    count = 40_000
    body = []
    for k in range(3):
        for i in range(count):
            body.append(itch.add(1, 10, 1 + i + count * k, b"B", 5, "AAPL", 100 + i))
        for i in reversed(range(count)):
            number = 1 + i + count * k
            leaving = (
                itch.deleted(1, 10, number),
                itch.cancelled(1, 10, number, 5),
                itch.executed(1, 10, number, 5, number),
            )
            body.append(leaving[k])
    source = ItchSource(written(tmp_path, *body))
    events = read(source)
    left = events[np.isin(events["action"], [Action.DELETE, Action.REDUCE, Action.EXECUTE])]
    assert left["price"].tolist() == [100 + i for i in reversed(range(count))] * 3
    assert source.problems.report() == []


def test_chosen_symbols_give_the_events_of_the_whole(tmp_path: Path) -> None:
    market = Market()
    draws = np.random.default_rng(5).integers(0, 1000, (400, 3)).tolist()
    for choice, (place, shares, price) in zip([0, 1, 3, 5, 6, 7, 8, 4] * 50, draws, strict=True):
        market.step(choice, place, 1 + shares, 1 + price % 9)
    path = written(tmp_path, *market.body, itch.system_event(10**6, b"C"))
    whole = read(ItchSource(path))
    some = open_source(f"itch:{path}?symbols=ZVZZT,AAPL")
    assert isinstance(some, ItchSource)
    assert [i.symbol for i in some.instruments] == ["AAPL", "ZVZZT"]
    events = read(some)
    assert some.problems.report() == []
    kept = whole[whole["instrument"] != 1]
    kept["instrument"] //= 2
    assert np.array_equal(events, kept)


@pytest.mark.parametrize(
    ("name", "options", "midnight"),
    [
        ("S013019-v50.txt", "", MIDNIGHT),
        ("20190130.BX_ITCH_50", "", MIDNIGHT),
        ("07012019.NASDAQ_ITCH50.part", "", 1_561_953_600_000_000_000),
        ("any.bin", "?date=2019-01-30", MIDNIGHT),
        (NAME, "?date=2019-07-01&symbols=AAPL", 1_561_953_600_000_000_000),
    ],
)
def test_the_day_is_in_the_name_or_stated(tmp_path: Path, name: str, options: str, midnight: int) -> None:
    path = written(tmp_path, itch.add(1, 10, 1, b"B", 5, "AAPL", 100), name=name)
    source = open_source(f"itch:{path}{options}")
    assert isinstance(source, ItchSource)
    assert read(source)[-1]["exchange_time"] == midnight + 10


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files_are_found_by_content(tmp_path: Path, compress: object) -> None:
    assert callable(compress)
    path = written(tmp_path, itch.add(1, 10, 1, b"B", 5, "AAPL", 100))
    plain = read(ItchSource(path))
    path.write_bytes(compress(path.read_bytes()))
    source = open_source(str(path))
    assert isinstance(source, ItchSource)
    assert source.name == f"itch:{path}"
    for _ in range(2):
        assert np.array_equal(read(source), plain)


def test_what_cannot_be_opened_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, itch.add(1, 10, 1, b"B", 5, "AAPL", 100))
    nameless = path.rename(tmp_path / "unnamed")
    headless = written(tmp_path, itch.add(1, 10, 1, b"B", 5, "AAPL", 100), head=[itch.system_event(1, b"O")])
    impossible = written(tmp_path, name="13322019.NASDAQ_ITCH50")
    for text, message in (
        (f"itch:{nameless}", r"write the day behind the path: \?date=2019-01-30"),
        (f"itch:{nameless}?date=30.1.2019", "the date is none"),
        (f"itch:{impossible}", "the date is none"),
        (f"itch:{nameless}?date=2019-01-30&symbols=AAPL,NONE,ABC", "no stock ABC, NONE in the directory"),
        (f"itch:{nameless}?day=2019-01-30", "no option is called 'day'"),
        (f"itch:{headless}", "no stock directory before its first order"),
        (f"itch:{tmp_path}/absent?date=2019-01-30", "No such file"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            open_source(text)
        assert "\n" not in str(error.value)


def test_stocks_without_a_directory_are_counted_and_skipped(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        itch.add(1, 10, 1, b"B", 5, "AAPL", 100),
        itch.add(9, 10, 2, b"B", 5, "LATE", 100),
        itch.stock_directory(9, 11, "LATE"),
        itch.deleted(9, 12, 2),
        itch.deleted(1, 12, 1),
    )
    source = ItchSource(path)
    assert [event[0] for event in body_of(source)] == [Action.ADD, Action.DELETE]
    assert source.problems.counts == {"locate without directory": 3}
    assert source.problems.examples["locate without directory"][0].startswith(f"message {len(HEAD) + 2}: ")


def test_bad_content_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        b"z" + bytes(17),  # a type that does not exist
        b"a",
        itch.add(1, 10, 1, b"?", 5, "AAPL", 100),
        itch.executed(1, 10, 55, 5, 1),
        itch.executed_with_price(1, 10, 55, 5, 1, b"Y", 3),
        itch.cancelled(1, 10, 55, 5),
        itch.deleted(1, 10, 55),
        itch.replaced(1, 10, 55, 56, 5, 5),
        itch.deleted(1, 10, 56),
    )
    source = ItchSource(path)
    for _ in range(2):
        assert body_of(source) == []
        assert source.problems.counts == {
            "unknown message type": 2,
            "malformed message": 1,
            "unknown order": 6,
        }
        assert len(source.problems.examples["unknown order"]) == 5


def test_what_contradicts_a_book_is_left_for_it_to_count(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        itch.add(1, 10, 1, b"B", 5, "AAPL", 100),
        itch.add(1, 10, 1, b"S", 7, "AAPL", 200),
        itch.add(1, 10, 2, b"S", 0, "AAPL", 200),
        itch.cancelled(1, 10, 1, 6),
    )
    source = ItchSource(path)
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    assert books.problems() == {"bad_volume": 1, "duplicate_order": 1, "beyond_resting": 1}
    assert books.best(0) == (None, None)


@given(cut=st.integers(1, 400))
def test_a_cut_file_gives_its_whole_messages_and_then_an_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    body = [itch.add(1, 10 + i, 1 + i, b"B", 5, "AAPL", 100) for i in range(12)]
    path = written(tmp_path_factory.mktemp("itch"), *body)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    whole, partial = divmod(cut, 38)
    events, error = until_error(ItchSource(path))
    adds = events["order_id"][events["action"] == Action.ADD].tolist()
    assert adds == list(range(1, 13 - whole - bool(partial)))
    assert ("truncated within a message at byte" in error) == bool(partial)
    assert bool(error) == bool(partial)


def test_a_cut_archive_says_so(tmp_path: Path) -> None:
    body = [itch.add(1, i, 1 + i, b"B", 1 + i % 777, "AAPL", 100 + i) for i in range(50_000)]
    path = written(tmp_path, *body)
    data = gzip.compress(path.read_bytes())
    path.write_bytes(data[: len(data) // 2])
    events, error = until_error(ItchSource(path))
    assert 10_000 < len(events) < 50_000
    number = int(events["sequence"][-1])
    assert f"the compressed data has no end, after message {number}; everything before it was read" in error


def test_a_wrong_length_ends_the_file_with_its_place(tmp_path: Path) -> None:
    good = itch.add(1, 10, 1, b"B", 5, "AAPL", 100)
    path = written(tmp_path, good, good[:-1], good)
    place = len(itch.framed(*HEAD, good))
    events, error = until_error(ItchSource(path))
    assert f"corrupt at byte {place} of its content: a message of type A has 36 bytes, not 35" in error
    assert (events["action"] == Action.ADD).sum() == 1


def test_a_frame_of_no_length_ends_the_session(tmp_path: Path) -> None:
    good = itch.add(1, 10, 1, b"B", 5, "AAPL", 100)
    path = written(tmp_path, good, b"")
    assert len(body_of(ItchSource(path))) == 1
    path = written(tmp_path, good, b"", good)
    with pytest.raises(SourceError, match="bytes follow the end of the session"):
        read(ItchSource(path))


@given(noise=st.binary(max_size=300))
def test_noise_is_an_error_or_unknown_messages(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("itch") / NAME
    path.write_bytes(itch.framed(*HEAD) + noise)
    source = ItchSource(path)
    events, error = until_error(source)
    Books(source.instruments, Dictionary()).apply(events)
    assert "\n" not in error


def test_the_next_day_begins_with_empty_books(tmp_path: Path) -> None:
    for day, reference in (("30", 5), ("31", 6)):
        added = itch.add(1, 10, reference, b"B", 100, "AAPL", 1_000_000)
        written(tmp_path, added, name=f"01{day}2019.NASDAQ_ITCH50")
    book = PlainBook()
    for events in Merger(open_sources([f"itch:{tmp_path}/*"])):
        assert isinstance(events, np.ndarray)
        book.apply_all(events[events["instrument"] == 0])
    assert list(book.orders) == [6] and book.state is BookState.VALID


@pytest.mark.parametrize("seed", [1, 2])
def test_a_generated_day(tmp_path: Path, seed: int) -> None:
    path, counts = write_day(tmp_path, 80, 20_000, seed)
    assert sum(counts.values()) == 20_000
    assert all(counts.values())
    source = ItchSource(path)
    books = Books(source.instruments, Dictionary())
    plain = [PlainBook() for _ in source.instruments]
    for events in source:
        books.apply(events)
        for event in events:
            plain[event["instrument"]].apply(event)
    assert source.problems.report() == []
    assert books.problems() == {}
    for number, book in enumerate(plain):
        for side in (Side.BID, Side.ASK):
            levels = books.levels(number, side, 1000)
            assert levels[["price", "volume"]].tolist() == book.best(side)
