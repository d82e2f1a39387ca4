"""The parts of the program by themselves: merging, relations, gating, latencies, the queue, output."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.commands.run import MOST_SORTED, shown_rows
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE
from orderbook.core.errors import Problems, SourceError, UserError
from orderbook.core.latency import LatencyHistogram, latency_text
from orderbook.core.units import moment_text, value_text
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.change_encoding import encode_changes
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import Merger
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import EventQueue, HybridClock, Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine, RowCondition
from orderbook.views.compilation import compile_views

LAST = int(Flag.LAST)


def instrument(symbol: str, venue: str = "v", tick: str = "0.01") -> Instrument:
    return Instrument(venue, symbol, symbol, Decimal(tick), Decimal("0.1"))


def event(action: Action, **fields: int) -> np.ndarray:
    made = np.zeros(1, EVENT)
    made["action"], made["flags"], made["side"] = action, LAST, Side.BID
    for name, value in fields.items():
        made[name] = value
    return made


class FakeSource:
    """Event batches in memory; raises at their end where it is cut."""

    def __init__(
        self, name: str, symbols: Sequence[str], batches: Sequence[np.ndarray], cut: bool = False
    ) -> None:
        self.name = name
        self.instruments = Instruments(instrument(symbol) for symbol in symbols)
        self.problems, self.counts, self.progress = Problems(), Counter[str](), 0.0
        self._batches, self._cut = batches, cut

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self._batches
        if self._cut:
            raise SourceError(f"{self.name}: truncated")


# A source: messages of (time step, number of events), and where its batches are cut between messages.
MESSAGES = st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 3)), max_size=12)
SOURCES = st.lists(st.tuples(MESSAGES, st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


def fake(place: int, messages: list[tuple[int, int]], size: int, cut: bool) -> tuple[FakeSource, list[Any]]:
    """A source, and its messages as (time that counts, source, position, events)."""
    time, latest, expected, parts = 1, 0, [], []
    for position, (step, count) in enumerate(messages):
        time += step
        latest = max(latest, time)
        events = np.zeros(count, EVENT)
        events["exchange_time"], events["order_id"] = time, 100 * place + np.arange(count)
        events["sequence"], events["action"], events["instrument"] = position, Action.ADD, place % 2
        events["flags"][-1] = LAST
        parts.append(events)
        expected.append((latest, place, position, events))
    batches = [np.concatenate(parts[i : i + size]) for i in range(0, len(parts), size)]
    return FakeSource(f"s{place}", ["A", f"B{place}"], batches, cut), expected


@given(SOURCES)
def test_merged_messages_are_in_order_of_time_then_source_then_position(sources: list[Any]) -> None:
    made = [fake(place, *source) for place, source in enumerate(sources)]
    merger = Merger([source for source, _ in made])
    found = [item for item in merger if isinstance(item, np.ndarray)]
    expected = sorted((message for _, messages in made for message in messages), key=lambda m: m[:3])
    merged = np.concatenate([np.empty(0, EVENT), *found])
    plain = np.concatenate([np.empty(0, EVENT), *(events for *_, events in expected)])
    for field in ("sequence", "order_id", "exchange_time", "flags"):
        assert merged[field].tolist() == plain[field].tolist()
    symbols = [merger.instruments[i].symbol for i in merged["instrument"].tolist()]
    assert symbols == [
        ["A", f"B{i // 100}"][n] for i, n in zip(plain["order_id"], plain["instrument"], strict=True)
    ]
    assert all(item["flags"][-1] & LAST for item in found)
    assert len(merger.errors) == sum(cut for *_, cut in sources)


def test_sources_that_state_other_ticks_are_refused() -> None:
    one, two = FakeSource("one", ["A"], []), FakeSource("two", ["A"], [])
    two.instruments = Instruments([instrument("A", tick="0.5")])
    with pytest.raises(SourceError, match="one and two: ticks or lots differ"):
        Merger([one, two])


def books_of(*symbols: str) -> tuple[Instruments, np.ndarray]:
    """Instruments of venue v, and events that make their books valid."""
    instruments = Instruments(instrument(symbol) for symbol in symbols)
    valid = [event(Action.STATE, instrument=i, volume=BookState.VALID) for i in range(len(symbols))]
    return instruments, np.concatenate(valid)


def test_own_relations_take_columns_by_name() -> None:
    sql = (
        "CREATE STREAM bids (price DECIMAL(18, 8) NOT NULL, note TEXT, symbol TEXT NOT NULL, "
        "volume DECIMAL(18, 8) NOT NULL CHECK (volume <= 5));"
        "CREATE VIEW all_bids AS SELECT symbol, price, volume, note FROM bids;"
    )
    instruments, valid = books_of("A")
    pipeline = Pipeline(GatedEngine(compile_views(sql), "interpreter"), instruments)
    small, large = (event(Action.ADD, order_id=i, price=1000 + i, volume=v) for i, v in ((1, 20), (2, 60)))
    pipeline.apply(np.concatenate([valid, small, large]))
    assert [tuple(row.values()) for row in pipeline.engine["all_bids"].values()] == [
        ("A", Decimal("10.01"), Decimal(2), None)
    ]
    assert pipeline.problems.counts == {"row outside its declared range": 1}
    # The second order shrinks into the range, the first grows out of it.
    pipeline.apply(
        np.concatenate(
            [
                event(Action.REDUCE, order_id=2, price=1002, volume=20),
                event(Action.MODIFY, order_id=1, price=1001, volume=70),
            ]
        )
    )
    assert [row["volume"] for row in pipeline.engine["all_bids"].values()] == [Decimal(4)]
    pipeline.apply(np.concatenate([event(Action.DELETE, order_id=1), event(Action.DELETE, order_id=2)]))
    assert len(pipeline.engine["all_bids"]) == 0
    assert pipeline.book_problems == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("volum DECIMAL(18, 8) NOT NULL", "bids.volum is declared, but .* did you mean volume?"),
        (
            "volume DECIMAL(18, 2) NOT NULL",
            r"bids.volume is declared DECIMAL\(18, 2\), .* bring DECIMAL\(18, 8\)",
        ),
        ("symbol INTEGER NOT NULL", "bids.symbol is declared INTEGER, but order books bring TEXT"),
    ],
)
def test_relations_that_books_cannot_fill(columns: str, message: str) -> None:
    program = compile_views(
        f"CREATE STREAM bids ({columns}); CREATE VIEW n AS SELECT COUNT(*) AS n FROM bids;"
    )
    with pytest.raises(UserError, match=message):
        BookRelations(program.program, program.dictionary, Problems())


def test_relations_that_no_view_reads_are_left_out() -> None:
    program = compile_views(
        "CREATE STREAM asks (mine INTEGER NOT NULL); CREATE VIEW n AS SELECT COUNT(*) AS n FROM bids;"
    )
    instruments, valid = books_of("A")
    books = Books(instruments, program.dictionary)
    relations = BookRelations(program.program, program.dictionary, Problems())
    adds = [
        event(Action.ADD, order_id=i, side=side, price=10, volume=1)
        for i, side in ((1, Side.ASK), (2, Side.BID))
    ]
    changes = relations.translate(books.apply(np.concatenate([valid, *adds])))
    names = [relation.name for relation in program.relations]
    assert changes.kinds.tolist() == [-1, 2 * names.index("bids")]


BEST = "CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;"


def gated(*symbols: str, **subscription: Any) -> tuple[Pipeline, list[Any], np.ndarray]:
    """A pipeline of syncing books, the events its subscriber is told of, and what makes books valid."""
    instruments, valid = books_of(*symbols)
    pipeline = Pipeline(GatedEngine(compile_views(BEST), "interpreter"), instruments)
    told: list[Any] = []
    pipeline.engine.subscribe(
        "depth",
        lambda e: told.append((e.key, e.old and e.old["volume"], e.new and e.new["volume"])),
        **subscription,
    )
    return pipeline, told, valid


def add(order_id: int, volume: int, instrument: int = 0) -> np.ndarray:
    return event(Action.ADD, order_id=order_id, price=100, volume=volume, instrument=instrument)


@pytest.mark.parametrize("pace", ["batch", "message", "live"])
def test_what_happens_before_books_are_valid_is_told_then_as_one_change(pace: Any) -> None:
    pipeline, told, valid = gated("A")
    pipeline.apply(np.concatenate([add(1, 10), add(2, 20)]), pace)
    assert told == []
    pipeline.apply(np.concatenate([valid, add(3, 30)]), pace)
    assert told == [(("A",), None, Decimal(3)), (("A",), Decimal(3), Decimal(6))]


def test_a_held_edge_is_told_only_while_its_condition_holds() -> None:
    pipeline, told, valid = gated("A", when="volume > 2.5")
    pipeline.apply(np.concatenate([add(1, 30), event(Action.DELETE, order_id=1), valid]))
    assert told == []
    pipeline, told, valid = gated("A", when="volume > 2.5")
    pipeline.apply(np.concatenate([add(1, 30), add(2, 5), valid, add(3, 1)]))
    assert told == [(("A",), None, Decimal("3.5"))]


def test_stale_books_hold_back_their_own_rows_only() -> None:
    pipeline, told, valid = gated("A", "B")
    stale = event(Action.STATE, volume=BookState.STALE)
    pipeline.apply(np.concatenate([valid, add(1, 10), stale, add(2, 10), add(3, 10, instrument=1)]))
    assert told == [(("A",), None, Decimal(1)), (("B",), None, Decimal(1))]
    pipeline.apply(valid)
    assert told[2:] == [(("A",), Decimal(1), Decimal(2))]


def test_a_held_callback_that_raises_is_cancelled_and_reported() -> None:
    instruments, valid = books_of("A")
    failures: list[str] = []
    engine = GatedEngine(
        compile_views(BEST), "interpreter", on_error=lambda subscription, error: failures.append(str(error))
    )
    pipeline = Pipeline(engine, instruments)

    def callback(event: ViewEvent) -> None:
        raise ValueError("no")

    subscription = engine.subscribe("depth", callback)
    pipeline.apply(np.concatenate([add(1, 10), valid, add(2, 10)]))
    assert failures == ["no"]
    assert not subscription.active
    assert engine.problems.counts == {"callback raised": 1}


@pytest.mark.parametrize(
    "when",
    [
        "total > 2",
        "total IS NULL OR n = 1",
        "label = 'x' AND NOT mean >= 1.5",
        "n > 1 AND COALESCE(total, 7) = 7",
        "mean * 2 < total / n",
    ],
)
def test_a_condition_on_a_row_is_what_the_engine_fires_on(when: str) -> None:
    program = compile_views(
        "CREATE STREAM r (label TEXT NOT NULL, v DECIMAL(9, 2), x DOUBLE NOT NULL);"
        "CREATE VIEW w AS SELECT label, SUM(v) AS total, COUNT(*) AS n, AVG(x) AS mean FROM r GROUP BY label;"
    )
    engine = GatedEngine(program, "interpreter")
    fired: list[tuple[Any, ...]] = []
    engine.subscribe("w", lambda event: fired.append(event.key), when, fire="change")
    condition = RowCondition("w", when)
    rows = [
        ("x", "1.5", 1.0),
        ("y", None, 2.0),
        ("x", "2.25", 0.5),
        ("x", None, 4.0),
        ("y", "7", 1.0),
        ("z", "0.5", 9.0),
    ]
    seen = []
    for label, v, x in rows:
        fired.clear()
        engine.insert("r", {"label": label, "v": v, "x": x})
        assert condition.holds(program, engine["w"][label]) == bool(fired)
        seen.append(bool(fired))
    assert len(set(seen)) == 2


def test_changes_keep_the_ends_of_their_messages_where_rows_are_refused() -> None:
    program = compile_views(
        "CREATE STREAM r (a INTEGER NOT NULL); CREATE VIEW n AS SELECT COUNT(*) AS n FROM r;"
    )
    rows: list[tuple[str, dict[str, Any], bool]]
    rows = [("r", {"a": 1}, False), ("r", {"a": "one"}, True), ("q", {"a": 1}, True), ("r", {"a": 2}, True)]
    changes = [RelationChange(i + 1, stream, "+", row, last) for i, (stream, row, last) in enumerate(rows)]
    problems = Problems()
    batch = encode_changes(changes, program.relations, program.dictionary, "f", problems)
    kind = 2 * [relation.name for relation in program.relations].index("r")
    assert batch.kinds.tolist() == [kind, -1, -1, kind]
    ends = END_OF_EVENT | END_OF_MESSAGE
    assert batch.flags.tolist() == [END_OF_EVENT, ends, ends, ends]
    assert problems.counts == {"row refused": 1, "unknown stream": 1}
    assert problems.examples["row refused"][0].startswith("f:2: r.a: 'one'")


def test_an_item_goes_alone_where_the_queue_cannot_hold_it() -> None:
    async def run() -> list[Stamped]:
        queue, taken = EventQueue(10, HybridClock(lambda: 5)), []

        async def feed() -> None:
            for size in (4, 6, 1, 25, 3):
                await queue.put(np.zeros(size, EVENT), True)
            queue.close()

        feeding = asyncio.create_task(feed())
        await asyncio.sleep(0.01)
        assert not feeding.done()
        while stamped := await queue.get(2):
            taken += stamped
        return taken

    taken = asyncio.run(run())
    assert [len(one.item) for one in taken if isinstance(one.item, np.ndarray)] == [4, 6, 1, 25, 3]
    assert [one.stamp for one in taken] == [5, 6, 7, 8, 9]
    assert all(one.live for one in taken)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_are_those_of_the_samples_within_a_bucket(samples: list[int], percent: int) -> None:
    histogram = LatencyHistogram()
    for sample in samples:
        histogram.record(sample)
    exact = int(np.percentile(samples, percent, method="inverted_cdf"))
    assert exact <= histogram.percentile(percent) <= min(exact * 1.032 + 1, max(samples))
    assert (histogram.count, histogram.maximum) == (len(samples), max(samples))


def test_a_clock_set_back_counts_as_no_latency() -> None:
    histogram = LatencyHistogram()
    histogram.record(-5)
    assert (histogram.count, histogram.percentile(50)) == (1, 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (12_340, "12.3 µs"),
        (4_560_000, "4.56 ms"),
        (123_400_000, "123 ms"),
        (2 * 10**9, "2.00 s"),
    ],
)
def test_latencies_have_three_digits(value: int, text: str) -> None:
    assert latency_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (Decimal("1.50000000"), "1.5"),
        (Decimal("100.00"), "100"),
        (Decimal(10**12), "1000000000000"),
        (0.1 + 0.2, "0.3"),
        (7, "7"),
    ],
)
def test_values_read_as_people_write_them(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_output_of_several_views_and_wide_numbers(tmp_path: Path, ending: str) -> None:
    from orderbook.run.view_output import open_output

    program = compile_views(
        "CREATE STREAM r (k TEXT NOT NULL, v BIGINT NOT NULL, d DOUBLE, t TIMESTAMP NOT NULL);"
        "CREATE VIEW one AS SELECT k, SUM(v) AS value, t AS ts FROM r GROUP BY k, t;"
        "CREATE VIEW two AS SELECT k, SUM(d) AS value FROM r GROUP BY k;"
    )
    engine = GatedEngine(program, "interpreter")
    keys = {view.name: [key.name for key in view.keys] for view in program.views}
    path = tmp_path / f"events.{ending}"
    output = open_output(path, {name: program.program.result(name) for name in ("one", "two")}, keys)
    for view in ("one", "two"):
        engine.watch_rows(view, lambda event: output.write(event, 42))
    for d in (0.5, None):
        engine.insert("r", {"k": "a", "v": 2**63 - 1, "d": d, "t": 7})
    output.close()
    assert list(tmp_path.iterdir()) == [path]
    if ending == "ndjson":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(row["view"], row["key"], row["row"]["value"]) for row in rows] == [
            ("one", {"k": "a", "t": 7}, 2**63 - 1),
            ("two", {"k": "a"}, 0.5),
            ("one", {"k": "a", "t": 7}, 2**64 - 2),
        ]
    else:
        frame = pl.read_parquet(path)
        assert frame["one.value"].to_list() == [2**63 - 1, None, 2**64 - 2]
        assert frame["two.value"].to_list() == [None, 0.5, None]
        assert frame["one.ts"].to_physical().to_list() == [7, None, 7]
        assert frame["ts"].to_physical().to_list() == [42] * 3


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00"),
        (1_340_285_400_000_000_000, "2012-06-21T13:30:00"),
        (1_340_285_400_004_241_176, "2012-06-21T13:30:00.004241176"),
        (-1, "1969-12-31T23:59:59.999999999"),
        (1_500_000_000, "1970-01-01T00:00:01.5"),
    ],
)
def test_moments_read_as_dates(ns: int, text: str) -> None:
    assert moment_text(ns) == text


def test_a_view_of_many_rows_is_counted_where_others_are_shown() -> None:
    engine = GatedEngine(
        compile_views(
            "CREATE STREAM s (n INTEGER NOT NULL); CREATE VIEW many AS SELECT n FROM s;"
            "CREATE VIEW total AS SELECT COUNT(*) AS n FROM s"
        ),
        "interpreter",
    )
    for number in range(MOST_SORTED):
        engine.insert("s", {"n": number})
    assert next(shown_rows(engine, ["many"])) == ("many", "n=0")
    engine.insert("s", {"n": -1})
    assert list(shown_rows(engine, ["many", "total"])) == [("many", "2,001 rows"), ("total", "n=2001")]
