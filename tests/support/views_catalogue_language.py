"""More views of the catalogue: aggregates, functions, outer joins, unions, windows and first rows."""

AGGREGATES = """
-- extremes
SELECT MIN(c) AS least, MAX(c) AS most, COUNT(*) AS n FROM r
-- extremes_by
SELECT a, MIN(b) AS x, MAX(c) AS y, MAX(b + c) AS z, MIN(a) AS w FROM r GROUP BY a
-- extremes_of_kinds
SELECT k, MIN(x) AS a, MAX(y) AS b, MAX(seen) AS c, MIN(seen) AS d FROM u GROUP BY k
-- extremes_of_decimals
SELECT MAX(d) AS x, MIN(d) AS y, MAX(d * b) AS z, COALESCE(MIN(d), 1.00) AS w FROM s WHERE c > 0
-- distinct_correlated
SELECT r.a, (SELECT COUNT(DISTINCT s.c) FROM s WHERE s.b < r.b) AS n, (SELECT MAX(s.c) FROM s WHERE s.b =
    r.b AND s.c < r.c) AS m FROM r
-- spread_of_book
SELECT (SELECT MIN(price) FROM asks) - (SELECT MAX(price) FROM bids) AS spread, (SELECT MAX(price) FROM
    bids) AS bid
-- extremes_in_where
SELECT symbol, price, SUM(volume) AS volume FROM bids b WHERE price = (SELECT MAX(x.price) FROM bids x
    WHERE x.symbol = b.symbol) GROUP BY symbol, price
-- extremes_of_groups
SELECT MAX(d.total) AS most, MIN(d.n) AS least FROM (SELECT a, SUM(c) AS total, COUNT(*) AS n FROM r GROUP
    BY a) d
-- distinct
SELECT COUNT(DISTINCT c) AS n, SUM(DISTINCT c) AS total, AVG(DISTINCT c) AS mean FROM r
-- distinct_by
SELECT a, COUNT(DISTINCT b) AS n, SUM(DISTINCT b + c) AS total, COUNT(DISTINCT a) AS m, MAX(DISTINCT b) AS
    x FROM r GROUP BY a
-- distinct_text
SELECT k, COUNT(DISTINCT label) AS n FROM u GROUP BY k
-- variances
SELECT a, VAR_POP(c) AS vp, VAR_SAMP(c) AS vs, STDDEV_POP(b) AS sp, STDDEV(b) AS ss, VARIANCE(b * c) AS v
    FROM r GROUP BY a
-- variances_of_decimals
SELECT VAR_SAMP(amount) AS v, STDDEV_POP(rate) AS s, VAR_POP(amount * rate) AS p FROM fine
-- variances_of_doubles
SELECT k, VAR_POP(x) AS v, STDDEV(y) AS s FROM u GROUP BY k
-- moments
SELECT a, SKEWNESS(c) AS s, KURTOSIS(c) AS k, KURTOSIS_POP(b) AS p, KURTOSIS(b) AS q FROM r GROUP BY a
-- moments_filtered
SELECT SKEWNESS(rate) FILTER (WHERE id > 1) AS s, KURTOSIS_POP(rate * 2) AS k, SKEWNESS(DISTINCT rate) AS d
    FROM fine
-- moments_of_doubles
SELECT k, SKEWNESS(x) AS s, KURTOSIS_POP(x) AS v FROM u GROUP BY k
-- correlations
SELECT a, CORR(b, c) AS r, COVAR_POP(b, c) AS cp, COVAR_SAMP(c, b) AS cs FROM r GROUP BY a
-- correlations_having
SELECT a, COVAR_SAMP(b, c) FILTER (WHERE b > 0) AS s FROM r GROUP BY a HAVING COVAR_POP(b, c) > 0
-- correlations_of_views
SELECT CORR(d.total, d.n) AS r, REGR_R2(d.n, d.total) AS s FROM (SELECT a, SUM(b) AS total, COUNT(*) AS n
    FROM r GROUP BY a) d
-- regressions
SELECT REGR_COUNT(b, c) AS n, REGR_AVGX(b, c) AS x, REGR_AVGY(b, c) AS y, REGR_SXX(b, c) AS sxx, REGR_SYY(b,
    c) AS syy, REGR_SXY(b, c) AS sxy, REGR_SLOPE(b, c) AS s, REGR_INTERCEPT(b, c) AS i, REGR_R2(b, c) AS r
    FROM r WHERE a > 0
-- regressions_of_decimals
SELECT id, REGR_SLOPE(rate, id + amount) AS s, REGR_INTERCEPT(rate, amount) AS i, REGR_SXY(amount, rate) AS v,
    REGR_R2(amount, id) AS r FROM fine GROUP BY id
-- regressions_of_doubles
SELECT k, REGR_SLOPE(x, y) AS s, REGR_INTERCEPT(y, x) AS i, REGR_R2(y, k) AS r, CORR(x, y) AS c FROM u GROUP
    BY k
-- having
SELECT a, SUM(c) AS total FROM r GROUP BY a HAVING SUM(c) > 1 AND COUNT(*) < 4
-- having_hidden
SELECT a FROM r GROUP BY a HAVING MAX(b) > 1 OR SUM(c) IS NULL
-- having_total
SELECT SUM(c) AS total, COUNT(*) AS n FROM r HAVING COUNT(*) > 1
-- having_derived
SELECT COUNT(*) AS n, SUM(d.total) AS total FROM (SELECT a, SUM(b) AS total FROM r GROUP BY a HAVING
    COUNT(*) > 1) d
-- having_subquery
SELECT b, COUNT(*) AS n FROM r GROUP BY b HAVING COUNT(*) > (SELECT COUNT(*) FROM s WHERE s.b = r.b)
-- select_distinct
SELECT DISTINCT a, b FROM r WHERE c > 0
-- select_distinct_expression
SELECT DISTINCT a + b AS x, c FROM r
"""

