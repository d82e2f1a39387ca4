"""Tables of a real server: its rows are the view's, whatever is killed; values are exact; and it is read."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sink_runner
from paths import PROJECT
from postgres_server import PostgresServer, program
from sink_runner import postgres_sinks
from sink_support import Run, crashed, messages

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.database_table import TableOptions, TableSource
from orderbook.sinks import delivery
from orderbook.sinks.outbox import RowChange, SinkError, SinkRefused
from orderbook.sinks.postgres import PostgresChanges, PostgresRows
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import Result

pytestmark = pytest.mark.exhaustive
TYPES = """
CREATE STREAM every (id BIGINT, amount DECIMAL(18, 9), x DOUBLE, at TIMESTAMP, good BOOLEAN, name TEXT);
CREATE VIEW kinds AS SELECT id, SUM(amount) AS amount, SUM(x) AS x, MAX(at) AS at, MAX(good) AS good,
    name, COUNT(*) AS n FROM every GROUP BY id, name;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if program("initdb") is None:
        pytest.skip("no server: apt install postgresql")
    made = PostgresServer()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST", 0.01)
    monkeypatch.setattr(delivery, "_LONGEST", 0.1)


def stored(server: PostgresServer, table: str) -> dict[Any, Any]:
    """The rows of a table of totals: numbers as they are written, times in µs."""
    micros = "(extract(epoch FROM last) * 1000000)::bigint"
    query = f"SELECT symbol, n, turnover::text, {micros}, ratio, good FROM {table}"
    return {(row[0],): row[1:] for row in server.rows(query)}


def expected(run: Run) -> dict[Any, Any]:
    """The view's rows in that form."""
    found = {}
    for key, row in run.rows().items():
        last, turnover = row["last"], row["turnover"]
        micros, text = (None if one is None else one for one in (last, turnover))
        found[key] = (
            row["n"],
            None if text is None else f"{text:f}",
            None if micros is None else micros // 1000,
            row["ratio"],
            row["good"],
        )
    return found


def check(server: PostgresServer, table: str, run: Run, began: int = 1) -> None:
    """Both tables are the view's, the changes with one row for each."""
    assert stored(server, table) == expected(run)
    order = "_key, _stamp DESC, _switch DESC, _seq DESC"
    latest = f"SELECT DISTINCT ON (_key) * FROM {table}_changes ORDER BY {order}"
    server.rows(f"CREATE OR REPLACE VIEW {table}_latest AS SELECT * FROM ({latest}) l WHERE _op <> 'delete'")
    assert stored(server, f"{table}_latest") == expected(run)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_where_the_server_and_the_run_are_killed(
    server: PostgresServer, tmp_path: Path, seed: int
) -> None:
    random, table = Random(seed), f"killed{seed}"
    flow, folder, done = list(messages(seed, 300)), tmp_path / "0", 0
    made = postgres_sinks(server.url, table)
    for number in range(4):
        run = Run(folder, made)
        down = False
        for message in flow[done : done + 60]:
            run.apply(message)
            if random.random() < 0.05:
                (server.start if down else server.kill)()
                down = not down
            if random.random() < 0.05:
                run.durable.checkpoint()
        done += 60
        if down:
            server.start()
        other = tmp_path / f"{number + 1}"
        with crashed(run, folder, other):
            folder = other
    run = Run(folder, made)
    for message in flow[done:]:
        run.apply(message)
    run.settle()
    check(server, table, run)
    run.close()
    once = Run(tmp_path / "once", postgres_sinks(server.url, f"{table}_once"))
    for message in flow:
        once.apply(message)
    once.settle()
    once.close()
    told = "SELECT _seq, _key, _op, turnover::text FROM {} WHERE _op <> 'snapshot' ORDER BY 1, 2"
    changes = [server.rows(told.format(f"{table}{one}_changes")) for one in ("", "_once")]
    assert changes[0] == changes[1]


