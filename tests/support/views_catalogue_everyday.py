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
-- left_join_of_groups
SELECT r.a, r.b, r.c, t.n, t.m, t.x FROM r LEFT JOIN
    (SELECT b, COUNT(*) AS n, MAX(d) AS m, AVG(c) AS x FROM s GROUP BY b) t ON t.b = r.b
-- left_join_of_two_groups
SELECT x.b, x.v, y.w, COALESCE(y.w, 0) AS z, y.b AS k FROM (SELECT b, SUM(a) AS v FROM r GROUP BY b) x
    LEFT JOIN (SELECT b, SUM(c) AS w FROM s GROUP BY b HAVING COUNT(*) > 1) y
    ON y.b = x.b AND x.v > 2 AND y.w <> 1
-- left_join_of_joined_groups
SELECT r.b, t.n, t.m FROM r LEFT JOIN (SELECT p.b, p.n, q.m FROM (SELECT b, COUNT(*) AS n FROM s GROUP BY b) p
    JOIN (SELECT b, MIN(c) AS m FROM r GROUP BY b) q ON q.b = p.b WHERE p.n > 1) t ON r.b = t.b
-- left_joins_in_a_chain
SELECT x.b, x.n, y.m, z.l FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) x
    LEFT JOIN (SELECT b, MAX(c) AS m FROM s GROUP BY b) y USING (b)
    LEFT JOIN (SELECT c, LAST(d ORDER BY d) AS l FROM s GROUP BY c) z ON z.c = y.m
-- left_join_of_groups_that_are_missing
SELECT a, r.b FROM r LEFT JOIN (SELECT b, SUM(d) AS t FROM s GROUP BY b) g ON g.b = r.b
    WHERE t IS NULL OR t > 3
-- left_join_of_groups_summed
SELECT r.a, SUM(g.t * r.c) AS x, COUNT(g.b) AS n, MIN(g.t) AS m FROM r
    LEFT JOIN (SELECT b, SUM(d) AS t FROM s GROUP BY b) g ON g.b = r.b GROUP BY r.a
-- left_join_of_groups_by_two_keys
SELECT r.a, r.b, g.n FROM r LEFT JOIN (SELECT b, c, COUNT(*) AS n FROM s GROUP BY b, c) g
    ON g.b = r.a AND g.c = r.a
-- left_join_of_groups_by_equal_keys
SELECT r.a, r.b, g.n FROM r LEFT JOIN (SELECT b, c, COUNT(*) AS n FROM s GROUP BY b, c) g
    ON g.b = r.a AND g.c = r.b
    WHERE r.a = r.b
-- left_join_of_groups_of_texts
SELECT u.k, g.l, g.n FROM u LEFT JOIN (SELECT label, MAX(label) AS l, SUM(y) AS n FROM u GROUP BY label) g
    ON g.label = u.label
-- right_join_of_groups
SELECT g.n, r.a FROM (SELECT b, COUNT(*) AS n FROM s GROUP BY b) g RIGHT JOIN r ON r.b = g.b
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
-- lateral_of_the_first_row
SELECT r.a, r.b, x.c, x.d FROM r, LATERAL (SELECT c, d FROM s WHERE s.b = r.b ORDER BY c DESC LIMIT 1) x
-- lateral_of_the_first_row_joined_left
SELECT r.a, x.d + x.p AS e FROM r LEFT JOIN LATERAL (SELECT d, c * 2 AS p FROM s WHERE s.b <= r.b
    ORDER BY p, d DESC LIMIT 1) AS x ON TRUE
-- lateral_of_first_rows_summed
SELECT r.b, SUM(x.c) AS t, COUNT(*) AS n FROM r JOIN LATERAL (SELECT s.c FROM s WHERE s.b = r.b AND s.d > 0
    ORDER BY s.d, s.c LIMIT 1) x ON x.c > 0 GROUP BY r.b
-- any_values
SELECT b, ANY_VALUE(b + 1) AS x FROM r GROUP BY b
-- lengths_of_time
SELECT b, b * (INTERVAL '1 minute' / 4 = INTERVAL '15 seconds')::INT AS x FROM r
"""

ORDINARY = """
-- values_listed
SELECT b, LIST(a ORDER BY c NULLS FIRST, a)::VARCHAR AS l, MAX(c, 2)::VARCHAR AS m, MIN(a, 3)::VARCHAR AS n,
    ARG_MAX(a, a, 2)::VARCHAR AS x, ARRAY_AGG(c ORDER BY c DESC)[1:2]::VARCHAR AS f FROM r GROUP BY b
