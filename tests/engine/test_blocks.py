"""Blocks: hashed to partitions, written as bytes, merged, and made of events and changes of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook.backtesting.relation_rows import BookBlocks, RowAdmission, change_blocks
from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError, Problems
from orderbook.engine.distribution.blocks import VERSION, Block, decode_blocks, encode_blocks, text_columns
from orderbook.engine.distribution.stage_runner import Granularity, StreamMerger, in_order
from orderbook.engine.distribution.stages import Axis, Input, Phase, Router, StableHash
from orderbook.engine.runtime.engine import Engine
from orderbook.feeds.change_stream import RelationChange
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, Flag
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.views.types import DOUBLE, TEXT, Kind, Type

INTEGER = Type(Kind.INTEGER)
UNITS: tuple[Any, ...] = ("event", "message", "end")
TEXTS = ("", "a", "ü€😀", "a" * 40)
# As every release must compute them: rows of one job may be routed by several.
TEXT_HASHES = [9413272369427828315, 11137300356903075105, 0]
NUMBER_HASHES = [12994781566227106604, 7256831767414464289, 10338021812380738707, 0, 9826234843501278960]


def versions_of(numbers: list[tuple[int, int, int, int]]) -> np.ndarray:
    """(stamp, switch, sequence, part) as VERSION[n]; every event is a message."""
    return np.array([(stamp, switch, part, seq, seq) for stamp, switch, seq, part in numbers], VERSION)


version = st.tuples(st.integers(-3, 2**62), st.integers(0, 3), st.integers(1, 2**40), st.integers(0, 3))
row = st.tuples(st.sampled_from([0, 1, 2, 3, NULL_CODE]), st.integers(-(2**63), 2**63 - 1))
blocks = st.lists(st.tuples(version, st.booleans(), row), max_size=12).map(
    lambda rows: Block(
        "s",
        versions_of([v for v, _, _ in rows]),
        np.array([d for _, d, _ in rows], bool),
        np.array([r for _, _, r in rows], np.int64).reshape(-1, 2),
    )
)


def shown(block: Block, dictionary: Dictionary) -> list[Any]:
    """The rows of a block with texts for the codes of its first column."""
    texts = [None if c == NULL_CODE else dictionary.decode(c) for c in block.values[:, 0].tolist()]
    return list(
        zip(block.versions.tolist(), block.deletes.tolist(), texts, block.values[:, 1].tolist(), strict=True)
    )


@given(st.lists(blocks, max_size=3), st.sampled_from([None, "lz4", "zstd"]), st.integers(0, 8))
def test_bytes_give_the_blocks_to_any_dictionary(sent: list[Block], compression: Any, start: int) -> None:
    words, others = Dictionary(TEXTS), Dictionary(["z", "a"])
    data = encode_blocks(sent, {"s": (0,)}, words, compression)
    # They may lie anywhere among the bytes of other blocks.
    received = decode_blocks(pa.py_buffer(bytes(start) + data.to_pybytes()).slice(start), others)
    assert [b.source for b in received] == [b.source for b in sent]
    assert [shown(b, others) for b in received] == [shown(b, words) for b in sent]
    assert all(b.values.flags.c_contiguous and b.values.flags.writeable for b in received)


def test_a_large_dictionary_is_not_sent_whole() -> None:
    words = Dictionary(str(n) for n in range(5_000))
    versions = versions_of([(1, 0, 1, 0), (1, 0, 2, 0)])
    block = Block("s", versions, np.zeros(2, bool), np.array([[4_999], [NULL_CODE]]))
    data = encode_blocks([block], {"s": (0,)}, words).to_pybytes()
    others = Dictionary()
    assert decode_blocks(data, others)[0].values.tolist() == [[0], [NULL_CODE]]
    assert others.strings() == ("4999",) and len(data) < 4_000


@pytest.mark.parametrize("data", [b"no block", b"\xff\xff\xff\xff\x10\x00\x00\x00"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"a damaged block: .*; let it be sent again"):
        decode_blocks(data, Dictionary())
    block = Block("s", versions_of([(1, 0, 1, 0)]), np.zeros(1, bool), np.array([[7]]))
    whole = encode_blocks([block], {"s": ()}, Dictionary()).to_pybytes()
    with pytest.raises(DataError, match="a damaged block"):
        decode_blocks(whole[: len(whole) // 2], Dictionary())


def test_hashes_are_the_same_everywhere_and_always() -> None:
    texts = np.array([0, 1, NULL_CODE])
    assert StableHash(Dictionary(["a", "ü"])).of(texts, TEXT).tolist() == TEXT_HASHES
    assert StableHash(Dictionary(["ü", "a"])).of(texts[[1, 0, 2]], TEXT).tolist() == TEXT_HASHES
    numbers = np.array([1, -1, NULL_CODE, 0, *np.array([1.5]).view(np.int64)])
    for kind in (INTEGER, DOUBLE):
        found = StableHash(Dictionary()).of(np.repeat(numbers, 2)[::2], kind)
        assert found.tolist() == NUMBER_HASHES


def test_texts_that_come_later_are_hashed() -> None:
    words = Dictionary(["a"])
    hashes = StableHash(words)
    first = hashes.of(np.array([0]), TEXT)[0]
    words.encode("b")
    alone = StableHash(Dictionary(["b"])).of(np.array([0]), TEXT)[0]
    assert hashes.of(np.array([0, 1]), TEXT).tolist() == [first, alone]


@given(
    blocks,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([(0, 1), (0, None), (None, 1), (None, None)]),
)
def test_every_row_goes_where_its_values_say(
    block: Block, sizes: tuple[int, int], places: tuple[int | None, int | None]
) -> None:
    words = Dictionary(TEXTS)
    router = Router((Axis("g", TEXT), Axis("n", INTEGER)), sizes, words)
    # The stream has the columns of the source the other way round.
    route = tuple(None if p is None else 1 - p for p in places)
    parts = router.route(block, Input("stream", "s", Phase.BEFORE, (1, 0), route))
    assert len({number for number, _ in parts}) == len(parts)
    assert all(part.source == "stream" and len(part) for _, part in parts)
    hashes = StableHash(words)
    wanted: dict[int, list[Any]] = {}
    for i in range(len(block)):
        own = []
        for place, (kind, size) in enumerate(zip((TEXT, INTEGER), sizes, strict=True)):
            column = np.ascontiguousarray(block.values[i : i + 1, place])
            own.append(range(size) if places[place] is None else [int(hashes.of(column, kind)[0]) % size])
        for first in own[0]:
            for second in own[1]:
                one = (block.versions[i].item(), bool(block.deletes[i]), tuple(block.values[i, ::-1]))
                wanted.setdefault(first * sizes[1] + second, []).append(one)
    found = {
        number: list(zip(p.versions.tolist(), p.deletes.tolist(), map(tuple, p.values.tolist()), strict=True))
        for number, p in parts
    }
    assert found == wanted


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5), max_size=20), st.sampled_from([1, 2**60]))
def test_rows_are_put_in_order(rows: list[tuple[int, int, int, int, int]], far: int) -> None:
    # Stamps far apart take more bits than a word has left for the rest.
    rows = [(r[0] * far, r[1], r[2] * far, *r[3:]) for r in rows]
    versions = versions_of([r[:4] for r in rows])
    places = in_order(versions, np.array([r[4] for r in rows], np.int64))
    found = rows if places is None else [rows[i] for i in places.tolist()]
    assert found == sorted(rows)


@given(st.permutations(range(6)))
def test_rows_of_a_part_come_by_phase_and_deletes_first(places: list[int]) -> None:
    program = orderbook.compile(SQL).program
    phases = {"asks": Phase.BEFORE, "trades": Phase.CHANGES, "bids": Phase.AFTER}
    inputs = tuple(Input(name, name, phase, (), ()) for name, phase in phases.items())
    merger = StreamMerger(program.relations, {i.stream: i.phase for i in inputs})
    names = [r.name for r in program.relations]
    wanted = [(name, delete) for name in phases for delete in (True, False)]
    sent = [
        Block(name, versions_of([(1, 0, 1, 0)]), np.array([delete]), np.zeros((1, 7), np.int64))
        for name, delete in (wanted[place] for place in places)
    ]
    ahead = versions_of([(1, 0, 0, 0)])
    merged = merger.merged(sent, ahead)
    assert merged.kinds.tolist() == [-1, *(2 * names.index(name) + delete for name, delete in wanted)]
    assert merged.versions.tolist() == [*ahead.tolist(), *[(1, 0, 0, 1, 1)] * 6]


def test_looks_have_the_version_of_what_ends_there() -> None:
    version = np.array([(1_005, 2, 1, 7, 9)], VERSION)
    granularities = [*map(Granularity, UNITS), Granularity("interval", 10)]
    found = {g.unit: g.looks(version).tolist() for g in granularities}
    assert found == {
        "event": [(1_005, 2, 7)],
        "message": [(1_005, 2, 9)],
        "interval": [(1_010, 0, 0)],
        "end": [(0, 0, 0)],
    }


def books_of(instruments: Instruments, sql: str) -> tuple[BookBlocks, Dictionary]:
    program = orderbook.compile(sql)
    books = Books(instruments, program.dictionary)
    fits = BookRelations(program.program, program.dictionary, Problems())
    return BookBlocks(books, fits, program.relations), program.dictionary


SQL = """
CREATE VIEW b AS SELECT symbol, SUM(volume) AS v FROM bids GROUP BY symbol;
CREATE VIEW a AS SELECT symbol, SUM(volume) AS v FROM asks GROUP BY symbol;
CREATE VIEW p AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol;
"""


BOUNDED = """
CREATE STREAM t (g TEXT, n INTEGER CHECK (n < 2)) WITH (max_rows = 3);
CREATE VIEW v AS SELECT * FROM t;
"""


def numbered(events: np.ndarray) -> np.ndarray:
    """Versions of a source that brings nothing else."""
    found = np.zeros(len(events), VERSION)
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST))
    found["sequence"] = np.arange(1, len(events) + 1)
    found["last"] = ends[np.searchsorted(ends, np.arange(len(events)))] + 1
    found["stamp"] = events["receive_time"]
    return found


def of_symbol(blocks: list[Block], dictionary: Dictionary, symbol: str) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for block in blocks:
        texts = dictionary.decode_all(block.values[:, 2])
        rows = zip(block.versions.tolist(), block.deletes.tolist(), texts, block.values.tolist(), strict=True)
        own = [(v, d, [*r[:1], *r[3:6]]) for v, d, text, r in rows if text == symbol]
        found.setdefault(block.source, []).extend(own)
    return found


def test_versions_do_not_depend_on_what_else_is_read() -> None:
    instruments = synthetic_instruments(3)
    (events,) = generate(3_000, 3, 20, seed=5, batch=4_000)
    events = events[: np.flatnonzero(events["flags"] & int(Flag.LAST))[-1] + 1]
    clear = np.zeros(1, EVENT)
    clear["action"], clear["side"], clear["flags"], clear["instrument"] = Action.CLEAR, 2, Flag.LAST, 1
    events = np.concatenate([events, clear])
    versions = numbered(events)
    whole, words = books_of(instruments, SQL)
    half = int(np.flatnonzero(events["flags"] & int(Flag.LAST))[400]) + 1
    parts = [slice(0, half), slice(half, len(events))]
    all_blocks = [b for part in parts for b in whole.apply(events[part].copy(), versions[part])]
    assert sum(map(len, all_blocks)) > 3_000
    for number in range(3):
        symbol = instruments[number].symbol
        own = events["instrument"] == number
        chosen, numbers = events[own].copy(), versions[own]
        # The last event left of a message ends it.
        chosen["flags"] = Flag.LAST
        alone, others = books_of(instruments, SQL)
        found = of_symbol(alone.apply(chosen, numbers), others, symbol)
        assert found == of_symbol(all_blocks, words, symbol)
    last = [b for b in all_blocks if b.versions["sequence"][-1] == len(events)]
    cleared = [b.versions["part"][b.versions["sequence"] == len(events)] for b in last]
    places = np.sort(np.concatenate(cleared)).tolist()
    assert len(places) > 2 and places == list(range(len(places)))


def test_events_whose_message_has_no_end_are_refused() -> None:
    events = np.zeros(1, EVENT)
    events["action"], events["volume"], events["order_id"], events["price"] = Action.ADD, 5, 1, 100
    books, _ = books_of(synthetic_instruments(1), SQL)
    with pytest.raises(DataError, match="flag its last event with LAST"):
        books.apply(events, versions_of([(1, 0, 1, 0)]))


@given(st.lists(st.tuples(st.sampled_from("++-"), st.integers(0, 2), st.booleans()), max_size=20), st.data())
def test_rows_are_refused_as_an_engine_refuses_them(
    steps: list[tuple[Any, int, bool]], data: st.DataObject
) -> None:
    program = orderbook.compile(BOUNDED)
    changes = [
        RelationChange(i, "t", op, {"g": "a", "n": n}, last) for i, (op, n, last) in enumerate(steps, 1)
    ]
    versions = versions_of([(i, 0, i, 0) for i in range(1, len(changes) + 1)])
    problems = Problems()
    made = change_blocks(changes, versions, program.relations, program.dictionary, "file", problems)
    admission = RowAdmission(program.relations, program.dictionary, problems)
    cut = data.draw(st.integers(0, len(changes)))
    calls: list[list[Block]] = [[], []]
    for block in made:
        first = block.versions["sequence"] <= cut
        for call, rows in zip(calls, (first, ~first), strict=True):
            call.append(Block(block.source, block.versions[rows], block.deletes[rows], block.values[rows]))
    admitted = [block for call in calls for block in admission.admit(call)]
    places = [place for block in admitted for place in block.versions["sequence"].tolist()]
    engine, taken = Engine(program, "interpreter"), []
    for change in changes:
        do = engine.insert if change.op == "+" else engine.delete
        try:
            do("t", change.row)
        except DataError:
            continue
        taken.append(change.line)
    assert sorted(places) == taken


def test_relations_that_books_fill_take_no_other_rows() -> None:
    program = orderbook.compile(SQL)
    problems = Problems()
    admission = RowAdmission(program.relations, program.dictionary, problems, by_books=["bids"])
    row = np.zeros((1, 7), np.int64)
    assert admission.admit([Block("bids", versions_of([(1, 0, 1, 0)]), np.zeros(1, bool), row)]) == []
    assert dict(problems.counts) == {"mixed feeding": 1}
    assert text_columns(program.relations)["trades"] == (1, 2, 6)
