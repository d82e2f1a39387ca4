"""Books and views in several threads: rows, versions, firings and states are those of one thread."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from erratic_feed import with_funding
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import PATIENCE, examples

from orderbook.commands.replay import replay
from orderbook.commands.run import run
from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError, DataError, Problems, SourceError
from orderbook.engine.distribution.threads import partitions_of
from orderbook.feeds.merge import Merger, TickItem
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.book_relations import filled_relations
from orderbook.market.events import EVENT, Action, BookState, Flag
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.assembly import assemble, partitions_or_why
from orderbook.run.event_queue import Stamped
from orderbook.run.partitioned_loop import Workers
from orderbook.run.pipeline import Pipeline
from orderbook.run.read_ahead import read_ahead
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

INSTRUMENTS = Instruments(
    Instrument(venue, symbol, symbol, Decimal("0.5"), Decimal(1))
    for venue, symbol in [("X", "A"), ("X", "B"), ("Y", "B"), ("Y", "C"), ("X", "D"), ("Y", "A")]
)
SQL = """
CREATE STREAM bids (ts TIMESTAMP NOT NULL, venue TEXT NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
  volume DECIMAL(18, 8) NOT NULL, price DECIMAL(18, 8) NOT NULL CHECK (price BETWEEN 4996 AND 5010));
CREATE VIEW best AS SELECT venue, symbol, MAX(price) AS price, SUM(volume) AS volume, COUNT(*) AS n
FROM bids GROUP BY venue, symbol;
CREATE VIEW printed AS SELECT symbol, COUNT(*) AS n, AVG(CAST(price AS DOUBLE)) AS mean
FROM trades GROUP BY symbol;
CREATE VIEW recent AS SELECT symbol, SUM(volume) AS volume FROM trades
WHERE ts > NOW() - INTERVAL '10 milliseconds' GROUP BY symbol;
CREATE VIEW known AS SELECT b.venue, b.symbol, COUNT(*) AS n, SUM(b.volume) AS volume
FROM bids b JOIN book_states s ON s.venue = b.venue AND s.symbol = b.symbol
WHERE s.state = 'valid' GROUP BY b.venue, b.symbol;
CREATE VIEW touches AS
SELECT venue, symbol, COUNT(*) AS n, SUM(mid) AS mids, COUNT(ask) AS asks, MAX(ts) AS ts
FROM quotes GROUP BY venue, symbol;
CREATE VIEW happened AS
SELECT venue, symbol, action, reason, COUNT(*) AS n, MAX(number) AS last, SUM(remaining) AS remaining,
       SUM(level_volume_ahead) AS ahead, MAX(placed_at) AS placed
