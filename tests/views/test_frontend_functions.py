"""Scalar functions, predicates, aggregates and windows: bound, evaluated plainly, compared with DuckDB.

Each value also has to lie in the interval of its type, and a NULL only where the type says so.
"""

import datetime
import math
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from bound_support import Row, rows_of

from orderbook.views.binding.catalog import bind
from orderbook.views.types import Column, Kind

DECLARED = """
CREATE STREAM s (
    n INT NOT NULL PRIMARY KEY, i INT NOT NULL CHECK (i BETWEEN -3 AND 4), j INT CHECK (j BETWEEN -2 AND 3),
    d DECIMAL(6, 3) CHECK (d BETWEEN -3 AND 3), e DECIMAL(4, 2) NOT NULL CHECK (e >= 0 AND e <= 2),
    x DOUBLE, b BOOLEAN, t TEXT, u TEXT NOT NULL, ts TIMESTAMP NOT NULL, tn TIMESTAMP
) WITH (max_rows = 100);
CREATE STREAM r (i INT NOT NULL CHECK (i BETWEEN -3 AND 4), j INT CHECK (j BETWEEN -2 AND 3), t TEXT)
    WITH (max_rows = 50);
"""
TEXTS = ["a", "ab", "Ab", "b%", "AMZN", ""]
MINUTE = 60 * 10**9
Data = tuple[dict[str, list[Row]], duckdb.DuckDBPyConnection]

VALUES = """
abs(i)
abs(e - 1) + abs(x)
sign(d) + sign(i) * 10 + sign(x) * 100
floor(d) + ceil(e) * 10
ceiling(d)
floor(x) + ceil(x)
trunc(d) + trunc(x)
round(d)
round(d, 2) + round(e, 1) + round(i, 3)
round(i * 37, -1)
round(x, 1)
sqrt(e)
sqrt(i)
ln(d)
log(e) + log10(x)
log(2, e)
exp(i)
power(d, 2) + pow(i, 3)
power(i, 0.5)
power(i, j)
sin(i) + cos(d) * tan(x)
asin(e - 1) + acos(d / 3)
atan(d) + atan2(d, e) * 10 + atan2(0, i)
sinh(i) + cosh(d) + tanh(x)
asinh(d) + acosh(e + 1) + atanh(d / 4)
cot(e + 1) + degrees(d) + radians(x)
least(i, j, d)
greatest(j, d)
least(x, i)
greatest(ts, tn)
mod(i, j)
d % e
i * 7 // j
i // 2
nullif(i, j)
nullif(d, 0)
ifnull(j, i) + coalesce(d, 0)
if(b, i, d)
CASE WHEN b THEN i WHEN d > 0 THEN d END
CASE i WHEN j THEN 1 WHEN 2 THEN 2.5 ELSE e END
CASE WHEN b THEN t ELSE u END
CAST(d AS INT)
CAST(e AS DECIMAL(3, 1))
CAST(x AS INT) + x::BIGINT
CAST(d AS DECIMAL(10, 5)) + CAST(i AS DECIMAL(5, 1))
TRY_CAST(i * 60 AS TINYINT)
TRY_CAST(e * 5 AS DECIMAL(2, 1))
d::DOUBLE / 3
b::INT + b::DOUBLE
CAST('12.5' AS DECIMAL(4, 1)) + TRY_CAST('abc' AS INT)
'2'::INT + CAST('0.25' AS DOUBLE)
CAST(ts AS DATE)
ts + INTERVAL '5 minutes'
tn - INTERVAL '1 day'
INTERVAL 90 SECOND + ts
ts - tn
greatest(ts, tn) - INTERVAL '00:05:00'
extract(year FROM ts) + date_part('month', tn)
extract(epoch FROM ts)
year(ts) * 10000 + month(ts) * 100 + day(ts)
quarter(ts) + week(ts) * 10 + isoyear(ts) * 1000
date_part('dow', ts) + isodow(ts) * 10 + dayofyear(ts) * 100
dayofweek(ts) + hour(ts) * 10 + minute(ts) * 1000 + second(ts) * 100000
millisecond(ts) + extract(microsecond FROM tn)
yearweek(ts)
epoch_ms(ts) + epoch_us(tn)
epoch_ns(tn)
epoch(tn)
date_trunc('second', ts)
date_trunc('minute', ts)
date_trunc('hour', tn)
date_trunc('day', ts)
date_trunc('week', ts)
date_trunc('month', tn)
date_trunc('quarter', ts)
date_trunc('year', ts)
datetrunc('day', ts)
time_bucket(INTERVAL '5 minutes', ts)
time_bucket(INTERVAL '7 days', ts)
time_bucket(INTERVAL '17 seconds', tn)
time_bucket(INTERVAL '1 month', ts)
time_bucket(INTERVAL '3 months', ts)
(SELECT MIN(r.j) FROM r WHERE r.i > s.i) + (SELECT COUNT(DISTINCT r.j) FROM r)
(SELECT MAX(r.j) FROM r HAVING COUNT(*) > s.i * 4)
(SELECT i FROM r WHERE r.i <> s.i ORDER BY i DESC LIMIT 1)
(SELECT r.j FROM r ORDER BY j NULLS FIRST, i LIMIT 1 OFFSET 1)
""".strip().splitlines()

