"""Databento DBN: records of its own library, against books kept by hand."""

import gzip
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import databento_dbn as dbn
import numpy as np
import pytest
import zstandard
from databento_files import ALWAYS, DAY, member, metadata, until_error
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from plain_book import PlainBook, messages, read

from orderbook.core.changes import Dictionary
from orderbook.core.errors import SourceError
from orderbook.feeds.files.databento import DatabentoSource
from orderbook.feeds.source_kinds import open_source, open_sources
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Flag, Side, StateReason

LAST, SNAPSHOT = 128, 32
UNDEFINED = 2**63 - 1
BID, ASK, NONE = dbn.Side.BID, dbn.Side.ASK, dbn.Side.NONE
ADD, CANCEL, MODIFY = dbn.Action.ADD, dbn.Action.CANCEL, dbn.Action.MODIFY
CLEAR, TRADE, FILL = dbn.Action.CLEAR, dbn.Action.TRADE, dbn.Action.FILL
CENT = 10_000_000


def order(
    action: Any,
    order_id: int = 0,
    side: Any = BID,
    price: int = UNDEFINED,
    size: int = 0,
    flags: int = LAST,
    *,
    instrument: int = 7,
    publisher: int = 1,
    time: int = DAY,
) -> Any:
    return dbn.MBOMsg(
        publisher, instrument, time, order_id, price, size, action, side, time + 5, flags=flags, sequence=3
    )


def written(folder: Path, *records: Any, schema: Any = dbn.Schema.MBO, name: str = "file.dbn") -> Path:
    path = folder / name
    path.write_bytes(metadata(schema) + b"".join(map(bytes, records)))
    return path


def brief(source: DatabentoSource) -> list[tuple[int, ...]]:
    """(action, side, order_id, price in ticks, volume, flags) of all events."""
    events = in_ticks(source, read(source))
    found: list[tuple[int, ...]] = events[["action", "side", "order_id", "price", "volume", "flags"]].tolist()
    return found


def in_ticks(source: DatabentoSource, events: np.ndarray) -> np.ndarray:
    """The events with prices in ticks."""
    steps = np.array([one.tick_units for one in source.instruments])
    numbers: NDArray[np.int32] = events["instrument"]
    prices: NDArray[np.int64] = events["price"]
    units = steps.take(numbers)
    assert not (prices % units).any()
    events = events.copy()
    events["price"] = prices // units
    return events


VALID = (Action.STATE, Side.NONE, StateReason.SYNCHRONISED, 0, BookState.VALID, Flag.LAST)


def test_orders_by_hand(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        order(CANCEL, 1, BID, 100 * CENT, 5),  # from before the file
        order(CLEAR, side=NONE, flags=SNAPSHOT),
        order(ADD, 2**63 + 1, BID, 100 * CENT, 5, SNAPSHOT | LAST),
        order(ADD, 2, ASK, -3 * CENT, 4),
        order(TRADE, 0, ASK, 100 * CENT, 2, 0),
        order(FILL, 2**63 + 1, BID, 100 * CENT, 2, 0),
        order(CANCEL, 2**63 + 1, BID, 100 * CENT, 2),
        order(MODIFY, 2, ASK, 102 * CENT, 9),
        order(MODIFY, 3, ASK, 103 * CENT, 1),  # not known: as if new
        order(CANCEL, 3, ASK, 103 * CENT, 1),
        order(MODIFY, 3, ASK, 104 * CENT, 2),  # not known any more
        order(dbn.Action.NONE, flags=LAST),
    )
    source = DatabentoSource(path, tick="0.01")
    first = 1 - 2**63
    assert brief(source) == [
        (Action.CLEAR, Side.NONE, 0, 0, 0, Flag.SNAPSHOT),
        (Action.ADD, Side.BID, first, 100, 5, Flag.SNAPSHOT),
        (*VALID[:5], Flag.SNAPSHOT | Flag.LAST),
        (Action.ADD, Side.ASK, 2, -3, 4, Flag.LAST),
        (Action.TRADE, Side.ASK, 0, 100, 2, 0),
        (Action.REDUCE, Side.BID, first, 100, 2, Flag.LAST),
        (Action.MODIFY, Side.ASK, 2, 102, 9, Flag.LAST),
        (Action.ADD, Side.ASK, 3, 103, 1, Flag.LAST),
        (Action.REDUCE, Side.ASK, 3, 103, 1, Flag.LAST),
        (Action.ADD, Side.ASK, 3, 104, 2, Flag.LAST),
    ]
    assert source.problems.report() == []
    assert source.counts == {"records of orders from before the file": 1}
    events = read(source)
    assert set(events[["exchange_time", "receive_time", "sequence", "instrument"]].tolist()) == {
        (DAY, DAY + 5, 3, 0)
    }
    assert [(i.venue, i.symbol, i.tick, i.lot) for i in source.instruments] == [
        ("test", "ABC", Decimal("0.01"), Decimal(1)),
        ("test", "XYZ", Decimal("0.01"), Decimal(1)),
    ]


