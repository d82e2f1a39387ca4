"""What a query may name: every function and view of the installed DuckDB is either on the list or refused."""

import duckdb
import pytest

from orderbook.clients.duckdb_queries import TABLE_FUNCTIONS
from orderbook.clients.query_plan import Queryable, QueryPlanner
from orderbook.core.errors import SqlError
from orderbook.views.compilation import compile_views


def _asked(sql: str) -> list[str]:
    with duckdb.connect() as connection:
        return [name for (name,) in connection.execute(sql).fetchall()]


_FUNCTIONS = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ({})"
TELLING = sorted({*_asked(_FUNCTIONS.format("'table', 'table_macro', 'pragma'"))} - TABLE_FUNCTIONS)
VIEWS = sorted(_asked("SELECT DISTINCT view_name FROM duckdb_views() WHERE internal"))


@pytest.fixture(scope="module")
def planner() -> QueryPlanner:
    return QueryPlanner(Queryable.of(compile_views("CREATE VIEW depth AS SELECT COUNT(*) AS n FROM bids")))


def _refused(planner: QueryPlanner, sql: str) -> None:
    with pytest.raises(SqlError) as refused:
        planner.plan(sql)
    assert "\n" not in str(refused.value)
    # Some names are keywords, which call nothing.
    said = ("not let through", "cannot stand", "leave out its schema", "syntax error")
    assert any(one in str(refused.value) for one in said), refused.value


@pytest.mark.parametrize("name", TELLING)
def test_every_other_table_function_is_refused(planner: QueryPlanner, name: str) -> None:
    for called in (
        f"{name}()", f"{name.upper()}('x')", f'"{name}"(1)', f'"main"."{name}"()', f"system.main.{name}()",
        f'pg_catalog."{name.title()}"()',
    ):  # fmt: skip
        _refused(planner, f"SELECT * FROM {called}")
    for sql in (
        f"FROM {name}()",
        f"SELECT (SELECT COUNT(*) FROM {name}()) FROM depth",
        f"WITH a AS (SELECT * FROM depth), b AS (FROM {name}() LIMIT 1) SELECT 1 FROM b",
        f"SELECT 1 UNION ALL (SELECT 2 FROM (SELECT * FROM depth, {name}('x')))",
        f"SELECT * FROM depth WHERE EXISTS (FROM {name}() WHERE 1 = 1)",
        f"SELECT * FROM depth ORDER BY (SELECT MAX(x) FROM {name}() AS t(x))",
    ):
        _refused(planner, sql)


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_of_duckdb_is_refused(planner: QueryPlanner, name: str) -> None:
    for table in (
        name,
        name.upper(),
        f'"{name}"',
        f"main.{name}",
        f"pg_catalog.{name}",
        f"system.main.{name}",
    ):
        _refused(planner, f"SELECT * FROM {table}")
    # A WITH of that name, elsewhere in the query, must not let the view itself through.
    with pytest.raises(SqlError, match="otherwise"):
        planner.plan(f'SELECT * FROM (WITH "{name}" AS (SELECT 1) SELECT 1), "{name}"')


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT current_setting('threads')", "SELECT main.current_setting('threads')",
        "SELECT 'threads'.current_setting()", "SELECT current_query()", "SELECT getvariable('x')",
        "SELECT nextval('s')", "SELECT pg_get_viewdef(1)", "SELECT write_log('x')", "SELECT sleep_ms(1000)",
        "SELECT pg_sleep(1)", "SELECT get_block_size('memory')", "SELECT in_search_path('a', 'b')",
        "SELECT list_transform([1], lambda x: current_setting('threads'))", "SELECT current_database()",
        "SELECT current_catalog()", "SELECT version()", "SELECT json_serialize_plan('SELECT 1')",
        "FROM query('SELECT 1')", "FROM query_table('depth')", "FROM query_table(['depth'])",
        "FROM (DESCRIBE depth)", "FROM (SHOW ALL TABLES)", "FROM (SUMMARIZE depth)", "SUMMARIZE depth",
        "DESCRIBE depth", "SHOW TABLES", "SELECT * FROM information_schema.tables",
        "WITH a AS (INSERT INTO depth VALUES (1) RETURNING *) SELECT * FROM a",
        "SELECT * FROM bids POSITIONAL JOIN duckdb_settings()",
        "PIVOT (FROM duckdb_settings()) ON name IN ('threads') USING FIRST(value)",
    ],
)  # fmt: skip
def test_what_tells_of_the_process_is_refused(planner: QueryPlanner, sql: str) -> None:
    _refused(planner, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY depth TO 'x'", "ATTACH 'x'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 8",
        "PRAGMA version",
        "CALL duckdb_settings()", "EXPORT DATABASE 'x'", "CREATE TABLE t (x INT)", "DROP VIEW depth",
        "CHECKPOINT",
        "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT 1", "PREPARE p AS SELECT 1", "EXECUTE p",
        "SELECT 1; SELECT 2",
        "USE main", "BEGIN", "VACUUM", "UPDATE depth SET n = 1", "FROM 'x.csv'", 'FROM "/etc/passwd"',
        "FROM 'https://example.com/x.parquet'", "SELECT getenv('HOME')", "FROM planner", "FROM _options",
        "RESET threads", "DETACH x", "IMPORT DATABASE 'x'", "",
    ],
)  # fmt: skip
def test_statements_files_and_variables_are_out_of_reach(planner: QueryPlanner, sql: str) -> None:
    with pytest.raises(SqlError):
        planner.plan(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n + 1, -n, n || 'x', n BETWEEN 1 AND 2, n IN (1, 2), n IS NULL, NOT (n = 1) FROM depth",
        "SELECT * FROM range(3) t(i), LATERAL (SELECT i * 2), generate_series(1, 2)",
        "SELECT unnest([1, 2]), list_transform([1], lambda x: x + 1), {'a': 1}.a, [1, 2][1], 'a'.upper()",
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 5) SELECT SUM(i) FROM t",
        "SELECT symbol, AVG(price) OVER (PARTITION BY symbol ORDER BY ts ROWS 3 PRECEDING) FROM bids",
        "SELECT now(), today(), random(), uuid(), CURRENT_DATE, date_trunc('hour', ts), ts::DATE FROM bids",
        "SELECT quantile_cont(price, 0.5), string_agg(symbol, ','), corr(price, volume) FROM bids",
        "SELECT split_part('a,b', ',', 1), nullif(1, 1), list_sum([1]), wavg(1, 2)",
        "SELECT symbol, COUNT(*) FROM bids GROUP BY ALL HAVING COUNT(*) > 1 ORDER BY ALL LIMIT 5",
        "FROM (VALUES (1, 'a')) t(x, y) SELECT x, y", "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b",
        "SELECT * FROM bids ASOF JOIN asks USING (symbol, ts)", "SELECT COLUMNS('p.*') FROM bids",
        "SELECT CASE WHEN n > 1 THEN 'a' ELSE error('b') END, COALESCE(n, 0), GREATEST(n, 1) FROM depth",
    ],
)  # fmt: skip
def test_what_computes_is_let_through(planner: QueryPlanner, sql: str) -> None:
    assert planner.plan(sql).columns
