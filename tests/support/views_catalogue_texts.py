"""Views of texts: functions, casts, comparisons; of texts with few and many bytes, digits, and NULL."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from oracle import SqlValue

TEXTS = """
CREATE STREAM names (k INTEGER, t TEXT, v TEXT NOT NULL, n INTEGER NOT NULL, p DECIMAL(9, 2), x DOUBLE,
                     f BOOLEAN);
CREATE STREAM others (v TEXT NOT NULL, k INTEGER NOT NULL);
"""
_LONG = "more than eight bytes"
TEXTS_DOMAINS: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "names": {
        "k": (1, 2, None),
        "t": ("", "a", "B", "éß-x", " b ", "10", "-2.50", "yes", "日本-x-y", _LONG, _LONG + "!", None),
        "v": ("A", "a", "", "b-", "É", "x_y%", "12", "1e3", "B"),
        "n": (0, 1, 2, 3, -1, -2),
        "p": (Decimal("0.00"), Decimal("-1.50"), Decimal("12.25"), None),
        "x": (0.0, 1.5, -2e20, 1e-7, None),
        "f": (True, False, None),
    },
    "others": {"v": ("A", "a", "É", "é", "12"), "k": (1, 2)},
}

TEXT_VIEWS = """
-- text_cases
SELECT UPPER(t) AS u, LOWER(v) AS l, LENGTH(t) AS n, REVERSE(v) AS r, STRLEN(t) AS b, ASCII(t) AS a FROM names
-- text_parts
SELECT SUBSTRING(t, i) AS s, SUBSTRING(t, i, 2) AS b, LEFT(t, i) AS l, RIGHT(v, i) AS r, SUBSTRING(v, 2, i)
    AS e,
    SPLIT_PART(t, '-', i) AS p, SPLIT_PART(v, '', i) AS q FROM (SELECT t, v, CAST(n AS BIGINT) AS i FROM
    names) d
-- text_trims
SELECT TRIM(t) AS t, LTRIM(t, 'a ') AS l, RTRIM(v, 'y%') AS r, TRIM(BOTH 'x' FROM v) AS b,
    REPLACE(t, v, '_') AS p, STRPOS(t, v) AS i FROM names
-- text_pads
SELECT LPAD(v, i + 2, '*') AS l, RPAD(t, 3, 'xy') AS r, REPEAT(v, i) AS e
    FROM (SELECT t, v, CAST(LEAST(n, 9) AS INTEGER) AS i FROM names) d
-- text_joined
SELECT t || '/' || v AS a, CONCAT(t, k, f, p) AS b, CONCAT_WS('-', t, k, v) AS c, v || n AS d FROM names
-- text_found
SELECT STARTS_WITH(t, v) AS s, CONTAINS(t, v) AS c, SUFFIX(t, v) AS e, STARTS_WITH(v, 'x_') AS p,
    CONTAINS(v, '%') AS q FROM names WHERE t IS NOT NULL OR k > 1
-- text_shown
SELECT CAST(n AS VARCHAR) AS n, CAST(p AS VARCHAR) AS p, CAST(x AS VARCHAR) AS x, CAST(f AS VARCHAR) AS f
    FROM names
-- text_sums_shown
SELECT k, CAST(SUM(p) AS VARCHAR) AS s, CAST(COUNT(*) AS VARCHAR) || ' rows' AS c, MAX(LENGTH(t)) AS m FROM
    names
    GROUP BY k
-- text_read
SELECT TRY_CAST(t AS BIGINT) AS b, TRY_CAST(v AS DECIMAL(9, 2)) AS d, TRY_CAST(t AS DOUBLE) AS x,
    TRY_CAST(t AS BOOLEAN) AS f, TRY_CAST(v AS SMALLINT) + n AS s FROM names
-- text_read_summed
SELECT SUM(TRY_CAST(t AS BIGINT)) AS a, SUM(TRY_CAST(v AS SMALLINT)) AS b, COUNT(TRY_CAST(t AS DOUBLE)) AS
    c FROM names