FUNCTIONS = """
-- cases
SELECT b, CASE WHEN a > c THEN a WHEN a < c THEN c END AS x, CASE a WHEN 1 THEN 0.5 WHEN 2 THEN c ELSE -1
    END AS y FROM r
-- cases_summed
SELECT b, SUM(CASE WHEN a > 0 THEN c ELSE 0 END) AS up, COUNT(CASE WHEN c IS NULL THEN 1 END) AS missing
    FROM r GROUP BY b
-- case_conditions
SELECT a, COUNT(*) AS n FROM r WHERE CASE WHEN b > 1 THEN a > c ELSE c IS NULL END GROUP BY a
-- case_across
SELECT SUM(CASE WHEN r.a > s.c THEN r.b WHEN s.c IS NULL THEN 10 END) AS x FROM r, s WHERE r.b = s.b
-- nullif
SELECT NULLIF(a, c) AS x, NULLIF(b, 0) AS y, a / NULLIF(c, 1) AS z FROM r
-- casts
SELECT CAST(d AS INTEGER) AS x, CAST(b AS DECIMAL(6, 2)) AS y, CAST(d AS DOUBLE) AS z, CAST(c AS BOOLEAN)
    AS w FROM s
-- casts_summed
SELECT SUM(CAST(d AS BIGINT)) AS x, SUM(CAST(x.y AS BIGINT)) AS y FROM s, u x WHERE s.c = x.k
-- roundings
SELECT FLOOR(d) AS f, CEIL(d) AS c, ROUND(d) AS r, ROUND(d, 1) AS o, TRUNC(d) AS t, ABS(d) AS a, SIGN(d)
    AS g FROM s
-- roundings_of_doubles
SELECT FLOOR(x) AS f, CEIL(x) AS c, ROUND(x) AS r, ROUND(y, 1) AS o, ABS(x) AS a, SIGN(y) AS g FROM u
-- roots
SELECT SQRT(c) AS x, LN(b + 2) AS y, EXP(a) AS z, POWER(b + 2, 2) AS w, LOG10(b + 2) AS v FROM r WHERE c
    >= 0
-- angles
SELECT SIN(a) AS x, ATAN2(b, a) AS y, ASIN(b / 5) AS z, DEGREES(ATAN(c)) AS w, TANH(a - b) AS v FROM r
-- ends
SELECT LEAST(a, b, c) AS x, GREATEST(a, c) AS y, GREATEST(a, 1) - LEAST(c, 0.5) AS z FROM r
-- remainders
SELECT a % b AS x, MOD(c, 2) AS y, a % 3 - c % b AS z FROM r
-- likes
SELECT label LIKE '%s%' AS x, label NOT LIKE 'A' AS y, label ILIKE 'a' AS z FROM u WHERE label LIKE '_' OR
    k > 0
-- grouped_by_function
SELECT FLOOR(d) AS f, COUNT(*) AS n, MAX(b) AS m FROM s GROUP BY FLOOR(d)
-- grouped_by_case
SELECT CASE WHEN a > 1 THEN 1 WHEN a <= 1 THEN 0 END AS g, COUNT(*) AS n FROM r GROUP BY CASE WHEN a > 1
    THEN 1 WHEN a <= 1 THEN 0 END
-- in_subquery
SELECT a, b FROM r WHERE a IN (SELECT c FROM s) OR b NOT IN (SELECT s.b FROM s WHERE s.c = r.c)
-- not_in_subquery
SELECT a, COUNT(*) AS n FROM r WHERE a NOT IN (SELECT c FROM s) GROUP BY a
-- exists_subquery
SELECT a, COUNT(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.b = r.b) GROUP BY a
-- not_exists_subquery
SELECT a, b FROM r WHERE NOT EXISTS (SELECT * FROM s WHERE s.b = r.b AND s.c > r.a)
-- any_all
SELECT a, b FROM r WHERE a > ALL (SELECT c FROM s WHERE s.b = r.b) OR b = ANY (SELECT s.c FROM s)
"""

