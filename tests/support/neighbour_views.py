"""Views over neighbours in an order, and streams of rows with a key that come and go anywhere in it.

A script compares their generated code with DuckDB after every event:

    NUMBA_DISABLE_JIT=1 python tests/support/neighbour_views.py --seed 0 [NAME ...]
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

from fuzz import Runtime, RuntimeKind, compiled
from generated_runner import GeneratedRuntime
from oracle import Oracle, Row, difference

from orderbook.engine.plan.describe import Cost, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.m3 import Program

SCHEMA = """
CREATE STREAM t (symbol TEXT, ts TIMESTAMP NOT NULL, id BIGINT PRIMARY KEY,
                 price DECIMAL(9, 2) NOT NULL CHECK (price BETWEEN 0 AND 1000), volume INTEGER,
                 x DOUBLE, venue INTEGER NOT NULL, side TEXT NOT NULL, note TEXT);
"""
# Rows of odd ids, for views of both.
OTHERS = SCHEMA.replace("STREAM t ", "STREAM o ").replace("id BIGINT", "id INTEGER")
# A TEXT decides between rows that the order leaves equal; none are, so that DuckDB has the same order.
BY_TEXT = SCHEMA.replace("id BIGINT PRIMARY KEY", "id BIGINT NOT NULL").replace(
    "note TEXT", "note TEXT, PRIMARY KEY (side, id)"
)

_W = "OVER (PARTITION BY symbol ORDER BY ts, id)"
_SO_FAR = f"{_W[:-1]} ROWS UNBOUNDED PRECEDING)"
_ONWARDS = f"{_W[:-1]} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
_ALL = f"{_W[:-1]} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"

_MERGED = (
    "(SELECT symbol, ts, id, price AS p, 0 AS k FROM t UNION ALL SELECT symbol, ts, id, volume, 1 FROM o) u"
)
_BESIDE_MERGED = f"(SELECT symbol, k, LAG(k) {_W} AS before, p - LAG(p) {_W} AS d FROM {_MERGED}) m"
_UNMARKED = _MERGED.replace(", 0 AS k", "").replace(", 1", "")

VIEWS: Mapping[str, str] = {
    "merged_moves": f"SELECT id, k, p - LAG(p) {_W} AS d FROM {_MERGED}",
    "merged_counts": f"""SELECT symbol, COUNT(*) AS n FROM {_BESIDE_MERGED} WHERE k = 0 AND before = 1
        GROUP BY symbol""",
    "merged_squares": f"SELECT symbol, SUM(d * d) AS s, MAX(d) AS m FROM {_BESIDE_MERGED} GROUP BY symbol",
    "merged_unmarked": f"""SELECT id, FIRST_VALUE(p) {_W} AS f, ROW_NUMBER() {_W} AS n, SUM(p) {_SO_FAR} AS s
        FROM {_UNMARKED}""",
    "merged_before": f"""SELECT t.id, u.p FROM t ASOF LEFT JOIN
        {_UNMARKED.replace("id", "2 * id + 1 AS id", 1)} ON t.symbol = u.symbol AND 2 * t.id >= u.id""",
    "merged_computed": """SELECT t.id, u.p FROM t ASOF LEFT JOIN
        (SELECT symbol, 4 * id AS i, venue AS p FROM o UNION ALL
        SELECT symbol, 4 * id + 1, volume FROM o WHERE side = 'buy') u
        ON t.symbol = u.symbol AND 4 * t.id >= u.i""",
    "doubles_of_groups": f"""SELECT symbol, b, SUM(d) AS s, SUM(x / r) AS t, AVG(d * d) AS a FROM
        (SELECT symbol, id - id % 3 AS b, x, LAG(x + 2) {_W} AS r, x - LAG(x) {_W} AS d FROM t) m
        GROUP BY symbol, b""",
    "frames_of_moves": f"""SELECT id, SUM(d) {_W[:-1]} ROWS 3 PRECEDING) AS s,
        AVG(GREATEST(d, 0)) {_W[:-1]} ROWS 2 PRECEDING) AS a
        FROM (SELECT symbol, ts, id, x - LAG(x) {_W} AS d FROM t) m""",
    "moves": f"SELECT SUM(ABS(d)) AS s, COUNT(d) AS n FROM (SELECT price - LAG(price) {_W} AS d FROM t) m",
    "by_one_column": """SELECT symbol, SUM(d * d) AS s FROM (SELECT symbol,
        price - LAG(price) OVER (PARTITION BY symbol ORDER BY id DESC) AS d FROM t) m GROUP BY symbol""",
    "unpartitioned": """SELECT COUNT(*) AS n, SUM(p) AS s FROM
        (SELECT price, LEAD(price) OVER (ORDER BY ts DESC, venue, id DESC) AS p FROM t) m WHERE p > price""",
    "time_weighted": f"""SELECT symbol, SUM(price * (next - ts)) AS s, SUM(next - ts) AS n FROM
        (SELECT symbol, price, ts, LEAD(ts) {_W} AS next FROM t) m GROUP BY symbol""",
    "nullable": f"""SELECT symbol, SUM(v) AS s, COUNT(v) AS n, SUM(volume - v) AS d, SUM(y) AS y FROM
        (SELECT symbol, volume, LAG(volume) {_W} AS v, LEAD(x) {_W} AS y FROM t) m GROUP BY symbol""",
    "roll": f"""SELECT SUM(d * e) AS s, COUNT(*) AS n FROM (SELECT d, LAG(d) {_W} AS e FROM
        (SELECT symbol, ts, id, price - LAG(price) {_W} AS d FROM t) m) l WHERE e IS NOT NULL""",
    "lambda": f"""SELECT SUM(flow * d) / SUM(flow * flow) AS k FROM (SELECT price - LAG(price) {_W} AS d,
        CASE WHEN venue > 1 THEN COALESCE(volume, 0) ELSE -COALESCE(volume, 0) END AS flow FROM t) m
        WHERE d IS NOT NULL""",
    "flow_imbalance": """SELECT symbol, SUM(e) AS s FROM (SELECT symbol,
        CASE WHEN price >= LAG(price) OVER w THEN venue ELSE 0 END
        - CASE WHEN price <= LAG(price) OVER w THEN LAG(venue) OVER w ELSE 0 END
        - CASE WHEN ts - 3 <= LAG(ts - 3) OVER w THEN volume ELSE 0 END
        + CASE WHEN ts - 3 >= LAG(ts - 3) OVER w THEN LAG(volume) OVER w ELSE 0 END AS e
        FROM t WINDOW w AS (PARTITION BY symbol ORDER BY ts, id)) m GROUP BY symbol""",
    "two_back": f"""SELECT symbol, SUM(price - a) AS s, SUM(price - b) AS u, COUNT(*) AS n FROM
        (SELECT symbol, price, LAG(price, 2) {_W} AS a, LEAD(price, 3) {_W} AS b FROM t) m GROUP BY symbol""",
    "both_sides": f"""SELECT COUNT(*) AS peaks FROM (SELECT price, LAG(price, 1, 0) {_W} AS a,
        LEAD(price, 1, 0) {_W} AS b FROM t) m WHERE price > a AND price > b""",
    "there_and_back": f"""SELECT SUM(p - q) AS s FROM (SELECT price AS p, LEAD(l) {_W} AS q FROM
        (SELECT symbol, ts, id, price, LAG(price) {_W} AS l FROM t) m) k""",
    "groups": """SELECT SUM(v - p) AS s FROM
        (SELECT v, LAG(v) OVER (PARTITION BY symbol ORDER BY ts) AS p FROM
        (SELECT symbol, ts, SUM(price) AS v FROM t GROUP BY symbol, ts) g) m""",
    "buckets": """SELECT SUM(ABS(c - p)) AS s, MAX(c - p) AS m FROM
        (SELECT c, LAG(c) OVER (ORDER BY b) AS p FROM
        (SELECT id - id % 3 AS b, ARG_MAX(price, id) AS c FROM t GROUP BY id - id % 3) g) m""",
    "buckets_that_may_be_null": """SELECT symbol, SUM(c - p) AS s, COUNT(p) AS n, MAX(a - p) AS m FROM
        (SELECT symbol, c, a, LAG(c) OVER (PARTITION BY symbol ORDER BY b) AS p FROM
        (SELECT symbol, volume * 3 AS b, MAX(price) AS c, ARG_MAX(volume, id) AS a FROM t
        GROUP BY symbol, volume * 3) g) m GROUP BY symbol""",
    "buckets_of_all": """SELECT SUM(p - c) AS s FROM (SELECT c, LEAD(c) OVER (ORDER BY b DESC) AS p FROM
        (SELECT volume - 1 AS b, ARG_MIN(volume + venue, id) AS c FROM t GROUP BY volume - 1) g) m""",
    "neighbours_of_buckets": """SELECT symbol, SUM(d * e) AS s, COUNT(e) AS n FROM
        (SELECT symbol, d, LAG(d) OVER (PARTITION BY symbol ORDER BY b) AS e FROM
        (SELECT symbol, b, c - LAG(c) OVER (PARTITION BY symbol ORDER BY b) AS d FROM
        (SELECT symbol, volume * 3 AS b, MAX(price) AS c FROM t GROUP BY symbol, volume * 3) g) m) k
        GROUP BY symbol""",
    "neighbours_by_what_may_be_null": """SELECT SUM(d * e) AS s, MAX(d - e) AS m FROM
        (SELECT d, LAG(d) OVER (ORDER BY volume, id) AS e FROM
        (SELECT volume, id, price - LAG(price) OVER (ORDER BY volume, id) AS d FROM t) m) k""",
    "the_order_itself": """SELECT symbol, SUM(n - volume) AS s, SUM(price * (n - volume)) AS w,
        COUNT(l) AS k FROM (SELECT symbol, price, volume, LEAD(volume) OVER w AS n,
        LAG(volume) OVER (ORDER BY volume DESC, id) AS l FROM t
        WINDOW w AS (PARTITION BY symbol ORDER BY volume, id)) m WHERE n >= volume GROUP BY symbol""",
    "filtered": f"""SELECT MIN(d) AS a, MAX(d) AS b, STDDEV(d) AS c FROM (SELECT price - LAG(price) {_W} AS d
        FROM t WHERE volume > 1) m""",
    "shown": f"""SELECT id, LAG(volume) {_W} AS a, LEAD(price, 2, -1) {_W} AS b,
        LAG(x, 1, 0.5) OVER (ORDER BY id) AS c FROM t""",
    "computed_order": """SELECT SUM(price - p) AS s FROM (SELECT price, LAG(price) OVER (PARTITION BY id % 2
        ORDER BY price * venue DESC, id) AS p FROM t) m""",
    "computed_orders": """SELECT symbol, SUM(d * e) AS s, COUNT(*) AS n FROM (SELECT symbol, d,
        LAG(d) OVER (PARTITION BY symbol ORDER BY id % 3, venue * 2 DESC, id) AS e
        FROM (SELECT symbol, venue, id,
        price - LEAD(price) OVER (PARTITION BY symbol ORDER BY id % 3, venue * 2 DESC, id) AS d FROM t) m) l
        GROUP BY symbol""",
    "by_a_computed_order": """SELECT symbol, SUM(d) AS s, COUNT(*) AS n FROM (SELECT symbol,
        price - LEAD(price) OVER (PARTITION BY symbol ORDER BY id % 3, venue * 2 DESC, id) AS d FROM t) l
        GROUP BY symbol""",
    "computed_partitions": """SELECT n, SUM(d) AS s, COUNT(d) AS k FROM (SELECT id % 3 AS n,
        price - LAG(price) OVER (PARTITION BY id % 3, symbol ORDER BY ts, id) AS d FROM t) m GROUP BY n""",
    "by_what_may_be_null": """SELECT symbol, SUM(ABS(d)) AS s, COUNT(d) AS n FROM (SELECT symbol,
        price - LAG(price) OVER (PARTITION BY symbol ORDER BY volume, id) AS d FROM t) m GROUP BY symbol""",
    "null_first": """SELECT SUM(price * a) AS s, SUM(price - b) AS d FROM (SELECT price,
        LEAD(price) OVER (ORDER BY volume DESC NULLS FIRST, x, id) AS a,
        LAG(price) OVER (PARTITION BY symbol ORDER BY x DESC, ts, id) AS b FROM t) m""",
    "shown_by_what_may_be_null": """SELECT id, LAG(price) OVER (ORDER BY volume, id DESC) AS a,
        LEAD(side, 2, 'none') OVER (PARTITION BY symbol ORDER BY volume NULLS FIRST, id) AS b,
        LAG(venue) OVER (ORDER BY note, id) AS c,
        LAG(volume IGNORE NULLS) OVER (ORDER BY x DESC, id) AS d FROM t""",
    "ends_by_what_may_be_null": """SELECT id,
        FIRST_VALUE(price) OVER (PARTITION BY symbol ORDER BY volume, id) AS a,
        LAST_VALUE(note) OVER (ORDER BY volume DESC, id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS b,
        LAST_VALUE(price) OVER (ORDER BY x, id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS c,
        NTH_VALUE(price, 2) OVER (PARTITION BY symbol ORDER BY volume, id) AS d FROM t""",
    "frames_by_what_may_be_null": """SELECT id,
        SUM(price) OVER (PARTITION BY symbol ORDER BY volume, id ROWS 2 PRECEDING) AS a,
        MAX(ts) OVER (ORDER BY x DESC NULLS FIRST, id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS b,
        COUNT(*) OVER (ORDER BY note, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS c FROM t""",
    "ranges_by_what_may_be_null": """SELECT id,
        SUM(price) OVER (PARTITION BY symbol ORDER BY volume RANGE 1 PRECEDING) AS a,
        COUNT(*) OVER (ORDER BY volume DESC NULLS FIRST RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS b,
        MAX(venue) OVER (PARTITION BY symbol ORDER BY x RANGE BETWEEN CURRENT ROW AND 2 FOLLOWING) AS c,
        COUNT(note) OVER (ORDER BY volume RANGE BETWEEN 2 FOLLOWING AND 3 FOLLOWING) AS d FROM t""",
    "ends_of_ranges_by_what_may_be_null": """SELECT id,
        FIRST_VALUE(volume) OVER (PARTITION BY symbol ORDER BY volume RANGE 1 PRECEDING) AS a,
        LAST_VALUE(x) OVER (ORDER BY x DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS d,
        COUNT(*) OVER w AS b, MIN(price) OVER w AS c FROM (SELECT * FROM t WHERE side = 'buy') t
        WINDOW w AS (PARTITION BY symbol ORDER BY volume DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)""",
    "ranges_summed_by_what_may_be_null": """SELECT symbol, SUM(m * venue) AS v FROM (SELECT symbol, venue,
        SUM(price) OVER (PARTITION BY symbol ORDER BY volume RANGE 1 PRECEDING) AS m FROM t) m
        GROUP BY symbol""",
    "frames_summed_by_what_may_be_null": """SELECT symbol, SUM(price * m) AS s FROM (SELECT symbol, price,
        AVG(price) OVER (PARTITION BY symbol ORDER BY volume, id ROWS 2 PRECEDING) AS m FROM t) d
        GROUP BY symbol""",
    "frames_summed_by_a_double_that_may_be_null": """SELECT symbol, SUM(m) AS s, COUNT(*) AS n FROM
        (SELECT symbol, price, SUM(venue) OVER w AS m, MAX(price) OVER w AS most FROM t
        WINDOW w AS (PARTITION BY symbol ORDER BY x DESC, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)) d
        WHERE most > price GROUP BY symbol""",
    "computed_value": f"""SELECT SUM(v) AS s FROM (SELECT LAG(price * venue + COALESCE(volume, 7)) {_W} AS v
        FROM t) m""",
    "doubles": f"""SELECT SUM(v / volume) AS s, SUM(v) AS t FROM (SELECT volume,
        LEAD(price / 2) {_W} AS v FROM t) m""",
    "texts": f"""SELECT symbol, n, COUNT(*) AS k, SUM(CASE WHEN side <> l THEN 1 END) AS flips FROM
        (SELECT symbol, side, LAG(side) {_W} AS l, LEAD(CASE WHEN price > 1 THEN 'up' ELSE note END, 2, side)
        {_W} AS n FROM t) m GROUP BY symbol, n""",
    "ends_of_texts": f"""SELECT id, FIRST_VALUE(side) {_W} AS a, LAST_VALUE(note) OVER (PARTITION BY symbol
        ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS b FROM t""",
    "known": f"""SELECT id, LAG(volume IGNORE NULLS) {_W} AS a, LEAD(volume, 2 IGNORE NULLS) {_W} AS b,
        LAG(note, 1, 'none' IGNORE NULLS) {_W} AS c, LEAD(price, 1, 7 IGNORE NULLS) {_W} AS d FROM t""",
    "last_known": f"""SELECT id, LAST_VALUE(volume IGNORE NULLS) {_W} AS a,
        LAST_VALUE(x IGNORE NULLS) {_SO_FAR} AS b, FIRST_VALUE(note IGNORE NULLS) {_W} AS c,
        FIRST_VALUE(volume IGNORE NULLS) {_ONWARDS} AS d, LAST_VALUE(volume IGNORE NULLS) {_ONWARDS} AS e,
        LAST_VALUE(x IGNORE NULLS) {_ALL} AS f FROM t""",
    "ends_of_rows": f"""SELECT id, FIRST_VALUE(volume) OVER (w ROWS 2 PRECEDING) AS a,
        FIRST_VALUE(volume) OVER (w ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS b,
        LAST_VALUE(volume) OVER (w ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS c,
        LAST_VALUE(price) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS d,
        FIRST_VALUE(note) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS e,
        LAST_VALUE(price) OVER (w ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS f, LAST_VALUE(price) {_W} AS g,
        FIRST_VALUE(volume) {_ONWARDS} AS h FROM t""".replace(
        "w ROWS", "PARTITION BY symbol ORDER BY ts, id ROWS"
    ),
    "ends_of_ranges": """SELECT id, FIRST_VALUE(volume) OVER (w RANGE 2 PRECEDING) AS a,
        LAST_VALUE(volume) OVER (w RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS b,
        LAST_VALUE(price) OVER (w RANGE BETWEEN 3 PRECEDING AND 1 PRECEDING) AS c,
        LAST_VALUE(volume IGNORE NULLS) OVER (w DESC RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS d,
        LAST_VALUE(note) OVER (ORDER BY id) AS e FROM t""".replace("(w", "(PARTITION BY symbol ORDER BY id"),
    "sums_of_last_known": f"""SELECT symbol, SUM(v * price) AS s, COUNT(v) AS n FROM (SELECT symbol, price,
        LAST_VALUE(volume IGNORE NULLS) {_W} AS v FROM t) m GROUP BY symbol""",
    "moves_of_known": f"""SELECT SUM(volume - v) AS s FROM (SELECT volume, LAG(volume IGNORE NULLS) {_W} AS v
        FROM t) m""",
    "two_known_back": f"""SELECT symbol, SUM(v) AS s FROM (SELECT symbol,
        LAG(volume, 2 IGNORE NULLS) {_W} AS v FROM t) m GROUP BY symbol""",
    "moves_within": """SELECT SUM(price - v) AS s FROM (SELECT price,
        FIRST_VALUE(price) OVER (ORDER BY id RANGE 2 PRECEDING) AS v FROM t) m""",
    "bars_of_volume": f"""SELECT symbol, b // 3 AS bar, FIRST(price ORDER BY ts, id) AS o, MAX(volume) AS h,
        SUM(venue) AS v, COUNT(*) AS n FROM (SELECT symbol, ts, id, price, volume, venue,
        SUM(venue) {_W} - venue AS b FROM t) m GROUP BY 1, 2""",
    "bars_by_count": """SELECT (n - 1) // 3 AS bar, MAX(price) AS h, SUM(venue) AS v FROM
        (SELECT venue, price, COUNT(*) OVER (ORDER BY ts, id) AS n FROM t) m GROUP BY 1""",
    "drawdown": f"""SELECT symbol, MAX(top - price) AS d FROM (SELECT symbol, price, MAX(price) {_W} AS top
        FROM t) m GROUP BY symbol""",
    "sums_of_running_sums": """SELECT SUM(a * b) AS v FROM (SELECT SUM(venue) OVER (ORDER BY ts, id) AS a,
        SUM(venue) OVER (PARTITION BY symbol ORDER BY ts DESC) AS b FROM t) m""",
    "sums_within_ranges": """SELECT symbol, SUM(m * venue) AS v FROM (SELECT symbol, venue, SUM(venue) OVER
        (PARTITION BY symbol ORDER BY ts RANGE 2 PRECEDING) AS m FROM t) m GROUP BY symbol""",
    "running_sums_by_what_may_be_null": """SELECT symbol, SUM(m * venue) AS v FROM (SELECT symbol, venue,
        SUM(venue) OVER (PARTITION BY symbol ORDER BY volume) AS m FROM t) m GROUP BY symbol""",
    "above_the_mean_so_far": f"""SELECT id FROM (SELECT id, price, AVG(price) {_W} AS m FROM t) m
        WHERE price > m""",
    "texts_of_groups": """SELECT symbol, ARG_MAX(side, id) AS a, ARG_MIN(note, id) AS b,
        MAX_BY(side, id) AS c,
        LAST(side ORDER BY ts, id) AS d, ARG_MAX(note, id) FILTER (WHERE venue = 1) AS e FROM t
        GROUP BY symbol""",
    "by_text": f"""SELECT symbol, SUM(ABS(price - p)) AS s FROM
        (SELECT symbol, side, price, LAG(price) {_W} AS p, LAG(side) {_W} AS l FROM t) m
        WHERE side <> l GROUP BY symbol""",
    "counted_by_text": f"""SELECT id, ROW_NUMBER() {_W} AS n,
        SUM(price) OVER (ORDER BY id ROWS 2 PRECEDING) AS s,
        FIRST_VALUE(side) {_W} AS f, NTILE(3) OVER (ORDER BY id DESC) AS q FROM t""",
    "starts": f"""SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, ts, LAG(ts) {_W} AS p FROM t) m
        WHERE p IS NULL OR ts - p > 1 GROUP BY symbol""",
    "sessions": f"""SELECT symbol, session, COUNT(*) AS n, SUM(price) AS v FROM (SELECT symbol, price,
        SUM(start) {_W} AS session FROM (SELECT symbol, ts, id, price,
        CASE WHEN ts - LAG(ts) {_W} > 1 THEN 1 ELSE 0 END AS start FROM t) a) b GROUP BY symbol, session""",
    "sessions_by_start": f"""SELECT symbol, start, COUNT(*) AS n FROM (SELECT symbol,
        MAX(begin) {_W} AS start FROM (SELECT symbol, ts, id,
        CASE WHEN ts - LAG(ts) {_W} > 1 THEN ts - 0 END AS begin FROM t) a) b GROUP BY symbol, start""",
    "sums_of_the_order": """SELECT id, SUM(venue) OVER (PARTITION BY symbol ORDER BY venue, id) AS s,
        MAX(venue * price) OVER (PARTITION BY symbol ORDER BY venue DESC, id) AS m FROM t""",
    "lag_of_starts": f"""SELECT COUNT(*) AS n, SUM(ts - q) AS s FROM (SELECT ts, LAG(ts) {_W} AS q FROM
        (SELECT symbol, id, ts, LAG(ts) {_W} AS p FROM t) m WHERE p IS NULL OR ts - p > 1) k""",
    "rows_away": f"""SELECT symbol, SUM(price * a) AS s, COUNT(b) AS n, SUM(y) AS y FROM (SELECT symbol,
        price, LAG(price, 4) {_W} AS a, LEAD(volume, 3) {_W} AS b, LEAD(x, 5) {_W} AS y FROM t) m
        GROUP BY symbol""",
    "rows_away_of_filtered": f"""SELECT COUNT(*) AS n, SUM(a * b) AS s FROM (SELECT price,
        LAG(price) {_W} AS a, LAG(price, 5) {_W} AS b FROM t WHERE volume > 0) m WHERE price > a""",
    "rows_away_shown": f"""SELECT id, LAG(price, 4) {_W} AS a, LEAD(volume, 3, -1) {_W} AS b,
        LAG(side, 3) OVER (ORDER BY id DESC) AS c, LAG(x, 3) OVER (ORDER BY ts DESC, venue, id DESC) AS d
        FROM t""",
    "rows_away_of_rows_away": f"""SELECT SUM(d - e) AS s FROM (SELECT d, LAG(d, 3) {_W} AS e FROM
        (SELECT symbol, ts, id, price - LAG(price, 3) {_W} AS d FROM t) m) l WHERE e IS NOT NULL""",
    "frames": f"""SELECT id, SUM(price) {_W[:-1]} ROWS 3 PRECEDING) AS a,
        COUNT(volume) {_W[:-1]} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS b,
        MAX(x) OVER (ORDER BY id DESC ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS c,
        AVG(price) OVER (ORDER BY ts DESC, venue, id ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS d,
        COUNT(*) {_W[:-1]} ROWS BETWEEN 1 PRECEDING AND 4 FOLLOWING) AS e FROM t""",
    "frames_to_an_end": f"""SELECT id,
        SUM(price) {_W[:-1]} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS a,
        COUNT(volume) {_W[:-1]} ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING) AS b,
        MIN(price) {_W[:-1]} ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING) AS c,
        SUM(venue) {_W[:-1]} ROWS BETWEEN CURRENT ROW AND CURRENT ROW) AS d,
        SUM(venue) {_W[:-1]} ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) AS e FROM t""",
    "frames_summed": f"""SELECT symbol, SUM(price * m) AS s, COUNT(*) AS n FROM (SELECT symbol, price,
        AVG(price) {_W[:-1]} ROWS 3 PRECEDING) AS m FROM t) d GROUP BY symbol""",
    "frames_to_both_sides": f"""SELECT SUM(price * m) AS s FROM (SELECT price,
        SUM(volume) {_W[:-1]} ROWS BETWEEN 2 PRECEDING AND 3 FOLLOWING) AS m FROM t) d""",
    "frames_ahead": """SELECT SUM(price - m) AS s FROM (SELECT price, AVG(price) OVER (ORDER BY ts, id
        ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS m FROM t) d""",
    "breakouts": f"""SELECT COUNT(*) AS n, SUM(price) AS s FROM (SELECT price,
        MAX(price) {_W[:-1]} ROWS BETWEEN 4 PRECEDING AND 1 PRECEDING) AS m FROM t) d WHERE price > m""",
    "bollinger": f"""SELECT id FROM (SELECT id, price, AVG(price) OVER w AS m, STDDEV(price) OVER w AS s
        FROM t WINDOW w AS ({_W[6:-1]} ROWS 4 PRECEDING)) d WHERE price > m + s""",
    "medians": f"""SELECT id, MEDIAN(price) {_W[:-1]} ROWS 3 PRECEDING) AS m,
        QUANTILE_DISC(volume, 0.9) OVER (ORDER BY ts, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS q,
        MEDIAN(price) OVER (ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS r,
        MEDIAN(price) OVER (PARTITION BY symbol ORDER BY ts RANGE 2 PRECEDING) AS s FROM t""",
    "above_medians": f"""SELECT SUM(price - m) AS s FROM (SELECT price,
        MEDIAN(price) {_W[:-1]} ROWS 3 PRECEDING) AS m FROM t) d WHERE price >= m""",
    "joined": f"""SELECT SUM(m.d * o.price) AS s FROM
        (SELECT venue, price - LAG(price) {_W} AS d FROM t) m, t o
        WHERE o.venue = m.venue AND o.volume > 1""",
    "beside_groups": """SELECT id, m - LAG(m) OVER (ORDER BY ts, id) AS d FROM
        (SELECT x.ts, x.id, y.m FROM t x
        LEFT JOIN (SELECT symbol, side, AVG(volume) AS m FROM t GROUP BY symbol, side) y
        ON y.symbol = x.symbol AND y.side = 'buy') j""",
    "beside_rows_before": """SELECT id, p - LAG(p) OVER (PARTITION BY symbol ORDER BY id) AS d FROM
        (SELECT x.symbol, x.id, y.price AS p FROM t x ASOF LEFT JOIN t y
        ON x.symbol = y.symbol AND x.id > y.id) j""",
    "covariance_of_the_first": """SELECT symbol, COVAR_POP(venue, x) AS c FROM (SELECT symbol, venue, x FROM t
        QUALIFY ROW_NUMBER() OVER (PARTITION BY side ORDER BY venue, x, symbol) <= 2) f GROUP BY symbol""",
    "of_the_first": """SELECT ts, price - LAG(price) OVER (ORDER BY price, ts, side, volume) AS d FROM (SELECT
        DISTINCT ON (ts) ts, price, side, volume FROM t ORDER BY ts, id DESC) f""",
}

# What else costs more: rows that join, groups and partitions of computed keys, chains of filtered rows.
_LOGARITHMIC = (
    *("merged_moves", "merged_counts", "merged_squares", "merged_unmarked"),
    *("moves", "by_one_column", "unpartitioned", "time_weighted", "nullable", "roll", "lambda", "two_back"),
    *("flow_imbalance", "both_sides", "groups", "buckets", "filtered", "shown", "computed_value", "starts"),
    *("texts", "ends_of_texts", "texts_of_groups", "by_text", "counted_by_text"),
    *("known", "last_known", "ends_of_rows", "ends_of_ranges", "by_a_computed_order"),
    *("buckets_that_may_be_null", "buckets_of_all", "the_order_itself", "neighbours_of_buckets"),
    "neighbours_by_what_may_be_null",
    *("by_what_may_be_null", "null_first", "shown_by_what_may_be_null", "frames_by_what_may_be_null"),
)
_BY_ROWS = ("rows_away", "rows_away_of_filtered", "frames_summed", "frames_to_both_sides", "frames_ahead")
MOST: Mapping[str, Cost] = {
    **dict.fromkeys(_LOGARITHMIC, Cost.LOGARITHMIC),
    **dict.fromkeys(_BY_ROWS, Cost.ROWS),
}


def row(generator: random.Random, id: int) -> Row:
    """A row with this key; ties in all other columns are frequent."""
    return (
        generator.choice(("A", "B", "A", None)),
        generator.randrange(6),
        id,
        Decimal(generator.randrange(8)) / 4,
        generator.choice((None, 0, 1, 2, 3)),
        generator.choice((None, 0.5, -1.25, 0.0)),
        generator.choice((1, 2)),
        generator.choice(("buy", "sell")),
        generator.choice((None, "p", "q")),
    )


def events(
    generator: random.Random, length: int, made: Callable[[random.Random, int], Row] = row, key: int = 2
) -> Iterator[list[tuple[bool, Row]]]:
    """Rows inserted, deleted and replaced; at last all are deleted.

    made: gives a row of an id, which is its column number `key`.
    """
    live: list[Row] = []
    for _ in range(length):
        free = sorted({*range(-4, 12)} - {r[key] for r in live})
        kind = generator.random()
        event: list[tuple[bool, Row]] = []
        if live and (kind < 0.4 or not free):
            event.append((False, live.pop(generator.randrange(len(live)))))
        if kind > 0.25 and free:
            live.append(made(generator, generator.choice(free)))
            event.append((True, live[-1]))
        if event:
            yield event
    generator.shuffle(live)
    yield from ([(False, r)] for r in live)


def text(name: str) -> str:
    """Declarations and the view."""
    others = OTHERS if name.startswith("merged") else ""
    return f"{BY_TEXT if name.endswith('by_text') else SCHEMA}{others} CREATE VIEW v AS {VIEWS[name]}"


def check(names: Sequence[str], seed: int, length: int, kinds: Sequence[RuntimeKind]) -> None:
    """Raises AssertionError where a view differs from DuckDB after an event, or an entry is left over."""
    for name in names:
        sql = text(name)
        program = compiled(sql)
        oracle, runtimes = Oracle(sql, few_rows=True), [kind(program) for kind in kinds]
        at_first = [_sizes(program, r) for r in runtimes]
        done = []
        for event in events(random.Random(seed), length):
            for insert, values in event:
                relation = "o" if name.startswith("merged") and int(values[2] or 0) % 2 else "t"
                (oracle.insert if insert else oracle.delete)(relation, values)
                for runtime in runtimes:
                    runtime.change(relation, insert, values)
            done.append(event)
            expected = oracle.rows("v")
            for runtime in runtimes:
                wrong = difference(expected, runtime.rows("v"))
                assert wrong is None, f"{name} in {type(runtime).__name__} after {done}: {wrong}"
        assert [_sizes(program, r) for r in runtimes] == at_first, name


def check_cost(name: str) -> None:
    """Raises AssertionError where an event costs more than MOST."""
    found = plan(compiled(text(name)))
    cost = max(statement_cost(found, s) for t in found.triggers for s in t.statements)
    assert cost <= MOST.get(name, cost), f"an event costs {cost}"


def _sizes(program: Program, runtime: Runtime) -> list[int]:
    """The entries of the program's maps, those that a plan adds left out."""
    sizes = runtime.map_sizes()
    return [sizes[m.name] for m in program.maps]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--part", default="0/1", help="every n-th view, from the k-th on, as k/n")
    given = parser.parse_args()
    first, parts = map(int, given.part.split("/"))
    failures = 0
    for name in given.names or list(VIEWS)[first::parts]:
        try:
            for seed in range(given.seed, given.seed + given.seeds):
                check([name], seed, given.length, [GeneratedRuntime])
        except Exception as error:
            failures += 1
            print(f"{name}: {type(error).__name__}: {str(error)[-600:]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
