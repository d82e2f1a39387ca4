"""Encoded rows as batches are those of the tables, whatever a batch has, and stop where they are to."""

from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from orderbook import Engine, compile
from orderbook.clients import encoded_rows
from orderbook.clients.duckdb_queries import Running, write_batches
from orderbook.clients.encoded_rows import EncodedRows
from orderbook.clients.queries import snapshot
from orderbook.core.errors import SqlError

SQL = """
CREATE STREAM r (a BIGINT, d DECIMAL(18, 4), x DOUBLE, b BOOLEAN, s TEXT, at TIMESTAMP);
CREATE VIEW bag AS SELECT a, d, x, b, s, at FROM r;
CREATE VIEW sums AS SELECT s, COUNT(*) AS n, SUM(d) AS total, MAX(at) AS last FROM r GROUP BY s;
CREATE VIEW one AS SELECT COUNT(*) AS n FROM r;
"""
NAMES = ("r", "bag", "sums", "one")


@pytest.fixture(scope="module")
def engine() -> Engine:
    """With rows that stand several times, and NULL in all columns."""
    made = Engine(compile(SQL), backend="interpreter", keep_rows=True)
    random = Random(7)
    values = {
        "a": (1, -(2**60), None), "d": (Decimal("-0.0001"), Decimal(10**13), None),
        "x": (0.5, -1e300, None), "b": (True, False, None), "s": ("", "ab", "ü", None),
        "at": (0, 1_767_623_400_123_456_789, None),
    }  # fmt: skip
    for _ in range(50):
        made.insert("r", {name: random.choice(own) for name, own in values.items()})
    row = dict.fromkeys(values)
    for _ in range(9):
        made.insert("r", row)
    return made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 15])
def test_batches_are_the_rows_of_the_table(
    engine: Engine, name: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(encoded_rows, "_BATCH_ROWS", at_a_time)
    rows = snapshot(engine, [name]).encoded()
    whole = rows.tables(engine.dictionary)[name]
    batches = list(rows.batches(engine.dictionary))
    assert all(0 < batch.num_rows <= at_a_time for batch in batches)
    assert pa.Table.from_batches(batches, rows.schema()).equals(whole)
    file = tmp_path / "rows.arrow"
    file.touch()
    count = write_batches(rows.batches(engine.dictionary), rows.schema(), Running(), str(file), 1 << 20)
    assert count == len(whole) and pa.ipc.open_file(pa.memory_map(str(file))).read_all().equals(whole)


def test_nothing_has_a_schema_too(tmp_path: Path) -> None:
    empty = Engine(compile(SQL), backend="interpreter", keep_rows=True)
    rows: EncodedRows = snapshot(empty, ["bag"]).encoded()
    file = tmp_path / "rows.arrow"
    file.touch()
    assert write_batches(rows.batches(empty.dictionary), rows.schema(), Running(), str(file), 1 << 20) == 0
    found = pa.ipc.open_file(pa.memory_map(str(file)))
    assert found.schema == rows.schema() and found.num_record_batches == 0


def test_writing_ends_at_the_limit_and_when_it_is_stopped(engine: Engine, tmp_path: Path) -> None:
    rows = snapshot(engine, ["bag"]).encoded()
    file = tmp_path / "rows.arrow"
    file.touch()
    with pytest.raises(SqlError, match="more than 100 bytes"):
        write_batches(rows.batches(engine.dictionary), rows.schema(), Running(), str(file), 100)
    stopped = Running()
    stopped.stop()
    with pytest.raises(SqlError):
        write_batches(rows.batches(engine.dictionary), rows.schema(), stopped, str(file), 1 << 20)