CONDITIONS = """
i IN (SELECT i FROM r UNION SELECT j FROM r WHERE r.i = s.i)
j NOT IN (SELECT i FROM r UNION ALL SELECT j FROM r)
EXISTS (SELECT i FROM r WHERE r.i = s.i EXCEPT SELECT j FROM r)
i >= ALL (SELECT i FROM r ORDER BY i LIMIT 3)
j IN (SELECT DISTINCT j FROM r GROUP BY i, j HAVING COUNT(*) < 2)
i > 0 AND (j > 0 OR j IN (SELECT j FROM r) OR NOT EXISTS (SELECT 1 FROM r WHERE r.t = s.t))
CASE WHEN i > j THEN NULL WHEN b THEN TRUE ELSE i = 1 END
i BETWEEN j AND 2
i NOT BETWEEN j AND d
i IN (1, NULL, j)
i NOT IN (1, 2, j)
t IN ('a', u)
(i, n) IN ((1, 2), (0, 3), (2, 1))
(i, n) = (1, 5)
b IS TRUE
b IS NOT TRUE
(i > j) IS FALSE
(i > j) IS NOT FALSE
(i > j) IS NULL
j IS NOT NULL
b IS DISTINCT FROM (i > 0)
j IS NOT DISTINCT FROM i
j IS NOT DISTINCT FROM d
t IS DISTINCT FROM u
t LIKE 'a%'
t NOT LIKE '_b%'
t ILIKE '%B'
u LIKE ''
t LIKE NULL
u LIKE 'ab' ESCAPE '!'
starts_with(t, 'a')
ends_with(u, 'b') OR contains(t, 'M') OR suffix(u, 'N') OR prefix(u, 'A')
i::BOOLEAN
CAST(x AS BOOLEAN)
ts > TIMESTAMP '2020-02-29 12:00:00'
ts > '2020-02-29' AND tn <= DATE '2024-01-01'
ts - tn > INTERVAL '1 hour 30 minutes'
EXISTS (SELECT 1 FROM r WHERE r.i = s.i)
NOT EXISTS (SELECT * FROM r WHERE r.j > s.j)
EXISTS (SELECT COUNT(*) FROM r WHERE r.i > 100)
i IN (SELECT i FROM r)
i IN (SELECT j FROM r)
j NOT IN (SELECT i FROM r WHERE r.j > 0)
j NOT IN (SELECT i FROM r WHERE r.i > 100)
j IN (SELECT j FROM r WHERE r.i < s.i)
NOT (t IN (SELECT t FROM r))
j IN (SELECT SUM(i) FROM r GROUP BY j)
i IN (SELECT MAX(j) FROM r WHERE r.t = s.t)
(i, j) IN (SELECT i, j FROM r)
(i, j) NOT IN (SELECT j, i FROM r)
i > ANY (SELECT j FROM r)
j <= ALL (SELECT i FROM r)
j <> ALL (SELECT j FROM r WHERE r.i = s.i)
i = SOME (SELECT i FROM r)
""".strip().splitlines()

