"""More views of the catalogue: subqueries as predicates and values, FILTER, comparisons that take NULL."""

PREDICATES = """
-- filtered_aggregates
SELECT a, SUM(c) FILTER (WHERE b > 1) AS f, COUNT(*) FILTER (WHERE c IS NULL) AS n,
    MIN(c) FILTER (WHERE b < 2) AS m FROM r GROUP BY a
-- values_at_extremes
SELECT a, ARG_MAX(c, b * 10 + c) AS x, MIN_BY(b, b - c * 10) AS y FROM r GROUP BY a
-- in_union
SELECT a, b FROM r WHERE a IN (SELECT c FROM s UNION SELECT b FROM s WHERE s.c = r.b)
-- not_in_groups
SELECT a, b FROM r WHERE a NOT IN (SELECT MAX(c) FROM s GROUP BY b)
-- rows_in_rows
SELECT a, COUNT(*) AS n FROM r WHERE (a, b) IN (SELECT c, b FROM s) GROUP BY a
-- rows_in_an_order
SELECT a, COUNT(*) AS n FROM r WHERE (b, COALESCE(a, 0)) >= (1, 2) AND (b, COALESCE(c, 0), 1) <> (2, 1, 1)
    GROUP BY a
-- rows_between_rows
SELECT k, v FROM wide WHERE (k, v) BETWEEN (1, 2) AND (2, 1)
-- rows_before_others
SELECT x.b, COUNT(*) AS n FROM r x JOIN r y ON x.a = y.a AND (x.b, COALESCE(x.c, 0)) < (y.b, COALESCE(y.c, 0))
    GROUP BY x.b
-- rows_alike
SELECT r.a, COUNT(*) AS n FROM r, s WHERE (r.a, r.b) IS NOT DISTINCT FROM (s.c, s.b) GROUP BY r.a
-- values_by_rows
SELECT b, ARG_MAX(c, (a, c)) AS x, ARG_MIN(c, (a, c)) AS y, FIRST(c ORDER BY (a, c) DESC) AS z FROM r
    GROUP BY b
-- first_by_rows
SELECT a, b, c FROM r ORDER BY (a, b, c) DESC LIMIT 3
-- numbers_written_as_texts
SELECT id, rate FROM fine WHERE amount >= '1.5' AND id <> '1' AND rate BETWEEN '-1' AND '2'
-- first_value_of_all
SELECT a, (SELECT b FROM s ORDER BY b DESC LIMIT 1) AS v FROM r
-- value_that_having_drops
SELECT a, (SELECT SUM(b) FROM s HAVING COUNT(*) > 1) AS v FROM r
-- boolean_aggregates
SELECT k, BOOL_AND(flag) AS x, BOOL_OR(x > y) AS z FROM u GROUP BY k
-- not_distinct
SELECT a, c FROM r WHERE a IS NOT DISTINCT FROM c
-- join_of_nulls
SELECT r.a, COUNT(*) AS n FROM r, s WHERE r.a IS NOT DISTINCT FROM s.c GROUP BY r.a
-- truth_of_conditions
SELECT a, (a > c) IS TRUE AS x, (a > c) IS NOT FALSE AS y FROM r WHERE (a > c) IS NOT TRUE
-- all_and_any
SELECT a FROM r WHERE a > ALL (SELECT c FROM s WHERE s.b > r.b) AND b <> ANY (SELECT c FROM s)
-- exists_or_else
SELECT a, COUNT(*) AS n FROM r WHERE a > 1 OR EXISTS (SELECT 1 FROM s WHERE s.b = r.b AND s.c > r.c)
    GROUP BY a
-- groups_whose_sum_is_among_rows
SELECT a, SUM(c) AS v FROM r GROUP BY a HAVING SUM(c) IN (SELECT c FROM s)
-- groups_whose_count_is_not_among_rows
SELECT b, COUNT(*) NOT IN (SELECT c FROM s WHERE s.b = r.b) AS x FROM r GROUP BY b
-- groups_of_the_largest_sum
SELECT a FROM r GROUP BY a HAVING SUM(b) >= ALL (SELECT SUM(b) FROM r GROUP BY a)
-- groups_above_any_row_beside_a_mean
SELECT a, MAX(b) - (SELECT MIN(b) FROM s) > ANY (SELECT c FROM s) AS x, COUNT(*) AS n FROM r GROUP BY a
-- expressions_of_groups_among_rows
SELECT a + b AS k, COUNT(*) AS n FROM r GROUP BY a + b HAVING a + b IN (SELECT c FROM s)
-- all_rows_whose_count_is_among_others
SELECT COUNT(*) AS n, COUNT(*) IN (SELECT b FROM s) AS x FROM r
-- ranks_among_rows
SELECT b, n FROM (SELECT b, n, RANK() OVER (ORDER BY n) IN (SELECT c FROM s) AS x FROM (SELECT b, COUNT(*)
    AS n FROM r GROUP BY b) g) d WHERE x
"""
