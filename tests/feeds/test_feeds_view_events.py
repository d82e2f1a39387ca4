"""View events as a stream: a pipeline of two programs equals one program with views on views."""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line_support import NO_STRATEGIES, Program, orderbook, write

from orderbook.core.errors import SourceError
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.change_stream import RelationChange, Value
from orderbook.feeds.files.view_events import ViewEventSource, open_view_events
from orderbook.feeds.merge import ChangeItem
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source_kinds import open_source
from orderbook.market.events import Flag
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.run.view_output import ViewOutput, open_output
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

__all__ = ["orderbook"]

UPSTREAM = """
CREATE VIEW levels AS
SELECT venue, symbol, price, SUM(volume) AS volume, COUNT(*) AS orders, MAX(ts) AS ts
FROM bids GROUP BY venue, symbol, price;
CREATE VIEW averages AS SELECT symbol, SUM(price * volume) / SUM(volume) AS average FROM bids GROUP BY symbol;
CREATE VIEW large AS SELECT symbol, price > 100 AS dear FROM asks WHERE volume > 50;
CREATE VIEW total AS SELECT COUNT(*) AS orders, SUM(volume) AS volume FROM asks;
"""
DECLARED = """
CREATE STREAM levels (venue TEXT NOT NULL, symbol TEXT NOT NULL, price DECIMAL(18, 8) NOT NULL,
                      volume DECIMAL(18, 8), orders BIGINT NOT NULL, ts TIMESTAMP);
CREATE STREAM averages (symbol TEXT NOT NULL, average DOUBLE);
CREATE STREAM large (symbol TEXT NOT NULL, dear BOOLEAN NOT NULL);
CREATE STREAM total (orders BIGINT NOT NULL, volume DECIMAL(18, 8));
"""
DOWNSTREAM = """
CREATE VIEW deep AS
SELECT symbol, COUNT(*) AS levels, MAX(volume) AS largest, SUM(orders) AS orders, MAX(ts) AS latest
FROM levels GROUP BY symbol;
CREATE VIEW above AS
SELECT l.symbol, SUM(l.volume) AS volume FROM levels l JOIN averages a ON a.symbol = l.symbol
WHERE l.price > a.average GROUP BY l.symbol;
CREATE VIEW large_ones AS SELECT symbol, dear, COUNT(*) AS orders FROM large GROUP BY symbol, dear;
CREATE VIEW share AS SELECT orders, volume, volume IS NULL AS nothing FROM total;
"""
DOWN = ("deep", "above", "large_ones", "share")

Rows = dict[str, Counter[Any]]


def rows_of(engine: GatedEngine) -> Rows:
    """How often each row stands. Keys of views that do not group are the program's own."""
    rows: Rows = {view: Counter() for view in DOWN if view in engine.views}
    for view, found in rows.items():
        for row in engine[view].values():
            found[tuple(row.items())] += row.multiplicity
    return rows


def record(path: Path, events: int) -> RecordSource:
    file = path / "record.parquet"
    with RecordWriter(file, synthetic_instruments(3)) as writer:
        for batch in generate(events, 3, 12, 5, resting=20):
            writer.write(batch)
    return RecordSource([file])


def messages(source: RecordSource) -> Iterator[np.ndarray]:
    for batch in source:
        ends = np.flatnonzero(batch["flags"] & Flag.LAST) + 1
        yield from (part for part in np.split(batch, ends) if len(part))


class Recorder:
    """A program that writes the events of its views."""

    def __init__(self, sql: str, backend: str, instruments: Instruments, path: Path) -> None:
        program = compile_views(sql)
        self.pipeline = Pipeline(GatedEngine(program, backend), instruments)
        keys = {view.name: [key.name for key in view.keys] for view in program.views}
        self.output = open_output(path, {name: program.program.result(name) for name in keys}, keys)
        self.versions: list[tuple[int, ...]] = []
        for view in keys:
            live = self.pipeline.engine[view]
            for key, row in live.items():
                self.output.write(ViewEvent.between(live.layout, key, None, row, (0, 0, 0)), 0)
            self.pipeline.engine.watch_rows(view, self._write)

    def _write(self, event: Any) -> None:
        if not self.versions or self.versions[-1] != event.version:
            self.versions.append(event.version)
        self.output.write(event, self.pipeline.time)


# Compiling all views takes a minute; one of each suffices where the interpreter has run them all.
ONE_UP = "CREATE VIEW levels AS SELECT symbol, price, COUNT(*) AS orders FROM bids GROUP BY symbol, price;\n"
ONE_DECLARED = "CREATE STREAM levels (symbol TEXT NOT NULL, price DECIMAL(18, 8) NOT NULL, orders BIGINT);\n"
ONE_DOWN = "CREATE VIEW deep AS SELECT symbol, SUM(orders) AS orders FROM levels GROUP BY symbol;\n"
ALL, ONE = (UPSTREAM, DECLARED, DOWNSTREAM), (ONE_UP, ONE_DECLARED, ONE_DOWN)


