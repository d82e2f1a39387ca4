"""Clients of Arrow Flight: views in bulk, SQL, changes as they come, and what they are not let do."""

import json
import selectors
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from monitor_support import flow
from pyarrow import flight
from samples import PATIENCE
from served_support import Served, served

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import QueryOptions
from orderbook.core.errors import ConfigurationError
from orderbook.monitor import query_pool
from orderbook.monitor.flight_relay import MOST_CONNECTIONS
from orderbook.monitor.flight_server import MOST_CALLS

WAIT = flight.FlightCallOptions(timeout=PATIENCE)


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with served(flight={}) as found:
        yield found


@pytest.fixture
def client(one: Served) -> Iterator[flight.FlightClient]:
    with flight.connect(one.flight_url) as found:
        yield found


def ticket(text: str) -> flight.Ticket:
    return flight.Ticket(text.encode())


def got(client: flight.FlightClient, text: str, options: Any = WAIT) -> pa.Table:
    return client.do_get(ticket(text), options).read_all()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def engine_rows(one: Served) -> list[tuple[Any, ...]]:
    return one.run.engine.frame("depth").sort("symbol").rows()


def test_a_view_is_read_whole_at_one_version(one: Served, client: flight.FlightClient) -> None:
    infos = {info.descriptor.path[0].decode(): info for info in client.list_flights(options=WAIT)}
    assert infos.keys() >= {"depth", "kept", "totals", "quotes"}
    reader = client.do_get(infos["depth"].endpoints[0].ticket, WAIT)
    table = reader.read_all()
    # What was promised is what comes, with the version beside it.
    assert table.schema == infos["depth"].schema
    assert rows_of(table) == engine_rows(one)
    version = ",".join(map(str, one.run.engine.version)).encode()
    assert reader.schema.metadata == {b"orderbook.version": version}
    assert pl.DataFrame(table).sort("symbol").rows() == engine_rows(one)
    frame = table.to_pandas().sort_values("symbol")
    assert isinstance(frame, pd.DataFrame) and list(frame.itertuples(index=False, name=None)) == engine_rows(
        one
    )


def test_bulk_needs_no_database_and_waits_for_its_own_share(
    one: Served, client: flight.FlightClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = one.run.monitor._operations._queries
    # Of rows that SQL reads nothing fits, of those in bulk all.
    monkeypatch.setattr(query_pool, "_ROWS_SHARE", 0.0)
    with pytest.raises(flight.FlightServerError, match=r"the limit is 0 bytes, 0% of queries.memory"):
        got(client, '{"sql": "SELECT * FROM depth"}')
    assert rows_of(got(client, '{"view": "depth"}')) == engine_rows(one)
    monkeypatch.setattr(query_pool, "_BULK_SHARE", 0.0)
    with pytest.raises(flight.FlightServerError, match=r"the query reads .* of rows"):
        got(client, '{"view": "depth"}')
    monkeypatch.undo()
    # Who has read much in bulk waits, and takes nothing from SQL.
    asked: list[bool] = []

    def admitted_the_fifth_time(number: int) -> bool:
        asked.append(len(asked) > 3)
        return asked[-1]

    monkeypatch.setattr(pool._bulk, "admits", admitted_the_fifth_time)
    assert rows_of(got(client, '{"sql": "SELECT * FROM depth"}')) == engine_rows(one)
    assert not asked
    assert rows_of(got(client, '{"view": "depth"}')) == engine_rows(one)
    assert asked.count(False) == 4
    monkeypatch.setattr(query_pool, "_BULK_PATIENCE", 0.0)
    monkeypatch.setattr(pool._bulk, "admits", lambda n: False)
    with pytest.raises(flight.FlightServerError, match=r"queries\.copying = 0\.01"):
        got(client, '{"view": "depth"}')


def test_bulk_reads_the_view_that_is_named(one: Served, client: flight.FlightClient) -> None:
    """SQL may be answered from another view, which holds the same in columns of its own."""
    engine = one.run.engine
    one.call(lambda: engine.insert("quotes", {"symbol": "A", "volume": 3}))
    one.call(lambda: engine.add_view("CREATE VIEW turned AS SELECT volume, symbol FROM kept"))
    try:
        for text in ('{"view": "kept"}', '{"sql": "SELECT * FROM kept"}'):
            table = got(client, text)
            assert table.column_names == ["symbol", "volume"]
            assert table.to_pylist() == [{"symbol": "A", "volume": 3}]
    finally:
        one.call(lambda: engine.drop_view("turned"))
        one.call(lambda: engine.delete("quotes", {"symbol": "A", "volume": 3}))


def test_sql_has_the_columns_that_its_description_has(client: flight.FlightClient) -> None:
    sql = "SELECT range AS n, range % 7 = 0 AS seventh, repeat('x', 20) AS text, 1.5::DECIMAL(9, 2) AS d, " \
        "TIMESTAMP_NS '2026-01-02 03:04:05.000000006' AS at FROM range(200000)"  # fmt: skip
    info = client.get_flight_info(flight.FlightDescriptor.for_command(sql.encode()), WAIT)
    reader = client.do_get(info.endpoints[0].ticket, WAIT)
    batches = [chunk.data for chunk in reader]
    assert len(batches) > 5 and all(batch.nbytes <= 1 << 20 for batch in batches)
    table = pa.Table.from_batches(batches)
    assert table.schema.equals(info.schema)
    assert table["n"].to_pylist() == list(range(200_000))
    last = table.slice(199_999).to_pylist()[0]
    assert last | {"at": pd.Timestamp(last["at"]).value} == {
        "n": 199_999, "seventh": 199_999 % 7 == 0, "text": "x" * 20, "d": Decimal("1.50"),
        "at": 1767323045000000006,
    }  # fmt: skip
    assert got(client, '{"sql": "SELECT 1 AS a WHERE false"}').num_rows == 0


_ids = count(1 << 40, 1 << 20)


def _new_orders(events: int) -> np.ndarray:
    made = flow(events)
    made["order_id"] += next(_ids)
    return made


def test_changes_add_up_to_the_view(one: Served, client: flight.FlightClient) -> None:
    schema = client.get_schema(flight.FlightDescriptor.for_path("depth", "changes"), WAIT).schema
    assert schema.names[:4] == ["stamp", "switch", "sequence", "diff"]
    reader = client.do_get(ticket('{"changes": "depth"}'), WAIT)
    assert reader.schema == schema
    rows: Counter[tuple[Any, ...]] = Counter()
    versions: list[tuple[int, ...]] = []
    for events in (30, 60, 90):
        one.put(_new_orders(events))
        target = Counter(engine_rows(one))
        while rows != target:
            batch = reader.read_chunk().data
            assert batch.schema == schema
            for stamp, switch, sequence, diff, *row in map(tuple, map(dict.values, batch.to_pylist())):
                rows[tuple(row)] += diff
                versions.append((stamp, switch, sequence))
            rows = Counter({row: times for row, times in rows.items() if times})
    assert versions == sorted(versions) and len(set(versions)) >= 2
    reader.cancel()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"view": "nothing"}', "depth, "),
        ('{"changes": "nothing"}', "cannot be read"),
        ('{"sql": "DROP TABLE depth"}', "only a SELECT"),
        ('{"sql": "SELECT * FROM read_csv(\'/etc/passwd\')"}', "read_csv"),
        ('{"sql": "SELECT oops FROM depth"}', "oops"),
        ('{"sql": "SELECT 1", "file": "/tmp/x"}', "not a ticket"),
        ('{"sql": "SELECT 1", "view": "depth"}', "one of"),
        ('{"sql": "SELECT repeat(\'x\', 5000000)"}', "a row has more than"),
        ('{"sql": "SELECT range, repeat(\'x\', 100) FROM range(100000000)"}', "the limit"),
        ("depth", "not a ticket"),
    ],
)
def test_what_is_refused_says_why(client: flight.FlightClient, text: str, says: str) -> None:
    with pytest.raises(flight.FlightServerError) as refused:
        got(client, text)
    assert says in str(refused.value)
    assert_plain(refused.value)


