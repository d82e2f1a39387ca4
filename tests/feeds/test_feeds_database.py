"""Tables of databases as changes: change logs, polling, and what goes wrong."""

import asyncio
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from command_line_support import NO_STRATEGIES, Program, orderbook, write
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import TableFeed
from orderbook.core.errors import Problems, SourceError, UserError
from orderbook.feeds import database_table
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.database_table import TableOptions, TableReader, TableSource, table_options
from orderbook.feeds.merge import ChangeItem, Item
from orderbook.feeds.source_kinds import open_source
from orderbook.market.instruments import Instruments
from orderbook.run.feed_runs import open_runs
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

__all__ = ["orderbook"]

Execute = Callable[..., None]
STREAM = "CREATE STREAM holdings (id BIGINT NOT NULL, name TEXT, amount DECIMAL(18, 8));"


class SqliteFile:
    """A SQLite file that commits each call."""

    def __init__(self, path: Path) -> None:
        self.path = path / "data.db"

    def __call__(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()


class DuckFile(SqliteFile):
    """A DuckDB file that commits each call."""

    def __init__(self, path: Path) -> None:
        self.path = path / "data.duckdb"

    def __call__(self, *statements: str) -> None:
        with duckdb.connect(str(self.path)) as connection:
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")


@pytest.fixture(params=[SqliteFile, DuckFile])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteFile:
    made: SqliteFile = request.param(tmp_path)
    return made


def reader(db: SqliteFile, table: str, **options: Any) -> tuple[TableReader, Problems]:
    problems = Problems()
    return TableReader(TableOptions(str(db.path), table, **options), problems, Counter()), problems


def messages(batches: Any) -> list[list[tuple[str, dict[str, Any]]]]:
    """(op, row) of the changes of each message."""
    found: list[list[tuple[str, dict[str, Any]]]] = [[]]
    for batch in batches:
        assert batch[-1].last
        for change in batch:
            found[-1].append((change.op, dict(change.row)))
            if change.last:
                found.append([])
    return found[:-1]


def row(number: int, name: str | None, amount: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "amount": amount}


def test_a_log_in_order_of_its_sequence(db: SqliteFile) -> None:
    own = "id BIGINT, name TEXT, old_id BIGINT, old_name TEXT"
    db(f"CREATE TABLE log (seq BIGINT, what TEXT, tx BIGINT, {own})")
    db(
        "INSERT INTO log VALUES (3, 'update', 2, 1, 'c', 1, 'a')",
        "INSERT INTO log VALUES (1, 'INSERT', 1, 1, 'a', NULL, NULL)",
        "INSERT INTO log VALUES (2, '+', 1, 2, 'b', NULL, NULL)",
        "INSERT INTO log VALUES (4, '-', NULL, NULL, NULL, 2, 'b')",
        "INSERT INTO log VALUES (5, 'truncate', NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO log VALUES (6, 'i', NULL, 7, 'g', NULL, NULL)",
    )
    text = f"table:{db.path}#log?mode=log&sequence=seq&op=what&transaction=tx&relation=r"
    source = open_source(text)
    assert isinstance(source, TableSource)
    a, b, c, g = ({"id": i, "name": n} for i, n in ((1, "a"), (2, "b"), (1, "c"), (7, "g")))
    expected = [[("+", a), ("+", b)], [("-", a), ("+", c)], [("-", b)], [("+", g)]]
    for _ in range(2):
        found = list(source)
        assert messages(found) == expected
        assert {change.stream for batch in found for change in batch} == {"r"}
        assert source.problems.counts == {"unknown operation": 1}
        assert source.progress == 1.0
    assert source.reader.position == 6
    assert "sequence 5" in source.problems.report()[0]
    db("INSERT INTO log VALUES (9, 'i', NULL, 9, 'h', NULL, NULL)")
    assert messages(source.reader.read()) == [[("+", {"id": 9, "name": "h"})]]
    assert messages(source.reader.read()) == []
    assert source.reader.position == 9
    assert messages(open_source(f"{text}&after=4")) == [[("+", g)], [("+", {"id": 9, "name": "h"})]]


def test_a_log_with_two_rows_for_an_update_and_renamed_columns(db: SqliteFile) -> None:
    db("CREATE TABLE log (sequence BIGINT, op TEXT, k BIGINT, label TEXT, who TEXT)")
    rows = ((1, "+", 1, "a"), (2, "-", 1, "a"), (3, "+", 1, "b"), (4, "u", 1, "c"))
    db(*(f"INSERT INTO log VALUES ({s}, '{op}', {k}, '{label}', 'x')" for s, op, k, label in rows))
    log, problems = reader(db, "log", mode="log", columns=("id:k", "name:label"))
    assert messages(log.read()) == [
        [("+", {"id": 1, "name": "a"})],
        [("-", {"id": 1, "name": "a"})],
        [("+", {"id": 1, "name": "b"})],
    ]
    assert problems.counts == {"update without its old row": 1}


def test_new_and_old_images(db: SqliteFile) -> None:
    db("CREATE TABLE log (sequence BIGINT, op TEXT, old_id BIGINT, new_id BIGINT)")
    db("INSERT INTO log VALUES (1, 'insert', NULL, 5)", "INSERT INTO log VALUES (2, 'update', 5, 6)")
    log, _ = reader(db, "log", mode="log")
    assert messages(log.read()) == [[("+", {"id": 5})], [("-", {"id": 5}), ("+", {"id": 6})]]


def test_a_long_log_comes_in_whole_messages(db: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_table, "DEFAULT_CHANGES", 10)
    db(
        "CREATE TABLE log (sequence BIGINT, op TEXT, tx BIGINT, id BIGINT)",
        *(f"INSERT INTO log VALUES ({i}, '+', {i // 7}, {i})" for i in range(100)),
    )
    source = TableSource(TableOptions(str(db.path), "log", mode="log", transaction="tx"))
    fractions, found = [], []
    for batch in source:
        fractions.append(source.progress)
        found.append(batch)
    assert [len(message) for message in messages(found)] == [7] * 14 + [2]
    assert len(found) > 5
    assert fractions == sorted(fractions) and 0 < fractions[0] < 0.5 and fractions[-1] == 1.0


def test_polling_by_key_gives_the_difference(db: SqliteFile) -> None:
    db("CREATE TABLE holdings (id BIGINT, name TEXT)")
    db("INSERT INTO holdings VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    table, problems = reader(db, "holdings", key=("id",))
    one, two, three = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None}
    assert messages(table.read()) == [[("+", one), ("+", two), ("+", three)]]
    assert messages(table.read()) == []
    db("UPDATE holdings SET name = 'c' WHERE id = 1", "DELETE FROM holdings WHERE id = 2")
    assert messages(table.read()) == [[("-", one), ("-", two), ("+", {"id": 1, "name": "c"})]]
    db("INSERT INTO holdings VALUES (1, 'd')")
    assert messages(table.read()) == []
    assert problems.counts == {"key that is not unique": 1}


keys = st.integers(0, 4)
tables = st.lists(st.tuples(keys, st.sampled_from(["a", "b", None])), max_size=8)


@given(polls=st.lists(tables, min_size=1, max_size=5), keyed=st.booleans())
def test_polls_add_up_to_the_table(
    tmp_path_factory: pytest.TempPathFactory, polls: Sequence[Sequence[tuple[int, str | None]]], keyed: bool
) -> None:
    db = SqliteFile(tmp_path_factory.mktemp("polls"))
    db("CREATE TABLE t (id BIGINT, name TEXT)")
    table, _ = reader(db, "t", key=("id",) if keyed else ())
    held: Counter[Any] = Counter()
    for poll in polls:
        rows = list(dict(poll).items()) if keyed else list(poll)
        texts = (f"({k}, {'NULL' if name is None else repr(name)})" for k, name in rows)
        db("DELETE FROM t", *(f"INSERT INTO t VALUES {text}" for text in texts))
        found = messages(table.read())
        assert len(found) <= 1
        for op, values in (change for message in found for change in message):
            held[tuple(values.values())] += 1 if op == "+" else -1
            assert held[tuple(values.values())] >= 0
        assert +held == Counter(rows)


def test_values_come_exactly(tmp_path: Path) -> None:
    sqlite, duck = SqliteFile(tmp_path), DuckFile(tmp_path)
    sqlite(
        "CREATE TABLE t (b BOOLEAN, m TIMESTAMP, n TIMESTAMP, i INTEGER, f REAL, s TEXT)",
        "INSERT INTO t VALUES (1, '2024-01-02 03:04:05', 17, 9007199254740993, 0.1, 'é')",
    )
    duck(
        "CREATE TABLE t (b BOOLEAN, m TIMESTAMP_NS, n TIMESTAMPTZ, i HUGEINT, f DECIMAL(38, 10), s UUID)",
        "INSERT INTO t VALUES (true, '2024-01-02 03:04:05.123456789', '1970-01-01 00:00:01+00', "
        "170141183460469231731687303715884105727, 1234567890123456789012345678.0123456789, "
        "'00000000-0000-0000-0000-000000000001')",
    )
    ((((_, first),),), (((_, second),),)) = (messages(reader(db, "t")[0].read()) for db in (sqlite, duck))
    moment = datetime(2024, 1, 2, 3, 4, 5)
    assert first == {"b": True, "m": moment, "n": 17, "i": 9007199254740993, "f": 0.1, "s": "é"}
    assert first["b"] is True
    assert second == {
        "b": True,
        "m": 1_704_164_645_123_456_789,
        "n": 1_000_000_000,
        "i": 2**127 - 1,
        "f": Decimal("1234567890123456789012345678.0123456789"),
        "s": "00000000-0000-0000-0000-000000000001",
    }


def test_views_over_a_changing_table_equal_its_own(db: SqliteFile) -> None:
    """A program that follows a table, and one that follows its log, show what the database computes."""
    chance = random.Random(4)
    columns = "name, SUM(amount) AS amount, COUNT(*) AS n"
    sql = f"{STREAM}CREATE VIEW sums AS SELECT {columns} FROM holdings GROUP BY name;"
    db(
        "CREATE TABLE holdings (id BIGINT, name TEXT, amount DECIMAL(18, 8))",
        "CREATE TABLE log (sequence BIGINT, op TEXT, id BIGINT, name TEXT, amount DECIMAL(18, 8), "
        "old_id BIGINT, old_name TEXT, old_amount DECIMAL(18, 8))",
    )
    polled, polling = reader(db, "holdings", key=("id",))
    logged, logging = reader(db, "log", mode="log", relation="holdings")
    pipelines = [Pipeline(GatedEngine(compile_views(sql), "interpreter"), Instruments(())) for _ in range(2)]
    held: dict[int, tuple[str, int]] = {}
    sequence = 0
    for _ in range(25):
        statements = []
        for _ in range(chance.randrange(6)):
            key, new = chance.randrange(8), (chance.choice("xyz"), chance.randrange(1, 9))
            old = held.get(key)
            delete = old is not None and chance.random() < 0.3
            sequence += 1
            after = f"{key}, '{new[0]}', {new[1]}"
            before = "NULL, NULL, NULL" if old is None else f"{key}, '{old[0]}', {old[1]}"
            if delete:
                del held[key]
                statements += [f"DELETE FROM holdings WHERE id = {key}"]
                statements += [f"INSERT INTO log VALUES ({sequence}, 'd', NULL, NULL, NULL, {before})"]
                continue
            op = "i" if old is None else "u"
            held[key] = new
            statements += [f"DELETE FROM holdings WHERE id = {key}", f"INSERT INTO holdings VALUES ({after})"]
            statements += [f"INSERT INTO log VALUES ({sequence}, '{op}', {after}, {before})"]
        db(*statements)
        expected: dict[Any, Any] = {}
        for name, amount in held.values():
            total, count = expected.get((name,), (0, 0))
            expected[name,] = (total + amount, count + 1)
        for pipeline, source in zip(pipelines, (polled, logged), strict=True):
            for batch in source.read():
                pipeline.apply(ChangeItem("table", batch))
            view = pipeline.engine["sums"]
            assert {k: (r["amount"], r["n"]) for k, r in view.items()} == expected
    assert polling.counts == logging.counts == pipelines[0].problems.counts == {}


def test_rows_that_do_not_fit_are_reported_one_by_one(orderbook: Program, tmp_path: Path) -> None:
    db = SqliteFile(tmp_path)
    db(
        "CREATE TABLE holdings (id INTEGER, name TEXT, amount)",
        "INSERT INTO holdings VALUES (1, 'a', 1.5), (NULL, 'b', 1), (3, 5, '2.25')",
        "INSERT INTO holdings VALUES (4, 'd', 'much'), (5, NULL, NULL)",
    )
    sums = "CREATE VIEW sums AS SELECT SUM(amount) AS amount, COUNT(*) AS n FROM holdings;"
    view = write(tmp_path / "sums.sql", f"{STREAM}\n{sums}")
    config = write(tmp_path / "c.toml", NO_STRATEGIES + 'backend = "interpreter"\n')
    result = orderbook("replay", f"table:{db.path}#holdings", "--config", config, "--view", view)
    assert result.status == 0, result.err
    assert "amount=3.75 n=3" in result.out
    assert "2 x row refused" in result.out
    assert "holdings.id: NULL in a NOT NULL column" in result.out
    assert "'much' is not a number" in result.out
    db("ALTER TABLE holdings ADD COLUMN more TEXT")
    result = orderbook("replay", f"table:{db.path}#holdings", "--config", config, "--view", view)
    assert result.status == 1 and "most changes of rows refused (5)" in result.err
    assert "5 x row refused" in result.out and "has no column 'more'" in result.out
    chosen = f"table:{db.path}#holdings?columns=id,name"
    result = orderbook("replay", chosen, "--config", config, "--view", view)
    assert " n=4" in result.out, result.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.db#t", "cannot read"),
        ("data.db", "write the table after the file"),
        ("data.db#other", "has no table 'other'"),
        ("data.db#t?key=x", "the key 'x' is none of the columns id, name"),
        ("data.db#t?columns=x", "no column 'x'; its columns are id, name"),
        ("data.db#t?mode=log", "no column 'sequence'"),
        ("data.db#t?mode=read", "mode is 'poll' or 'log'"),
        ("data.db#t?kye=x", "did you mean 'key'"),
        ("text.db#t", "neither a SQLite nor a DuckDB file"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, message: str) -> None:
    SqliteFile(tmp_path)("CREATE TABLE t (id INTEGER, name TEXT)")
    (tmp_path / "text.db").write_text("nothing of the kind")
    with pytest.raises(SourceError) as raised:
        open_source(f"table:{tmp_path / text}")
    assert message in str(raised.value)


def test_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(UserError, match=r"pip install 'orderbook\[postgres\]'") as raised:
        open_source("table:postgresql://me:secret@localhost/db#t")
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read") as raised:
        open_source(f"table:postgresql://me:secret@/db?host={tmp_path}#t")
    assert "secret" not in str(raised.value)


def test_names_do_not_show_passwords() -> None:
    options = table_options("postgresql://me:secret@host/db?sslmode=require#s.t?mode=log&key=a,b")
    assert options.name == "table:postgresql://host/db?sslmode=require#s.t"
    assert (options.stream, options.key, options.mode) == ("t", ("a", "b"), "log")


def test_the_configuration_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[feeds]]\nkind = "table"\nurl = "data.db"\ntable = "t"\ninterval_seconds = 0.5\nkey = ["id"]\n'
    )
    (feed,) = load_configuration(path).feeds
    assert isinstance(feed, TableFeed)
    assert feed.table_options == TableOptions(str(tmp_path / "data.db"), "t", key=("id",))
    assert feed.interval_seconds == 0.5
    (feed,) = load_configuration(None, {"feeds": ["table:data.db#t?mode=log&relation=r"]}).feeds
    assert isinstance(feed, TableFeed)
    assert feed.table_options == TableOptions("data.db", "t", "r", "log")