AGGREGATES = """
MIN(i)
MAX(d)
MIN(x) + MAX(x)
MAX(ts)
MIN(tn)
MAX(b)
COUNT(DISTINCT j)
COUNT(DISTINCT t)
SUM(DISTINCT e)
AVG(DISTINCT j)
MAX(DISTINCT d)
VARIANCE(j)
VAR_SAMP(d)
VAR_POP(d)
STDDEV(i)
STDDEV_SAMP(e)
STDDEV_POP(d)
SKEWNESS(i + i * j)
KURTOSIS(d)
KURTOSIS_POP(i)
CORR(d, i)
COVAR_POP(i, e)
COVAR_SAMP(j, d)
REGR_COUNT(i, e)
REGR_AVGX(i, e)
REGR_AVGY(e, j)
REGR_SXX(i, e)
REGR_SYY(e, j)
REGR_SXY(d, i)
REGR_SLOPE(d, i)
REGR_INTERCEPT(d, i)
REGR_R2(d, i)
CORR(d, i) FILTER (WHERE j > 0)
MEDIAN(i)
MEDIAN(d) + MEDIAN(x)
MEDIAN(DISTINCT j) FILTER (WHERE b)
QUANTILE(ts, 0.3)
QUANTILE_DISC(b, 1)
QUANTILE_DISC(DISTINCT e, 0.4)
QUANTILE_CONT(d, 0.375)
QUANTILE_CONT(i, 25e-2)
PERCENTILE_CONT(0.125) WITHIN GROUP (ORDER BY d DESC)
PERCENTILE_CONT(0.6) WITHIN GROUP (ORDER BY x + i) FILTER (WHERE i > 0)
MODE() WITHIN GROUP (ORDER BY i)
MODE() WITHIN GROUP (ORDER BY d DESC) FILTER (WHERE j > 0)
PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY tn DESC)
PERCENTILE_DISC(0.4) WITHIN GROUP (ORDER BY j DESC)
SUM(i) FILTER (WHERE b)
COUNT(*) FILTER (WHERE i > j)
COUNT(DISTINCT e) FILTER (WHERE d > 0)
MIN(d) FILTER (WHERE t = u)
BOOL_AND(b)
BOOL_OR(i > j)
MAX(CASE WHEN b THEN d ELSE e END) - MIN(abs(j))
ARG_MAX(n, n + i)
ARG_MIN(n, n)
MAX_BY(d, n)
MIN_BY(n, tn - n * INTERVAL '1 us')
FIRST(n ORDER BY i, n)
LAST(n ORDER BY i, n)
FIRST(n ORDER BY e DESC, n DESC)
FIRST(i ORDER BY e DESC, n)
LAST(e ORDER BY ts DESC, n)
ARG_MAX(i, n) FILTER (WHERE b)
SUM(CASE WHEN EXISTS (SELECT 1 FROM r WHERE r.i = s.i) THEN 1 ELSE 0 END)
""".strip().splitlines()

WINDOWS = """
SUM(i) OVER ()
STDDEV(d) OVER (PARTITION BY t)
VAR_POP(i) OVER (ORDER BY d)
CORR(i, d) OVER (PARTITION BY u ORDER BY n)
REGR_COUNT(e, j) OVER (ORDER BY n DESC)
COUNT(*) OVER (PARTITION BY t)
SUM(j) OVER (PARTITION BY u ORDER BY d)
SUM(e) OVER (ORDER BY d DESC)
COUNT(j) OVER (ORDER BY d NULLS FIRST, i)
AVG(j) OVER (PARTITION BY b ORDER BY x DESC NULLS LAST)
MIN(d) OVER (ORDER BY i)
MAX(j) OVER (PARTITION BY b ORDER BY i DESC, e)
SUM(i) FILTER (WHERE b) OVER (ORDER BY e)
RANK() OVER (ORDER BY j)
RANK() OVER (PARTITION BY t ORDER BY j DESC NULLS FIRST)
DENSE_RANK() OVER (ORDER BY d NULLS FIRST, b DESC)
SUM(i) OVER (ORDER BY j RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
SUM(i) OVER (ORDER BY j ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
SUM(i) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING)
ROW_NUMBER() OVER (PARTITION BY b ORDER BY e DESC, n)
PERCENT_RANK() OVER (PARTITION BY t ORDER BY d DESC NULLS FIRST)
CUME_DIST() OVER (PARTITION BY b ORDER BY j)
NTILE(5) OVER (PARTITION BY b ORDER BY e DESC, n)
NTILE(20) OVER (ORDER BY n)
MEDIAN(d) OVER (PARTITION BY b)
QUANTILE_DISC(j, 0.5) OVER (ORDER BY i)
QUANTILE_CONT(i, 0.1) OVER (PARTITION BY b ORDER BY i RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)
rank() OVER (ORDER BY ts - tn) * 2 + abs(i)
SUM(i) OVER (PARTITION BY b ORDER BY d, n ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
SUM(j) OVER (ORDER BY d NULLS FIRST RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
SUM(j) OVER (PARTITION BY t ORDER BY i RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)
COUNT(*) OVER (ORDER BY i DESC RANGE BETWEEN 1 PRECEDING AND 3 FOLLOWING)
MAX(e) OVER (ORDER BY i RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
SUM(i) OVER (PARTITION BY j ORDER BY n DESC ROWS 2 PRECEDING)
AVG(j) OVER (ORDER BY i, n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
COUNT(*) OVER (ORDER BY i DESC, n ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)
LAG(i) OVER (PARTITION BY t ORDER BY n)
LEAD(i, 1, -1) OVER (ORDER BY e DESC, n)
LAG(n, 3) OVER (PARTITION BY b ORDER BY i, n DESC)
FIRST_VALUE(e) OVER (PARTITION BY j ORDER BY i DESC, n)
FIRST_VALUE(j) OVER (PARTITION BY t ORDER BY i, n)
FIRST_VALUE(tn) OVER (ORDER BY e, n)
LAST_VALUE(x) OVER (ORDER BY i, n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
LAST_VALUE(e) OVER (ORDER BY i, n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
""".strip().splitlines()


