"""More views of the catalogue: first rows with their numbers, windows over groups, rows before and after."""

WINDOWS = """
-- levels_by_alias
SELECT symbol, price, SUM(volume) AS v, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) AS level
    FROM bids GROUP BY symbol, price QUALIFY level <= 2
-- levels_repeated
SELECT symbol, price, SUM(volume) AS v, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) AS level
    FROM bids GROUP BY symbol, price QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) < 3
-- levels_derived
SELECT symbol, price, level FROM (SELECT symbol, price, SUM(volume) AS v, ROW_NUMBER() OVER (PARTITION BY
    symbol ORDER BY price DESC) AS level FROM bids GROUP BY symbol, price) d WHERE level = 2
-- levels_between
WITH l AS (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price) SELECT symbol, price, v,
    ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) AS level FROM l QUALIFY level BETWEEN 2 AND
    3
-- levels_of_orders
SELECT symbol, price, id, volume, RANK() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS place FROM bids
    QUALIFY 2 >= place AND volume > 0
-- levels_of_orders_derived
SELECT * FROM (SELECT symbol, price, id, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS
    place FROM bids GROUP BY symbol, price, id) d WHERE place < 3
-- levels_of_orders_joined
SELECT d.symbol, d.place, a.id FROM (SELECT symbol, price, id, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY
    price DESC, id) AS place FROM bids GROUP BY symbol, price, id) d, asks a WHERE d.place = 2 AND a.symbol =
    d.symbol
-- groups_ranked
SELECT symbol, broker_id, SUM(volume) AS v, RANK() OVER (PARTITION BY symbol ORDER BY SUM(volume) DESC) AS k
    FROM bids GROUP BY symbol, broker_id HAVING COUNT(*) > 1
-- groups_distinct
SELECT DISTINCT symbol, RANK() OVER (ORDER BY COUNT(*)) AS k FROM bids GROUP BY symbol, price
-- groups_counted
SELECT symbol, price + 1 AS p, MAX(volume) - MIN(volume) AS m, COUNT(*) OVER (PARTITION BY symbol) AS k,
    AVG(MIN(volume)) OVER (ORDER BY price + 1) AS a FROM bids GROUP BY symbol, price + 1
-- group_subquery
SELECT symbol, (SELECT COUNT(*) FROM asks a WHERE a.symbol = b.symbol) AS n, SUM(COUNT(*)) OVER () AS s FROM
    bids b GROUP BY symbol
-- total_window
SELECT SUM(volume) AS v, SUM(SUM(volume)) OVER () AS w FROM bids
-- lag_two_keys
SELECT symbol, price, id, LAG(v) OVER (PARTITION BY symbol ORDER BY price DESC, id) AS p FROM (SELECT
    symbol, price, id, SUM(volume) AS v FROM bids GROUP BY symbol, price, id) WHERE v > 1
-- lag_nullable_partition
SELECT a, b, LAG(n) OVER (PARTITION BY a ORDER BY b) AS p, FIRST_VALUE(n) OVER (PARTITION BY a ORDER BY b)
    AS f, LAST_VALUE(n) OVER (PARTITION BY a ORDER BY b RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED
    FOLLOWING) AS l FROM (SELECT a, b, COUNT(*) AS n FROM r GROUP BY a, b)
-- ends_of_nulls
SELECT b, k, FIRST_VALUE(v) OVER (PARTITION BY b ORDER BY k) AS f, LAST_VALUE(v) OVER (ORDER BY k, b ROWS
    BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM (SELECT b, COALESCE(a, 7) AS k, MAX(c) AS v
    FROM r GROUP BY b, COALESCE(a, 7)) d
-- ends_of_nullable_kinds
SELECT k, FIRST_VALUE(x) OVER (ORDER BY k) AS x, FIRST_VALUE(t) OVER (ORDER BY k DESC) AS t, FIRST_VALUE(f)
    OVER (ORDER BY k) AS f FROM (SELECT COALESCE(k, 9) AS k, MIN(x) AS x, MAX(seen) AS t, BOOL_OR(flag) AS f
    FROM u GROUP BY COALESCE(k, 9)) d
-- lag_two_back
SELECT symbol, price, LAG(v, 2) OVER (PARTITION BY symbol ORDER BY price DESC) AS p, LEAD(v, 2, -1) OVER
    (PARTITION BY symbol ORDER BY price) AS n FROM (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP
    BY symbol, price)
-- statistics_running
SELECT symbol, price, id, STDDEV(volume) OVER (PARTITION BY symbol ORDER BY price) AS s, VAR_POP(volume) OVER
    (ORDER BY price DESC) AS v, CORR(volume, id) OVER (PARTITION BY symbol) AS c, REGR_COUNT(id, volume) OVER
    (PARTITION BY id ORDER BY price) AS n FROM bids
-- statistics_of_nulls
SELECT a, b, c, VARIANCE(c) OVER (PARTITION BY a) AS v, COVAR_SAMP(a, c) OVER (ORDER BY b) AS s, SKEWNESS(c)
    FILTER (WHERE b > 0) OVER () AS k FROM r
-- statistics_of_a_distance
SELECT symbol, price, STDDEV_POP(volume) OVER (PARTITION BY symbol ORDER BY price RANGE BETWEEN 1 PRECEDING
    AND 1 FOLLOWING) AS s, COVAR_POP(volume, id) OVER (ORDER BY price RANGE BETWEEN 1 FOLLOWING AND 2000
    FOLLOWING) AS c FROM bids
-- statistics_of_numbers_of_rows
SELECT symbol, price, STDDEV(v) OVER (PARTITION BY symbol ORDER BY price ROWS BETWEEN 2 PRECEDING AND CURRENT
    ROW) AS s, REGR_SLOPE(v, price) OVER (PARTITION BY symbol ORDER BY price ROWS BETWEEN CURRENT ROW AND
    UNBOUNDED FOLLOWING) AS b FROM (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price)
-- statistics_compared
SELECT symbol, id, price FROM bids QUALIFY volume > AVG(volume) OVER (PARTITION BY symbol) +
    STDDEV_POP(volume) OVER (PARTITION BY symbol)
-- statistics_of_groups
SELECT symbol, SUM(volume) AS v, STDDEV(SUM(volume)) OVER () AS s, CORR(SUM(volume), COUNT(*)) OVER () AS c
    FROM bids GROUP BY symbol
-- range_frame
SELECT symbol, price, SUM(volume) OVER (PARTITION BY symbol ORDER BY price RANGE BETWEEN 1 PRECEDING AND
    CURRENT ROW) AS s, COUNT(*) OVER (PARTITION BY symbol ORDER BY price DESC RANGE BETWEEN 1 PRECEDING AND
    1 FOLLOWING) AS n, MAX(volume) OVER (ORDER BY price RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS m FROM
    bids
-- rows_frame
SELECT symbol, price, SUM(v) OVER (PARTITION BY symbol ORDER BY price ROWS BETWEEN CURRENT ROW AND UNBOUNDED
    FOLLOWING) AS s, AVG(v) OVER (PARTITION BY symbol ORDER BY price ROWS UNBOUNDED PRECEDING) AS n FROM
    (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price)
-- reverse_range
SELECT a, b, SUM(c) OVER (PARTITION BY a ORDER BY c RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s
    FROM r
-- moving_after
SELECT symbol, id, price, COUNT(*) OVER (PARTITION BY symbol ORDER BY price, id ROWS BETWEEN 1 FOLLOWING AND
    2 FOLLOWING) AS s, MIN(v) OVER (PARTITION BY symbol ORDER BY price, id ROWS BETWEEN 2 PRECEDING AND 1
    PRECEDING) AS m FROM (SELECT symbol, id, price, SUM(volume) AS v FROM bids GROUP BY symbol, price, id) d
-- aliases_reused
SELECT symbol, SUM(volume) AS v, v * 2 AS w, w + v AS x FROM bids GROUP BY symbol HAVING x > 3
-- neighbours_by_what_where_keeps_from_null
SELECT a, total - LAG(total) OVER (ORDER BY a) AS d
FROM (SELECT a, SUM(b) AS total FROM r WHERE a IS NOT NULL GROUP BY a) w
-- sums_over_neighbours_compared_away_from_null
SELECT flag, SUM(d) AS d FROM (
    SELECT flag, n - LAG(n) OVER (PARTITION BY flag ORDER BY k) AS d
    FROM (SELECT k, flag, COUNT(*) AS n FROM u WHERE k > 0 OR k = -1 GROUP BY k, flag) w
) x GROUP BY flag
-- row_numbers_of_rows_whose_key_is_not_shown
SELECT n, ROW_NUMBER() OVER (ORDER BY n) AS place
FROM (SELECT n FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) w) x
-- rows_before_those_whose_key_is_not_shown
SELECT n, SUM(n) OVER (ORDER BY n ROWS 1 PRECEDING) AS two
FROM (SELECT n FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) w WHERE n <> 2) x
-- neighbours_of_no_rows
SELECT b, LAG(n) OVER (ORDER BY b) AS p, SUM(n) OVER (ORDER BY b ROWS 2 PRECEDING) AS s
FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) w WHERE 1 = 0
"""
