"""Views in the words of every day: stars with exceptions, conditions counted, PIVOT, lengths of time."""

EVERYDAY = """
-- counted_if
SELECT b, COUNT_IF(a > 1) AS x, COUNTIF(c IS NULL) AS y, COUNT_IF(a > 1) FILTER (WHERE b > 0) AS z FROM r
    GROUP BY b
-- counted_if_of_all
SELECT COUNT_IF(a > c) AS x, COUNT_IF(b < 2) + 1 AS y FROM r
-- counted_if_over
SELECT a, b, COUNT_IF(a > 1) OVER (PARTITION BY b) AS x FROM r
-- star_without
SELECT * EXCLUDE (a, c) FROM r
-- star_with_others
SELECT * EXCLUDE (d) REPLACE (b + 1 AS b) RENAME (c AS e) FROM s
-- star_of_one_side
SELECT r.* EXCLUDE (b), s.* RENAME (b AS key) FROM r JOIN s ON r.b = s.b
-- star_of_a_merged_column
SELECT * EXCLUDE (c) FROM r JOIN (SELECT b, d FROM s) t USING (b)
-- pivot_clause
SELECT * FROM (SELECT a, b, c FROM r) PIVOT (SUM(c) FOR b IN (0 AS zero, 1 AS one))
-- pivot_of_two_aggregates
SELECT * FROM r PIVOT (SUM(c) AS total, COUNT(*) AS n FOR b IN (1 AS one, 2 AS two) GROUP BY a) AS p
-- pivot_of_two_columns
SELECT * FROM r PIVOT (COUNT(*) FOR b IN (1 AS one, 2 AS two) a IN (1 AS x, 2 AS y))
-- pivot_of_texts
SELECT * FROM u PIVOT (SUM(y) AS s FOR label IN ('A', 'B') GROUP BY k) WHERE a_s > 1 OR k IS NULL
-- pivot_statement
CREATE VIEW pivot_statement AS PIVOT r ON b IN (1 AS one, 0 AS zero) USING MAX(c) + 1 AS most GROUP BY a
-- pivot_in_parentheses
SELECT p.one, COUNT(*) AS n FROM (PIVOT r ON b IN (1 AS one) USING SUM(c) GROUP BY a) p GROUP BY p.one
-- pivot_in_with
WITH p AS (PIVOT r ON b IN (1 AS one, 2 AS two) GROUP BY a) SELECT one + two AS n FROM p WHERE one > 0
-- lateral_of_one_row
SELECT r.a, x.t, x.n FROM r, LATERAL (SELECT SUM(c) AS t, COUNT(*) AS n FROM s WHERE s.b = r.b) x
    WHERE x.n < 3
-- lateral_joined_left
SELECT r.a, r.b, x.t, t.d FROM r JOIN (SELECT b, d FROM s) t ON t.b = r.b LEFT JOIN LATERAL
    (SELECT MAX(c) AS t FROM s WHERE s.b < r.b) x ON TRUE
-- lateral_of_a_lateral
SELECT a, t + n AS u FROM r, LATERAL (SELECT COALESCE(SUM(c), 0) AS t FROM s WHERE s.b = r.b) x,
    LATERAL (SELECT COUNT(*) FROM s WHERE s.c > x.t) y(n)
-- lateral_summed
SELECT r.b, SUM(x.n) AS t, COUNT(*) AS c FROM r
    JOIN LATERAL (SELECT COUNT(*) AS n FROM s WHERE s.b = r.b) x ON x.n > 0 GROUP BY r.b
-- any_values
SELECT b, ANY_VALUE(b + 1) AS x FROM r GROUP BY b
-- lengths_of_time
SELECT b, b * (INTERVAL '1 minute' / 4 = INTERVAL '15 seconds')::INT AS x FROM r
"""

MACROS = """
-- macro_of_values
CREATE MACRO twice(x) AS x + x;
CREATE MACRO between_them(x, y := 1) AS (twice(x) - y) * 0.5;
CREATE VIEW macro_of_values AS SELECT between_them(a) AS m, between_them(a + b, y := c) AS n, twice(b * 2)
    AS o FROM r
-- macro_of_aggregates
CREATE MACRO ratio(x, y) AS SUM(x) / SUM(y);
CREATE VIEW macro_of_aggregates AS SELECT a, ratio(b, c) AS q FROM r GROUP BY a HAVING COUNT(*) > 0 AND
    ratio(c, b) IS NULL
-- macro_of_a_subquery
CREATE MACRO above(k, least) AS (SELECT COUNT(*) FROM s x WHERE x.b = k AND x.c > least);
CREATE VIEW macro_of_a_subquery AS SELECT a, b, above(r.b, r.a) AS n FROM r WHERE above(r.b, 0) < 5
-- macro_as_table
CREATE MACRO of_key(k, most := 2) AS TABLE SELECT a, c FROM r WHERE b = k AND a <= most;
CREATE VIEW macro_as_table AS SELECT x.a, y.c FROM of_key(1) x JOIN of_key(2, most := 1) AS y ON x.a = y.a
-- macro_of_macros
CREATE MACRO sign_of(x) AS CASE WHEN x > 0 THEN 1 WHEN x < 0 THEN -1 END;
CREATE FUNCTION moves(x) AS TABLE SELECT sign_of(c - x) AS d, b FROM r;
CREATE VIEW macro_of_macros AS SELECT d, SUM(b) AS t FROM moves(1) GROUP BY d
"""