FROM book_events GROUP BY venue, symbol, action, reason;
"""
WATCHED = (
    ("best", "message", None, "edge"),
    ("best", "event", "n > 3", "change"),
    ("known", "message", "volume > 20", "edge"),
    ("touches", "event", None, "edge"),
    ("happened", "message", None, "edge"),
    ("printed", "event", None, "edge"),
    ("recent", "message", None, "edge"),
)


@cache
def compiled() -> CompiledProgram:
    return compile_views(SQL)


def flow(seed: int, messages: int) -> np.ndarray:
    """Messages of one to six events, of any books each; some tell states, some events are wrong."""
    random = np.random.default_rng(seed)
    lengths = np.where(random.random(messages) < 0.7, 1, random.integers(2, 7, messages))
    count = int(lengths.sum())
    events = np.zeros(count, EVENT)
    own = random.random(count) < 0.95
    events["instrument"] = np.where(own, random.integers(0, 6, count), random.integers(-2, 9, count))
    one_book = np.repeat(random.random(messages) < 0.7, lengths)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    events["instrument"] = np.where(one_book, events["instrument"][first], events["instrument"])
    # Books of the third instrument are L2.
    levels = events["instrument"] == 2
    orders = random.choice([1, 1, 1, 2, 3, 4, 5, 8], count)
    events["action"] = np.where(levels, random.choice([6, 6, 8], count), orders)
    events["action"][random.random(count) < 0.01] = Action.CLEAR
    events["order_id"] = np.where(levels, 0, random.integers(1, 40, count))
    events["price"], events["volume"] = (
        10_000 + random.integers(-9, 10, count),
        random.integers(-1, 20, count),
    )
    events["side"] = random.integers(0, 2, count)
    states = random.random(count) < 0.03
    events["action"][states] = Action.STATE
    events["volume"][states] = random.choice([1, 1, 2, 0], int(states.sum()))
    times = 10**9 + 10**6 * np.arange(messages) - random.integers(0, 3000, messages)
    events["exchange_time"] = events["receive_time"] = np.repeat(times, lengths)
    events["flags"][np.cumsum(lengths) - 1] = Flag.LAST
    return np.concatenate([_valid(), events])


def _valid() -> np.ndarray:
    """All books are valid."""
    events = np.zeros(len(INSTRUMENTS), EVENT)
    events["instrument"], events["action"] = range(len(INSTRUMENTS)), Action.STATE
    events["volume"], events["flags"], events["receive_time"] = BookState.VALID, Flag.LAST, 10**9
    return events


class Told:
    """A pipeline in some threads, 0: the interpreter, and everything that it tells."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        program = compiled()
        own = program.program
        partitions = partitions_of(own, threads, filled_relations(own)) if threads > 1 else None
        assert not isinstance(partitions, str)
        engine = GatedEngine(program, "numba" if threads else "interpreter", partitions=partitions)
        self.pipeline = Pipeline(engine, INSTRUMENTS, resolution=20 * 10**6)
        self.seen: list[Any] = []
        for view, on, when, fire in WATCHED:
            engine.follow(view, self._tell, when, on, fire)  # type: ignore[arg-type]
        engine.watch_rows("best", self._tell)

    def _tell(self, event: Any) -> None:
        rows = (dict(row or {}) for row in (event.old, event.new))
        self.seen.append((event.view, event.key, *rows, event.version, self.pipeline.time))

    def apply(self, events: np.ndarray, bounds: list[int], live: bool = False) -> "Told":
        for start, end in pairwise(bounds):
            self.pipeline.apply(events[start:end], "live" if live else "batch" if self.threads else "message")
        return self

    def same(self, other: "Told", versions: bool = True) -> None:
        width = None if versions else -2
        assert [one[:width] for one in self.seen] == [one[:width] for one in other.seen]
        own, its = self.pipeline, other.pipeline
        assert (own.events, own.messages, own.time) == (its.events, its.messages, its.time)
        assert own.problems.counts == its.problems.counts
        assert own.book_problems == its.book_problems
        assert own.engine.version == its.engine.version
        assert own.books is not None and its.books is not None
        for index in range(len(INSTRUMENTS)):
            assert own.books.best(index) == its.books.best(index)
            assert own.books.state(index) is its.books.state(index)
            assert own.books.problems(index) == its.books.problems(index)
        for view in own.engine.views:
            assert dict(own.engine[view]) == dict(its.engine[view])


@given(
    seed=st.integers(0, 2**20), threads=st.sampled_from([2, 3]), cuts=st.integers(0, 12), live=st.booleans()
)
@examples(6)
def test_threads_tell_what_one_tells(seed: int, threads: int, cuts: int, live: bool) -> None:
    events = flow(seed, 250)
    random = np.random.default_rng(seed)
    bounds = sorted({0, *random.integers(0, len(events), cuts).tolist(), len(events)})
    plain = Told(0).apply(events, bounds)
    found = Told(threads).apply(events, bounds, live)
    for one in (plain, found):
        one.pipeline.finish()
    found.same(plain)
    assert len(plain.seen) > 100
    ended = int(np.count_nonzero(events["flags"] & Flag.LAST))
    assert not live or 0 < found.pipeline.to_views.count <= ended * threads


