"""Clients of PostgreSQL: psql, psycopg, SQLAlchemy and pandas read views, and change nothing."""

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import psycopg
import pytest
import sqlalchemy
from monitor_support import INSTRUMENTS, flow
from psycopg import generators
from samples import PATIENCE
from served_support import Served, served

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import POSTGRES_PASSWORD
from orderbook.core.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with served(postgres={}) as found:
        yield found


def engine_rows(one: Served) -> list[tuple[Any, ...]]:
    frame = one.run.engine.frame("depth").sort("symbol")
    return frame.rows()


def test_psycopg_reads_rows_and_the_version_that_they_are_of(one: Served) -> None:
    with one.connect() as connection:
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                cursor.execute("SELECT * FROM depth WHERE orders >= %s ORDER BY symbol", (1,))
                assert cursor.fetchall() == engine_rows(one)
        version = connection.info.parameter_status("orderbook.version")
        assert version == ",".join(map(str, one.run.engine.version))
        assert connection.execute("SHOW orderbook.version").fetchone() == (version,)
        symbol = "x' OR '1' = '1"
        assert connection.execute("SELECT * FROM public.depth WHERE symbol = %s", (symbol,)).fetchall() == []


def test_a_prepared_statement_has_types_before_it_has_values(one: Served) -> None:
    with one.connect() as connection:
        pg = connection.pgconn
        pg.send_prepare(b"p", b"SELECT symbol, best, orders > $1::int AS many FROM depth WHERE symbol = $2")
        connection.wait(generators.execute(pg))
        pg.send_describe_prepared(b"p")
        (told,) = connection.wait(generators.execute(pg))
        assert [told.param_type(n) for n in range(2)] == [23, 25]
        assert [told.fname(n) for n in range(3)] == [b"symbol", b"best", b"many"]
        assert [told.ftype(n) for n in range(3)] == [25, 1700, 16]


def test_cursors_are_read_in_parts(one: Served) -> None:
    with one.connect() as connection:
        with connection.cursor("part") as cursor:
            cursor.execute("SELECT range FROM range(1500)")
            assert [row[0] for row in cursor.fetchmany(3)] == [0, 1, 2]
            assert len(cursor.fetchall()) == 1497
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH 1 FROM part")


def test_subscribed_changes_add_up_to_the_view(one: Served) -> None:
    with one.connect(autocommit=True) as connection:
        connection.execute("DECLARE changes CURSOR FOR SUBSCRIBE depth")
        rows: dict[tuple[Any, ...], int] = {}
        for events in (30, 60, 90):
            one.put(flow(events))
            connection.execute("SELECT 1 FROM depth")
            target = dict.fromkeys(engine_rows(one), 1)
            for _ in range(200):
                for *_, diff, symbol, orders, best in connection.execute(
                    "FETCH ALL changes WITH (timeout = '100ms')"
                ).fetchall():
                    rows[symbol, orders, best] = rows.get((symbol, orders, best), 0) + diff
                rows = {row: count for row, count in rows.items() if count}
                if rows == target:
                    break
            assert rows == target
    with one.connect(autocommit=True) as connection, connection.cursor() as cursor:

        def rows_until_cancelled() -> None:
            with cursor.copy("COPY (SUBSCRIBE depth) TO STDOUT") as out:
                for row in out.rows():
                    assert row[3] == "1"
                    connection.cancel_safe()

        with pytest.raises(psycopg.errors.QueryCanceled):
            rows_until_cancelled()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_copies(one: Served) -> None:
    with one.connect() as connection, connection.cursor() as cursor:
        sql = "COPY (SELECT symbol, orders FROM depth ORDER BY 1) TO STDOUT (FORMAT csv, HEADER)"
        with cursor.copy(sql) as out:
            lines = b"".join(bytes(part) for part in out).decode().splitlines()
        assert lines == ["symbol,orders", *(f"{symbol},{orders}" for symbol, orders, _ in engine_rows(one))]
        for sql in ("SELECT * FROM depth ORDER BY symbol", "SELECT * FROM depth WHERE orders < 0"):
            with cursor.copy(f"COPY ({sql}) TO STDOUT (FORMAT binary)") as out:
                out.set_types(["text", "int8", "numeric"])
                assert list(out.rows()) == (engine_rows(one) if "ORDER" in sql else [])