orders = st.lists(
    st.tuples(
        st.sampled_from("AAACCMMTFR"),
        st.integers(1, 4),
        st.sampled_from([0, 1]),
        st.integers(1, 6),
        st.integers(1, 5),
        st.booleans(),
        st.sampled_from([7, 8]),
    ),
    min_size=20,
    max_size=80,
)


# Levels of both sides, and (price, volume) of the trades.
State = tuple[dict[int, int], dict[int, int], list[tuple[int, int]]]
Step = tuple[str, int, int, int, int, bool, int]
T = TypeVar("T")


class OrdersByHand:
    """The rules of MBO over plain dicts."""

    def __init__(self) -> None:
        self.orders: dict[int, tuple[int, int, int]] = {}
        self.trades: list[tuple[int, int]] = []

    def apply(self, action: str, order_id: int, side: int, price: int, size: int) -> tuple[int, int, int]:
        """Apply a record, whose side, price and size are made to fit; returns what they are."""
        old = self.orders.get(order_id)
        if action == "R":
            self.orders.clear()
        elif action == "T":
            self.trades.append((price, size))
        elif action == "C" and old:
            side, price, size = old[0], old[1], min(size, old[2])
            self.orders[order_id] = (side, price, old[2] - size)
            if old[2] == size:
                del self.orders[order_id]
        elif action == "M" and old:
            side = old[0]
            self.orders[order_id] = (side, price, size)
        elif action in "AM" and not old:
            self.orders[order_id] = (side, price, size)
        return side, price, size

    def levels(self, side: int) -> dict[int, int]:
        totals: dict[int, int] = {}
        for own, price, size in self.orders.values():
            if own == side:
                totals[price] = totals.get(price, 0) + size
        return totals


CODES = {"A": ADD, "C": CANCEL, "M": MODIFY, "T": TRADE, "F": FILL, "R": CLEAR}


@given(steps=orders, batch_size=st.sampled_from([1, 5, 1000]))
def test_books_of_orders_equal_books_by_hand_at_every_last_record(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Step],
    batch_size: int,
) -> None:
    by_hand = {7: OrdersByHand(), 8: OrdersByHand()}
    records = [order(CLEAR, side=NONE, instrument=number) for number in by_hand]
    expected: dict[int, list[State]] = {7: [], 8: []}
    for action, order_id, side, price, size, last, number in steps:
        own = by_hand[number]
        known = order_id in own.orders
        if (action == "A" and known) or (action == "C" and not known):
            continue
        side, price, size = own.apply(action, order_id, side, price, size)
        wire = (CODES[action], order_id, (BID, ASK)[side], price * CENT, size, LAST if last else 0)
        records.append(order(*wire, instrument=number))
        if last:
            expected[number].append((own.levels(0), own.levels(1), list(own.trades)))
    path = written(tmp_path_factory.mktemp("dbn"), *records)
    source = DatabentoSource(path, tick="0.01", batch_size=batch_size)
    plain = [PlainBook(), PlainBook()]
    books = Books(source.instruments, Dictionary())
    found: dict[int, list[State]] = {0: [], 1: []}
    for message in (in_ticks(source, one) for one in messages(source)):
        assert len(set(message["instrument"].tolist())) == 1
        index = int(message["instrument"][0])
        books.apply(message.copy())
        for event in message:
            plain[index].apply(event)
        book = plain[index]
        found[index].append((dict(book.levels[Side.BID]), dict(book.levels[Side.ASK]), trades_of(book)))
        for side in (Side.BID, Side.ASK):
            levels = books.levels(index, side, 100)
            pairs = zip(levels["price"].tolist(), levels["volume"].tolist(), strict=True)
            assert dict(pairs) == book.levels[side]
        assert book.state is BookState.VALID
    for index, number in enumerate(by_hand):
        # Messages that change nothing leave no trace.
        assert changes(found[index]) == changes([({}, {}, []), *expected[number]])
    assert books.problems().keys() <= {"crossed"}
    assert source.problems.counts.keys() <= {"message without end"}