JOINS = """
-- left_join
SELECT r.a, s.d, s.b AS other FROM r LEFT JOIN s ON r.b = s.b
-- left_join_grouped
SELECT r.b, COUNT(*) AS n, COUNT(s.b) AS m, SUM(s.d) AS total FROM r LEFT JOIN s ON r.b = s.b AND s.c > 0
    GROUP BY r.b
-- left_join_static
SELECT b.symbol, SUM(b.volume * COALESCE(g.tick, 1.00)) AS total FROM bids b LEFT JOIN sectors g ON
    b.symbol = g.symbol GROUP BY b.symbol
-- left_join_inequality
SELECT r.a, COUNT(s.b) AS n FROM r LEFT JOIN s ON r.a > s.c GROUP BY r.a
-- left_join_filtered
SELECT r.a, r.b FROM r LEFT JOIN s ON r.b = s.b WHERE s.b IS NULL
-- left_join_inner
SELECT r.a, s.d FROM r LEFT JOIN s ON r.b = s.b WHERE s.c > 1
-- left_join_by_missing
SELECT s.c, COUNT(*) AS n, SUM(r.b) AS total FROM r LEFT JOIN s ON r.b = s.b GROUP BY s.c
-- left_join_derived
SELECT r.a, d.total, d.n FROM r LEFT JOIN (SELECT b, SUM(c) AS total, COUNT(*) AS n FROM s GROUP BY b) d
    ON r.b = d.b
-- left_join_twice
SELECT r.a, s.c, f.amount FROM r LEFT JOIN s ON r.b = s.b LEFT JOIN fine f ON s.c = f.id
-- left_join_self
SELECT x.a, y.c FROM r x LEFT JOIN r y ON x.b = y.b AND x.a < y.a
-- right_join
SELECT r.a, s.b, s.d FROM r RIGHT JOIN s ON r.b = s.b
-- full_join
SELECT r.a, s.c FROM r FULL JOIN s ON r.b = s.b
-- full_join_self
SELECT x.c, y.c AS d FROM r x FULL JOIN r y ON x.a = y.c
-- left_join_nested
SELECT r.b, s.c, f.rate FROM r LEFT JOIN (s JOIN fine f ON s.c = f.id) ON r.b = s.b AND r.a = f.id
-- left_join_on_subquery
SELECT r.a, s.c FROM r LEFT JOIN s ON r.b = s.b AND s.c = (SELECT MAX(x.c) FROM s x WHERE x.b = r.b)
-- left_join_derived_left_join
SELECT r.b FROM r LEFT JOIN (SELECT s.b, f.amount FROM s LEFT JOIN fine f ON s.c = f.id) d ON r.b = d.b
    WHERE d.amount IS NULL OR r.a > 1
-- full_join_grouped
SELECT COALESCE(r.b, s.b) AS b, COUNT(*) AS n, SUM(r.a) AS x, SUM(s.c) AS y FROM r FULL JOIN s ON r.b =
    s.b GROUP BY COALESCE(r.b, s.b)
-- union_all
SELECT a, b FROM r UNION ALL SELECT c, b FROM s
-- union_all_grouped
SELECT x.side, x.price, SUM(x.volume) AS volume FROM (SELECT 'bid' AS side, price, volume FROM bids UNION
    ALL SELECT 'ask' AS side, price, volume FROM asks) x GROUP BY x.side, x.price
-- union_all_computed
SELECT x.v, COUNT(*) AS n FROM (SELECT a + 1 AS v FROM r UNION ALL SELECT -100 FROM s UNION ALL SELECT b
    FROM s) x WHERE x.v < 3 GROUP BY x.v
-- union_all_narrow
SELECT x.v, SUM(x.v) AS total FROM (SELECT volume AS v FROM bids UNION ALL SELECT -volume FROM asks) x
    GROUP BY x.v
-- union_all_extremes
SELECT x.k, MAX(x.v) OVER (PARTITION BY x.k ORDER BY x.v DESC) AS m FROM (SELECT volume AS v, id AS k FROM
    bids UNION ALL SELECT -volume, 1 FROM asks) x
-- union_distinct
SELECT a FROM r UNION SELECT c FROM s
-- intersection
SELECT a FROM r INTERSECT SELECT c FROM s
-- exception
SELECT a FROM r EXCEPT SELECT c FROM s
-- common_table
WITH d AS (SELECT b, SUM(c) AS total FROM r GROUP BY b) SELECT x.b, y.total FROM d x, d y WHERE x.total <
    y.total
"""

