"""More views of the catalogue: relative ranks, quantiles and modes, by counts of rows in an order."""

RANKS = """
-- percent_ranks
SELECT symbol, price, PERCENT_RANK() OVER (PARTITION BY symbol ORDER BY price DESC) AS p, PERCENT_RANK()
    OVER (ORDER BY volume, price) AS q, CUME_DIST() OVER (PARTITION BY symbol ORDER BY price) AS c FROM bids
-- relative_ranks_of_nulls
SELECT a, b, PERCENT_RANK() OVER (PARTITION BY a ORDER BY c NULLS FIRST) AS p, CUME_DIST() OVER (PARTITION
    BY b ORDER BY a DESC NULLS LAST) AS c FROM r
-- relative_ranks_compared
SELECT symbol, price, volume FROM bids QUALIFY CUME_DIST() OVER (PARTITION BY symbol ORDER BY price) <= 0.5
-- tiles
SELECT symbol, price, v, NTILE(3) OVER (PARTITION BY symbol ORDER BY price DESC) AS t, NTILE(1) OVER
    (PARTITION BY symbol ORDER BY price) AS u, NTILE(9) OVER (PARTITION BY symbol ORDER BY price) AS w FROM
    (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price) d
-- tiles_summed
SELECT t, COUNT(*) AS n, SUM(v) AS s FROM (SELECT v, NTILE(2) OVER (ORDER BY price) AS t FROM (SELECT price,
    SUM(volume) AS v FROM bids GROUP BY price) d) e GROUP BY t
-- tiles_of_groups
SELECT symbol, price, SUM(volume) AS v, NTILE(2) OVER (PARTITION BY symbol ORDER BY price) AS t,
    CUME_DIST() OVER (ORDER BY SUM(volume)) AS c FROM bids GROUP BY symbol, price
-- quantiles_discrete
SELECT symbol, QUANTILE_DISC(price, 0.5) AS m, QUANTILE(volume, 0.9) AS q, QUANTILE_DISC(price, 0) AS low,
    QUANTILE_DISC(price, 1) AS high FROM bids GROUP BY symbol
-- quantiles_of_all
SELECT QUANTILE_DISC(price, 0.25) AS q, PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY price DESC) AS d,
    PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY price DESC) AS high FROM bids WHERE volume > 1
-- quantiles_of_nulls
SELECT b, QUANTILE_DISC(a, 0.4) AS q, PERCENTILE_DISC(0.4) WITHIN GROUP (ORDER BY c DESC) AS d, MEDIAN(c) AS
    m, QUANTILE_DISC(c, 0.5) FILTER (WHERE a > 0) AS f, COUNT(*) AS n FROM r GROUP BY b
-- quantiles_of_doubles
SELECT k, QUANTILE_DISC(x, 0.5) AS d, MEDIAN(x) AS m, QUANTILE_CONT(y, 0.3) AS c, PERCENTILE_CONT(0.9) WITHIN
    GROUP (ORDER BY x + y DESC) AS e FROM u GROUP BY k
-- quantiles_of_decimals
SELECT QUANTILE_DISC(amount, 0.7) AS d, PERCENTILE_DISC(0.7) WITHIN GROUP (ORDER BY rate DESC) AS r,
    MEDIAN(amount) FILTER (WHERE amount >= 0) AS m, QUANTILE_CONT(rate, 0.125) FILTER (WHERE rate >= 0) AS c
    FROM fine
-- quantiles_of_conditions
SELECT k, QUANTILE_DISC(flag, 0.5) AS f FROM u GROUP BY k
-- quantiles_of_wide
SELECT k, QUANTILE_DISC(v, 0.5) AS d, QUANTILE_CONT(v, 0.99) AS c, QUANTILE_DISC(w, 0.2) AS e FROM wide GROUP
    BY k
-- medians
SELECT symbol, MEDIAN(price) AS m, MEDIAN(price * volume) AS v, QUANTILE_CONT(price, 0.75) -
    QUANTILE_CONT(price, 0.25) AS spread, PERCENTILE_CONT(0.1) WITHIN GROUP (ORDER BY price DESC) AS p FROM
    bids GROUP BY symbol
-- medians_of_all
SELECT MEDIAN(price) AS m, MEDIAN(volume) FILTER (WHERE price > 10) AS f FROM bids
-- medians_having
SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol HAVING MEDIAN(price) > 10.5 AND QUANTILE_DISC(volume,
    0.5) < 4
-- medians_of_distinct
SELECT symbol, MEDIAN(DISTINCT price) AS m, QUANTILE_DISC(DISTINCT volume, 0.3) AS q FROM bids GROUP BY symbol
-- medians_derived
SELECT SUM(m) AS s, MAX(q) AS t FROM (SELECT symbol, MEDIAN(price) AS m, QUANTILE_DISC(volume, 0.5) AS q FROM
    bids GROUP BY symbol) d
-- medians_of_sums
SELECT symbol, MEDIAN(v) AS m FROM (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price) d
    GROUP BY symbol
-- medians_above
SELECT b.symbol, b.price FROM bids b WHERE b.price > (SELECT MEDIAN(a.price) FROM asks a WHERE a.symbol =
    b.symbol)
-- medians_joined
SELECT a.symbol, MEDIAN(a.price - b.price) AS m, QUANTILE_DISC(a.volume, 0.5) AS q FROM asks a JOIN bids b ON
    a.symbol = b.symbol GROUP BY a.symbol
-- medians_of_the_outer
SELECT b.a, MEDIAN(s.c) AS m FROM r b LEFT JOIN s ON s.b = b.b GROUP BY b.a
-- medians_beside
SELECT id, price, MEDIAN(price) OVER (PARTITION BY symbol) AS m, QUANTILE_DISC(volume, 0.9) OVER () AS q FROM
    bids
-- medians_around
SELECT a, b, MEDIAN(c) OVER (PARTITION BY a) AS m, MEDIAN(c) OVER (ORDER BY b) AS r FROM r
-- quantiles_by_grouping_sets
SELECT symbol, id, MEDIAN(price) AS m FROM bids GROUP BY ROLLUP (symbol, id)
-- modes
SELECT symbol, MODE() WITHIN GROUP (ORDER BY price) AS m, MODE() WITHIN GROUP (ORDER BY volume DESC) AS v FROM
    bids GROUP BY symbol
-- modes_of_nulls
SELECT MODE() WITHIN GROUP (ORDER BY a) AS a, MODE() WITHIN GROUP (ORDER BY c DESC) FILTER (WHERE b > 0) AS c,
    COUNT(*) AS n FROM r
-- modes_of_kinds
SELECT k, MODE() WITHIN GROUP (ORDER BY x) AS x, MODE() WITHIN GROUP (ORDER BY flag) AS f, MODE() WITHIN GROUP
    (ORDER BY x + y) AS s FROM u GROUP BY k
-- modes_compared
SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol HAVING MODE() WITHIN GROUP (ORDER BY price) > 10
-- modes_derived
SELECT SUM(m) AS s FROM (SELECT symbol, MODE() WITHIN GROUP (ORDER BY price) AS m FROM bids GROUP BY symbol) d
-- modes_joined
SELECT a.symbol, MODE() WITHIN GROUP (ORDER BY a.price) AS m FROM asks a JOIN bids b ON a.symbol = b.symbol
    GROUP BY a.symbol
-- modes_above
SELECT price FROM bids WHERE price > (SELECT MODE() WITHIN GROUP (ORDER BY price) FROM asks)
-- quantiles_of_nothing
SELECT COUNT(*) AS n, MEDIAN(c) AS m, MODE() WITHIN GROUP (ORDER BY b) AS o FROM r WHERE b IS NULL
-- quantiles_below_nulls
SELECT x.a, COUNT(*) AS n FROM r x WHERE x.b <> (SELECT MEDIAN(u.x) FROM u WHERE x.a > u.k) GROUP BY x.a
-- firsts_below_nulls
SELECT x.a, COUNT(*) AS n FROM r x WHERE x.b <> (SELECT ARG_MAX(s.b, s.b % 2 * 10 + s.b) FROM s WHERE x.a >
    s.b) GROUP BY x.a
-- medians_of_a_distance
SELECT symbol, price, MEDIAN(volume) OVER (PARTITION BY symbol ORDER BY price RANGE BETWEEN 1 PRECEDING AND 1
    FOLLOWING) AS m, QUANTILE_DISC(id, 0.3) OVER (ORDER BY price RANGE BETWEEN 1 FOLLOWING AND 2000 FOLLOWING)
    AS q FROM bids
-- medians_of_numbers_of_rows
SELECT symbol, price, MEDIAN(v) OVER (PARTITION BY symbol ORDER BY price ROWS 2 PRECEDING) AS m FROM (SELECT
    symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price) d
-- medians_of_groups
SELECT symbol, SUM(volume) AS v, MEDIAN(SUM(volume)) OVER () AS m, QUANTILE_CONT(COUNT(*), 0.9) OVER () AS n
    FROM bids GROUP BY symbol
-- deviations_from_medians
SELECT symbol, MEDIAN(d) AS mad FROM (SELECT symbol, ABS(price - MEDIAN(price) OVER (PARTITION BY symbol)) AS
    d FROM bids) x GROUP BY symbol
-- medians_qualified
SELECT id, price FROM bids QUALIFY price >= QUANTILE_DISC(price, 0.75) OVER (PARTITION BY symbol)
-- first_of_wide_sums
SELECT k, SUM(v) AS s, COUNT(*) AS n FROM wide GROUP BY k ORDER BY s DESC, n, k LIMIT 1
-- first_of_wide_products
SELECT v, w, v * w AS x FROM wide ORDER BY x DESC, v, w LIMIT 3
-- first_by_wide_products
SELECT v, k FROM wide ORDER BY v * k, v DESC, k LIMIT 2 OFFSET 1
-- first_by_means
SELECT a, AVG(c) AS m, COUNT(*) AS n FROM r GROUP BY a ORDER BY m DESC, n, a LIMIT 2
-- first_by_ratios
SELECT b, SUM(c) / SUM(a) AS q FROM r GROUP BY b ORDER BY q DESC NULLS FIRST, b LIMIT 2
-- first_by_statistics
SELECT b, STDDEV(c) AS s FROM r GROUP BY b ORDER BY s, b LIMIT 2
-- first_by_ranges
SELECT b, MAX(a) - MIN(a) AS range FROM r GROUP BY b ORDER BY range DESC, b LIMIT 2
-- first_by_cases
SELECT symbol, id, SUM(volume) AS v FROM bids GROUP BY symbol, id QUALIFY ROW_NUMBER() OVER (PARTITION BY
    symbol ORDER BY CASE WHEN v > 3 THEN v - COUNT(*) ELSE COUNT(*) END DESC, id) <= 1
-- ranks_of_wide_sums
SELECT k, RANK() OVER (ORDER BY SUM(v) DESC) AS p, RANK() OVER (ORDER BY SUM(w)) AS q FROM wide GROUP BY k
-- groups_above_means
SELECT COUNT(*) AS n, SUM(m) AS s FROM (SELECT a, AVG(c) AS m FROM r GROUP BY a) d WHERE m > (SELECT AVG(d)
    FROM s)
-- groups_above_parts
SELECT COUNT(*) AS n FROM (SELECT a, COUNT(*) AS m FROM r GROUP BY a) d WHERE m > 0.4 * (SELECT COUNT(*) FROM
    s)
-- joined_on_products
SELECT COUNT(*) AS n, SUM(x.b) AS s FROM r x, r y WHERE x.a * x.c = y.b
-- shown_wide_products
SELECT v * w AS x, v * 3 - k AS y FROM wide
"""