@pytest.mark.parametrize(
    ("backend", "events", "texts", "ending"),
    [
        ("interpreter", 120, ALL, "ndjson"),
        ("interpreter", 120, ALL, "parquet"),
        ("numba", 1000, ONE, "ndjson"),
        pytest.param("numba", 3000, ALL, "parquet", marks=pytest.mark.exhaustive),
    ],
)
def test_two_programs_equal_one(
    tmp_path: Path, backend: str, events: int, texts: tuple[str, str, str], ending: str
) -> None:
    upstream, declared, downstream = texts
    source = record(tmp_path, events)
    path = tmp_path / f"events.{ending}"
    first = Recorder(upstream, backend, source.instruments, path)
    whole = Pipeline(GatedEngine(compile_views(upstream + downstream), backend), source.instruments)
    # What the one program shows at the start and after every message that changed a view of the first.
    initial = rows_of(whole.engine)
    shown: list[Rows] = [initial] if any(initial.values()) else []
    for message in messages(source):
        before = len(first.versions)
        first.pipeline.apply(message, "message")
        whole.apply(message, "message")
        if len(first.versions) > before:
            assert len(first.versions) == before + 1
            shown.append(rows_of(whole.engine))
        else:
            assert rows_of(whole.engine) == (shown[-1] if shown else initial)
    first.output.close()

    second = Pipeline(GatedEngine(compile_views(declared + downstream), backend), Instruments(()))
    read = ViewEventSource(path, batch_size=50)
    count = 0
    for batch in read:
        assert batch[-1].last
        ends = [i + 1 for i, change in enumerate(batch) if change.last]
        for start, end in zip([0, *ends], ends, strict=False):
            second.apply(ChangeItem(read.name, batch[start:end]), "message")
            assert rows_of(second.engine) == shown[count]
            count += 1
    assert count == len(shown) > 20
    assert read.problems.report() == [] and second.problems.report() == []
    assert all(rows_of(second.engine).values())
    assert read.progress == 1.0
    assert second.time == first.pipeline.time


def test_the_command_writes_what_the_source_reads(orderbook: Program, tmp_path: Path) -> None:
    record(tmp_path, 240)
    write(tmp_path / "up.sql", UPSTREAM)
    write(tmp_path / "down.sql", DECLARED + DOWNSTREAM)
    write(tmp_path / "both.sql", UPSTREAM + DOWNSTREAM)
    write(tmp_path / "c.toml", NO_STRATEGIES + 'backend = "interpreter"\n')

    def replay(source: str, views: str, out: str) -> list[tuple[str, int, str]]:
        path = tmp_path / out
        options = ("--config", tmp_path / "c.toml", "--view", tmp_path / views, "--out", path)
        result = orderbook("replay", source, *options)
        assert result.status == 0, result.err
        lines = [json.loads(line, parse_float=str) for line in path.read_text().splitlines()]
        return sorted((e["view"], e["ts"], str(e["row"])) for e in lines if e["view"] in DOWN and e["row"])

    replay(f"record:{tmp_path / 'record.parquet'}", "up.sql", "up.ndjson")
    one = replay(f"record:{tmp_path / 'record.parquet'}", "both.sql", "one.ndjson")
    two = replay(f"{tmp_path / 'up.ndjson'}", "down.sql", "two.ndjson")

    assert len(one) > 100
    assert two == one
    # The row of a view that groups by nothing is there before the first event.
    assert ("share", 0, "{'orders': 0, 'volume': None, 'nothing': True}") in one


def line(view: str, version: int, key: dict[str, Any], row: dict[str, Any] | None, **more: Any) -> str:
    event = {"view": view, "ts": version * 10, "version": [version, 0, version], "key": key, "row": row}
    return json.dumps(event | more) + "\n"