WINDOWS = """
-- running_sum
SELECT symbol, price, SUM(volume) OVER (PARTITION BY symbol ORDER BY price DESC) AS depth FROM bids
-- running_depth_of_levels
SELECT l.symbol, l.price, SUM(l.volume) OVER (PARTITION BY l.symbol ORDER BY l.price DESC) AS depth FROM
    (SELECT symbol, price, SUM(volume) AS volume FROM bids GROUP BY symbol, price) l
-- window_totals
SELECT a, b, SUM(c) OVER (PARTITION BY a) AS total, COUNT(*) OVER () AS n, AVG(c) OVER (PARTITION BY b) AS
    mean FROM r
-- window_extremes
SELECT a, b, MIN(c) OVER (PARTITION BY a ORDER BY b) AS x, MAX(c) OVER (PARTITION BY a) AS y FROM r
-- window_ranks
SELECT a, b, RANK() OVER (PARTITION BY a ORDER BY c DESC) AS x, DENSE_RANK() OVER (PARTITION BY a ORDER BY
    c) AS y FROM r
-- window_two_orders
SELECT a, b, c, COUNT(*) OVER (ORDER BY a NULLS FIRST, b DESC) AS n FROM r
-- window_filtered
SELECT d.a, d.c FROM (SELECT a, c, RANK() OVER (PARTITION BY a ORDER BY b DESC) AS place FROM r) d WHERE
    d.place <= 1
-- window_by_expression
SELECT a, SUM(b) OVER (PARTITION BY a % 2 ORDER BY b) AS total FROM r
"""

LIMITS = """
-- first_rows
SELECT a, b, c FROM r ORDER BY a DESC, b, c LIMIT 3
-- first_rows_ties
SELECT b FROM r ORDER BY b LIMIT 2
-- first_rows_offset
SELECT b, c FROM r ORDER BY b, c LIMIT 2 OFFSET 1
-- first_rows_nulls
SELECT a, c FROM r ORDER BY a NULLS FIRST, c LIMIT 3
-- first_groups
SELECT a, SUM(b) AS total FROM r GROUP BY a ORDER BY total DESC, a LIMIT 2
-- first_levels
SELECT broker_id, price, SUM(volume) AS volume FROM bids GROUP BY broker_id, price ORDER BY price DESC,
    broker_id LIMIT 3
-- first_levels_by_symbol
SELECT l.symbol, l.price, l.volume FROM (SELECT symbol, price, SUM(volume) AS volume FROM bids GROUP BY
    symbol, price) l QUALIFY ROW_NUMBER() OVER (PARTITION BY l.symbol ORDER BY l.price DESC) <= 2
-- first_rows_by_nullable
SELECT a, b, c FROM r QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY c DESC, b) <= 2
-- first_rows_summed
SELECT SUM(d.b) AS total FROM (SELECT b FROM r ORDER BY b DESC LIMIT 2) d
"""

LANGUAGE = (AGGREGATES, FUNCTIONS, JOINS, WINDOWS, LIMITS)