def test_a_state_goes_on_in_any_number_of_threads(sample_seed: int) -> None:
    events = with_funding(flow(sample_seed, 200), sample_seed)
    half = int(np.flatnonzero(events["flags"] & Flag.LAST)[100]) + 1
    whole = Told(0).apply(events, [0, half])
    expected = rows_of(whole)
    whole.apply(events, [half, len(events)])
    runs = {threads: Told(threads).apply(events, [0, half]) for threads in (0, 2)}
    for before, after in ((2, 0), (0, 2), (2, 3)):
        old, new = runs[before].pipeline, Told(after)
        assert old.books is not None and new.pipeline.books is not None
        new.pipeline.engine.load(old.engine.save())
        new.pipeline.books.load(old.books.save())
        new.pipeline.load(old.save(), range(len(INSTRUMENTS)))
        # A checkpoint does not count what was told before it.
        new.pipeline.problems.extend(old.problems)
        found = rows_of(new)
        new.apply(events, [half, len(events)])
        assert found == expected and found
        # What waits for its books is of no checkpoint, where clients follow.
        new.seen, whole.seen = [], []
        new.same(whole)
        assert whole.pipeline.books is not None
        told = new.pipeline.books.save().told
        assert told.tolist() == whole.pipeline.books.save().told.tolist() and told.any(axis=0).all()


def rows_of(told: Told) -> list[Any]:
    """Every change of rows of some views from now on."""
    found: list[Any] = []

    def tell(event: Any) -> None:
        rows = (dict(row or {}) for row in (event.old, event.new))
        found.append((event.view, event.key, *rows, event.version))

    for view in ("best", "known", "recent", "printed"):
        told.pipeline.engine.watch_rows(view, tell)
    return found


def test_changes_of_relations_and_rows_of_maps() -> None:
    events = flow(3, 200)
    one, two = Told(0).apply(events, [0, len(events)]), Told(2).apply(events, [0, len(events)])
    for told in (one, two):
        told.pipeline.apply(TickItem(5 * 10**9))
    two.same(one)
    for name in ("best_count", "printed_count"):
        rows = [told.pipeline.engine.runtime.entries(name) for told in (one, two)]
        strings = [told.pipeline.engine.dictionary.strings() for told in (one, two)]
        keyed = []
        for own, words in zip(rows, strings, strict=True):
            pairs = zip(own.keys.tolist(), own.words.tolist(), strict=True)
            keyed.append({tuple(words[code] for code in key): value for key, value in pairs})
        assert keyed[0] == keyed[1] and keyed[0]
    sizes = [told.pipeline.engine.map_sizes() for told in (Told(1).apply(events, [0, len(events)]), two)]
    assert sizes[0]["best_count"] == sizes[1]["best_count"]
    with pytest.raises(DataError, match=r"2 threads.*threads = 1"):
        two.pipeline.engine.add_view("CREATE VIEW v AS SELECT symbol FROM bids GROUP BY symbol")


def test_stamps_and_conflation_are_those_of_one_thread() -> None:
    events = flow(9, 300)
    seen = []
    for threads in (0, 2):
        told = Told(threads)
        half = int(np.flatnonzero(events["flags"] & Flag.LAST)[150]) + 1
        told.pipeline.apply_stamped(Stamped(77, 3, events[:half], False))
        told.pipeline.apply_stamped(Stamped(99, 4, events[half:], False, conflate=True))
        # Rows that are watched are told of at once.
        seen.append([one[:-1] for one in told.seen])
    assert sorted(map(str, seen[0])) == sorted(map(str, seen[1])) and len(seen[0]) > 50
    assert {one[4][:2] for one in seen[1]} == {(77, 3), (99, 4)}


