"""Every door of a run gives the rows that the engine has at the version that it tells, while events flow."""

import csv
import io
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal
from typing import Any

import duckdb
import monitor_support
import pandas as pd
import polars as pl
import pytest
import sqlalchemy
from adbc_driver_postgresql import dbapi as adbc
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters
from monitor_support import flow
from paths import SUPPORT
from pyarrow import flight
from samples import PATIENCE
from served_support import Served, served

_SQL = "SELECT symbol, orders, best FROM depth ORDER BY symbol"
Rows = list[tuple[Any, ...]]


class _Doors:
    """What reads `depth` through each door: the version that it tells, and the rows.

    Methods `with_…` are the doors.
    """

    def __init__(self, one: Served, closed: ExitStack) -> None:
        self._url = one.url
        self._connection = closed.enter_context(one.connect(autocommit=True))
        self._arrow = closed.enter_context(closing(adbc.connect(one.url)))
        self._engine = sqlalchemy.create_engine(one.url.replace("postgresql://", "postgresql+psycopg://"))
        closed.callback(self._engine.dispose)
        self._flight = closed.enter_context(flight.connect(one.flight_url))
        self._page = f"http://127.0.0.1:{one.run.server.port}/"
        command = ["-m", "orderbook.command_line", "mcp", "--url", self._page]
        self._portal = closed.enter_context(start_blocking_portal())
        client = Client(StdioServerParameters(command=sys.executable, args=command))
        self._mcp = closed.enter_context(self._portal.wrap_async_context_manager(client))

    def all(self) -> Mapping[str, Callable[[], tuple[str, Rows]]]:
        return {name: getattr(self, name) for name in dir(self) if name.startswith("with_")}

    def asking(self) -> Mapping[str, Callable[[str], Rows]]:
        """What gives the rows of any SQL, by door."""
        return {
            "postgres": self._by_postgres,
            "flight": self._by_flight,
            "mcp": self._by_mcp,
            "query": self._by_query,
        }

    def _by_postgres(self, sql: str) -> Rows:
        return self._connection.execute(sql).fetchall()

    def _by_flight(self, sql: str) -> Rows:
        ticket = flight.Ticket(json.dumps({"sql": sql}).encode())
        table = self._flight.do_get(ticket, flight.FlightCallOptions(timeout=PATIENCE)).read_all()
        return [tuple(row.values()) for row in table.to_pylist()]

    def _by_mcp(self, sql: str) -> Rows:
        answer = self._portal.call(self._mcp.call_tool, "query", {"sql": sql})
        if answer.structured_content is None:
            raise ValueError(answer.content[0].text)
        return [tuple(row) for row in answer.structured_content["rows"]]

    def _by_query(self, sql: str) -> Rows:
        command = ["-m", "orderbook.command_line", "query", "--url", self._page, "--format", "json", sql]
        said = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        if said.returncode:
            raise ValueError(said.stderr)
        return [tuple(row.values()) for row in json.loads(said.stdout)]

    def with_psql(self) -> tuple[str, Rows]:
        said = subprocess.run(
            ["psql", "-X", "--csv", "-t", "-c", _SQL, "-c", "SHOW orderbook.version", self._url],
            capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        *rows, (version,) = csv.reader(io.StringIO(said.stdout))
        return version, [(symbol, int(orders), Decimal(best)) for symbol, orders, best in rows]

    def with_psycopg(self) -> tuple[str, Rows]:
        rows = self._connection.execute(_SQL).fetchall()
        return str(self._connection.info.parameter_status("orderbook.version")), rows

    def with_sqlalchemy(self) -> tuple[str, Rows]:
        with self._engine.connect() as own:
            rows = [tuple(row) for row in own.execute(sqlalchemy.text(_SQL))]
            return _version(own), rows

    def with_pandas(self) -> tuple[str, Rows]:
        with self._engine.connect() as own:
            frame = pd.read_sql(_SQL, own, coerce_float=False)
            return _version(own), list(frame.itertuples(index=False, name=None))

    def with_polars(self) -> tuple[str, Rows]:
        with self._engine.connect() as own:
            frame = pl.read_database(_SQL, own)
            return _version(own), frame.rows()

    def with_adbc(self) -> tuple[str, Rows]:
        with self._arrow.cursor() as cursor:
            # It gives numerics as texts, from PostgreSQL too.
            rows = [(s, n, Decimal(best)) for s, n, best in cursor.execute(_SQL).fetchall()]
            return str(cursor.execute("SHOW orderbook.version").fetchall()[0][0]), rows

    def with_flight(self) -> tuple[str, Rows]:
        wait = flight.FlightCallOptions(timeout=PATIENCE)
        reader = self._flight.do_get(flight.Ticket(b'{"view": "depth"}'), wait)
        rows = pl.DataFrame(reader.read_all()).select("symbol", "orders", "best").sort("symbol").rows()
        return reader.schema.metadata[b"orderbook.version"].decode(), rows

    def with_mcp(self) -> tuple[str, Rows]:
        answer = self._portal.call(self._mcp.call_tool, "query", {"sql": _SQL}).structured_content
        rows = [(symbol, orders, Decimal(best)) for symbol, orders, best in answer["rows"]]
        return ",".join(map(str, answer["version"])), rows


def _version(connection: sqlalchemy.Connection) -> str:
    return str(connection.execute(sqlalchemy.text("SHOW orderbook.version")).scalar())


@contextmanager
def _flowing(one: Served) -> Iterator[dict[str, Rows]]:
    """Events flow into a run; the rows of each version after which it had nothing to do."""
    states: dict[str, Rows] = {}
    ending = threading.Event()

    def flowing() -> None:
        for number in range(1, 1_000_000):
            if ending.is_set():
                return
            events = flow(40)
            events["order_id"] += number << 24
            one.put(events)
            version = ",".join(map(str, one.run.engine.version))
            states[version] = (
                one.run.engine.frame("depth").select("symbol", "orders", "best").sort("symbol").rows()
            )
            ending.wait(0.05)

    thread = threading.Thread(target=flowing)
    thread.start()
    try:
        yield states
    finally:
        ending.set()
        thread.join(PATIENCE)


@pytest.mark.sampled(2)
def test_all_doors_read_the_same_rows_at_one_version_while_events_flow() -> None:
    with served(postgres={}, flight={}) as one, ExitStack() as closed:
        doors = dict(_Doors(one, closed).all())
        if shutil.which("psql") is None:
            del doors["with_psql"]
        with _flowing(one) as states:
            for name, door in doors.items():
                seen: set[str] = set()
                until = time.monotonic() + PATIENCE
                while len(seen) < 2:
                    assert time.monotonic() < until, name
                    version, rows = door()
                    if version in states:
                        assert rows == states[version], name
                        seen.add(version)
        # Of the last version all tell the same.
        last = list(states.items())[-1]
        assert {name: door() for name, door in doors.items()} == dict.fromkeys(doors, last)


_FUNCTION = """
CREATE FUNCTION decay(x DOUBLE, half DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'user_signals:decay';
CREATE VIEW pressed AS SELECT symbol, SUM(decay(price, 2) * volume) AS pressure FROM bids GROUP BY symbol;
"""


@pytest.mark.sampled(2)
def test_views_that_call_functions_in_python_are_read_at_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only files declare functions.
    sql_of_file = {str(SUPPORT / "views.sql"): monitor_support.SQL + _FUNCTION}
    monkeypatch.setattr(monitor_support, "SQL", sql_of_file)
    sql = "SELECT symbol, pressure FROM pressed ORDER BY symbol"
    called = "SELECT decay(1, 2) FROM pressed"
    with served(postgres={}, flight={}) as one, ExitStack() as closed:
        doors = _Doors(one, closed)
        for number in (1, 2):
            events = flow(60)
            events["order_id"] += number << 32
            one.put(events)
            expected = one.run.engine.frame("pressed").sort("symbol").rows()
            assert len(expected) == 2 and all(pressure > 0 for _, pressure in expected)
            for name, ask in doors.asking().items():
                assert ask(sql) == expected, name
        for name, ask in doors.asking().items():
            with pytest.raises(Exception, match="no function is named 'decay'; those of a program"):
                print(name, ask(called))


@pytest.fixture
def reader() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its reader of PostgreSQL, an extension that it downloads."""
    with duckdb.connect() as connection:
        try:
            connection.execute("INSTALL postgres; LOAD postgres")
        except duckdb.IOException:
            pytest.skip(f"DuckDB {duckdb.__version__} cannot download its reader of PostgreSQL here")
        yield connection


def test_duckdbs_reader_reads_rows_of_one_version_while_events_flow(
    reader: duckdb.DuckDBPyConnection,
) -> None:
    with served(postgres={}) as one:
        reader.execute(f"ATTACH '{one.url}' AS run (TYPE postgres, READ_ONLY)")
        sql = _SQL.replace("depth", "run.depth")
        with _flowing(one) as states:
            # It tells no version, so the rows must be those of some.
            until = time.monotonic() + PATIENCE
            while reader.execute(sql).fetchall() not in list(states.values()):
                assert time.monotonic() < until
        assert reader.execute(sql).fetchall() == list(states.values())[-1]
