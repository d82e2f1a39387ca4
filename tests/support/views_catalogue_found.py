"""More views of the catalogue: the smallest queries that random ones were shrunk to when they were wrong."""

FOUND = """
-- distinct_count_of_group_key
SELECT w.n, w.a FROM (SELECT a, COUNT(DISTINCT a) AS n FROM r GROUP BY a) w
-- dense_rank_in_partitions
SELECT a, DENSE_RANK() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST) AS place FROM r
-- doubles_cast_to_whole_decimals
SELECT k, CAST(x * 0.5 AS DECIMAL(9, 0)) AS d, CAST(x * 0.5 AS INTEGER) AS i FROM u
-- equal_to_a_count_that_depends_on_it
SELECT COUNT(*) AS n FROM s x WHERE x.c = (SELECT COUNT(*) FROM s y WHERE x.c + y.c = 1)
-- slices_by_either_key
SELECT DISTINCT t1.a AS c1, t1.a AS c2 FROM r t1 RIGHT JOIN s t2 ON t1.b = t2.c JOIN s t3 ON t1.a = t3.c
-- sources_of_one_name_in_two_views
CREATE VIEW spreads AS SELECT b, a, STDDEV_SAMP(c * 0.5) AS v FROM r GROUP BY ROLLUP (b, a);
CREATE VIEW counts AS SELECT b, a, COUNT(DISTINCT c) AS v FROM r GROUP BY ROLLUP (b, a)
-- no_double_beside_a_zero_in_an_outer_join
SELECT u.x, COUNT(*) AS n FROM r FULL JOIN u ON r.b = u.k GROUP BY u.x
-- deviation_of_doubles_that_go
SELECT STDDEV_SAMP(y) AS v, MIN(1.00) AS m FROM u WHERE k > 0
-- sums_with_null_before_they_are_left_out
SELECT DISTINCT t1.a AS c1, t1.b AS c2 FROM r t1 JOIN r t2 USING (c) RIGHT JOIN r t3 ON t2.a = t3.a
WHERE t3.a + t1.b BETWEEN 1 AND 1 OR EXISTS (SELECT 1 FROM r t4)
-- distinct_count_over_one_row
SELECT COUNT(DISTINCT w.n) AS c FROM (SELECT COUNT(*) AS n FROM r) w
-- no_running_sum_over_a_key_of_the_row
SELECT x.k FROM wide x
WHERE x.k NOT IN (SELECT y.b FROM s y WHERE x.v >= y.b AND y.c < (SELECT COUNT(*) FROM wide z))
-- grouping_sets_of_sums_of_doubles
SELECT flag, SUM(x) AS s FROM u GROUP BY GROUPING SETS ((flag), ())
-- all_rows_summed_beside_all_rows_averaged
SELECT SUM(x) AS s FROM u UNION ALL SELECT AVG(y) FROM u
-- groups_by_a_sum_of_doubles
SELECT s, m, COUNT(*) AS n FROM (SELECT SUM(x) AS s, MIN(y) AS m FROM u) w GROUP BY s, m
-- an_extreme_up_to_an_extreme_of_others
SELECT x.b FROM r x WHERE x.b > (SELECT MAX(y.b) FROM s y WHERE y.b <= (SELECT MIN(z.k) FROM u z))
-- an_extreme_from_a_sum_of_others
SELECT x.a FROM r x
WHERE x.c >= (SELECT MIN(y.b) FROM s y WHERE y.b >= (SELECT SUM(z.k) FROM u z) AND y.b < 3)
-- unlike_others_in_an_outer_join
SELECT w.d FROM (SELECT DISTINCT t1.label, t2.d FROM u t1 RIGHT JOIN s t2 ON t1.k = t2.c) w
WHERE EXISTS (SELECT 1 FROM fine t3 WHERE w.d <> t3.rate)
-- least_of_no_doubles_beside_groups
SELECT w.c FROM (SELECT t1.x, t2.c FROM u t1 LEFT JOIN
(SELECT k, MIN(x) FILTER (WHERE x IS NULL) AS c FROM u GROUP BY k) t2 ON t1.k = t2.k) w WHERE w.x > 0
-- groups_beside_groups_of_them
CREATE VIEW spreads AS SELECT k % 2 AS m, k, VAR_POP(x) AS v FROM u GROUP BY 1, k;
CREATE VIEW beside AS SELECT s.m, s.k, o.v FROM spreads s
LEFT JOIN (SELECT k, SUM(v) / COUNT(*) AS v FROM spreads GROUP BY k) o ON s.k = o.k
-- counts_that_are_nothing_in_between
SELECT broker_id, SUM(v) AS s FROM (SELECT broker_id, SUM(CAST(volume AS DOUBLE)) OVER
    (PARTITION BY broker_id ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS v FROM bids) w
GROUP BY broker_id
-- rows_beside_those_up_to_them_and_those_of_null
SELECT COUNT(*) AS n FROM r x WHERE x.b >= (SELECT COUNT(*) FROM s y WHERE y.c <= x.a OR y.c IS NULL)
-- rows_above_the_mean_of_those_before
SELECT COUNT(*) AS n FROM bids x WHERE x.volume > (SELECT AVG(y.volume) FROM bids y WHERE y.id < x.id)
-- the_first_by_a_wide_product_of_a_key
SELECT r.b, (SELECT s.c * s.d * 1.00000001 FROM s WHERE s.b = r.b
    ORDER BY s.c * s.d * 1.00000001 DESC LIMIT 1)
    AS x FROM r
"""