def test_changes_of_a_row_are_its_deletion_and_insertion(tmp_path: Path) -> None:
    path = tmp_path / "e.ndjson"
    path.write_text(
        line("v", 1, {"k": "a"}, {"k": "a", "n": 1})
        + line("w", 1, {}, {"n": 5})
        + line("v", 2, {"k": "a"}, {"k": "a", "n": 2}, multiplicity=3)
        + line("v", 3, {"k": "a"}, {"k": "a", "n": 2}, multiplicity=2)
        + line("v", 3, {"k": "b"}, {"k": "b", "n": 2})
        + line("w", 4, {}, {"n": 5})
        + line("v", 5, {"k": "a"}, None)
        + "oops\n"
        + line("v", 6, {"k": "c"}, None)
    )
    source = open_source(f"views:{path}")
    assert isinstance(source, ViewEventSource)
    assert source.relations == {"v": ("k", "n"), "w": ("n",)}
    rows: list[dict[str, Value]] = [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 2}]
    a1, a2, b2 = rows
    assert [change for batch in source for change in batch] == [
        RelationChange(1, "v", "+", a1, False, 10),
        RelationChange(2, "w", "+", {"n": 5}, True, 10),
        RelationChange(3, "v", "-", a1, False, 20),
        RelationChange(3, "v", "+", a2, False, 20),
        RelationChange(3, "v", "+", a2, False, 20),
        RelationChange(3, "v", "+", a2, True, 20),
        RelationChange(4, "v", "-", a2, False, 30),
        RelationChange(5, "v", "+", b2, True, 30),
        RelationChange(7, "v", "-", a2, False, 50),
        RelationChange(7, "v", "-", a2, True, 50),
    ]
    assert source.problems.counts == {"malformed view event": 1, "row gone that was not there": 1}
    assert "e.ndjson:9: v" in source.problems.report()[1]
    renamed = open_view_events(f"{path}?view=w&relation=other")
    assert [change for batch in renamed for change in batch] == [
        RelationChange(2, "other", "+", {"n": 5}, True, 10)
    ]
    assert renamed.relations == {"other": ("n",)}


def test_a_cut_file_gives_everything_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "e.ndjson"
    text = "".join(line("v", i, {"k": i}, {"k": i}) for i in range(5))
    path.write_text(text[:-20])
    source = open_view_events(str(path))
    found: list[list[RelationChange]] = []
    with pytest.raises(SourceError, match="truncated after line 5"):
        found.extend(source)
    assert [change.row["k"] for batch in found for change in batch] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('{"stream": "v", "op": "+", "row": {}}\n', "", "not a file of view events"),
        (line("v", 1, {}, {"n": 1}), "?view=x", "has no events of view 'x', but of v"),
        (line("v", 1, {}, {"n": 1}) + line("w", 1, {}, {"n": 1}), "?relation=r", "say which is r with view="),
        (line("v", 1, {}, {"n": 1}), "?vew=x", "did you mean 'view'"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, options: str, message: str) -> None:
    path = tmp_path / "e.ndjson"
    path.write_text(text)
    with pytest.raises(SourceError) as raised:
        open_view_events(f"{path}{options}")
    assert message in str(raised.value)


@pytest.mark.parametrize("command", ["replay", "run"])
@pytest.mark.parametrize(
    ("declaration", "parts"),
    [
        ("w (n BIGINT)", ("declares no stream 'v'", "CREATE STREAM v (n, name)")),
        ("v (n BIGINT)", ("stream v lacks 'name'",)),
        ("v (n BIGINT, name TEXT, more TEXT)", ("has 'more', which the file has not",)),
    ],
)
def test_columns_that_differ_are_an_error(
    orderbook: Program, tmp_path: Path, declaration: str, parts: tuple[str, ...], command: str
) -> None:
    path = write(tmp_path / "e.ndjson", line("v", 1, {}, {"n": 1, "name": "a"}))
    relation = declaration.partition(" ")[0]
    sql = f"CREATE STREAM {declaration};\nCREATE VIEW sums AS SELECT SUM(n) AS n FROM {relation};\n"
    view = write(tmp_path / "sums.sql", sql)
    config = write(tmp_path / "c.toml", NO_STRATEGIES + 'backend = "interpreter"\n')
    feed = ("--feed",) if command == "run" else ()
    out = ("--out", tmp_path / "out.ndjson") if command == "replay" else ()
    result = orderbook(command, *feed, f"views:{path}", "--config", config, "--view", view, *out)
    assert result.status == 2
    assert all(part in result.err for part in parts), result.err
    assert not (tmp_path / "out.ndjson").exists()


def written(output: ViewOutput, event: ViewEvent) -> None:
    output.write(event, 1)


def test_exact_numbers_of_any_size_come_through(tmp_path: Path) -> None:
    sql = "CREATE STREAM r (v BIGINT NOT NULL, d DECIMAL(18, 8) NOT NULL);"
    sql += "CREATE VIEW sums AS SELECT SUM(v) AS v, SUM(d) AS d FROM r;"
    for ending in ("ndjson", "parquet"):
        program = compile_views(sql)
        engine = GatedEngine(program, "interpreter")
        path = tmp_path / f"e.{ending}"
        output = open_output(path, {"sums": program.program.result("sums")}, {"sums": []})
        engine.watch_rows("sums", partial(written, output))
        for d in ("0.00000001", "9999999999.99999999"):
            engine.insert("r", {"v": 2**63 - 1, "d": d})
        output.close()
        (batch,) = list(ViewEventSource(path))
        assert [change.op for change in batch] == ["+", "-", "+"]
        assert dict(batch[-1].row) == {"v": 2**64 - 2, "d": Decimal("10000000000.00000000")}