def trades_of(book: PlainBook) -> list[tuple[int, int]]:
    return [(price, volume) for _, price, volume in book.trades]


def changes(states: list[T]) -> list[T]:
    return [state for place, state in enumerate(states) if not place or state != states[place - 1]]


def depth_record(levels: Any, flags: int = LAST, action: Any = ADD, kind: Any = dbn.MBP10Msg) -> Any:
    pairs = [dbn.BidAskPair(*pair) for pair in levels]
    return kind(1, 7, DAY, 5 * CENT, 2, action, BID, 0, DAY + 5, flags=flags, sequence=3, levels=pairs)


sides_of_ten = st.dictionaries(st.integers(-3, 20), st.integers(1, 5), max_size=10)


@given(states=st.lists(st.tuples(sides_of_ten, sides_of_ten, st.booleans()), min_size=1, max_size=15))
def test_books_of_levels_equal_the_ten_levels_told(
    tmp_path_factory: pytest.TempPathFactory, states: list[tuple[dict[int, int], dict[int, int], bool]]
) -> None:
    records, expected = [], []
    for bids, asks, last in states:
        pairs: list[list[int]] = [[UNDEFINED, UNDEFINED, 0, 0] for _ in range(10)]
        for side, levels in enumerate((bids, asks)):
            for pair, (price, size) in zip(pairs, sorted(levels.items(), reverse=not side), strict=False):
                pair[side], pair[2 + side] = price * CENT, size
        records.append(depth_record(pairs, LAST if last else 0))
        if last:
            expected.append({Side.BID: bids, Side.ASK: asks})
    path = written(tmp_path_factory.mktemp("dbn"), *records, schema=dbn.Schema.MBP_10)
    source = DatabentoSource(path, tick="0.01")
    book = PlainBook()
    found = []
    for message in (in_ticks(source, one) for one in messages(source)):
        before = {side: dict(levels) for side, levels in book.levels.items()}
        book.apply_all(message)
        levels = message[message["action"] == Action.LEVEL]
        # Only what changed is told, once.
        assert len(levels) == sum(
            before[side].get(price) != book.levels[side].get(price)
            for side in before
            for price in before[side].keys() | book.levels[side].keys()
        )
        found.append({side: dict(levels) for side, levels in book.levels.items()})
    if expected:
        empty: dict[Side, dict[int, int]] = {Side.BID: {}, Side.ASK: {}}
        assert changes([empty, *found]) == changes([empty, *expected])
        assert book.state is BookState.VALID
    assert source.problems.report() == []


def test_a_book_is_stale_where_it_is_doubted_until_it_is_cleared(tmp_path: Path) -> None:
    maybe_bad = 4
    path = written(
        tmp_path,
        order(CLEAR, side=NONE),
        order(ADD, 1, BID, CENT, 5, LAST | maybe_bad),
        order(ADD, 2, BID, CENT, 5),
        order(CLEAR, side=NONE),
        order(ADD, 3, BID, CENT + 1, 5),  # between ticks
        order(TRADE, 0, BID, CENT + 1, 5),
        order(CLEAR, side=NONE),
        order(ADD, 4, NONE, CENT, 5),
        order(CANCEL, 9, BID, CENT, 5),
    )
    source = DatabentoSource(path, tick="0.01")
    events = read(source)
    states = events[events["action"] == Action.STATE][["volume", "order_id"]].tolist()
    valid = (BookState.VALID, StateReason.SYNCHRONISED)
    malformed = (BookState.STALE, StateReason.MALFORMED)
    assert states == [valid, (BookState.STALE, StateReason.GAP), valid, malformed, valid, malformed]
    assert source.problems.counts == {"unusable record": 2, "unusable trade": 1, "unknown order": 1}