def test_nothing_is_lost_where_the_process_is_killed(server: PostgresServer, tmp_path: Path) -> None:
    random, count = Random(7), 600
    command = [
        sys.executable,
        sink_runner.__file__,
        str(tmp_path / "log"),
        server.url,
        "process",
        "7",
        str(count),
    ]
    path = os.pathsep.join([str(PROJECT), str(Path(sink_runner.__file__).parent)])
    for _ in range(5):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as own:
            assert own.stdout is not None and own.stdout.readline() == b"began\n"
            try:
                own.wait(random.uniform(0.05, 0.4))
            except subprocess.TimeoutExpired:
                own.kill()
    run = Run(tmp_path / "log", postgres_sinks(server.url, "process"))
    assert 0 < run.items < count
    for message in list(messages(7, count))[run.items :]:
        run.apply(message)
    run.settle()
    check(server, "process", run)
    run.close()


def kinds() -> Result:
    return compile_views(TYPES).program.result("kinds")


def change(number: int, op: Any = "insert", id_: int = 1, **values: Any) -> RowChange:
    row = dict.fromkeys(("amount", "x", "at", "good", "name"), None) | {"id": id_, "n": 1} | values
    return RowChange((number, 0, number), op, (id_,), row)


VALUES: dict[int, dict[str, Any]] = {
    1: {"amount": Decimal("-123456789012345678901234567890.123456789"), "x": math.inf, "good": True},
    2: {"amount": Decimal("0.000000001"), "x": -math.inf, "at": 1_700_000_000_123_456_789, "good": False},
    3: {"amount": Decimal("1E+3"), "x": 5e-324, "at": -1, "name": 'a\0b"\\\n\u2028é😀'},
    4: {"amount": None, "x": 0.1 + 0.2, "n": 2**62},
}


def test_values_are_exact(server: PostgresServer) -> None:
    problems = Problems()
    # A column that is declared to hold ns has them.
    server.rows(
        "CREATE TABLE own (_key text PRIMARY KEY, id bigint, amount numeric, x float8, at bigint, good bool, "
        "name text, n numeric(40, 2), _multiplicity int, _stamp bigint, _switch int, _seq bigint, more text)"
    )
    for table in ("made", "own"):
        target = PostgresRows(server.url, table, kinds(), problems)
        target.open()
        target.write([change(1, id_=id_, **values) for id_, values in VALUES.items()])
        target.replace([change(2, id_=id_, **values) for id_, values in VALUES.items()], (2, 0, 2))
        target.close()
    found = server.rows("SELECT amount::text, x, at, good, name, n::bigint, _stamp FROM own ORDER BY id")
    assert found == [
        ("-123456789012345678901234567890.123456789", math.inf, None, True, None, 1, 1),
        ("0.000000001", -math.inf, 1_700_000_000_123_456_789, False, None, 1, 1),
        ("1000", 5e-324, -1, None, 'a\ufffdb"\\\n\u2028é😀', 1, 1),
        (None, 0.1 + 0.2, None, None, None, 2**62, 1),
    ]
    times = server.rows("SELECT at::text FROM made ORDER BY id")
    assert times == [(None,), ("2023-11-14 22:13:20.123456",), ("1969-12-31 23:59:59.999999",), (None,)]
    assert set(problems.counts) == {"NUL in a text"}


def test_an_older_version_never_overwrites_a_newer(server: PostgresServer) -> None:
    target = PostgresRows(server.url, "older", kinds(), Problems())
    target.open()
    target.write([change(5, n=5)])
    target.write([change(4, n=4)])
    target.write([change(4, "delete")])
    assert server.rows("SELECT n, _seq FROM older") == [(5, 5)]
    target.write([change(5, n=6)])
    assert server.rows("SELECT n, _seq FROM older") == [(6, 5)]
    assert server.rows("SELECT _seq FROM orderbook_sinks WHERE target = 'older'") == [(5,)]
    later = PostgresRows(server.url, "older", kinds(), Problems())
    later.open()
    with pytest.raises(SinkRefused, match="another run writes it since"):
        target.write([change(7, n=7)])
    target.open()
    with pytest.raises(SinkRefused, match="another run writes it since"):
        target.write([change(7, n=7)])
    later.write([change(6, "delete")])
    assert server.rows("SELECT count(*) FROM older") == [(0,)]
    later.close()