def test_a_callback_that_cancels_is_told_no_more() -> None:
    counts = []
    for threads in (0, 2):
        told = Told(threads)
        seen: list[Any] = []
        handles: list[Any] = []

        def tell(event: Any, seen: list[Any] = seen, handles: list[Any] = handles) -> None:
            seen.append(event.version)
            if len(seen) == 5:
                handles[0].cancel()

        handles.append(told.pipeline.engine.watch_rows("printed", tell))
        events = flow(5, 300)
        told.apply(events, [0, len(events)])
        counts.append(seen)
    assert counts[0] == counts[1] and len(counts[0]) == 5


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE VIEW v AS SELECT symbol, SUM(volume) AS n FROM bids GROUP BY symbol", "symbol"),
        ("CREATE VIEW v AS SELECT venue, SUM(volume) AS n FROM bids GROUP BY venue", "venue"),
        ("CREATE VIEW v AS SELECT b.symbol FROM bids b JOIN asks a ON a.symbol = b.symbol", "symbol"),
        ("CREATE VIEW v AS SELECT SUM(volume) AS n FROM bids", "v needs rows of several symbols at once"),
        (
            "CREATE VIEW v AS SELECT symbol, SUM(volume) AS n FROM bids GROUP BY symbol;"
            "CREATE VIEW most AS SELECT MAX(n) AS n FROM v",
            "most needs rows of several symbols at once",
        ),
        (
            "CREATE VIEW v AS SELECT f.symbol, COUNT(*) AS n FROM fills f JOIN bids b ON b.symbol = f.symbol"
            " GROUP BY f.symbol",
            "fills is not fed by order books alone",
        ),
        (
            "CREATE STREAM trades (ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL,"
            " volume DECIMAL(18, 8) NOT NULL) RETAIN INTERVAL '1 hour';"
            "CREATE VIEW v AS SELECT symbol, SUM(volume) AS n FROM trades GROUP BY symbol",
            "rows of trades expire (RETAIN), of which there is one list",
        ),
    ],
)
def test_what_runs_in_threads(sql: str, why: str) -> None:
    program = compile_views(sql).program
    found = partitions_of(program, 2, filled_relations(program))
    assert (found if isinstance(found, str) else found.column) == why


def test_workers_raise_and_go_on() -> None:
    workers, done = Workers(2), []

    def fails() -> None:
        raise DataError("no room")

    def note() -> None:
        done.append(threading.get_ident())

    with pytest.raises(DataError, match="no room"):
        workers.run([note, fails, note])
    workers.run([lambda: done.append(0)] * 3)
    assert len(set(done)) == 3 and len(done) == 5


class Source:
    """Events of one book, and what ends them."""

    def __init__(self, place: int, parts: int, error: str = "") -> None:
        self.name, self.instruments = f"source {place}", Instruments([INSTRUMENTS[place]])
        self.problems, self.counts, self.progress = Problems(), Counter[str](), 0.0
        self._place, self._parts, self._error = place, parts, error

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(self._parts):
            part = np.zeros(500, EVENT)
            part["sequence"] = range(500 * number, 500 * number + 500)
            part["receive_time"] = 10**9 + 1000 * part["sequence"] + self._place
            part["action"], part["volume"], part["flags"] = Action.TRADE, 1, Flag.LAST
            yield part
        if self._error:
            raise SourceError(self._error)


@pytest.mark.parametrize("count", [1, 3])
def test_reading_ahead_keeps_order_and_errors(count: int) -> None:
    def opened() -> Merger:
        return Merger([Source(place, 200, "cut" if place == 0 else "") for place in range(count)])

    before = threading.active_count()
    plain, ahead = opened(), opened()
    expected, found = (
        [one for one in items if isinstance(one, np.ndarray)] for items in (plain, read_ahead(ahead))
    )
    assert np.array_equal(np.concatenate(found), np.concatenate(expected)) and len(found) < len(expected)
    assert [str(error) for error in ahead.errors] == [str(error) for error in plain.errors] == ["cut"]
    early: Any = read_ahead(opened())
    next(early)
    assert threading.active_count() > before
    early.close()
    wait_for(lambda: threading.active_count() == before)


