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
"""