def test_changes_that_come_again_are_there_once(server: PostgresServer) -> None:
    target = PostgresChanges(server.url, "again", kinds(), Problems())
    target.open()
    for _ in range(2):
        target.write([change(1, n=1), change(2, "update", n=2), change(3, "delete", n=2)])
    found = server.rows("SELECT _seq, _op, n FROM again ORDER BY 1")
    assert found == [(1, "insert", 1), (2, "update", 2), (3, "delete", 2)]
    target.close()


def test_tables_that_do_not_fit_are_refused(server: PostgresServer) -> None:
    server.rows("CREATE TABLE lacks (_key text PRIMARY KEY, id bigint)")
    with pytest.raises(SinkRefused, match="table lacks has no column 'amount'; its columns are _key, id"):
        PostgresRows(server.url, "lacks", kinds(), Problems()).open()
    taken = compile_views(TYPES.replace("COUNT(*) AS n", "COUNT(*) AS _seq")).program.result("kinds")
    with pytest.raises(SinkRefused, match=r"'_seq', which a sink needs; rename it with AS"):
        PostgresRows(server.url, "t", taken, Problems())
    away = PostgresRows("postgresql://me:secret@/x?host=/nowhere", "t", kinds(), Problems())
    with pytest.raises(SinkError) as raised:
        away.open()
    assert not isinstance(raised.value, SinkRefused) and "secret" not in str(raised.value)


def read(source: TableSource) -> list[Any]:
    return [(c.op, dict(c.row)) for batch in source.reader.read() for c in batch]


def test_a_table_is_read_by_polling(server: PostgresServer) -> None:
    server.rows(
        "CREATE TABLE source (id int PRIMARY KEY, price numeric(20, 8), x real, at timestamptz, good bool, "
        "name varchar, u uuid, j jsonb, d date)"
    )
    server.rows(
        "INSERT INTO source VALUES (1, 1.10, 0.5, '2024-01-02 03:04:05.000006+00', true, 'é', "
        "'00000000-0000-0000-0000-000000000001', '[1]', '2024-01-02')"
    )
    server.rows("INSERT INTO source (id) VALUES (2)")
    source = TableSource(TableOptions(server.url, "source", key=("id",)))
    first, second = read(source)
    row = first[1]
    assert (row["id"], row["price"], row["x"], row["good"], row["name"]) == (
        1,
        Decimal("1.10000000"),
        0.5,
        True,
        "é",
    )
    assert row["at"].isoformat() == "2024-01-02T03:04:05.000006+00:00"
    assert (row["u"], row["j"], row["d"]) == ("00000000-0000-0000-0000-000000000001", "[1]", "2024-01-02")
    assert set(second[1].values()) == {2, None}
    server.rows("UPDATE source SET price = 2 WHERE id = 1")
    server.rows("DELETE FROM source WHERE id = 2")
    assert [(op, one["id"], one["price"]) for op, one in read(source)] == [
        ("-", 1, Decimal("1.10000000")),
        ("-", 2, None),
        ("+", 1, Decimal("2.00000000")),
    ]
    server.kill()
    with pytest.raises(SourceError, match="cannot read"):
        read(source)
    server.start()
    assert read(source) == []
    with pytest.raises(SourceError, match="has no table 'nothing'"):
        TableSource(TableOptions(server.url, "nothing"))


def test_what_a_sink_has_appended_is_read_as_a_log(server: PostgresServer) -> None:
    server.rows("CREATE TABLE logged (sequence bigserial PRIMARY KEY, op text, id int, price numeric)")
    server.rows("INSERT INTO logged (op, id, price) VALUES ('insert', 1, 1.5), ('delete', 1, 1.5)")
    source = TableSource(TableOptions(server.url, "logged", mode="log"))
    assert read(source) == [(op, {"id": 1, "price": Decimal("1.5")}) for op in "+-"]
    assert read(source) == []
    server.rows("INSERT INTO logged (op, id, price) VALUES ('insert', 2, NULL)")
    assert read(source) == [("+", {"id": 2, "price": None})]
    assert source.reader.position == 3
