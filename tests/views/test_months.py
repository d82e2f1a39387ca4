"""Constant dates moved by months and years, against DuckDB; moments of rows are not moved by them."""

import re

import duckdb
import pytest
from fuzz import InterpreterRuntime, compiled

from orderbook.core.errors import SqlError

STREAM = "CREATE STREAM r (a INTEGER NOT NULL, ts TIMESTAMP NOT NULL);\n"
DAYS = ("1992-02-29", "1993-12-31", "1994-01-01", "2024-01-31 23:59:59.5", "1969-03-30")
LENGTHS = ("'1' MONTH", "'3' MONTH", "'1' YEAR", "'13 months'", "'1 month 2 days 3 hours'", "'100 years'")


def _found(expression: str) -> object:
    runtime = InterpreterRuntime(
        compiled(f"{STREAM}CREATE VIEW v AS SELECT EPOCH_NS({expression}) AS t FROM r")
    )
    runtime.change("r", True, (1, 0))
    return runtime.rows("v")[0][0]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("form", ["{t} + {i}", "{t} - {i}", "{i} + {t}", "{t} - {i} + INTERVAL '1' MONTH"])
def test_a_constant_moves_as_in_duckdb(length: str, form: str) -> None:
    for day in DAYS:
        text = form.format(t=f"TIMESTAMP '{day}'", i=f"INTERVAL {length}")
        expected = duckdb.execute(f"SELECT EPOCH_NS({text})").fetchone()
        assert (_found(text),) == expected, text


def test_a_moved_constant_bounds_rows() -> None:
    query = "SELECT COUNT(*) AS n FROM r WHERE ts < DATE '1994-01-31' + INTERVAL '1' MONTH"
    runtime = InterpreterRuntime(compiled(f"{STREAM}CREATE VIEW v AS {query}"))
    limit = 762_393_600 * 10**9  # 1994-02-28
    for moment in (limit - 1, limit, limit - 86_400 * 10**9):
        runtime.change("r", True, (1, moment))
    assert runtime.rows("v") == [(2,)]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("2 * INTERVAL '1 month'", "INTERVAL of months or years is not supported"),
        ("INTERVAL '1 month' - TIMESTAMP '2024-01-31'", "INTERVAL of months or years is not supported"),
        ("TIMESTAMP '2024-01-31' + INTERVAL '300 years'", "beyond the years that a TIMESTAMP holds"),
        ("TIMESTAMP '2024-01-31' - INTERVAL '9000 years'", "beyond the years that a TIMESTAMP holds"),
    ],
)
def test_what_has_no_moment_is_refused(expression: str, error: str) -> None:
    with pytest.raises(SqlError, match=re.escape(error)):
        compiled(f"{STREAM}CREATE VIEW v AS SELECT {expression} AS t FROM r")
