"""PostgreSQL's messages and statements: values against psycopg's own readers, parameters against DuckDB."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format

from orderbook.core.errors import DataError, SqlError
from orderbook.monitor.client import BACKLOG_BYTES
from orderbook.monitor.postgres_copy import CopyOut, copy
from orderbook.monitor.postgres_session import _Changes
from orderbook.monitor.postgres_statements import (
    Subscription,
    statements,
    subscription,
)
from orderbook.monitor.postgres_wire import (
    COLUMN_TYPES,
    Fields,
    ProtocolError,
    ValueProblem,
    encoders,
    literal,
    read_startup,
)

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMALS = st.decimals(
    allow_nan=False, allow_infinity=False, places=8, min_value=-(10**20), max_value=10**20
)
_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "decimal": _DECIMALS,
    "timestamp": st.integers(0, 4 * 10**18).map(str),
    "text": _NAMES,
    "integer[]": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    "text[]": st.lists(st.none() | _NAMES),
}


def loaded(kind: str, form: int, data: bytes) -> Any:
    """What psycopg makes of a value."""
    return Transformer().get_loader(COLUMN_TYPES[kind][0], Format(form)).load(data)


def expected(kind: str, value: Any) -> Any:
    if kind == "timestamp":
        return _UNIX + timedelta(microseconds=int(value) // 1000)
    return Decimal(value) if kind == "decimal" else value


@pytest.mark.parametrize("kind", sorted(COLUMN_TYPES))
def test_values_are_read_by_psycopg(kind: str) -> None:
    @given(_VALUES[kind])
    def values(value: Any) -> None:
        given_value = str(value) if kind == "decimal" else value
        for form in (0, 1):
            (encode,) = encoders([kind], [form])
            assert loaded(kind, form, encode(given_value)) == expected(kind, value)

    values()


@given(st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), _DECIMALS))
def test_parameters_stay_values_in_sql(value: Any) -> None:
    # Whatever is in a text, it is one literal: what psycopg sends comes out of DuckDB again.
    if isinstance(value, str) and "\0" in value:
        with pytest.raises(ValueProblem):
            literal(value.encode(errors="surrogatepass"), 25, 0)
        return
    transformer = Transformer()
    for form in (PyFormat.TEXT, PyFormat.BINARY):
        dumper = transformer.get_dumper(value, form)
        try:
            data = dumper.dump(value)
        except (psycopg.DataError, UnicodeEncodeError):
            return
        sql = literal(bytes(data or b""), dumper.oid, int(dumper.format))
        (found,) = duckdb.execute(f"SELECT {sql}").fetchone() or (None,)
        if isinstance(value, float):
            assert str(float(found)) == str(value)
        else:
            assert found == value


@given(st.lists(st.text(), max_size=4), st.binary(max_size=40))
def test_messages_that_break_off_are_protocol_errors(texts: list[str], data: bytes) -> None:
    for read in (Fields.int16, Fields.int32, Fields.text, Fields.value, Fields.count):
        fields = Fields(data)
        with suppress(ProtocolError):
            for _ in range(100):
                read(fields)
            raise AssertionError(data)
    with suppress(ProtocolError):
        read_startup(data)


def test_statements_are_parted_and_parameters_found() -> None:
    one, two, three = statements("SELECT ';', $1::int, '$2' -- ; $3\n, \"a;$4\"; ; SHOW x;FETCH 3 FROM \"C\"")
    assert (one.verb, one.count, one.types([])) == ("SELECT", 1, [23])
    assert one.with_values(["(5)"]) == "SELECT ';', (5)::int, '$2' -- ; $3\n, \"a;$4\""
    assert (two.verb, two.words()) == ("SHOW", ["SHOW", "X"])
    assert three.words() == ["FETCH", "3", "FROM", '"C"']
    (both,) = statements("SELECT $2, $1, $2")
    assert both.with_values(["'a'", "'b'"]) == "SELECT 'b', 'a', 'b'"
    with pytest.raises(SqlError, match="2 parameters, 1"):
        both.with_values(["1"])
    with pytest.raises(SqlError, match="parameters are"):
        statements("SELECT $0")
    assert statements(" ; -- nothing\n") == []


@given(st.text())
def test_any_text_is_statements_or_an_error(sql: str) -> None:
    with suppress(SqlError):
        assert all(statement.sql in sql for statement in statements(sql))


def test_subscriptions_and_copies() -> None:
    view = subscription(statements("SUBSCRIBE TO public.sobi WITH (SNAPSHOT = false, PROGRESS)")[0])
    assert (view.view, view.sql, view.snapshot, view.progress) == ("sobi", None, False, True)
    query = subscription(statements("x; SUBSCRIBE (SELECT (a) FROM b WHERE c = ')')")[1])
    assert (query.view, query.sql) == (None, "SELECT (a) FROM b WHERE c = ')'")
    for wrong in ("SUBSCRIBE", "SUBSCRIBE other.sobi", "SUBSCRIBE (SELECT 1", "SUBSCRIBE v WITH (AS OF 3)"):
        with pytest.raises(SqlError):
            subscription(statements(wrong)[0])
    csv = copy(statements("COPY (SELECT 'TO' AS a) TO STDOUT WITH (FORMAT csv, HEADER)")[0])
    assert (csv.inner.sql, csv.format, csv.header) == ("SELECT 'TO' AS a", "csv", True)
    assert copy(statements("COPY public.sobi TO STDOUT")[0]).inner.sql == "SELECT * FROM public.sobi"
    for said in ("(FORMAT binary)", '(FORMAT "binary");', "WITH (FORMAT 'binary')", "BINARY"):
        assert copy(statements(f"COPY sobi TO STDOUT {said}")[0]).format == "binary"
    for wrong in (
        "COPY sobi FROM STDIN",
        "COPY sobi TO '/tmp/x'",
        "COPY sobi TO STDOUT (FORMAT parquet)",
        "COPY sobi TO STDOUT (FORMAT binary, HEADER)",
    ):
        with pytest.raises(SqlError):
            copy(statements(wrong)[0])


def test_rows_of_copies() -> None:
    columns = [("a", "text"), ("b", "text"), ("c", "text"), ("d", "text")]
    rows = [["a\tb", None, "", '"x,y"']]

    def copied(said: str, rows: list[list[str | None]]) -> list[bytes]:
        out = CopyOut(copy(statements(f"COPY v TO STDOUT ({said})")[0]), columns)
        whole = out.begin() + b"".join(out.rows(rows)) + out.end()
        bodies = []
        while whole:
            size = 1 + int.from_bytes(whole[1:5], "big")
            bodies.append(whole[:1] + whole[5:size])
            whole = whole[size:]
        return bodies

    text, binary = b"\0\0\4" + bytes(8), b"\1\0\4" + b"\0\1" * 4
    assert copied("FORMAT text", rows) == [b"H" + text, b'da\\tb\t\\N\t\t"x,y"\n', b"c"]
    assert copied("FORMAT csv, HEADER", rows) == [b"H" + text, b"da,b,c,d\n", b'da\tb,,"","""x,y"""\n', b"c"]
    # As PostgreSQL 15 writes it.
    head = b"dPGCOPY\n\xff\r\n\0" + bytes(8)
    row = b"\0\4" + b"\0\0\0\3a\tb" + b"\xff\xff\xff\xff" + bytes(4) + b'\0\0\0\5"x,y"'
    assert copied("FORMAT binary", rows * 2) == [b"H" + binary, head + row, b"d" + row, b"d\xff\xff", b"c"]
    assert copied("FORMAT binary", []) == [b"H" + binary, head + b"\xff\xff", b"c"]


def test_changes_that_nobody_takes_are_kept_only_up_to_the_limit() -> None:
    """What waits for a client that is too slow is not added to while the client takes nothing."""
    version = ["1", 0, 0]

    async def go() -> None:
        changes = _Changes(1, Subscription("v", None))
        changes.put({"type": "snapshot", "version": version, "columns": [["a", "integer"]], "rows": []}, 1)
        await changes.begun()
        for number in range(100):
            change = {"type": "changes", "version": version, "changes": [[1, number]]}
            changes.put(change, BACKLOG_BYTES // 4)
        taken = await changes.take(1_000, None)
        assert [row[-1] for row in taken] == [0, 1, 2, 3]
        with pytest.raises(DataError, match="too slow"):
            await changes.take(1_000, None)

    asyncio.run(go())