def assert_plain(error: Exception) -> None:
    """One line, and nothing of the server's own code."""
    said = str(error)
    assert "Traceback" not in said and ".py" not in said and "\n" not in said


@pytest.mark.parametrize(
    ("descriptor", "says"),
    [
        (flight.FlightDescriptor.for_path("nothing"), "'nothing' cannot be read; "),
        (flight.FlightDescriptor.for_path("nothing", "changes"), "'nothing' cannot be read; "),
        (flight.FlightDescriptor.for_path(), "a descriptor has"),
        (flight.FlightDescriptor.for_path("depth", "rows"), "a descriptor has"),
        (flight.FlightDescriptor.for_path(""), "not a ticket"),
        (flight.FlightDescriptor.for_command(b""), "a descriptor has"),
        (flight.FlightDescriptor.for_command(b"\xff"), "a descriptor has"),
        (flight.FlightDescriptor.for_command(b"SELECT oops FROM depth"), "oops"),
        (flight.FlightDescriptor.for_command(b"SELECT $1"), "parameters: 1"),
    ],
)
def test_descriptors_that_are_refused_say_why(
    client: flight.FlightClient, descriptor: flight.FlightDescriptor, says: str
) -> None:
    with pytest.raises(flight.FlightServerError) as refused:
        client.get_flight_info(descriptor, WAIT)
    assert says in str(refused.value)
    assert_plain(refused.value)
    # pyarrow's server gives errors of this call no kind, and adds where they were raised, which is one place.
    with pytest.raises(pa.ArrowException) as refused:
        client.get_schema(descriptor, WAIT)
    assert says in str(refused.value).splitlines()[0] and str(refused.value).count('.py"') <= 1


def test_what_takes_too_long_says_so() -> None:
    sql = "SELECT SUM(a.range * b.range) FROM range(10000000) a, range(1000000) b"
    with (
        served(flight={}, queries=QueryOptions(time_limit="1s")) as one,
        flight.connect(one.flight_url) as client,
    ):
        with pytest.raises(flight.FlightServerError, match="takes longer than 1s, the limit") as refused:
            got(client, json.dumps({"sql": sql}))
        assert_plain(refused.value)