def test_reading_ahead_raises_what_reading_raises() -> None:
    merger = Merger([Source(0, 3)])

    def broken(source: object) -> Iterator[np.ndarray]:
        yield from Source(0, 2)
        raise RuntimeError("not a source's error")

    merger.reading = broken
    found: list[Any] = []
    with pytest.raises(RuntimeError, match="not a source's"):
        found.extend(read_ahead(merger))
    assert sum(len(one) for one in found) == 1000


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def recorded(folder: Path) -> Path:
    """A record of the flow, of books that there are."""
    events = flow(11, 3000)
    lasts = np.flatnonzero(events["flags"] & Flag.LAST)
    assert len(lasts) > 2000
    numbers: NDArray[np.int32] = events["instrument"]
    events["instrument"] = numbers.clip(0, len(INSTRUMENTS) - 1)
    path = folder / "flow.parquet"
    with RecordWriter(path, INSTRUMENTS) as writer:
        writer.write(events)
    (folder / "views.sql").write_text(SQL)
    return path


def configuration(folder: Path, threads: int, more: str = "", strategies: str = "") -> Path:
    path = folder / f"threads-{threads}.toml"
    path.write_text(
        f"""
        feeds = [{{ kind = "file", path = "flow.parquet" }}]
        [run]
        views = ["views.sql"]
        strategies = [{strategies}]
        allow_incomplete = true
        [clock]
        resolution = "20ms"
        [monitor]
        enabled = false
        [engine]
        threads = {threads}
        {more}
        """
    )
    return path


def test_files_of_replays_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path)
    texts = {}
    for threads in (1, 2):
        out = tmp_path / f"out-{threads}.ndjson"
        replay([str(path)], configuration(tmp_path, threads), (), (), out)
        texts[threads] = out.read_bytes()
        said = capsys.readouterr()
        assert ("threads     2, with" in said.out) == (threads == 2) and "threads: 1" not in said.err
    assert texts[1] == texts[2] and texts[1].count(b"\n") > 1000
    replay([str(path)], configuration(tmp_path, 2, "keep_rows = true"), (), (), None)
    said = capsys.readouterr()
    assert "threads: 1 instead of 2: the rows of relations are kept (engine.keep_rows)" in said.err


def test_runs_go_on_with_a_log_in_any_number_of_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path)
    shown = {}
    for first, second in ((1, 1), (2, 1), (1, 2)):
        folder = tmp_path / f"log-{first}-{second}"
        log = f'[log]\nfolder = "{folder}"'
        for threads in (first, second):
            run(configuration(tmp_path, threads, log), None, (), (), ())
            lines = capsys.readouterr().out.splitlines()
        views = next(number for number, line in enumerate(lines) if line.startswith("  view "))
        # Of what is wrong there may be other examples.
        shown[first, second] = [line.split(" range: ")[0] for line in lines[views:]]
    assert len(shown[1, 1]) > 10
    assert shown[2, 1] == shown[1, 2] == shown[1, 1]


def test_what_keeps_a_run_in_one_thread(tmp_path: Path) -> None:
    recorded(tmp_path)
    total = tmp_path / "total.sql"
    total.write_text("CREATE VIEW total AS SELECT SUM(volume) AS volume FROM bids")

    def why(more: str = "", **run: Any) -> Any:
        found = load_configuration(configuration(tmp_path, 2, more), {f"run.{k}": v for k, v in run.items()})
        return partitions_or_why(found, assemble(found), ())

    assert why().column == "symbol"
    assert why(views=[str(total)]) == "total needs rows of several symbols at once"
    assert why(backend="interpreter") == "the backend interpreter runs in one"
    assert "may look at every view when called" in why(strategies=["strategies.sobi:Sobi"], views=["sobi"])
    assert "engine.memory_budget" in why('memory_budget = "1 GB"\nstatistics = "s.json"')
    found = load_configuration(configuration(tmp_path, 2))
    reason = partitions_or_why(found, assemble(found), ("change:a.ndjson",))
    assert reason == "change:a.ndjson may change relations, one row after the other"
    with pytest.raises(ConfigurationError, match=r"engine\.threads.*0"):
        load_configuration(configuration(tmp_path, 0))