def test_drivers_of_arrow_know_the_types(one: Served) -> None:
    frame = pl.read_database_uri("SELECT * FROM depth ORDER BY symbol", one.url, engine="adbc")
    assert frame.rows() == [(symbol, orders, str(best)) for symbol, orders, best in engine_rows(one)]
    assert frame.schema["orders"] == pl.Int64


def test_sqlalchemy_and_pandas(one: Served) -> None:
    engine = sqlalchemy.create_engine(one.url.replace("postgresql:", "postgresql+psycopg:"))
    inspector = sqlalchemy.inspect(engine)
    assert {"bids", "asks", "quotes"} <= set(inspector.get_table_names())
    assert inspector.get_view_names() == ["depth", "kept", "totals"]
    columns = [(column["name"], str(column["type"])) for column in inspector.get_columns("depth")]
    assert columns == [("symbol", "TEXT"), ("orders", "BIGINT"), ("best", "NUMERIC(38, 8)")]
    assert inspector.get_view_definition("depth").startswith("SELECT symbol")
    key = ["venue", "symbol", "id", "price"]
    assert inspector.get_pk_constraint("bids")["constrained_columns"] == key
    assert inspector.get_indexes("quotes") == []
    frame = pd.read_sql_table("depth", engine).sort_values("symbol")
    assert list(frame["orders"]) == [orders for _, orders, _ in engine_rows(one)]
    engine.dispose()


# What Grafana's source for PostgreSQL asks; from its documentation, with what its macros stand for.
GRAFANA = (
    "SELECT quote_ident(table_name) AS \"table\" FROM information_schema.tables WHERE "
    "quote_ident(table_schema) NOT IN "
    "('information_schema', 'pg_catalog') AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = "
    "'\"$user\"' "
    "THEN user ELSE trim(s[i]) END FROM "
    "generate_series(array_lower(string_to_array(current_setting('search_path'),"
    "','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) AS i, "
    "string_to_array(current_setting('search_path'),',') s)",
    "SELECT quote_ident(column_name) AS \"column\", data_type AS \"type\" FROM information_schema.columns "
    "WHERE CASE "
    "WHEN array_length(parse_ident('depth'),1) = 2 THEN quote_ident(table_schema) = "
    "(parse_ident('depth'))[1] "
    "ELSE quote_ident(table_name) = 'depth' END",
    "SELECT current_setting('server_version_num')::int/100 AS version",
    "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
    "SELECT floor(extract(epoch FROM now())/300)*300 AS time, avg(best) AS value, symbol AS metric FROM "
    "depth "
    "WHERE now() BETWEEN '2020-01-01T00:00:00Z' AND '2120-01-01T00:00:00Z' GROUP BY 1, symbol ORDER BY 1, 2",
    "SELECT to_timestamp(1494410783) AS time, best FROM depth WHERE extract(epoch FROM current_timestamp) "
    ">= 1494410783",
    "SELECT DISTINCT symbol AS __text, symbol AS __value FROM public.depth",
)  # fmt: skip


@pytest.mark.parametrize("sql", GRAFANA)
def test_what_grafana_asks(one: Served, sql: str) -> None:
    with one.connect() as connection:
        rows = connection.execute(sql).fetchall()
        assert bool(rows) is ("pg_extension" not in sql)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql_lists_and_describes(one: Served) -> None:
    said = subprocess.run(
        ["psql", "-X", one.url, *(a for c in (r"\d", r"\d depth", r"\d bids", r"\l", r"\dn", r"\du", r"\df",
        r"\dv+",
                                          r"\sv depth", "SELECT nope FROM depth", "TABLE depth")
                              for a in ("-c", c))],
        capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PGCONNECT_TIMEOUT": "30"},
    )  # fmt: skip
    assert "public | depth" in said.stdout and "numeric(38,8)" in said.stdout
    assert "CREATE OR REPLACE VIEW public.depth" in said.stdout
    assert '"bids_pkey" PRIMARY KEY, btree (venue, symbol, id, price)' in said.stdout
    assert INSTRUMENTS[0].symbol in said.stdout
    assert said.stderr.count("ERROR:") == 1 and "nope" in said.stderr, said.stderr