def test_a_venue_that_tells_its_best_orders_alone(tmp_path: Path) -> None:
    top = LAST | 64
    path = written(
        tmp_path,
        order(ADD, 1, BID, 100 * CENT, 5, top),
        order(ADD, 1, ASK, 102 * CENT, 5, top),
        order(ADD, 1, BID, 101 * CENT, 7, top),
        order(ADD, 1, ASK, UNDEFINED, 0, top),
    )
    source = DatabentoSource(path, tick="0.01")
    books = Books(source.instruments, Dictionary())
    for events in source:
        books.apply(events)
    assert books.best(0) == (101 * 10**6, None)
    assert books.state(0) is BookState.VALID


def test_another_id_begins_the_book_again(tmp_path: Path) -> None:
    path = tmp_path / "file.dbn"
    first, second, third = (date(2020, 9, day) for day in (13, 14, 15))
    days = [("ABC", first, second, 7), ("ABC", second, third, 9)]
    next_day = DAY + 86_400 * 10**9
    records = [
        order(CLEAR, side=NONE),
        order(ADD, 1, BID, CENT, 5),
        order(ADD, 2, BID, CENT, 5, instrument=9),  # not yet
        order(ADD, 3, BID, 2 * CENT, 6, 0, instrument=7),
        order(CANCEL, 1, BID, CENT, 5, instrument=9, time=next_day),
        order(CLEAR, side=NONE, instrument=9, time=next_day),
        order(ADD, 2, BID, CENT, 5, instrument=9, time=next_day),
        order(ADD, 1, BID, CENT, 5, instrument=7, time=next_day),  # no more
    ]
    path.write_bytes(metadata(dbn.Schema.MBO, days) + b"".join(map(bytes, records)))
    source = DatabentoSource(path, tick="0.01")
    assert len(source.instruments) == 1
    assert brief(source)[3:] == [
        (Action.STATE, Side.NONE, StateReason.RESET, 0, BookState.SYNCING, 0),
        (Action.CLEAR, Side.NONE, 0, 0, 0, Flag.LAST),
        (Action.CLEAR, Side.NONE, 0, 0, 0, 0),
        VALID,
        (Action.ADD, Side.BID, 2, 1, 5, Flag.LAST),
    ]
    assert source.problems.counts == {"unmapped instrument": 2, "message without end": 1}


def test_records_of_another_venue_are_left_out_of_a_book(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        order(CLEAR, side=NONE),
        order(ADD, 1, BID, CENT, 5),
        order(ADD, 1, BID, CENT, 5, publisher=2),
    )
    source = DatabentoSource(path)
    assert len(brief(source)) == 3
    assert source.problems.counts == {"second publisher": 1}


def test_status_becomes_states_also_within_a_file_of_orders(tmp_path: Path) -> None:
    states_of_trading: dict[bool | None, Any] = {
        True: dbn.TriState.YES,
        False: dbn.TriState.NO,
        None: dbn.TriState.NOT_AVAILABLE,
    }

    def status(action: Any, trading: bool | None) -> Any:
        is_trading = states_of_trading[trading]
        return dbn.StatusMsg(1, 7, DAY, DAY + 5, action=action, is_trading=is_trading)

    actions = dbn.StatusAction
    path = written(
        tmp_path,
        status(actions.PRE_OPEN, False),
        order(CLEAR, side=NONE),
        status(actions.TRADING, True),
        status(actions.HALT, None),
        order(ADD, 1, BID, CENT, 5),
        status(actions.SSR_CHANGE, None),
        status(actions.TRADING, None),
        status(actions.CLOSE, False),
    )
    events = read(DatabentoSource(path))
    states = events[events["action"] == Action.STATE][["volume", "order_id"]].tolist()
    assert states == [
        (BookState.STALE, StateReason.AUCTION),
        (BookState.VALID, StateReason.SYNCHRONISED),
        (BookState.STALE, StateReason.HALTED),
        (BookState.VALID, StateReason.SYNCHRONISED),
        (BookState.STALE, StateReason.CLOSED),
    ]


