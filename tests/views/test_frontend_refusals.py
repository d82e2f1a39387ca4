"""What the front end refuses: the construct's name, and its exact position, marked here by ¦."""

from decimal import Decimal
from typing import Any

import pytest

from orderbook.core.errors import SqlError
from orderbook.views.binding.catalog import bind

KEYED = "CREATE STREAM keyed (i INT PRIMARY KEY, j INT, t TEXT NOT NULL); CREATE VIEW v AS "

NOT_SUPPORTED = [
    ("¦WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "WITH RECURSIVE"),
    (
        "SELECT 1 FROM bids b, ¦LATERAL (SELECT 1) x",
        "LATERAL of a query that is no aggregate of one row and no first row",
    ),
    (
        "SELECT 1 FROM bids b ¦LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM asks) x ON b.id = x.n",
        "LATERAL in such a join",
    ),
    ("SELECT 1 FROM ¦UNNEST(id) x", "UNNEST"),
    ("SELECT 1 FROM ¦generate_series(1, id)", "table function"),
    ("SELECT 1 FROM bids ¦TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    (
        "SELECT 1 FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES id AS i ¦ALL ROWS PER MATCH PATTERN (A))",
        "ALL ROWS PER MATCH",
    ),
    ("SELECT 1 FROM bids UNPIVOT (¦v FOR k IN (price, volume))", "UNPIVOT"),
    ("SELECT * FROM bids PIVOT (¦SUM(price) FILTER (WHERE id > 1) FOR symbol IN ('a'))", "FILTER in PIVOT"),
    ("CREATE TABLE t ¦AS SELECT 1 FROM bids", "CREATE TABLE AS"),
    ("SELECT price FROM bids ¦LIMIT 10", "LIMIT without ORDER BY"),
    ("SELECT price FROM bids ¦OFFSET 10", "OFFSET without LIMIT"),
    ("SELECT ¦no_such(price) FROM bids", "function NO_SUCH"),
    ("SELECT ¦MEDIAN(symbol) FROM bids", "a quantile of TEXT"),
    ("SELECT ¦MODE() WITHIN GROUP (ORDER BY symbol) FROM bids", "MODE of TEXT in an order"),
    ("SELECT ¦PRODUCT(DISTINCT price) FROM bids", "DISTINCT or ORDER BY in PRODUCT"),
    ("SELECT ¦MAD(symbol) FROM bids", "MAD of TEXT"),
    ("SELECT ¦MEDIAN(price > 1) FROM bids", "a continuous quantile of BOOLEAN"),
    ("SELECT 1 + QUANTILE_CONT(price, ¦[0.1, 0.9]) FROM bids", "QUANTILE_CONT of several fractions"),
    ("SELECT ¦QUANTILE_DISC(price, 0.5 ORDER BY id) FROM bids", "ORDER BY in QUANTILE_DISC"),
    ("SELECT ¦MEDIAN(price ORDER BY id) FROM bids", "ORDER BY in MEDIAN"),
    ("SELECT ¦MEDIAN(price) WITHIN GROUP (ORDER BY id) FROM bids", "MEDIAN WITHIN GROUP"),
    ("SELECT ¦SUM(price) WITHIN GROUP (ORDER BY id) FROM bids", "SUM WITHIN GROUP"),
    ("SELECT ¦SUM(DISTINCT price, id) FROM bids", "SUM(DISTINCT) of several columns"),
    (
        KEYED + "SELECT ¦NTH_VALUE(i, 2) OVER (ORDER BY i ROWS 2 PRECEDING) FROM keyed",
        "NTH_VALUE with a frame that begins after the partition's first row",
    ),
    (
        KEYED + "SELECT ¦SUM(i) OVER (w ORDER BY i) FROM keyed WINDOW w AS (ORDER BY i)",
        "OVER that gives w another ORDER BY",
    ),
    ("SELECT REGEXP_MATCHES(symbol, ¦venue) FROM bids", "a regular expression that is no constant text"),
    ("SELECT REGEXP_EXTRACT(symbol, 'a', ¦1) FROM bids", "REGEXP_EXTRACT of such a group"),
    ("SELECT ¦symbol[1:2:3] FROM bids", "a step in [ ]"),
    ("SELECT ¦price[1] FROM bids", "[ ] of DECIMAL"),
    ("SELECT ¦price & 1 FROM bids", "& of DECIMAL"),
    ("SELECT ¦id << id FROM bids", "a shift by what is no constant from 0 to 63"),
    ("SELECT ¦BIT_OR(price) FROM bids", "BIT_OR of DECIMAL"),
    ("SELECT ¦symbol COLLATE NOCASE FROM bids", "COLLATE"),
    ("SELECT ¦FORMAT(symbol, price) FROM bids", "FORMAT of a format that is not constant"),
    ("SELECT ¦STRFTIME(ts, symbol) FROM bids", "STRFTIME by a format that is not constant"),
    ("SELECT DATE_DIFF(¦'era', ts, ts) FROM bids", "DATE_DIFF by ERA"),
    ("SELECT ¦DATE_SUB('month', ts, ts) FROM bids", "DATE_SUB by MONTH"),
    ("SELECT 1 FROM bids WHERE ¦COLUMNS(*) IS NULL", "COLUMNS here"),
    ("SELECT ¦COLUMNS(1) FROM bids", "COLUMNS of such a value"),
    ("SELECT symbol FROM bids ¦EXCEPT BY NAME SELECT symbol FROM asks", "EXCEPT BY NAME"),
    ("SELECT ¦SUM(price ORDER BY id) FROM bids", "ORDER BY in SUM"),
    ("SELECT ¦FIRST(price) FROM bids", "FIRST without ORDER BY"),
    ("SELECT ¦AVG(price > 1) FROM bids", "AVG of BOOLEAN"),
    ("SELECT ¦EWMA(symbol, INTERVAL '1 minute', ts) FROM bids", "EWMA of TEXT"),
    ("SELECT ¦EWMA(price, INTERVAL '1 minute', id) FROM bids", "EWMA by INTEGER"),
    ("SELECT EWMA(price, INTERVAL '1 minute', ts, ¦NOW()) FROM bids", "EWMA as of a time"),
    ("SELECT DECAYED_SUM(price, INTERVAL '1 minute', ts, ¦ts) FROM bids", "DECAYED_SUM as of another time"),
    (
        "SELECT DECAYED_SUM(price, INTERVAL '1 minute', ts, ¦(SELECT MAX(ts) FROM asks)) FROM bids",
        "DECAYED_SUM as of another time",
    ),
    (
        "SELECT ¦EWMA(price, INTERVAL '1 minute', ts ORDER BY id) FROM bids",
        "ORDER BY beside a third argument of EWMA",
    ),
    ("SELECT ¦EWMA(price, INTERVAL '1 minute') OVER (ORDER BY id) FROM bids", "EWMA by INTEGER"),
    ("SELECT ¦ROUND(price, id) FROM bids", "ROUND to places that are not an integer constant up to 100"),
    ("SELECT ¦ABS(symbol) FROM bids", "ABS of TEXT"),
    ("SELECT ¦MOD(1e0, id) FROM bids", "% of DOUBLE"),
    ("SELECT ¦price // 2 FROM bids", "integer division of DECIMAL"),
    ("SELECT ¦CASE WHEN id > 1 THEN symbol ELSE 2 END FROM bids", "CASE of TEXT and INTEGER"),
    ("SELECT 1 FROM bids WHERE ¦price LIKE 'a%'", "LIKE of DECIMAL"),
    ("SELECT ¦CAST(price AS BLOB) FROM bids", "CAST to VARBINARY"),
    ("SELECT ¦CAST(symbol AS HUGEINT) FROM bids", "CAST of TEXT to more than 64 bits"),
    ("SELECT 1 + ¦UPPER(price) FROM bids", "UPPER of DECIMAL"),
    ("SELECT ¦CAST(price AS DECIMAL(39, 2)) FROM bids", "CAST to DECIMAL(39, 2)"),
    ("SELECT ¦ts + ts FROM bids", "arithmetic on TIMESTAMP"),
    ("SELECT ¦EXTRACT(CENTURY FROM ts) FROM bids", "date part CENTURY"),
    ("SELECT ¦DATE_TRUNC('decade', ts) FROM bids", "DATE_TRUNC to DECADE"),
    ("SELECT ¦DATE_TRUNC('day', price) FROM bids", "DATE_TRUNC of DECIMAL"),
    ("SELECT ¦TIME_BUCKET(INTERVAL '2 months', ts) FROM bids", "TIME_BUCKET of these months"),
    (
        "SELECT ¦ROW_NUMBER() OVER (ORDER BY price) FROM fills",
        "ROW_NUMBER over rows that are not proved unique",
    ),
    ("SELECT ¦LAG(price) OVER (ORDER BY order_id) FROM fills", "LAG over rows that are not proved unique"),
    (
        KEYED + "SELECT ¦LAST_VALUE(i) OVER (ORDER BY j RANGE BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING) "
        "FROM keyed",
        "LAST_VALUE of a RANGE UNBOUNDED on one side over an order that may be NULL",
    ),
    (
        KEYED + "SELECT ¦FIRST_VALUE(i) OVER (ORDER BY i GROUPS 2 PRECEDING) FROM keyed",
        "FIRST_VALUE with GROUPS",
    ),
    (
        KEYED + "SELECT ¦FIRST_VALUE(i) OVER (PARTITION BY (SELECT SUM(i) FROM keyed) ORDER BY i) FROM keyed",
        "subquery in FIRST_VALUE",
    ),
    (
        KEYED + "SELECT ¦LAST_VALUE(j IGNORE NULLS) OVER (ORDER BY i ROWS 2 PRECEDING) FROM keyed",
        "LAST_VALUE of so many rows with IGNORE NULLS",
    ),
    (
        KEYED + "SELECT COUNT(*), ¦LAST_VALUE(COUNT(*)) OVER (ORDER BY i RANGE BETWEEN UNBOUNDED PRECEDING "
        "AND UNBOUNDED FOLLOWING) FROM keyed GROUP BY i",
        "LAST_VALUE over an aggregated query",
    ),
    ("SELECT ¦NTILE(4) OVER (ORDER BY order_id) FROM fills", "NTILE over rows that are not proved unique"),
    ("SELECT ¦CUME_DIST() FILTER (WHERE id > 1) OVER (ORDER BY id) FROM bids", "window function CUME_DIST"),
    (
        "SELECT ¦SUM(volume) OVER (ORDER BY ts ROWS 3 PRECEDING) FROM fills",
        "ROWS over rows that are not proved unique",
    ),
    (
        "SELECT ¦SUM(volume) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) FROM fills",
        "ROWS over rows that are not proved unique",
    ),
    (
        KEYED + "SELECT ¦SUM(i) OVER (ORDER BY j RANGE BETWEEN 3 PRECEDING AND UNBOUNDED FOLLOWING) "
        "FROM keyed",
        "RANGE UNBOUNDED on one side over an order that may be NULL",
    ),
    ("SELECT ¦SUM(id) OVER (ORDER BY ts GROUPS 3 PRECEDING) FROM bids", "GROUPS with a distance"),
    (
        "SELECT ¦SUM(id) OVER (ORDER BY ts RANGE UNBOUNDED PRECEDING EXCLUDE TIES) FROM bids",
        "window frame with EXCLUDE",
    ),
    ("SELECT 1 FROM bids WHERE ¦RANK() OVER (ORDER BY id) < 3", "window function in WHERE"),
    ("SELECT SUM(¦RANK() OVER (ORDER BY id)) FROM bids", "window function in another function"),
    (
        "SELECT symbol, RANK() OVER (ORDER BY COUNT(*)) FROM bids ¦GROUP BY ROLLUP (symbol)",
        "window function over GROUPING SETS",
    ),
    ("SELECT ¦(1, 2) FROM bids", "row value"),
    ("SELECT 1 FROM ¦main.bids", "relation name of several parts"),
    ("SELECT id FROM bids WHERE ¦SUM(price) > 1", "aggregate SUM in WHERE"),
    ("SELECT 1 FROM bids b JOIN asks a ON ¦COUNT(*) > 1", "aggregate COUNT in ON"),
    ("SELECT 1 FROM bids GROUP BY ¦AVG(price)", "aggregate AVG in GROUP BY"),
    ("SELECT ¦SUM(price) AS total FROM bids GROUP BY total", "aggregate SUM in GROUP BY"),
    ("SELECT SUM(1 + ¦AVG(price)) FROM bids", "nested aggregate AVG"),
    ("SELECT 1 FROM bids GROUP BY ¦(SELECT SUM(price) FROM asks)", "subquery in GROUP BY"),
    ("SELECT (SELECT ¦SUM(b.price) FROM asks a) FROM bids b", "SUM over columns of an enclosing query only"),
    ("CREATE STREAM s (x INT ¦DEFAULT 1)", "DEFAULT"),
    ("CREATE STREAM s (x ¦DATE)", "type DATE"),
    ("CREATE STREAM s (x ¦DECIMAL(19, 2))", "DECIMAL(19, 2)"),
    ("CREATE STREAM s (x ¦DECIMAL(4, 5))", "DECIMAL(4, 5)"),
    ("CREATE STREAM s (x INT, y INT, CHECK (¦x > 1 AND y > 1))", "a CHECK over several columns"),
    ("CREATE STREAM s (x INT CHECK (¦x <> 3))", "this CHECK"),
    ("CREATE STREAM s (x INT CHECK (¦x > 0 OR x < -5))", "this CHECK"),
    ("CREATE STREAM s (x DOUBLE CHECK (¦x > 0))", "CHECK on a DOUBLE column"),
    ("SELECT 1 FROM bids WHERE price > 1 AND ¦symbol = 1", "comparison of TEXT with INTEGER"),
    ("SELECT 1 FROM bids WHERE ¦ts < 5", "comparison of TIMESTAMP with INTEGER"),
    ("SELECT 1 FROM bids WHERE ¦(price > 1) = price", "comparison of BOOLEAN with DECIMAL"),
    ("SELECT 1 FROM bids WHERE ¦price IN (1, 'a')", "comparison of DECIMAL with TEXT"),
    ("SELECT 2 * (¦symbol + 1) FROM bids", "arithmetic on TEXT"),
    ("SELECT ¦-symbol FROM bids", "arithmetic on TEXT"),
    ("SELECT ¦SUM(symbol) FROM bids", "SUM of TEXT"),
    ("SELECT ¦AVG(ts) FROM bids", "AVG of TIMESTAMP"),
    ("SELECT ¦COALESCE(symbol, 1) FROM bids", "COALESCE of TEXT and INTEGER"),
]

OTHERS = [
    (
        KEYED + "SELECT ¦LAST_VALUE(i) OVER (ORDER BY i ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) FROM keyed",
        "the frame has no rows, for it ends before it starts",
    ),
    ("SELECT ¦prise FROM bids", "unknown column prise; did you mean price?"),
    ("SELECT b.id,\n  ¦b.brokerid FROM bids b", "unknown column b.brokerid; did you mean broker_id?"),
    ("SELECT ¦bid.id FROM bids", "unknown relation or alias bid; did you mean bids?"),
    ("SELECT 1 FROM ¦bid", "unknown relation bid; did you mean bids?"),
    ("SELECT ¦x.* FROM bids b", "unknown relation or alias x"),
    ("SELECT 1 FROM bids x, (SELECT ¦x.id) y", "unknown relation or alias x"),
    ("SELECT ¦id FROM bids, asks", "column id is ambiguous: bids and asks have it; write bids.id"),
    (
        "SELECT ¦x.id FROM (SELECT * FROM bids, asks) x",
        "column id is ambiguous: its query has two of that name",
    ),
    ("SELECT id FROM bids, ¦bids", "bids stands twice in FROM"),
    ("SELECT 1 FROM (SELECT 1) , ¦(SELECT 2)", "the second derived table of a FROM needs an alias"),
    ("SELECT ¦price, SUM(volume) FROM bids", "bids.price is neither in GROUP BY nor in an aggregate"),
    ("SELECT ¦* FROM bids GROUP BY ts", "bids.venue is neither in GROUP BY nor in an aggregate"),
    (
        "SELECT 1 + ¦price * 2 AS x FROM bids GROUP BY price + 1, 1 + price",
        "bids.price is neither in GROUP BY",
    ),
    (
        "SELECT venue, (SELECT COUNT(*) FROM asks a WHERE a.id = ¦bids.id) FROM bids GROUP BY venue",
        "bids.id is neither in GROUP BY",
    ),
    ("SELECT 1 FROM bids GROUP BY ¦2", "GROUP BY 2 names no output"),
    ("SELECT * FROM bids GROUP BY ¦1", "an ordinal in GROUP BY does not count past *"),
    ("SELECT price AS p, volume AS ¦P FROM bids", "two outputs are named p"),
    ("SELECT ¦(SELECT price FROM asks) FROM bids", "exactly one value: without an aggregate"),
    (
        "SELECT 1 FROM bids WHERE price > ¦(SELECT SUM(price) FROM asks GROUP BY id)",
        "exactly one value: with GROUP BY",
    ),
    (
        "SELECT ¦(SELECT SUM(price), COUNT(*) FROM asks) FROM bids",
        "exactly one value: this one has 2 columns",
    ),
    ("SELECT 1 FROM bids WHERE ¦price", "a condition is needed here, not a value of type DECIMAL"),
    (
        "SELECT 1 FROM bids WHERE price > 1 AND ¦symbol",
        "a condition is needed here, not a value of type TEXT",
    ),
    ("SELECT 1 FROM bids b ¦JOIN asks a", "JOIN needs ON; write CROSS JOIN"),
    ("SELECT 1 FROM bids b ¦CROSS JOIN asks a ON a.id = b.id", "CROSS JOIN takes no ON"),
    ("SELECT ¦SUM(*) FROM bids", "SUM takes one argument"),
    ("SELECT ¦ARG_MIN(price) FROM bids", "ARG_MIN takes two arguments"),
    ("SELECT ¦EWMA(price) FROM bids", "EWMA takes x, a half-life and the TIMESTAMP of a row"),
    ("SELECT EWMA(price, ¦60) FROM bids", "EWMA takes a half-life that is a constant INTERVAL above 0"),
    (
        "SELECT EWMA(price, ¦INTERVAL '1500 days') FROM bids",
        "a constant INTERVAL above 0, of 1460 days at most",
    ),
    (
        "SELECT ¦EWMA(b.price - a.price, INTERVAL '1 minute') FROM bids b, asks a",
        "EWMA needs the TIMESTAMP of a row as third argument; columns of that type: b.ts, a.ts",
    ),
    ("SELECT ¦MODE() FROM bids", "MODE takes one argument"),
    ("SELECT ¦MODE(price) WITHIN GROUP (ORDER BY id) FROM bids", "write MODE() WITHIN GROUP (ORDER BY x)"),
    ("SELECT QUANTILE_CONT(price, ¦id) FROM bids", "QUANTILE_CONT takes a fraction that is a constant"),
    ("SELECT QUANTILE(price, ¦1.5) FROM bids", "QUANTILE takes a fraction that is a constant from 0 to 1"),
    ("SELECT QUANTILE(price, ¦1e-20) FROM bids", "of 18 decimal places at most"),
    ("SELECT ¦QUANTILE_DISC(price, NULL) FROM bids", "QUANTILE_DISC takes a fraction that is a constant"),
    (
        "SELECT ¦PERCENTILE_DISC(price, 0.5) FROM bids",
        "write PERCENTILE_DISC(fraction) WITHIN GROUP (ORDER BY x)",
    ),
    (
        "SELECT ¦PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY id, ts) FROM bids",
        "write PERCENTILE_CONT(fraction) WITHIN GROUP (ORDER BY x)",
    ),
    ("SELECT ¦TIME_BUCKET(ts) FROM bids", "TIME_BUCKET takes 2 to 3 arguments"),
    ("SELECT ¦RANK() OVER () FROM bids", "RANK needs ORDER BY in OVER"),
    ("SELECT ¦PERCENT_RANK() OVER () FROM bids", "PERCENT_RANK needs ORDER BY in OVER"),
    ("SELECT ¦NTILE(0) OVER (ORDER BY id) FROM bids", "NTILE takes how many parts, a whole number above 0"),
    ("SELECT ¦CAST('abc' AS INT) FROM bids", "'abc' is no INT"),
    ("SELECT ts - ¦INTERVAL '5 parsecs' FROM bids", "this INTERVAL cannot be read"),
    ("SELECT 1 FROM bids WHERE ¦ts > '2024-02-30'", "comparison of TIMESTAMP with TEXT"),
    ("SELECT 1 FROM bids WHERE (id, ts) = ¦(1, 2, 3)", "these row values have different numbers of parts"),
    (
        "SELECT 1 FROM bids WHERE id IN (¦SELECT id, ts FROM asks)",
        "this subquery has 2 columns where 1 is compared",
    ),
    ("SELECT ¦COUNT(id, ts) FROM bids", "COUNT takes one argument"),
    ('SELECT ¦"Price" FROM bids', "'Price' is not a name"),
    ('SELECT price FROM bids WHERE price = ¦"AAA-USD"', "; a text stands in single quotes"),
    (
        "SELECT price FROM bids WHERE price IN (¦NASDAQ)",
        "unknown column nasdaq; a text stands in single quotes",
    ),
    ("SELECT ¦main.bids.price FROM bids", "a name of three parts"),
    (
        "SELECT ¦:q * price FROM bids",
        "parameter :q has no value; set it under [parameters] in the configuration",
    ),
    ("SELECT 1 FROM bids WHERE price > ¦:kk", "; did you mean k?"),
    ("¦SELECT FROM bids", "SELECT needs at least one column"),
    ("SELECT ¦* ", "SELECT * needs a FROM"),
    (
        "CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM c; "
        "CREATE VIEW c AS SELECT * FROM ¦a",
        "views read each other in a cycle: a -> b -> c -> a",
    ),
    ("CREATE VIEW a AS SELECT * FROM ¦a", "views read each other in a cycle: a -> a"),
    ("CREATE VIEW ¦bids AS SELECT 1", "bids is the name of a stream or table"),
    ("CREATE VIEW v AS SELECT 1; CREATE TABLE ¦v (x INT)", "v is declared twice"),
    ("CREATE STREAM bids (x INT); CREATE STREAM ¦bids (x INT)", "bids is declared twice"),
    ("SELECT 1; ¦SELECT 2", "a second SELECT without a name"),
    ("CREATE STREAM s (x INT, ¦x TEXT)", "column x is declared twice"),
    ("CREATE STREAM s (x INT, CHECK (¦y > 1))", "unknown column y"),
    ("CREATE STREAM s (x INT CHECK (¦x > 3 AND x < 4))", "CHECK leaves no value for column x"),
    ("CREATE STREAM s (x ¦DECIMAL)", "DECIMAL needs a precision and a scale"),
    ("CREATE STREAM s (x ¦wibble)", "column x needs one of the types"),
    ("CREATE STREAM s (x INT) WITH (¦rows = 3)", "unknown option 'rows'; there are max_rows and retain"),
    ("CREATE STREAM s (x INT) WITH (max_rows = ¦0)", "max_rows is a whole number above 0"),
    (
        "CREATE ¦MATERIALIZED VIEW v AS SELECT 1",
        "write STREAM, TABLE, VIEW, MACRO, FUNCTION, STRATEGY or PARAMETER",
    ),
    (
        "CREATE ¦OR REPLACE VIEW v AS SELECT 1",
        "write STREAM, TABLE, VIEW, MACRO, FUNCTION, STRATEGY or PARAMETER",
    ),
    (
        "¦INSERT INTO bids VALUES (1)",
        "expected CREATE STREAM, TABLE, VIEW, MACRO, FUNCTION, STRATEGY or PARAMETER, or SELECT, not INSERT",
    ),
    ("SELECT 1;\n\n  ¦DROP TABLE bids", "not DROP"),
    ("SELECT price ¦) FROM bids", "syntax error: unexpected ')'"),
    ("SELECT price FROM bids WHERE¦", "syntax error: the statement ends too early"),
    ("SELECT price FROM bids b ¦b2", "syntax error: unexpected 'b2'"),
    ("SELECT price FROM bids WHERE symbol = ¦'BTC", "syntax error: a string is not closed"),
    ("SELECT price /* 'x' */ FROM bids ¦/* never closed", "syntax error: a comment is not closed"),
    ("SELECT 'it''s', ¦\"price FROM bids", "syntax error: a quoted name is not closed"),
]


def refused(sql: str, parameters: dict[str, Any] | None = None) -> SqlError:
    with pytest.raises(SqlError) as error:
        bind([("q.sql", sql)], {"k": 0.25} if parameters is None else parameters)
    assert "\n" not in str(error.value)
    return error.value


def marked_position(marked: str) -> tuple[int, int]:
    before = marked[: marked.index("¦")].split("\n")
    return len(before), len(before[-1]) + 1


@pytest.mark.parametrize(("marked", "name"), NOT_SUPPORTED, ids=[n for _, n in NOT_SUPPORTED])
def test_unsupported_construct_is_named_where_it_stands(marked: str, name: str) -> None:
    error = refused(marked.replace("¦", ""))
    assert error.message.startswith(f"{name} is not supported")
    assert (error.line, error.column, error.file) == (*marked_position(marked), "q.sql")


@pytest.mark.parametrize(("marked", "message"), OTHERS, ids=[m[:40] for _, m in OTHERS])
def test_error_says_what_and_where(marked: str, message: str) -> None:
    error = refused(marked.replace("¦", ""))
    assert message in error.message
    assert (error.line, error.column, error.file) == (*marked_position(marked), "q.sql")


def test_position_is_in_the_file_of_the_view_at_fault() -> None:
    texts = [
        ("outer.sql", "CREATE VIEW outer_view AS SELECT * FROM inner_view"),
        ("inner.sql", "\nCREATE VIEW inner_view AS SELECT wrong FROM bids"),
    ]
    with pytest.raises(SqlError) as error:
        bind(texts)
    assert str(error.value) == "inner.sql:2:34: unknown column wrong"


def test_text_given_in_code_has_no_file() -> None:
    with pytest.raises(SqlError, match=r"^SQL:1:8: unknown column wrong$"):
        bind([(None, "SELECT wrong FROM bids")])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("1E+5000"), 10**2000, object(), None])
def test_parameter_that_is_no_value(value: Any) -> None:
    error = refused("SELECT price *\n :k AS x FROM bids", {"k": value})
    assert error.message.startswith("parameter :k: ")
    assert (error.line, error.column) == (2, 2)