@pytest.fixture(scope="module", params=range(4))
def data(request: pytest.FixtureRequest) -> Data:
    """Rows of `s`, with an `n` of their own, and of `r`; the same in DuckDB. Seed 3 has no rows in `r`."""
    draw = random.Random(request.param)
    tables: dict[str, list[Row]] = {}
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false")
    for relation in bind([(None, DECLARED)]).relations:
        if relation.name not in "sr":
            continue
        count = 0 if relation.name == "r" and request.param == 3 else 12
        rows: list[Any] = [{c.name: value(c, draw) for c in relation.columns} for _ in range(count)]
        for n, row in enumerate(rows):
            row.update({"n": n} if "n" in row else {})
        tables[relation.name] = rows
        columns = ", ".join(f"{c.name} {duckdb_type(c)}" for c in relation.columns)
        connection.execute(f"CREATE TABLE {relation.name} ({columns})")
        for row in rows:
            shown = [given(v, c) for v, c in zip(row.values(), relation.columns, strict=True)]
            connection.execute(f"INSERT INTO {relation.name} VALUES ({', '.join('?' * len(shown))})", shown)
    return tables, connection


def duckdb_type(column: Column) -> str:
    kind = column.type.kind
    return f"DECIMAL(6, {column.type.scale})" if kind is Kind.DECIMAL else kind.value


