"""Every door of a run gives the rows that the engine has at the version that it tells, while events flow."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import psycopg
import sqlalchemy
from monitor_support import flow
from pyarrow import flight
from samples import PATIENCE
from served_support import Served, served

from orderbook.commands.mcp_server import RunTools

_SQL = "SELECT symbol, orders, best FROM depth ORDER BY symbol"
Rows = list[tuple[Any, ...]]


def _doors(
    one: Served, connection: psycopg.Connection[Any], engine: sqlalchemy.Engine, client: flight.FlightClient
) -> Mapping[str, Callable[[], tuple[str, Rows]]]:
    """What reads `depth` through each door: the version that it tells, and the rows."""
    tools = RunTools(f"http://127.0.0.1:{one.run.server.port}/", "")

    def with_psycopg() -> tuple[str, Rows]:
        rows = connection.execute(_SQL).fetchall()
        return str(connection.info.parameter_status("orderbook.version")), rows

    def with_sqlalchemy() -> tuple[str, Rows]:
        with engine.connect() as own:
            rows = [tuple(row) for row in own.execute(sqlalchemy.text(_SQL))]
            return str(own.execute(sqlalchemy.text("SHOW orderbook.version")).scalar()), rows

    def with_pandas() -> tuple[str, Rows]:
        with engine.connect() as own:
            frame = pd.read_sql(_SQL, own, coerce_float=False)
            version = str(own.execute(sqlalchemy.text("SHOW orderbook.version")).scalar())
            return version, list(frame.itertuples(index=False, name=None))

    def with_flight() -> tuple[str, Rows]:
        wait = flight.FlightCallOptions(timeout=PATIENCE)
        reader = client.do_get(flight.Ticket(b'{"view": "depth"}'), wait)
        rows = pl.DataFrame(reader.read_all()).select("symbol", "orders", "best").sort("symbol").rows()
        return reader.schema.metadata[b"orderbook.version"].decode(), rows

    def with_mcp_tools() -> tuple[str, Rows]:
        answer = asyncio.run(tools.query(_SQL))
        rows = [(symbol, orders, Decimal(best)) for symbol, orders, best in answer["rows"]]
        return ",".join(map(str, answer["version"])), rows

    doors = (with_psycopg, with_sqlalchemy, with_pandas, with_flight, with_mcp_tools)
    return {door.__name__: door for door in doors}


def test_all_doors_read_the_same_rows_at_one_version_while_events_flow() -> None:
    states: dict[str, Rows] = {}
    ending = threading.Event()

    def flowing(one: Served) -> None:
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

    with (
        served(postgres={}, flight={}) as one,
        one.connect(autocommit=True) as connection,
        flight.connect(one.flight_url) as client,
    ):
        engine = sqlalchemy.create_engine(one.url.replace("postgresql://", "postgresql+psycopg://"))
        doors = _doors(one, connection, engine, client)
        thread = threading.Thread(target=flowing, args=(one,))
        thread.start()
        try:
            for name, door in doors.items():
                seen: set[str] = set()
                until = time.monotonic() + PATIENCE
                while len(seen) < 2:
                    assert time.monotonic() < until, name
                    version, rows = door()
                    if version in states:
                        assert rows == states[version], name
                        seen.add(version)
        finally:
            ending.set()
            thread.join(PATIENCE)
        # Of the last version all tell the same.
        last = list(states.items())[-1]
        assert {name: door() for name, door in doors.items()} == dict.fromkeys(doors, last)
        engine.dispose()