-- values_counted
SELECT b, HISTOGRAM(c)::VARCHAR AS h, QUANTILE_DISC(a, [0.3, 0.9])::VARCHAR AS q FROM r GROUP BY b
-- bits
SELECT b, BIT_AND(CAST(c AS SMALLINT)) AS x, BIT_OR(CAST(a AS SMALLINT)) AS y,
    SUM(CAST(c AS INTEGER) & 3) AS s, BIT_XOR(CAST(c + b AS SMALLINT)) AS z FROM r
    WHERE XOR(CAST(b AS INTEGER), 1) > CAST(b AS INTEGER) >> 1 OR CAST(a AS INTEGER) | 2 = 3
    OR ~CAST(b AS INTEGER) = 0 GROUP BY b
-- bits_counted
SELECT BIT_COUNT(CAST(c AS BIGINT)) AS n, GCD(a, b) AS g, LCM(b * 6, a + 4) AS l, LCM(b, 4) AS m,
    HEX(CAST(c AS BIGINT)) AS h, BIN(CAST(b AS BIGINT)) AS d FROM r
-- rows_of_constants
SELECT g.n, COUNT(r.a) AS c, MAX(u.x) AS m FROM GENERATE_SERIES(-1, 2) g(n) LEFT JOIN r ON r.b = g.n
    JOIN UNNEST([1, 5]) u(x) ON u.x > g.n GROUP BY g.n
-- listed_and_never
SELECT LIST_CONTAINS([1, NULL, 3], a) AS l, ISFINITE(x) AS f, ISNAN(y) AS n
    FROM (SELECT k AS a, x, y FROM u) d
-- values_listed_of_all
SELECT LIST(y + 0.0 ORDER BY y)::VARCHAR AS y, LIST(flag ORDER BY flag DESC)::VARCHAR AS f,
    MAX(x + 0.0, 2)::VARCHAR AS x, LIST(label ORDER BY label)::VARCHAR AS l, COUNT(*) AS n FROM u
-- formulas_of_aggregates
SELECT b, PRODUCT(c) AS p, SEM(c) AS s, MAD(c) AS m, ENTROPY(a) AS e, FSUM(c) AS f, COUNT() AS n, FAVG(a) AS g
    FROM r GROUP BY b
-- formulas_of_all
SELECT PRODUCT(a) FILTER (WHERE a <> 0) AS p, ENTROPY(label) AS e, MAD(y) AS m, WAVG(y, k) AS w,
    GEOMEAN(k + 2) AS g FROM (SELECT k AS a, label, y, k FROM u) d
-- formulas_over
SELECT a, b, SEM(c) OVER (PARTITION BY b) AS s, PRODUCT(c) OVER (PARTITION BY b) AS p FROM r
-- groups_by_entropy
SELECT b, COUNT(*) AS n FROM r GROUP BY b HAVING ENTROPY(a) > 0.5 OR MAD(c) > 1
-- firsts_that_may_be_null
SELECT b, FIRST(a ORDER BY c, a) AS f, LAST(c ORDER BY a DESC NULLS FIRST, c) AS l,
    ANY_VALUE(a ORDER BY c DESC, a) AS v, FIRST(c ORDER BY c) FILTER (WHERE a > 1) AS g FROM r GROUP BY b
-- firsts_of_texts
SELECT k, FIRST(label ORDER BY label NULLS FIRST) AS f, LAST(label ORDER BY y, label) AS l FROM u GROUP BY k
-- rows_that_differ
SELECT b, COUNT(DISTINCT (a, c)) AS n, COUNT(DISTINCT (a + 1, b)) FILTER (WHERE c > 0) AS m FROM r GROUP BY b
-- windows_extended
SELECT b, SUM(v) OVER (w ROWS 1 PRECEDING) AS s, NTH_VALUE(v, 2) OVER w AS n, FIRST(m) OVER w AS f,
    COUNT(DISTINCT m) OVER w AS d, ARG_MAX(v, m) OVER (w) AS a, NTH_VALUE(m, 1) OVER p AS z
    FROM (SELECT b, SUM(c) AS v, MAX(a) AS m FROM r GROUP BY b) d
    WINDOW p AS (ORDER BY b DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), w AS (ORDER BY b)
