"""Files of view events that are made by column, beside those made row by row from the same events."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.errors import DataError
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.run import view_output
from orderbook.run.view_event_columns import columns_of
from orderbook.run.view_output import open_output
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

PROGRAM = compile_views("""
CREATE STREAM r (
    id BIGINT NOT NULL, k TEXT NOT NULL, n TEXT, v BIGINT NOT NULL, p DECIMAL(18, 8) NOT NULL,
    q DECIMAL(10, 2), d DOUBLE, b BOOLEAN, t TIMESTAMP, PRIMARY KEY (id));
CREATE VIEW sums AS
SELECT k, n, COUNT(*) AS c, SUM(v) AS v, SUM(p) AS p, SUM(q) AS q, SUM(d) AS d, MAX(t) AS t, SUM(p * v) AS w
FROM r GROUP BY k, n;
CREATE VIEW all_of_it AS SELECT COUNT(*) AS c, SUM(q) AS q, MIN(d) AS d FROM r;
CREATE VIEW pairs AS SELECT n, b, q FROM r WHERE v > 0;
""")
KEYS = {view.name: [key.name for key in view.keys] for view in PROGRAM.views}
RESULTS = {name: PROGRAM.program.result(name) for name in KEYS}


def events_of(seed: int, count: int) -> list[tuple[ViewEvent, int]]:
    """Of rows that come and go, with NULLs, few and many digits, texts that JSON escapes."""
    random, engine, found = Random(seed), GatedEngine(PROGRAM, "numba"), list[tuple[ViewEvent, int]]()
    rows: dict[int, dict[str, Any]] = {}
    time = 0
    for view in KEYS:
        engine.watch_rows(view, lambda event: found.append((event, time)))
    for number in range(count):
        time += random.choice([0, 1, 10**8, 2 * 10**9])
        if rows and random.random() < 0.4:
            engine.delete("r", rows.pop(random.choice(list(rows))))
            continue
        row = rows[number] = {
            "id": number,
            "k": random.choice(["a", 'b"\\', "\u00e9\n"]),
            "n": random.choice([None, "x", "y"]),
            "v": random.choice([0, 1, -1, 2**63 - 1, -(2**63) + 1]),
            "p": random.choice(["0", "0.00000001", "-9999999999.99999999", "12.5"]),
            "q": random.choice([None, "0.01", "-7"]),
            "d": random.choice([None, 0.1, -1e300, 1e-9]),
            "b": random.choice([None, True, False]),
            "t": random.choice([None, 0, 1_700_000_000_000_000_001]),
        }
        engine.insert("r", row)
    return found


def file_of(path: Path, events: list[tuple[ViewEvent, int]]) -> Path:
    output = open_output(path, RESULTS, KEYS)
    for event, time in events:
        output.write(event, time)
    output.close()
    return path


@examples(6)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 1024]))
def test_files_by_column_are_those_by_row(
    tmp_path_factory: pytest.TempPathFactory, seed: int, together: int
) -> None:
    folder, events = tmp_path_factory.mktemp("files"), events_of(seed, 150)
    assert {event.view for event, _ in events} == set(KEYS)
    assert any(event.new is None for event, _ in events)
    assert columns_of([event for event, _ in events])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_output, "EVENTS_TOGETHER", together)
        lines = file_of(folder / "columns.ndjson", events).read_bytes()
        table = pq.read_table(file_of(folder / "columns.parquet", events))
        patch.setattr(view_output, "columns_of", lambda events: None)
        assert lines == file_of(folder / "rows.ndjson", events).read_bytes()
        rows = pq.read_table(file_of(folder / "rows.parquet", events))
    assert lines.count(b"\n") == len(events)
    assert table.equals(rows, check_metadata=True) and len(table) == len(events)


def test_lines_wait_no_longer_than_a_second_of_their_times(tmp_path: Path) -> None:
    events = events_of(1, 40)
    output = open_output(tmp_path / "events.ndjson", RESULTS, KEYS)
    (event, _), partial = events[0], tmp_path / "events.ndjson.partial"
    for _ in range(200):
        output.write(event, 5)
    assert partial.stat().st_size == 0
    output.write(event, 5 + 10**9)
    assert partial.stat().st_size > 20_000
    output.close()


@pytest.mark.parametrize("by_column", [True, False])
def test_a_file_that_lacks_a_value_is_not_there(
    tmp_path: Path, by_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_views(
        "CREATE STREAM r (v DECIMAL(18, 1) NOT NULL, n BIGINT NOT NULL CHECK (n BETWEEN 0 AND 150));"
        "CREATE VIEW sums AS SELECT SUM(v * v * n) AS v FROM r;"
    )
    engine = GatedEngine(program, "numba")
    path = tmp_path / "sums.parquet"
    output = open_output(path, {"sums": program.program.result("sums")}, {"sums": []})
    if not by_column:
        monkeypatch.setattr(view_output, "columns_of", lambda events: None)
    engine.watch_rows("sums", lambda event: output.write(event, 1))
    engine.insert("r", {"v": "99999999999999999", "n": 150})
    with pytest.raises(DataError, match="does not fit Parquet"):
        output.close()
    output.close()
    assert list(tmp_path.iterdir()) == []