def definition(symbol: str, instrument: int, increment: int, kind: bytes = b"K", quantity: int = 0) -> bytes:
    layout = dbn.InstrumentDefMsg._dtypes
    offsets = np.dtype([(name, kind) for name, kind, *_ in layout])
    record = np.zeros(1, offsets)
    record["length"], record["rtype"] = offsets.itemsize // 4, 19
    record["instrument_id"], record["raw_symbol"] = instrument, symbol.encode()
    record["min_price_increment"] = increment
    record["instrument_class"], record["unit_of_measure_qty"] = kind, quantity
    return record.tobytes()


@pytest.mark.parametrize(
    ("kind", "quantity", "contract"),
    [
        (b"K", 0, "linear"),
        (b"F", 10**9, "linear"),
        (b"F", 50 * 10**9, "multiplier"),
        (b"C", 10**9, "multiplier"),
        (b"?", 0, "multiplier"),
    ],
)
def test_definitions_state_contracts(tmp_path: Path, kind: bytes, quantity: int, contract: str) -> None:
    path = written(tmp_path, order(CLEAR, side=NONE))
    records = definition("ABC", 3, CENT, kind, quantity)
    (tmp_path / "x.definition.dbn").write_bytes(metadata(dbn.Schema.DEFINITION) + records)
    by_symbol = {one.symbol: one.contract for one in DatabentoSource(path).instruments}
    assert by_symbol == {"ABC": contract, "XYZ": "linear"}


def test_ticks_come_from_definitions_beside_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, order(CLEAR, side=NONE), order(ADD, 1, BID, 75 * CENT, 5))
    assert [i.tick for i in DatabentoSource(path).instruments] == [Decimal("1E-8")] * 2
    beside = tmp_path / "2020.definition.dbn.zst"
    records = [("ABC", 3, 25 * CENT), ("ABC", 4, 15 * CENT), ("XYZ", 8, UNDEFINED), ("OTHER", 9, CENT)]
    content = metadata(dbn.Schema.DEFINITION) + b"".join(definition(*record) for record in records)
    beside.write_bytes(zstandard.ZstdCompressor().compress(content))
    source = DatabentoSource(path)
    assert [i.tick for i in source.instruments] == [Decimal("0.05"), Decimal("1E-8")]
    assert brief(source)[-1] == (Action.ADD, Side.BID, 1, 15, 5, Flag.LAST)
    beside.write_bytes(beside.read_bytes()[:-20])
    source = DatabentoSource(path)
    list(source)
    assert source.problems.counts == {"unreadable definitions": 1}
    source_of_definitions = DatabentoSource(written(tmp_path, name="definition.dbn"))
    assert brief(source_of_definitions) == []
    assert DatabentoSource(path, tick="0.25").instruments[0].tick == Decimal("0.25")


def test_a_file_without_mappings_explains_itself(tmp_path: Path) -> None:
    symbol = member(dbn.SType, "RAW_SYMBOL")
    mapping = dbn.SymbolMappingMsg(1, 7, DAY, symbol, "ABC", symbol, "ABC", 0, 0)
    records = [mapping, order(CLEAR, side=NONE), order(CLEAR, side=NONE, instrument=5)]
    path = tmp_path / "live.dbn"
    path.write_bytes(metadata(dbn.Schema.MBO, []) + b"".join(map(bytes, records)))
    source = DatabentoSource(path)
    assert sorted(i.symbol for i in source.instruments) == ["5", "ABC"]
    assert len(read(source)) == 4
    assert source.problems.report() == []


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_files_are_found_by_content(tmp_path: Path, compress: Any) -> None:
    path = written(tmp_path, order(CLEAR, side=NONE), name="anything")
    path.write_bytes(compress(path.read_bytes()))
    for text in (str(path), f"dbn:{path}", f"{path}?tick=0.5"):
        source = open_source(text)
        assert isinstance(source, DatabentoSource)
        for _ in range(2):
            assert len(read(source)) == 2
            assert source.progress == 1.0