def test_a_live_table_is_polled_again_also_after_it_went_away(tmp_path: Path) -> None:
    db = SqliteFile(tmp_path)
    db("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
    feed = TableFeed(kind="table", url=str(db.path), table="t", interval_seconds=0.01)
    taken: list[RelationChange] = []

    async def follow() -> dict[str, int]:
        (run,), _ = await open_runs([feed])

        async def put(item: Item) -> None:
            assert isinstance(item, ChangeItem)
            taken.extend(item.changes)

        async def until(done: Callable[[], bool]) -> None:
            while not done():
                assert not task.done()
                await asyncio.sleep(0.005)

        task = asyncio.create_task(run.follow(put))
        await until(lambda: len(taken) == 1)
        db("INSERT INTO t VALUES (2)")
        await until(lambda: len(taken) == 2)
        away = db.path.rename(tmp_path / "away.db")
        await until(lambda: bool(run.report().problems.counts))
        away.rename(db.path)
        db("DELETE FROM t WHERE id = 1")
        await until(lambda: len(taken) == 3)
        task.cancel()
        return dict(run.report().problems.counts)

    problems = asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    assert [(change.op, change.row["id"], change.last) for change in taken] == [
        ("+", 1, True),
        ("+", 2, True),
        ("-", 1, True),
    ]
    assert list(problems) == ["table not read"]
