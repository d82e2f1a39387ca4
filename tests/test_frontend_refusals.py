"""What the front end refuses: the construct's name, and its exact position, marked here by ¦."""

from decimal import Decimal
from typing import Any

import pytest

from orderbook.errors import SqlError
from views.compiler.bind import bind

NOT_SUPPORTED = [
    ("SELECT ¦MIN(price) FROM bids", "MIN"),
    ("SELECT 1 + ¦MAX(price) AS m FROM bids", "MAX"),
    ("SELECT ¦STDDEV(price) FROM bids", "aggregate STDDEV"),
    ("¦SELECT DISTINCT price FROM bids", "SELECT DISTINCT"),
    ("SELECT ¦COUNT(DISTINCT price) FROM bids", "COUNT(DISTINCT)"),
    ("SELECT ¦SUM(DISTINCT price) FROM bids", "SUM(DISTINCT)"),
    ("SELECT symbol FROM bids GROUP BY symbol ¦HAVING COUNT(*) > 1", "HAVING"),
    ("SELECT ¦CASE WHEN price > 1 THEN 1 ELSE 2 END FROM bids", "CASE"),
    ("SELECT ¦IF(price > 1, 1, 2) FROM bids", "IF"),
    ("SELECT id FROM bids\nWHERE ¦EXISTS (SELECT 1 FROM asks)", "EXISTS"),
    ("SELECT id FROM bids WHERE NOT ¦EXISTS (SELECT 1 FROM asks)", "EXISTS"),
    ("SELECT id FROM bids WHERE ¦id IN (SELECT id FROM asks)", "IN (subquery)"),
    ("SELECT id FROM bids WHERE price > ¦ANY (SELECT price FROM asks)", "ANY"),
    ("SELECT id FROM bids WHERE price > ¦ALL (SELECT price FROM asks)", "ALL"),
    ("SELECT id FROM bids WHERE ¦symbol LIKE 'B%'", "LIKE"),
    ("SELECT id FROM bids WHERE ¦symbol ILIKE 'B%'", "ILIKE"),
    ("SELECT id FROM bids ¦UNION ALL SELECT id FROM asks", "UNION"),
    ("CREATE VIEW v AS SELECT id FROM bids\n  ¦EXCEPT SELECT id FROM asks", "EXCEPT"),
    ("SELECT x.id FROM (SELECT id FROM bids ¦INTERSECT SELECT id FROM asks) x", "INTERSECT"),
    ("¦WITH best AS (SELECT 1) SELECT * FROM best", "WITH (common table expression)"),
    ("¦WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "WITH RECURSIVE"),
    ("SELECT 1 FROM bids b ¦LEFT JOIN asks a ON a.id = b.id", "LEFT JOIN"),
    ("SELECT 1 FROM bids b ¦RIGHT OUTER JOIN asks a ON a.id = b.id", "RIGHT OUTER JOIN"),
    ("SELECT 1 FROM bids b ¦FULL JOIN asks a ON a.id = b.id", "FULL JOIN"),
    ("SELECT 1 FROM bids b ¦SEMI JOIN asks a ON a.id = b.id", "SEMI JOIN"),
    ("SELECT 1 FROM bids b JOIN asks a USING (¦id)", "USING"),
    ("SELECT 1 FROM bids ¦NATURAL JOIN asks", "NATURAL JOIN"),
    ("SELECT 1 FROM ¦(bids b JOIN asks a ON a.id = b.id)", "parenthesised join"),
    ("SELECT 1 FROM bids b, ¦LATERAL (SELECT 1) x", "LATERAL"),
    ("SELECT 1 FROM ¦UNNEST([1, 2]) x", "UNNEST"),
    ("SELECT 1 FROM ¦generate_series(1, 2)", "table function"),
    ("SELECT 1 FROM bids ¦TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT price FROM bids\nWHERE price > 1\n¦ORDER BY price", "ORDER BY"),
    ("SELECT price FROM bids ¦LIMIT 10", "LIMIT"),
    ("SELECT price FROM bids ¦OFFSET 10", "OFFSET"),
    ("SELECT price FROM bids ¦QUALIFY 1 = 1", "QUALIFY"),
    ("SELECT ¦SUM(price) OVER (PARTITION BY symbol) FROM bids", "window function"),
    ("SELECT ¦ROW_NUMBER() OVER (ORDER BY price) FROM bids", "window function"),
    ("SELECT ¦SUM(price) FILTER (WHERE price > 1) FROM bids", "FILTER"),
    ("SELECT 1 FROM bids GROUP BY ¦GROUPING SETS ((symbol), (venue))", "GROUPING SETS"),
    ("SELECT 1 FROM bids GROUP BY ¦ROLLUP (symbol)", "ROLLUP"),
    ("SELECT 1 FROM bids GROUP BY venue, ¦CUBE (symbol)", "CUBE"),
    ("SELECT 1 FROM bids ¦GROUP BY ALL", "GROUP BY ALL"),
    ("SELECT ¦ABS(price) FROM bids", "function ABS"),
    ("SELECT ¦NULLIF(price, 0) FROM bids", "function NULLIF"),
    ("SELECT ¦no_such(price) FROM bids", "function NO_SUCH"),
    ("SELECT ¦CAST(price AS INT) FROM bids", "CAST or a literal with a type"),
    ("SELECT 1 + ¦price::INT AS p FROM bids", "CAST or a literal with a type"),
    ("SELECT 1 FROM bids WHERE ts > ¦TIMESTAMP '2024-01-01'", "CAST or a literal with a type"),
    ("SELECT ¦NOW() FROM bids", "date function NOW"),
    ("SELECT ¦CURRENT_DATE FROM bids", "date function CURRENT_DATE"),
    ("SELECT ¦EXTRACT(YEAR FROM ts) FROM bids", "date function EXTRACT"),
    ("SELECT ¦DATE_TRUNC('day', ts) FROM bids", "date function DATE_TRUNC"),
    ("SELECT ¦INTERVAL '1' DAY FROM bids", "INTERVAL"),
    ("SELECT ¦price % 2 FROM bids", "% (remainder)"),
    ("SELECT ¦symbol || venue FROM bids", "|| (concatenation)"),
    ("SELECT ¦(1, 2) FROM bids", "row value"),
    ("SELECT 1 FROM bids WHERE ¦(id, ts) = (1, 2)", "row value"),
    ("SELECT 1 FROM bids WHERE ¦price IS DISTINCT FROM volume", "IS DISTINCT FROM"),
    ("SELECT 1 FROM bids WHERE ¦(price > 1) IS TRUE", "IS TRUE"),
    ("SELECT 1 FROM bids WHERE ¦price BETWEEN SYMMETRIC 2 AND 1", "BETWEEN SYMMETRIC"),
    ("SELECT ¦* EXCLUDE (price) FROM bids", "* with EXCEPT, REPLACE or RENAME"),
    ("SELECT 1 FROM ¦main.bids", "relation name of several parts"),
    ("SELECT 1 FROM bids AS b(¦x)", "column list of an alias"),
    ("SELECT id FROM bids WHERE ¦SUM(price) > 1", "aggregate SUM in WHERE"),
    ("SELECT 1 FROM bids b JOIN asks a ON ¦COUNT(*) > 1", "aggregate COUNT in ON"),
    ("SELECT 1 FROM bids GROUP BY ¦AVG(price)", "aggregate AVG in GROUP BY"),
    ("SELECT ¦SUM(price) AS total FROM bids GROUP BY total", "aggregate SUM in GROUP BY"),
    ("SELECT SUM(1 + ¦AVG(price)) FROM bids", "nested aggregate AVG"),
    ("SELECT 1 FROM bids GROUP BY ¦(SELECT SUM(price) FROM asks)", "subquery in GROUP BY"),
    ("SELECT (SELECT ¦SUM(b.price) FROM asks a) FROM bids b", "SUM over columns of an enclosing query only"),
    ("CREATE STREAM s (x INT) ¦RETAIN INTERVAL '1' DAY", "RETAIN"),
    ("CREATE STREAM s (x INT ¦PRIMARY KEY)", "PRIMARY KEY"),
    ("CREATE STREAM s (x INT ¦DEFAULT 1)", "DEFAULT"),
    ("CREATE STREAM s (x ¦DATE)", "type DATE"),
    ("CREATE STREAM s (x ¦DECIMAL(19, 2))", "DECIMAL(19, 2)"),
    ("CREATE STREAM s (x ¦DECIMAL(4, 5))", "DECIMAL(4, 5)"),
    ("CREATE STREAM s (x INT, y INT, CHECK (¦x > 1 AND y > 1))", "a CHECK over several columns"),
    ("CREATE STREAM s (x INT CHECK (¦x <> 3))", "this CHECK"),
    ("CREATE STREAM s (x INT CHECK (¦x > 0 OR x < -5))", "this CHECK"),
    ("CREATE STREAM s (x DOUBLE CHECK (¦x > 0))", "CHECK on a DOUBLE column"),
    ("SELECT 1 FROM bids WHERE ¦symbol > 'a'", "ordering comparison > on TEXT"),
    ("SELECT 1 FROM bids WHERE ¦symbol BETWEEN 'a' AND 'b'", "ordering comparison >= on TEXT"),
    ("SELECT 1 FROM bids WHERE price > 1 AND ¦symbol = 1", "comparison of TEXT with INTEGER"),
    ("SELECT 1 FROM bids WHERE ¦ts < 5", "comparison of TIMESTAMP with INTEGER"),
    ("SELECT 1 FROM bids WHERE ¦(price > 1) = price", "comparison of BOOLEAN with DECIMAL"),
    ("SELECT 1 FROM bids WHERE ¦price IN (1, 'a')", "comparison of DECIMAL with TEXT"),
    ("SELECT 2 * (¦symbol + 1) FROM bids", "arithmetic on TEXT"),
    ("SELECT ¦ts - ts FROM bids", "arithmetic on TIMESTAMP"),
    ("SELECT ¦-symbol FROM bids", "arithmetic on TEXT"),
    ("SELECT ¦SUM(symbol) FROM bids", "SUM of TEXT"),
    ("SELECT ¦AVG(ts) FROM bids", "AVG of TIMESTAMP"),
    ("SELECT ¦COALESCE(symbol, 1) FROM bids", "COALESCE of TEXT and INTEGER"),
]

OTHERS = [
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
    ("SELECT 1 + ¦price * 2 AS x FROM bids GROUP BY price + 1, 1 + price",
     "bids.price is neither in GROUP BY"),
    ("SELECT venue, (SELECT COUNT(*) FROM asks a WHERE a.id = ¦bids.id) FROM bids GROUP BY venue",
     "bids.id is neither in GROUP BY"),
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
    ("SELECT ¦COUNT(id, ts) FROM bids", "COUNT takes one argument"),
    ("SELECT ¦\"Price\" FROM bids", "'Price' is not a name"),
    ("SELECT ¦main.bids.price FROM bids", "a name of three parts"),
    (
        "SELECT ¦:q * price FROM bids",
        'parameter :q has no value; set it under [parameters] in the configuration',
    ),
    ("SELECT 1 FROM bids WHERE price > ¦:kk", "; did you mean k?"),
    ("¦SELECT FROM bids", "SELECT needs at least one column"),
    ("SELECT ¦* ", "SELECT * needs a FROM"),
    ("CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM c; CREATE VIEW c AS SELECT * FROM ¦a",
     "views read each other in a cycle: a -> b -> c -> a"),
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
    ("CREATE STREAM s (x INT) WITH (¦rows = 3)", "unknown option 'rows'; the only one is max_rows"),
    ("CREATE STREAM s (x INT) WITH (max_rows = ¦0)", "max_rows is a whole number above 0"),
    ("CREATE ¦MATERIALIZED VIEW v AS SELECT 1", "after CREATE write STREAM, TABLE or VIEW"),
    ("CREATE ¦OR REPLACE VIEW v AS SELECT 1", "after CREATE write STREAM, TABLE or VIEW"),
    (
        "¦INSERT INTO bids VALUES (1)",
        "expected CREATE STREAM, CREATE TABLE, CREATE VIEW or SELECT, not INSERT",
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