-- a_row_of_none
SELECT 1.00 + 1 AS x, a FROM r WHERE b IS NULL ORDER BY x, a LIMIT 1
-- a_row_of_what_is_outside
SELECT a, (SELECT r.c + s.b FROM s WHERE s.b = r.b ORDER BY s.d, s.c LIMIT 1) AS x FROM r
-- union_by_name
SELECT b, SUM(c) AS v FROM r GROUP BY b UNION ALL BY NAME SELECT d, b FROM s
-- union_by_name_once
SELECT a, b FROM r UNION BY NAME SELECT b, c AS a FROM s
-- values_joined
SELECT r.a, v.name, v.w * r.c AS x FROM r JOIN (VALUES (1, 'one', 1.5), (2, NULL, 2)) v(b, name, w) USING (b)
-- values_kept
SELECT v.col0 AS k, COUNT(r.b) AS n FROM (VALUES (1), (2), (7)) v LEFT JOIN r ON r.b = v.col0 GROUP BY ALL
-- columns_by_pattern
SELECT MAX(COLUMNS('^[ac]$')) - MIN(COLUMNS('^[ac]$')), COUNT(COLUMNS(* EXCLUDE (b))) FROM r
-- outputs_in_where
SELECT a + c AS t, b FROM r WHERE t > 1 AND b = ANY ([1, 2, 3]) AND (a, b) IN ((1, 1), (2, 1), (3, 2))
-- powers
SELECT a, 2 + a ^ 2 AS p, a ** 3 AS q, CBRT(c) AS r FROM r
"""
ORDINARY_TEXTS = """
-- texts_listed
SELECT k, STRING_AGG(t, ',' ORDER BY n, t) AS a, STRING_AGG(DISTINCT v, '' ORDER BY v DESC) AS b,
    COALESCE(LISTAGG(v, '-' ORDER BY v) FILTER (WHERE n > 0), '?') || '!' AS c FROM names GROUP BY k
-- texts_listed_below
SELECT l, COUNT(*) AS c FROM (SELECT k, STRING_AGG(v, '' ORDER BY v) AS l FROM names GROUP BY k) d
    WHERE l <> 'A' GROUP BY l
-- regular_expressions
SELECT REGEXP_MATCHES(t, '^[a-z]+') AS m, REGEXP_FULL_MATCH(v, '[A-Z]', 'i') AS f,
    t SIMILAR TO '.*(é|-)x?' AS s,
    REGEXP_EXTRACT(t, '([0-9]+)[.]?([0-9]*)', 2) AS e, REGEXP_REPLACE(t, '[^a-z]', '<\\0>', 'g') AS r,
    REGEXP_REPLACE(v, '(.)(.)', '\\2\\1') AS q FROM names
-- regular_expressions_grouped
SELECT REGEXP_EXTRACT(v, '^[A-Za-z]*') AS g, SUM(n) AS s FROM names WHERE NOT REGEXP_MATCHES(v, '^$')
    GROUP BY g
-- patterns_computed
SELECT t LIKE v || '%' AS l, v ILIKE t AS i, v NOT LIKE 'x!_%' ESCAPE '!' AS e, t GLOB '*[a-c]*' AS g
    FROM names
-- parts_in_brackets
SELECT t[2:3] AS a, t[-2:] AS b, v[1] AS c, STRING_SPLIT(t, '-')[2] AS d, t[:1] AS e FROM names
-- texts_by_formats
SELECT FORMAT('{:>4}|{}|{:03d}', v, t, n) AS a, PRINTF('%.1f %s %d%%', p, f, n) AS b, FORMAT('{:.2e}', x) AS c
    FROM names WHERE n > -2
-- texts_by_likeness
SELECT CASE WHEN STRLEN(t) = STRLEN(v) AND t <> '' THEN HAMMING(t, v) END AS a, JARO_SIMILARITY(t, v) AS b,
    JARO_WINKLER_SIMILARITY(v, t) AS c, CASE WHEN t <> '' AND v <> '' THEN JACCARD(t, v) END AS d,
    DAMERAU_LEVENSHTEIN(t, v) AS e, SHA1(v) AS f, HEX(t) AS g FROM names
-- times_by_formats
SELECT EXTRACT(month FROM TRY_STRPTIME('2024-0' || CAST(n AS VARCHAR), '%Y-%m')) AS a,
    EPOCH_NS(TRY_STRPTIME(t, '%H:%M')) AS b, TRY_STRPTIME(v, '%m') IS NULL AS c FROM names
-- texts_by_other_functions
SELECT TRANSLATE(t, 'ab-', 'xy') AS a, MD5(v) AS b, LEVENSHTEIN(t, v) AS c,
    CHR(CAST(n AS INTEGER) + 66) AS d, SHA256(t) AS e FROM names WHERE n >= 0
-- texts_of_windows
SELECT k, v, MAX(t) OVER (PARTITION BY k) AS a, MIN(v) OVER () AS b,
    MODE(CASE WHEN n > 0 THEN 'x' END) OVER (PARTITION BY k) AS c FROM names
-- modes_of_texts
SELECT k, MODE(CASE WHEN n >= 0 THEN 'some' WHEN n < -9 THEN v END) AS m FROM names GROUP BY k
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
