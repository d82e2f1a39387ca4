"""More views of the catalogue: joins of all kinds, set operations, WITH, grouping sets and first rows."""

QUERIES = """
-- using_full
SELECT b, r.a, s.d FROM r FULL JOIN s USING (b)
-- using_right_summed
SELECT b, COUNT(r.b) AS n, COUNT(*) AS m FROM r RIGHT JOIN s USING (b) GROUP BY b
-- natural_join
SELECT b, c, a, d FROM r NATURAL JOIN s
-- natural_left_join
SELECT * FROM r NATURAL LEFT JOIN s
-- left_join_of_joins
SELECT r.a, s.d, q.c FROM r LEFT JOIN (s JOIN r q ON s.c = q.c) ON r.b = s.b
-- full_join_of_a_join
SELECT r.a, s.d, q.c FROM (r JOIN s ON r.b = s.b) FULL JOIN s q ON q.c = r.c
-- left_join_after_comma
SELECT r.a, q.c, s.d FROM r, r q LEFT JOIN s ON s.b = q.b WHERE r.b = 1
-- semi_join
SELECT a, b FROM r SEMI JOIN s USING (b)
-- anti_join
SELECT a, b FROM r ANTI JOIN s ON r.b = s.b AND s.c > r.c
-- asof_join
SELECT r.a, r.b, q.c FROM r ASOF JOIN (SELECT b, c FROM s GROUP BY b, c) q ON r.b = q.b AND r.c >= q.c
-- asof_left_join
SELECT r.a, q.b FROM r ASOF LEFT JOIN (SELECT b FROM s GROUP BY b) q ON r.b < q.b
-- with_twice
WITH t AS (SELECT b, COUNT(*) AS n FROM r GROUP BY b) SELECT x.b, y.n FROM t x JOIN t y ON x.b = y.n
-- with_shadowed
WITH r AS (SELECT b, c FROM r WHERE a > 0), t(k) AS (SELECT b FROM r) SELECT t.k, r.c FROM t JOIN r ON
    r.b = t.k
-- union_of_three
SELECT b, c FROM r UNION SELECT b, c FROM s UNION ALL SELECT 7, NULL
-- intersect_pairs
SELECT b, c FROM r INTERSECT SELECT b, c FROM s
-- except_pairs
SELECT a, b FROM r EXCEPT SELECT c, b FROM s
-- except_of_unions
(SELECT b FROM r UNION ALL SELECT c FROM r) EXCEPT (SELECT c FROM s INTERSECT SELECT b FROM s)
-- union_of_sums
SELECT SUM(c) AS x FROM r UNION ALL SELECT SUM(d) FROM s
-- union_grouped
SELECT u.k, COUNT(*) AS n, SUM(u.v) AS v FROM (SELECT b AS k, c AS v FROM r UNION ALL SELECT b, c FROM s) u
    GROUP BY u.k
-- distinct_of_sums
SELECT DISTINCT SUM(c) AS total FROM r GROUP BY b
-- rollup
SELECT a, b, GROUPING(a, b) AS g, SUM(c) AS total, COUNT(*) AS n FROM r GROUP BY ROLLUP (a, b)
-- cube_having
SELECT a, b, COUNT(*) AS n FROM r GROUP BY CUBE (a, b) HAVING COUNT(*) > 1
-- grouping_sets_beside_columns
SELECT a, b, MAX(c) AS most FROM r GROUP BY a, GROUPING SETS ((b), ())
-- grouping_sets_by_text
SELECT label, flag, COUNT(*) AS n FROM u GROUP BY GROUPING SETS ((label), (flag), ())
-- group_by_all
SELECT b, a, SUM(c) AS total FROM r GROUP BY ALL
-- having_alias
SELECT b, SUM(c) AS total FROM r GROUP BY b HAVING total > 1
-- top_of_groups
SELECT b, SUM(c) AS total FROM r GROUP BY b ORDER BY COUNT(*) DESC, b LIMIT 2
-- top_of_distinct
SELECT DISTINCT b FROM r ORDER BY b DESC LIMIT 2
-- top_of_union
SELECT b FROM r UNION ALL SELECT b FROM s ORDER BY b LIMIT 3 OFFSET 1
-- distinct_on
SELECT DISTINCT ON (b) b, c FROM r ORDER BY b, c DESC
-- qualified
SELECT b, c FROM r QUALIFY ROW_NUMBER() OVER (PARTITION BY b ORDER BY c NULLS FIRST) <= 2
-- limited_numbers
WITH t AS (SELECT b, c, ROW_NUMBER() OVER (PARTITION BY b ORDER BY c DESC) AS n FROM r) SELECT b, c FROM t
    WHERE n BETWEEN 2 AND 3
-- top_scalar
SELECT s.b, (SELECT r.c FROM r WHERE r.b = s.b ORDER BY r.c DESC LIMIT 1) AS best FROM s
"""