-- text_grouped
SELECT UPPER(v) AS u, COUNT(*) AS c, SUM(n) AS s FROM names GROUP BY UPPER(v)
-- text_grouped_again
SELECT LOWER(u) AS l, SUM(c) AS c, COUNT(*) AS g FROM (SELECT UPPER(v) AS u, COUNT(*) AS c FROM names GROUP
    BY 1) d
    GROUP BY 1
-- text_filtered
SELECT v, COUNT(*) AS c FROM names WHERE UPPER(v) = 'B' OR LENGTH(t) > 2 OR v || 'x' LIKE 'a%' OR LOWER(t)
    LIKE '%ß%'
    GROUP BY v
-- text_joined_by
SELECT a.v, b.v AS w, COUNT(*) AS c FROM names a JOIN others b ON UPPER(a.v) = UPPER(b.v) GROUP BY a.v, b.v
-- text_outer_joined
SELECT a.v, UPPER(b.v) AS w, b.v || a.v AS c FROM names a LEFT JOIN others b ON a.v = b.v AND a.k = b.k
-- text_of_two_columns
SELECT t || v AS j, COUNT(*) AS c, COUNT(DISTINCT LOWER(t)) AS d FROM names GROUP BY t || v
-- text_of_aggregates
SELECT k, COUNT(*) FILTER (WHERE LEFT(v, 1) = 'x') AS c, ARG_MAX(n, LENGTH(v)) * 0 AS z FROM names GROUP BY k
-- text_in_subquery
SELECT v FROM names WHERE LOWER(v) IN (SELECT LOWER(v) FROM others) OR EXISTS
    (SELECT 1 FROM others o WHERE o.v || names.v = 'ÉÉ')
-- text_distinct
SELECT DISTINCT LEFT(v, 1) AS l, CASE WHEN f THEN UPPER(t) ELSE v END AS c FROM names
-- text_union
SELECT UPPER(v) AS v FROM names UNION SELECT v FROM others
-- text_compared
SELECT v, t, v < t AS l, v >= 'a' AS g, t BETWEEN 'A' AND 'b' AS b FROM names WHERE v > 'A' OR t <= 'b'
-- text_compared_in_join
SELECT COUNT(*) AS c, SUM(a.n) AS s FROM names a JOIN others b ON a.v < b.v
-- text_ends
SELECT k, MIN(t) AS a, MAX(t) AS b, MAX(v) FILTER (WHERE n > 0) AS c, MIN(UPPER(v)) AS d FROM names GROUP BY k
-- text_ends_of_all
SELECT MIN(t) AS a, MAX(v || t) AS b, COUNT(*) AS n FROM names HAVING COUNT(*) < 9
-- text_args
SELECT k, ARG_MAX(n * 0 + 1, t) AS a, MIN(v) AS b, FIRST(v ORDER BY v) AS c, LAST(v ORDER BY v, n) AS d
    FROM names GROUP BY k
-- text_first_rows
SELECT v, n FROM names ORDER BY v DESC, n LIMIT 3
-- text_first_rows_of_null
SELECT t FROM names ORDER BY t LIMIT 3
-- text_first_rows_descending
SELECT DISTINCT v FROM names ORDER BY v DESC LIMIT 2
-- text_first_groups
SELECT UPPER(v) AS u, COUNT(*) AS c FROM names GROUP BY 1 ORDER BY u LIMIT 2
-- text_first_of_groups
SELECT k, v FROM names QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) <= 1
-- text_ranks
SELECT v, RANK() OVER (ORDER BY v) AS r, DENSE_RANK() OVER (PARTITION BY k ORDER BY t DESC NULLS FIRST) AS d
    FROM names
-- text_greatest
SELECT GREATEST(t, v) AS g, LEAST(v, t, 'a') AS l, (SELECT MAX(v) FROM others) AS m FROM names
-- text_of_one_row
SELECT k, (SELECT o.v FROM others o WHERE o.k = names.k ORDER BY o.v LIMIT 1) AS f FROM names
-- text_above_the_least
SELECT v, COUNT(*) AS c FROM names WHERE v > (SELECT MIN(v) FROM others) GROUP BY v
"""