@given(cut=st.integers(1, 900))
def test_a_cut_file_gives_its_whole_records_and_then_an_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("dbn")
    records = [order(ADD, i, BID, CENT, 5) for i in range(1, 20)]
    path = written(folder, *records)
    path.write_bytes(path.read_bytes()[:-cut])
    source = DatabentoSource(path)
    whole = 19 - -(-cut // 56)
    batches, error = until_error(source)
    assert [i for batch in batches for i in batch["order_id"].tolist()] == list(range(1, whole + 1))
    expected = f"truncated within a record, after record {whole}; everything" if cut % 56 else ""
    assert expected in error
    assert bool(error) == bool(expected)


def test_what_cannot_be_read_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    good = written(tmp_path, order(CLEAR, side=NONE))
    prose = tmp_path / "prose"
    prose.write_bytes(b"Once upon a time\n")
    newer = tmp_path / "newer.dbn"
    newer.write_bytes(b"DBN\x09" + good.read_bytes()[4:])
    short = tmp_path / "short.dbn"
    short.write_bytes(good.read_bytes()[:50])
    for text, message in (
        (f"dbn:{prose}", "does not begin as DBN"),
        (f"dbn:{newer}", "not readable as DBN: .*newer version"),
        (f"dbn:{short}", "truncated"),
        (f"dbn:{tmp_path}/absent", "No such file"),
        (f"dbn:{good}?tick=none", "the tick 'none' is none"),
        (f"dbn:{good}?tick=0.000000001", "the tick '0.000000001' is none"),
        (f"dbn:{good}?ticks=1", "no option is called 'ticks'"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            open_source(text)
        assert "\n" not in str(error.value)


HOUR = 3_600 * 10**9


def days(folder: Path, spans: Sequence[tuple[int, int | None]]) -> DatabentoSource:
    """Two files, the second of which has no snapshot, as one source."""
    records = [
        [order(CLEAR), order(ADD, 1, BID, 100 * CENT, 5), order(ADD, 2, ASK, 101 * CENT, 6)],
        [
            order(CANCEL, 1, BID, 100 * CENT, 5, time=DAY + HOUR),
            order(ADD, 3, BID, 99 * CENT, 7, time=DAY + HOUR),
        ],
    ]
    for name, span, own in zip(("b", "a"), spans, records, strict=True):
        data = metadata(dbn.Schema.MBO, ALWAYS[:1], span) + b"".join(map(bytes, own))
        (folder / f"{name}.dbn").write_bytes(data)
    (source,) = open_sources([f"dbn:{folder}/*.dbn"])
    assert isinstance(source, DatabentoSource)
    return source


@pytest.mark.parametrize("spans", [((0, DAY + 9), (DAY + 9, DAY + 2 * HOUR)), ((0, DAY * 2), (0, DAY * 2))])
def test_a_book_goes_on_over_the_files_of_days(tmp_path: Path, spans: Sequence[tuple[int, int]]) -> None:
    source = days(tmp_path, spans)
    book = PlainBook()
    for events in messages(source):
        book.apply_all(events)
    assert book.state is BookState.VALID and source.problems.counts == {}
    assert sorted(book.orders) == [2, 3]


def test_a_day_that_was_not_asked_for_makes_books_stale(tmp_path: Path) -> None:
    source = days(tmp_path, ((0, DAY + 9), (DAY + 10, DAY + 2 * HOUR)))
    states = [event["volume"] for event in read(source) if event["action"] == Action.STATE]
    assert states == [BookState.VALID, BookState.STALE]
    assert source.problems.examples["gap between files"] == [
        "b.dbn, a.dbn: books are stale until they begin again"
    ]


def test_the_same_time_twice_is_two_sources(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path, order(CLEAR), name=f"{name}.dbn")
    assert len(open_sources([f"{tmp_path}/*.dbn"])) == 2