def value(column: Column, draw: random.Random) -> Any:
    if column.nullable and draw.random() < 0.25:
        return None
    match column.type.kind:
        case Kind.TEXT:
            return draw.choice(TEXTS)
        case Kind.BOOLEAN:
            return draw.random() < 0.5
        case Kind.DOUBLE:
            return draw.randint(-10, 10) / 4
        case Kind.TIMESTAMP:
            day = draw.choice([18_321, 18_627, 19_000, 18_261 + draw.randint(0, 900), -40])
            return (day * 1440 + draw.choice([0, 754, 755])) * MINUTE + draw.choice([0, 1, 59_999_999]) * 1000
        case Kind.DECIMAL:
            step, unit = 125, 10**column.type.scale
            return Fraction(draw.randint(column.type.low // step, column.type.high // step) * step, unit)
    return draw.randint(column.type.low, column.type.high)


def given(value: Any, column: Column) -> Any:
    """A value as DuckDB takes it."""
    if isinstance(value, Fraction):
        return Decimal(value.numerator) / Decimal(value.denominator)
    if value is not None and column.type.kind is Kind.TIMESTAMP:
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value // 1000)
    return value


def comparable(value: Any) -> tuple[bool, str]:
    """Numbers to nine digits, times as ns; what no finite number is as NULL."""
    if isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
    elif isinstance(value, datetime.date):
        value = value - datetime.date(1970, 1, 1)
    if isinstance(value, datetime.timedelta):
        value = value // datetime.timedelta(microseconds=1) * 1000
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return True, ""
    return False, value if isinstance(value, str) else f"{float(value) + 0.0:.9g}"


def check(sql: str, data: Data) -> None:
    tables, connection = data
    (view,) = bind([(None, DECLARED + sql)]).views
    actual = rows_of(view.query, tables)
    expected = connection.execute(sql.replace("// j", "// NULLIF(j, 0)")).fetchall()
    assert sorted([comparable(v) for v in r.values()] for r in actual) == sorted(
        [comparable(v) for v in r] for r in expected
    )
    for output in view.query.outputs:
        kind = output.expression.type
        for row in actual:
            result = row[output.name]
            if result is None:
                assert output.expression.nullable
            elif kind.exact and kind.kind is not Kind.TEXT:
                scaled = Fraction(result) * 10**kind.scale
                assert scaled.denominator == 1
                assert kind.low <= scaled <= kind.high


@pytest.mark.parametrize("expression", [*VALUES, *CONDITIONS])
def test_value(expression: str, data: Data) -> None:
    check(f"SELECT s.n AS n, {expression} AS v FROM s", data)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition(condition: str, data: Data) -> None:
    check(f"SELECT s.n AS n FROM s WHERE {condition}", data)
    check(f"SELECT s.n AS n FROM s WHERE NOT ({condition})", data)


def test_now_is_the_row_of_the_clock() -> None:
    sql = "SELECT n FROM s WHERE ts > NOW() - INTERVAL '5 minutes' AND ts <= CURRENT_TIMESTAMP"
    (view,) = bind([(None, DECLARED + sql)]).views
    tables = {"s": [{"n": n, "ts": n * MINUTE} for n in range(20)], "clock": [{"now": 12 * MINUTE}]}
    assert [row["n"] for row in rows_of(view.query, tables)] == [8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    ("literal", "ns"),
    [
        ("TIMESTAMP '1970-01-01'", 0),
        ("TIMESTAMP '1970-01-01 00:01:00.000000001'", MINUTE + 1),
        ("'1970-01-02T00:00:00Z'::TIMESTAMP", 1440 * MINUTE),
        ("TIMESTAMPTZ '1970-01-01 02:00:00+02:00'", 0),
        ("TIMESTAMP '1969-12-31 23:59:59.9'", -100_000_000),
        ("DATE '1970-01-03'", 2880 * MINUTE),
        ("INTERVAL '5 minutes'", 5 * MINUTE),
        ("INTERVAL 5 MINUTE", 5 * MINUTE),
        ("INTERVAL (2) HOURS", 120 * MINUTE),
        ("INTERVAL '1 hour 30 minutes'", 90 * MINUTE),
        ("INTERVAL '1.5 hours'", 90 * MINUTE),
        ("INTERVAL '-00:00:01.5'", -1_500_000_000),
        ("INTERVAL '2 weeks'", 2 * 7 * 1440 * MINUTE),
        ("INTERVAL '1' DAY - INTERVAL '1 ns'", 1440 * MINUTE - 1),
        ("CAST('90 seconds' AS INTERVAL)", MINUTE * 3 // 2),
        ("epoch_ns(make_timestamp_ns(17))", 17),
        ("CAST(CAST(17 AS TIMESTAMP) AS BIGINT)", 17),
    ],
)
def test_time_in_nanoseconds(literal: str, ns: int) -> None:
    (view,) = bind([(None, f"SELECT {literal} AS v")]).views
    assert [row["v"] for row in rows_of(view.query, {})] == [ns]


@pytest.mark.parametrize(
    ("condition", "nullable"),
    [
        ("i IN (SELECT i FROM r)", False),
        ("i IN (SELECT j FROM r)", True),
        ("j > ALL (SELECT i FROM r)", True),
        ("EXISTS (SELECT j FROM r)", False),
        ("j IS DISTINCT FROM i", False),
        ("(j > 1) IS TRUE", False),
        ("i / 2 > 1", False),
        ("i / j > 1", True),
    ],
)
def test_condition_may_be_null(condition: str, nullable: bool) -> None:
    (view,) = bind([(None, f"{DECLARED} SELECT {condition} AS v FROM s")]).views
    assert view.query.outputs[0].expression.nullable is nullable


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregate(aggregate: str, data: Data) -> None:
    check(f"SELECT {aggregate} AS v FROM s", data)
    check(f"SELECT {aggregate} AS v FROM s WHERE i > 100", data)
    check(f"SELECT u, {aggregate} AS v FROM s GROUP BY u", data)


@pytest.mark.parametrize("window", WINDOWS)
def test_window(window: str, data: Data) -> None:
    check(f"SELECT s.n AS n, {window} AS v FROM s", data)