def test_a_fault_of_the_server_shows_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from orderbook.monitor import flight_server

    def failing(_: bytes) -> Any:
        raise KeyError("a fault")

    monkeypatch.setattr(flight_server, "read_ticket", failing)
    with pytest.raises(flight.FlightInternalError, match="KeyError: the call has failed") as told:
        flight_server._Server.do_get(object(), None, ticket("{}"))
    assert_plain(told.value)


def test_nothing_is_changed(client: flight.FlightClient) -> None:
    depth, schema = flight.FlightDescriptor.for_path("depth"), pa.schema([("a", pa.int64())])
    writer, _ = client.do_put(depth, schema, WAIT)
    calls = (
        writer.close,
        lambda: list(client.do_action("drop", WAIT)),
        lambda: list(client.list_actions(WAIT)),
        lambda: client.do_exchange(depth, WAIT)[1].read_all(),
    )
    for call in calls:
        with pytest.raises(flight.FlightServerError, match="nothing is changed here") as refused:
            call()
        assert_plain(refused.value)


def test_places_come_back_when_calls_and_connections_end(one: Served) -> None:
    following = ticket('{"changes": "depth"}')
    with flight.connect(one.flight_url) as client:
        readers = [client.do_get(following, WAIT) for _ in range(MOST_CALLS)]
        for reader in readers:
            reader.read_chunk()
        with pytest.raises(flight.FlightUnavailableError, match="calls of a connection") as refused:
            got(client, '{"view": "depth"}')
        assert_plain(refused.value)
        readers[0].cancel()
        _until_it_works(client)
    # A connection that is closed without a word keeps nothing, its streams neither.
    for _ in range(40):
        with flight.connect(one.flight_url) as client:
            readers = [client.do_get(following, WAIT) for _ in range(MOST_CALLS)]
            del readers
    with flight.connect(one.flight_url) as client:
        _until_it_works(client)


def _until_it_works(client: flight.FlightClient) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            got(client, '{"view": "depth"}')
            return
        except flight.FlightUnavailableError:
            assert time.monotonic() < until


def test_connections_are_bounded_and_small(one: Served, client: flight.FlightClient) -> None:
    host, port = one.flight_url.removeprefix("grpc://").split(":")
    address = host, int(port)
    many = [socket.create_connection(address, PATIENCE) for _ in range(MOST_CONNECTIONS + 5)]
    refused = 0
    with selectors.DefaultSelector() as silent:
        for connection in many:
            silent.register(connection, selectors.EVENT_READ)
        while refused < 5:
            told = silent.select(PATIENCE)
            assert told, f"{refused} refused"
            for key, _ in told:
                silent.unregister(key.fileobj)
                try:
                    # gRPC greets whom the relay lets in.
                    refused += not key.fileobj.recv(1)  # type: ignore[union-attr]
                except ConnectionResetError:
                    refused += 1
    for connection in many:
        connection.close()
    _until_it_works_again(one)
    # A request of many megabytes ends the connection before it is held.
    with flight.connect(one.flight_url) as large, pytest.raises(flight.FlightUnavailableError):
        large.do_get(flight.Ticket(b"x" * (16 << 20)), WAIT)
    _until_it_works_again(one)


def _until_it_works_again(one: Served) -> None:
    with flight.connect(one.flight_url) as client:
        _until_it_works(client)


def test_a_token_and_encryption(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out",
         str(certificate), "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    files = {"certificate": certificate, "key": key}
    options = {"host": "0.0.0.0", "token": "a-token-of-this-test", **files}
    with served(flight=options) as one:
        url = one.flight_url.replace("0.0.0.0", "localhost")
        assert url.startswith("grpc+tls://")
        with flight.connect(url, tls_root_certs=certificate.read_bytes()) as client:
            for given in ([], [(b"authorization", b"Bearer another")]):
                with pytest.raises(flight.FlightUnauthenticatedError, match="Bearer TOKEN") as refused:
                    got(client, '{"view": "depth"}', flight.FlightCallOptions(PATIENCE, headers=given))
                assert_plain(refused.value)
            known = [(b"authorization", b"Bearer a-token-of-this-test")]
            table = got(client, '{"view": "depth"}', flight.FlightCallOptions(PATIENCE, headers=known))
            assert rows_of(table) == engine_rows(one)
    with pytest.raises(ConfigurationError, match="flight"):
        load_configuration(None, {"flight.enabled": True, "flight.host": "0.0.0.0"})
    with pytest.raises(ConfigurationError, match="certificate"):
        load_configuration(None, {"flight.certificate": "server.pem"})


def test_the_end_of_a_run_ends_streams() -> None:
    with served(flight={}) as one, flight.connect(one.flight_url) as client:
        reader = client.do_get(ticket('{"changes": "depth"}'), WAIT)
        reader.read_chunk()
        process = one.run.server._process
        one.end()
        with pytest.raises((flight.FlightServerError, flight.FlightUnavailableError)):
            reader.read_all()
        # It has ended by itself, and not because it was killed.
        assert process.wait(PATIENCE) == 0