REFUSED = {
    "DELETE FROM bids": "25006",
    "COPY bids FROM STDIN": "42601",
    "CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'os:getpid'": "25006",
    "SELECT * FROM duckdb_settings()": "42601",
    "SELECT * FROM read_csv('/etc/passwd')": "42601",
    "SELECT pg_read_file('/etc/passwd')": "42601",
    "SELECT * FROM nowhere": "42P01",
    "SELECT * FROM pg_class, depth": "42601",
    "SELECT * FROM pg_catalog.pg_shadow": "42601",
    "SUBSCRIBE nowhere": "53000",
    "SELECT 'no end": "42601",
    "SELECT symbol, INTERVAL '5 minutes' FROM depth": "42601",
    "SELECT [INTERVAL '5 minutes']": "42601",
    "FETCH 1 FROM nothing": "34000",
    "SET client_encoding = 'LATIN1'": "22023",
    "SELECT 1 -- " + "x" * 40_000: "54001",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_is_one_line(one: Served, sql: str) -> None:
    with one.connect() as connection:
        with pytest.raises(psycopg.Error) as found:
            connection.execute(sql)
        assert found.value.sqlstate == REFUSED[sql]
        assert "\n" not in str(found.value)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_queries_are_cancelled_and_timed(one: Served) -> None:
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    with one.connect(autocommit=True) as connection:
        connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(endless)
        connection.execute("RESET statement_timeout")
        timer = threading.Timer(0.2, connection.cancel_safe)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(endless)
        timer.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_garbage_ends_a_connection_and_nothing_else(one: Served) -> None:
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!ii", 8, 1 << 20),
        struct.pack("!ii", 1 << 30, 196_608),
        struct.pack("!ii", 9, 196_608) + b"\0" + b"Q" + struct.pack("!i", 1 << 30),
        struct.pack("!ii", 9, 196_608) + b"\0" + b"?" + struct.pack("!i", 4),
        struct.pack("!ii", 9, 196_608) + b"\0" + b"B" + struct.pack("!i", 8) + b"\0\0\xff\xff",
        struct.pack("!iii", 12, 80_877_102, 1),
        b"",
    ):
        with socket.create_connection(("127.0.0.1", one.run.server._postgres_port), PATIENCE) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
    with one.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_passwords_and_encryption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(POSTGRES_PASSWORD, "correct horse")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    made = shutil.which("openssl")
    files: dict[str, Any] = {}
    if made is not None:
        subprocess.run(
            [made, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out",
            str(certificate),
             "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True,
        )  # fmt: skip
        files = {"certificate": certificate, "key": key}
    with served(postgres=files) as one:
        mode = "require" if files else "disable"
        with one.connect(password="correct horse", sslmode=mode) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.pgconn.ssl_in_use is bool(files)
        for wrong in (
            {"password": "battery staple"},
            {"password": ""},
            {"user": "root", "password": "correct horse"},
        ):
            with pytest.raises(psycopg.OperationalError, match="password"):
                one.connect(**wrong)


def test_others_need_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POSTGRES_PASSWORD, raising=False)
    with pytest.raises(ConfigurationError, match=f"postgres.*{POSTGRES_PASSWORD}"):
        load_configuration(None, {"postgres.enabled": True, "postgres.host": "0.0.0.0"})
    with pytest.raises(ConfigurationError, match=r"postgres.*certificate"):
        load_configuration(None, {"postgres.certificate": "server.pem"})
