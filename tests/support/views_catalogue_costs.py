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
"""
