"""More views of the catalogue: the smallest queries that random ones were shrunk to when they were wrong."""

FOUND = """
-- distinct_count_of_group_key
SELECT w.n, w.a FROM (SELECT a, COUNT(DISTINCT a) AS n FROM r GROUP BY a) w
-- dense_rank_in_partitions
SELECT a, DENSE_RANK() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST) AS place FROM r
-- doubles_cast_to_whole_decimals
SELECT k, CAST(x * 0.5 AS DECIMAL(9, 0)) AS d, CAST(x * 0.5 AS INTEGER) AS i FROM u
"""
