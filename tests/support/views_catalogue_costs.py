"""Views of the catalogue that read little for an event: rows at an extreme, and first rows of an order."""

COSTS = """
-- latest_before
SELECT r.a, s.d FROM r, s WHERE s.b = r.b AND s.c = (SELECT MAX(q.c) FROM s q WHERE q.b = r.b AND q.c <= r.c)
-- next_after
SELECT r.a, s.d FROM r, s WHERE s.b = r.b AND s.c = (SELECT MIN(q.c) FROM s q WHERE q.b = r.b AND q.c > r.c)
-- latest_of_some
SELECT r.a, s.c FROM r, s WHERE s.b = r.b AND s.c = (SELECT MAX(q.c) FROM s q
    WHERE q.b = r.b AND q.c < r.c AND q.d > 0)
-- latest_between
SELECT r.a, s.d FROM r, s WHERE s.b = r.b AND s.c = (SELECT MAX(q.c) FROM s q
    WHERE q.b = r.b AND q.c <= r.c AND q.c > r.a)
-- latest_rows
SELECT s.b, s.d FROM s WHERE s.c = (SELECT MAX(q.c) FROM s q WHERE q.b = s.b)
-- latest_of_all
SELECT s.b, s.d FROM s WHERE s.c = (SELECT MAX(q.c) FROM s q)
-- latest_summed
SELECT r.b, SUM(s.d) AS total FROM r, s WHERE s.b = r.b AND s.c = (SELECT MAX(q.c) FROM s q
    WHERE q.b = r.b AND q.c <= r.c) GROUP BY r.b
-- latest_of_itself
SELECT r.a, q.c FROM r, r q WHERE q.b = r.b AND q.c = (SELECT MAX(p.c) FROM r p WHERE p.b = r.b AND p.c < r.c)
-- first_groups_by_nullable
SELECT b, SUM(c) AS total, COUNT(*) AS n FROM r GROUP BY b ORDER BY total DESC, n, b LIMIT 2
-- first_groups_by_count
SELECT a, b FROM r GROUP BY a, b ORDER BY COUNT(*) DESC, a, b LIMIT 3 OFFSET 1
-- first_groups_of_groups
SELECT a, b, n FROM (SELECT a, b, COUNT(*) AS n, SUM(b) AS total FROM r GROUP BY a, b) d
    QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY n DESC, b) <= 1
-- places_of_groups
SELECT a, n, RANK() OVER (ORDER BY n DESC) AS place FROM (SELECT a, COUNT(*) AS n FROM r GROUP BY a) d
-- dense_places_of_groups
SELECT b, DENSE_RANK() OVER (ORDER BY n) AS place FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) d
-- first_groups_of_a_join
SELECT s.d, COUNT(*) AS n FROM r, s WHERE s.b = r.b GROUP BY s.d ORDER BY n DESC, s.d LIMIT 2
-- first_groups_of_both_sides
SELECT r.a, s.d FROM r, s WHERE s.b = r.b AND r.c > 0 GROUP BY r.a, s.d ORDER BY COUNT(*), r.a, s.d LIMIT 2
-- first_groups_of_a_self_join
SELECT q.c, COUNT(*) AS n FROM r, r q WHERE q.b = r.b GROUP BY q.c ORDER BY n DESC, q.c LIMIT 2
-- exists_in_a_join
SELECT r.a, r.c FROM r WHERE EXISTS (SELECT 1 FROM s, s q WHERE s.b = r.b AND q.d = s.d AND q.c > s.c)
-- sum_of_a_join
SELECT r.a FROM r WHERE r.c < (SELECT SUM(q.c) FROM s, s q WHERE s.b = r.b AND q.d = s.d)
-- join_in_a_cycle
SELECT COUNT(*) AS n, SUM(r.c) AS total FROM r, s, r q WHERE s.b = r.b AND q.c = s.d AND q.a = r.a
-- join_in_a_cycle_of_four
SELECT r.a, COUNT(*) AS n FROM r, s, r q, s p WHERE s.b = r.b AND q.c = s.d AND q.a = p.c AND p.b = r.c
    AND s.c > q.b GROUP BY r.a
-- branches_of_a_join
SELECT r.a, SUM(CASE WHEN s.d > r.c THEN r.b ELSE s.c END) AS x,
    SUM(CASE WHEN s.c = 1 THEN r.b * s.d ELSE 0 END) AS y FROM r, s WHERE s.b = r.b GROUP BY r.a
-- groups_above_others
SELECT d.a, COUNT(*) AS n FROM (SELECT a, SUM(b) AS v FROM r GROUP BY a) d,
    (SELECT c, SUM(b) AS v FROM s GROUP BY c) e WHERE d.v > e.v GROUP BY d.a
-- groups_of_equal_sum
SELECT d.a, e.c FROM (SELECT a, SUM(b) AS v FROM r GROUP BY a) d,
    (SELECT c, SUM(b) AS v FROM s GROUP BY c) e WHERE d.v = e.v
-- groups_above_the_mean_count
SELECT a FROM r GROUP BY a HAVING COUNT(*) > (SELECT COUNT(*) / 3 FROM r)
-- exists_at_distance
SELECT a, c FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.c = r.c + 1 AND s.b = r.b)
-- sum_at_distance
SELECT SUM(r.b) AS total FROM r WHERE r.b > (SELECT COALESCE(SUM(s.c), 0) FROM s WHERE s.b - 2 = r.b)
-- own_neighbours
SELECT r.b, (SELECT COUNT(*) FROM r q WHERE q.b + 1 = r.b) AS n FROM r WHERE 1 <= (SELECT COUNT(*) FROM r p
    WHERE 1 - p.b = -r.b)
-- near_a_mean
SELECT b.symbol, SUM(b.volume) AS v FROM bids b, (SELECT symbol, AVG(price) AS m FROM asks GROUP BY symbol) a
    WHERE a.symbol = b.symbol AND ABS(b.price - a.m) < 2 AND a.m - b.price <= 0.5 * a.m GROUP BY b.symbol
-- ratio_to_a_sum
SELECT b.symbol, COUNT(*) AS n FROM bids b, (SELECT symbol, SUM(price) AS m FROM asks GROUP BY symbol) a
    WHERE a.symbol = b.symbol AND b.price / a.m - 1 >= -0.5 GROUP BY b.symbol
-- within_a_distance
SELECT r.a, COUNT(*) AS n FROM r, s WHERE r.a = s.c AND ABS(r.c - s.b) <= 1 AND 2 * r.c - s.b < 3 GROUP BY r.a
-- products_with_a_mean
SELECT k, COUNT(*) AS n, MAX(x) AS m FROM u WHERE x * (SELECT AVG(w.y) FROM u w) <= 0.5
    AND x + (SELECT MAX(w.y) FROM u w) > 0.25 GROUP BY k
-- weighed_by_an_aggregate
SELECT b.symbol, SUM(CASE WHEN b.price >= a.m THEN b.volume WHEN b.price < a.m - 1 THEN -b.volume ELSE 0 END)
    AS v, SUM(b.volume) FILTER (WHERE b.price < a.m) AS w, MAX(b.price) FILTER (WHERE b.price <= a.m) AS p,
    SUM(GREATEST(b.price - a.m, 0)) AS g
    FROM bids b, (SELECT symbol, MIN(price) AS m FROM asks GROUP BY symbol) a WHERE a.symbol = b.symbol
    GROUP BY b.symbol
-- levels_of_a_share
SELECT symbol, SUM(price * volume) AS s, COUNT(*) AS n FROM (SELECT symbol, price, volume,
    SUM(volume) OVER (PARTITION BY symbol ORDER BY price DESC) AS up_to,
    SUM(volume) OVER (PARTITION BY symbol) AS whole FROM (SELECT symbol, price, SUM(volume) AS volume FROM
    bids GROUP BY symbol, price) l) c
    WHERE 2 * up_to <= whole GROUP BY symbol
-- level_that_reaches_a_volume
SELECT symbol, MIN(price) AS p FROM (SELECT symbol, price,
    SUM(SUM(volume)) OVER (PARTITION BY symbol ORDER BY price) AS v FROM asks GROUP BY symbol, price) c
    WHERE v >= 5 GROUP BY symbol
-- cost_to_trade
SELECT symbol, SUM(price * LEAST(volume, 5 - before)) AS cost, SUM(volume) AS v FROM (SELECT symbol, price,
    volume, SUM(volume) OVER (PARTITION BY symbol ORDER BY price) - volume AS before
    FROM (SELECT symbol, price, SUM(volume) AS volume FROM asks GROUP BY symbol, price) l) c
    WHERE before < 5 GROUP BY symbol
-- cost_to_trade_of_rows_before
SELECT symbol, SUM(price * LEAST(volume, GREATEST(5 - COALESCE(before, 0), 0))) AS cost FROM
    (SELECT symbol, price, volume, SUM(volume) OVER (PARTITION BY symbol ORDER BY price
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM (SELECT symbol, price, SUM(volume) AS
    volume FROM asks GROUP BY symbol, price) l) c GROUP BY symbol
-- best_in_ranks
SELECT symbol, price, SUM(volume) AS v FROM (SELECT symbol, price, volume,
    RANK() OVER (PARTITION BY symbol ORDER BY price DESC) AS k FROM bids) d WHERE k = 1 GROUP BY symbol, price
-- best_in_an_anti_join
SELECT b.symbol, b.price, SUM(b.volume) AS v FROM bids b LEFT JOIN bids x
    ON x.symbol = b.symbol AND x.price > b.price WHERE x.price IS NULL GROUP BY b.symbol, b.price
-- best_in_pairs
SELECT symbol, price, SUM(volume) AS v FROM bids WHERE (symbol, price) IN (SELECT symbol, MAX(price) FROM bids
    GROUP BY symbol) GROUP BY symbol, price
-- of_groups_above_zero
SELECT SUM(b.price) AS v, COUNT(*) AS n FROM bids b
    WHERE (SELECT SUM(x.price) FROM bids x WHERE x.symbol = b.symbol) > 0
"""
