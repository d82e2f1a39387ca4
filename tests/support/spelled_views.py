"""Queries that mean the same, or nearly, as they are spelled; over columns that may be NULL and that may not.

A script compares their generated code with DuckDB after every event:

    NUMBA_DISABLE_JIT=1 python tests/support/spelled_views.py --seed 0 [FAMILY ...]
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from fuzz import RuntimeKind, compiled
from generated_runner import GeneratedRuntime
from neighbour_views import events
from oracle import Oracle, Row, difference

from orderbook.engine.plan.describe import Cost, statement_cost
from orderbook.engine.plan.planner import plan

_COLUMNS = """
CREATE TABLE t (id BIGINT PRIMARY KEY, symbol TEXT{n}, side TEXT{n}, ts TIMESTAMP{n},
                price DECIMAL(9, 2){n} CHECK (price BETWEEN 0 AND 1000), size INTEGER{n} CHECK (size >= 0));
"""
_UNCHECKED = """
CREATE TABLE t (id BIGINT PRIMARY KEY, symbol TEXT, side TEXT, ts TIMESTAMP, price {k}, size {k});
"""
SCHEMAS: Mapping[str, str] = {
    "declared": _COLUMNS.format(n=" NOT NULL"),
    "nullable": _COLUMNS.format(n=""),
    # Of these few sizes are below 0.
    "unchecked": _UNCHECKED.format(k="DECIMAL(18, 8)"),
    "doubles": _UNCHECKED.format(k="DOUBLE"),
}


@dataclass(frozen=True, slots=True)
class Family:
    """Spellings of one query, and what an event costs at most in each."""

    cost: Cost
    spellings: tuple[str, ...]
    schemas: tuple[str, ...] = ("declared", "nullable")


def _numbered(partition: str, order: str) -> str:
    return f"(SELECT symbol, price, size, ROW_NUMBER() OVER ({partition} ORDER BY {order}, id) AS n FROM t) d"


_BEST, _LAST = _numbered("", "price DESC"), _numbered("PARTITION BY symbol", "ts DESC")
_RUNNING = "SELECT price, size, SUM(size) OVER (ORDER BY price, id) AS up_to FROM t WHERE side = 'sell'"
_WITH_MEANS = (
    "(SELECT symbol, price, AVG(price) OVER w AS m, STDDEV(price) OVER w AS s FROM t "
    "WINDOW w AS (PARTITION BY symbol)) d"
)
_MOVING = "OVER (PARTITION BY symbol ORDER BY ts, id ROWS {} PRECEDING)"
_MEANS = (
    f"(SELECT id, ts, symbol, price, AVG(price) {_MOVING.format(2)} AS fast, "
    f"AVG(price) {_MOVING.format(4)} AS slow FROM t) d"
)
_CROSSED = (
    f"(SELECT symbol, fast, slow, LAG(fast) OVER w AS f, LAG(slow) OVER w AS s FROM {_MEANS} "
    "WINDOW w AS (PARTITION BY symbol ORDER BY ts, id)) e"
)
_PEAKS = "(SELECT symbol, price, MAX(price) OVER (PARTITION BY symbol ORDER BY {}) AS peak FROM t) d"

_BESIDE = (
    "(SELECT symbol, price, size, LAG(price) OVER w AS p, LAG(size) OVER w AS s FROM t "
    "WINDOW w AS (PARTITION BY symbol ORDER BY ts, id)) d"
)
_OPENS = (
    "(SELECT symbol, side, price, FIRST_VALUE(price) OVER (PARTITION BY {} ORDER BY {}) AS first FROM t) d"
)

_MOVES = "(SELECT symbol, price - LAG(price) OVER (PARTITION BY symbol ORDER BY ts, id) AS m FROM t{}) d"
_ALL_MOVES = _MOVES.format("")
_OF_A = " WHERE symbol = 'A'"
_ABOVE = "(SELECT {} FROM t c WHERE c.price > b.price)"

_EACH = "OVER (PARTITION BY symbol ORDER BY ts, id)"
_WITHIN = "OVER (PARTITION BY symbol ORDER BY ts RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)"
_UP_TO = "OVER (PARTITION BY symbol ORDER BY ts)"

_BARS = (
    "(SELECT symbol, size // 2 AS bar, LAST(price ORDER BY id) AS close, SUM(size) AS v "
    "FROM t GROUP BY symbol, size // 2) g"
)
_OVER_BARS = "OVER (PARTITION BY symbol ORDER BY bar ROWS {})"
_BARS_SO_FAR = "OVER (PARTITION BY symbol ORDER BY bar)"
_BAR_MEANS = (
    f"(SELECT symbol, bar, close, v, AVG(close) {_OVER_BARS.format('1 PRECEDING')} AS fast, "
    f"AVG(v) {_OVER_BARS.format('BETWEEN 2 PRECEDING AND 1 PRECEDING')} AS slow FROM {_BARS}) d"
)
_LATER_MEANS = (
    "(SELECT symbol, fast, slow, LAG(fast) OVER w AS f, LAG(slow) OVER w AS s "
    f"FROM {_BAR_MEANS} WINDOW w AS (PARTITION BY symbol ORDER BY bar)) e"
)

_BOTH = (
    "(SELECT ts, {0} AS id, symbol, price AS p, 0 AS k FROM t WHERE side = 'buy' "
    "UNION ALL SELECT ts, {1}, symbol, size, 1 FROM t WHERE price > 1) u"
)
_IDS = _BOTH.format("id", "id")
_STEPS = (
    "(SELECT symbol, k, p, LAG(k) OVER w AS before, p - LAG(p) OVER w AS d FROM {} "
    "WINDOW w AS (PARTITION BY symbol ORDER BY {})) d"
)

_LEVELS = "(SELECT price, SUM(size) AS v FROM t GROUP BY price) g"
_PARTS = "(SELECT price, size, SUM(size) OVER (ORDER BY price) AS up_to, SUM(size) OVER () AS whole FROM t) d"

FAMILIES: Mapping[str, Family] = {
    "where running sums end": Family(
        Cost.ROWS,
        (
            "SELECT SUM(a.price * a.size) AS s FROM t a WHERE (SELECT SUM(b.size) FROM t b) > "
            "4 * (SELECT SUM(c.size) FROM t c WHERE c.price > a.price)",
            "SELECT MAX(a.price) AS p FROM t a WHERE (SELECT SUM(c.size) FROM t c) > "
            "2 * (SELECT SUM(b.size) FROM t b WHERE b.price < a.price)",
            f"SELECT SUM(price * size) / SUM(size) AS s FROM {_PARTS} WHERE up_to <= 0.5 * whole",
            f"SELECT COUNT(*) AS n FROM {_PARTS} WHERE up_to / whole <= 0.5",
            "SELECT symbol, SUM(price * size) AS s FROM (SELECT symbol, price, size, "
            "SUM(size) OVER (PARTITION BY symbol ORDER BY price DESC) AS up_to FROM t) d "
            "WHERE up_to < 4 GROUP BY symbol",
            "SELECT MIN(price) AS p FROM (SELECT price, SUM(v) OVER (ORDER BY price) AS up_to "
            f"FROM {_LEVELS}) d WHERE up_to >= 5",
            f"SELECT SUM(price * v) AS s FROM (SELECT price, v, SUM(v) OVER (ORDER BY price) AS up_to "
            f"FROM {_LEVELS}) d WHERE up_to <= 5",
            "SELECT SUM(price * size) AS s, COUNT(*) AS n FROM (SELECT price, size, "
            "SUM(size) OVER (ORDER BY ts DESC, id DESC) AS up_to FROM t) d WHERE up_to <= 4",
        ),
        tuple(SCHEMAS),
    ),
    "groups that make up a part of the whole": Family(
        Cost.PRODUCT,
        (
            f"SELECT price FROM (SELECT price, SUM(v) OVER (ORDER BY v DESC, price) AS up_to, "
            f"SUM(v) OVER () AS whole FROM {_LEVELS}) d WHERE up_to <= 0.7 * whole",
            "SELECT MIN(price) AS p, MAX(price) AS q FROM (SELECT price, "
            f"SUM(v) OVER (ORDER BY v DESC) AS up_to, SUM(v) OVER () AS whole FROM {_LEVELS}) d "
            "WHERE up_to <= 0.7 * whole",
            f"SELECT price, SUM(v) OVER (ORDER BY v DESC) / SUM(v) OVER () AS part FROM {_LEVELS}",
        ),
        tuple(SCHEMAS),
    ),
    "groups beside others by a double that may be NULL": Family(
        Cost.PRODUCT,
        (
            "SELECT COUNT(*) AS n, SUM(v - m) AS s FROM (SELECT v, MIN(v) OVER "
            "(ORDER BY h ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM "
            "(SELECT price / 3 AS h, COUNT(*) AS v FROM t GROUP BY price / 3) g) d WHERE v > m",
        ),
    ),
    "numbers of first rows beside others": Family(
        Cost.PRODUCT,
        (
            "SELECT id, ROW_NUMBER() OVER (ORDER BY size, id) AS n FROM (SELECT x.id, x.size, y.s FROM t x "
            "ASOF JOIN (SELECT size, SUM(price) AS s FROM t GROUP BY size) y ON x.size >= y.size "
            "QUALIFY ROW_NUMBER() OVER (ORDER BY x.size, x.id) <= 2) d",
        ),
        ("declared",),
    ),
    "crossings of moving means": Family(
        Cost.ROWS,
        (
            f"SELECT symbol, COUNT(*) AS n FROM {_CROSSED} WHERE fast > slow AND f <= s GROUP BY symbol",
            f"SELECT SUM(CASE WHEN fast > slow AND f <= s THEN 1 ELSE 0 END) AS n FROM {_CROSSED}",
        ),
    ),
    "groups above what moves along them": Family(
        Cost.ROWS,
        (
            f"SELECT symbol, COUNT(*) AS n FROM {_BAR_MEANS} WHERE close > fast GROUP BY symbol",
            f"SELECT COUNT(*) AS n, SUM(v - slow) AS s FROM {_BAR_MEANS} WHERE v > slow",
            f"SELECT SUM(CASE WHEN v > 2 * slow THEN close END) AS s FROM {_BAR_MEANS}",
            f"SELECT COUNT(*) AS n FROM {_LATER_MEANS} WHERE fast > slow AND f <= s",
        ),
    ),
    "moves of one partition": Family(
        Cost.LOGARITHMIC,
        (
            f"SELECT SUM(m * m) AS v FROM {_MOVES.format('')} {_OF_A}",
            f"SELECT SUM(m * m) AS v FROM {_MOVES.format(_OF_A)}",
            f"SELECT SUM(m * m) FILTER (WHERE symbol = 'A') AS v FROM {_MOVES.format('')}",
            f"SELECT SUM(CASE WHEN symbol = 'A' THEN m * m END) AS v FROM {_MOVES.format('')}",
        ),
    ),
    "volume of rows that few are above": Family(
        Cost.LOGARITHMIC,
        tuple(
            f"SELECT SUM(b.size) AS v, SUM(b.price * b.size) AS w FROM t b WHERE {few}"
            for few in (
                f"{_ABOVE.format('COUNT(*)')} < 3",
                f"0.25 * (SELECT SUM(size) FROM t) > {_ABOVE.format('COALESCE(SUM(c.size), 0)')}",
                f"COALESCE({_ABOVE.format('SUM(c.size)')}, 0) <= 4",
            )
        ),
    ),
    "order flow as a sum of choices": Family(
        Cost.LOGARITHMIC,
        tuple(
            f"SELECT symbol, {flow} AS flow FROM {_BESIDE} GROUP BY symbol"
            for flow in (
                "SUM(CASE WHEN price >= p THEN size ELSE 0 END - CASE WHEN price <= p THEN s ELSE 0 END "
                "- CASE WHEN size <= s THEN size ELSE 0 END + CASE WHEN size >= s THEN s ELSE 0 END)",
                "SUM(CASE WHEN price > p THEN size WHEN price = p THEN size - s ELSE -s END "
                "+ CASE WHEN size >= s THEN s WHEN p IS NULL THEN 1 ELSE 0 END "
                "- LEAST(size, s) * SIGN(price - p))",
            )
        ),
    ),
    "levels with the most volume": Family(
        Cost.GROUPS,
        tuple(
            f"SELECT symbol, price FROM (SELECT symbol, price, RANK() OVER (PARTITION BY symbol "
            f"ORDER BY {most} DESC) AS n FROM t GROUP BY symbol, price) d WHERE {rank}"
            for most in ("SUM(size)", "SUM(price * size)", "SUM(price * size * size)")
            for rank in ("n = 1", "n <= 2")
        ),
    ),
    "moves since the first row of a partition": Family(
        Cost.SLICE,
        (
            *(
                f"SELECT symbol, {move} AS move FROM {_OPENS.format(*window)} GROUP BY symbol"
                for move, *window in (
                    ("SUM(price - first)", "symbol", "id"),
                    ("SUM(price - first)", "symbol, side", "ts, id"),
                    ("AVG(price / first - 1)", "symbol", "ts, id"),
                )
            ),
            "SELECT symbol, SUM(price - first) AS s FROM (SELECT x.symbol, x.price, "
            "(SELECT ARG_MIN(y.price, y.id) FROM t y WHERE y.symbol IS NOT DISTINCT FROM x.symbol) AS first "
            "FROM t x) d GROUP BY symbol",
        ),
    ),
    "first groups by what is computed": Family(
        Cost.SLICE,
        (
            "SELECT MEDIAN(price) AS m FROM t GROUP BY symbol ORDER BY m DESC LIMIT 2",
            "SELECT a.v / b.n AS d FROM (SELECT symbol, SUM(size) AS v FROM t GROUP BY symbol) a "
            "JOIN (SELECT symbol, COUNT(*) AS n FROM t GROUP BY symbol) b ON a.symbol = b.symbol "
            "ORDER BY d DESC LIMIT 1",
            "SELECT a.m - b.m AS d FROM "
            "(SELECT symbol, MAX(price) AS m FROM t WHERE side = 'sell' GROUP BY symbol) a JOIN "
            "(SELECT symbol, MIN(price) AS m FROM t WHERE side = 'buy' GROUP BY symbol) b USING (symbol) "
            "ORDER BY d LIMIT 1",
        ),
    ),
    "first groups by their part of all": Family(
        Cost.PRODUCT,
        (
            "SELECT SUM(size) / (SELECT SUM(size) FROM t) AS p FROM t GROUP BY symbol "
            "ORDER BY p DESC LIMIT 1",
            "SELECT SUM(size) / SUM(SUM(size)) OVER () AS p FROM t GROUP BY symbol ORDER BY p LIMIT 2",
            "SELECT m - AVG(m) OVER () AS d FROM (SELECT symbol, MAX(price) AS m FROM t GROUP BY symbol) g "
            "ORDER BY d DESC LIMIT 1",
        ),
    ),
    "moving means": Family(
        Cost.ROWS,
        (
            f"SELECT symbol, COUNT(*) AS n FROM {_MEANS} WHERE fast > slow GROUP BY symbol",
            f"SELECT symbol, COUNT(*) FILTER (WHERE price > fast) AS n FROM {_MEANS} GROUP BY symbol",
            f"SELECT symbol, LAST(slow ORDER BY ts, id) AS m FROM {_MEANS} GROUP BY symbol",
            f"SELECT MAX(ABS(fast - slow)) AS d FROM {_MEANS}",
            f"SELECT symbol, SUM(fast * price) AS s FROM {_MEANS} GROUP BY symbol",
        ),
    ),
    "running peaks": Family(
        Cost.SLICE,
        (
            *(
                f"SELECT symbol, MAX(peak - price) AS drawdown FROM {_PEAKS.format(order)} GROUP BY symbol"
                for order in ("ts", "ts, id", "ts DESC NULLS FIRST, id")
            ),
            "SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, MAX(price) OVER (PARTITION BY symbol "
            "ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS peak FROM t) d "
            "WHERE price > peak GROUP BY symbol",
            f"SELECT symbol, SUM(peak) AS s FROM {_PEAKS.format('ts, id ROWS 3 PRECEDING')} GROUP BY symbol",
        ),
    ),
    "the first rows": Family(
        Cost.ROWS,
        (
            f"SELECT SUM(price) AS s FROM {_BEST} WHERE n <= 2",
            f"SELECT SUM(CASE WHEN n <= 2 THEN price END) AS s FROM {_BEST}",
            f"SELECT SUM(price) FILTER (WHERE n < 3) AS s FROM {_BEST}",
            f"SELECT SUM(CASE WHEN 2 >= n THEN price ELSE 0 END) AS s FROM {_BEST} WHERE price IS NOT NULL",
            f"SELECT SUM(price) FILTER (WHERE n = 2) AS second, COUNT(CASE WHEN n <= 3 THEN 1 END) AS k "
            f"FROM {_BEST}",
        ),
    ),
    "the first rows or 0": Family(
        Cost.ROWS,
        (
            f"SELECT symbol, SUM(CASE WHEN n <= 2 THEN size ELSE 0 END) AS s FROM {_LAST} GROUP BY symbol",
            f"SELECT symbol, SUM(IF(n <= 2, size, 0)) AS s FROM {_LAST} GROUP BY symbol",
            f"SELECT symbol, SUM(CASE WHEN n > 2 THEN 0 ELSE size END) AS s FROM {_LAST} GROUP BY symbol",
        ),
    ),
    "outliers": Family(
        Cost.LOGARITHMIC,
        (
            f"SELECT COUNT(*) AS n FROM {_WITH_MEANS} WHERE price > m + 0.93 * s OR price < m - 0.93 * s",
            f"SELECT COUNT(*) AS n FROM {_WITH_MEANS} WHERE ABS(price - m) > 0.93 * s",
            f"SELECT SUM(CASE WHEN 0.93 * s < ABS(m - price) THEN 1 END) AS n FROM {_WITH_MEANS}",
            f"SELECT COUNT(*) AS n FROM {_WITH_MEANS} WHERE ABS((price - m) / NULLIF(s, 0)) > 0.93",
            "SELECT COUNT(*) FILTER (WHERE ABS(t.price - d.m) >= 0.93 * d.s) AS n FROM t JOIN "
            "(SELECT symbol, AVG(price) AS m, STDDEV(price) AS s FROM t GROUP BY symbol) d USING (symbol)",
        ),
    ),
    "means of the last rows of each": Family(
        Cost.ROWS,
        (
            f"SELECT symbol, AVG(price) FILTER (WHERE n <= 2) AS a, AVG(price) FILTER (WHERE n <= 4) AS b "
            f"FROM {_LAST} GROUP BY symbol",
            f"SELECT symbol, AVG(CASE WHEN n <= 2 THEN price END) AS a, "
            f"AVG(CASE WHEN n <= 4 THEN price END) AS b FROM {_LAST} GROUP BY symbol",
        ),
    ),
    "rows whose key is the last of its group": Family(
        Cost.LOGARITHMIC,
        (
            "SELECT symbol, price FROM t WHERE id IN (SELECT MAX(id) FROM t GROUP BY symbol)",
            "SELECT x.symbol, x.price FROM t x WHERE EXISTS "
            "(SELECT 1 FROM (SELECT MAX(id) AS id FROM t GROUP BY symbol) m WHERE m.id = x.id)",
            "SELECT symbol, price FROM t WHERE id = ANY (SELECT MAX(y.id) FROM t y GROUP BY y.symbol)",
            "SELECT side, COUNT(*) AS n, SUM(size) AS s FROM t WHERE id IN "
            "(SELECT MIN(id) FROM t WHERE side = 'sell' GROUP BY symbol) GROUP BY side",
            "SELECT symbol, price FROM t WHERE id NOT IN (SELECT MAX(id) FROM t GROUP BY symbol, side)",
        ),
    ),
    "rows at the end of an order": Family(
        Cost.SLICE,
        (
            "SELECT id, price FROM t WHERE ts = (SELECT MAX(ts) FROM t)",
            f"SELECT symbol FROM {_ALL_MOVES} WHERE m = (SELECT MAX(m) FROM {_ALL_MOVES})",
            "SELECT id, price FROM t WHERE ts IN (SELECT MAX(ts) FROM t)",
            "SELECT id, price FROM t WHERE ts = ANY (SELECT MAX(ts) FROM t WHERE side = 'sell')",
            "SELECT id FROM t WHERE price IN (SELECT MIN(price) FROM t GROUP BY symbol)",
            "SELECT id FROM t WHERE price IN (SELECT MAX(price) FROM t WHERE size > 1 GROUP BY symbol)",
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT side, MAX(price) AS m FROM t "
            "GROUP BY symbol, side) d WHERE d.m = t.price AND d.side = t.side)",
        ),
    ),
    "first rows by what lies beside them": Family(
        Cost.ROWS,
        (
            f"SELECT m FROM {_ALL_MOVES} ORDER BY m DESC LIMIT 3",
            f"SELECT ABS(m) AS a FROM {_MOVES.format(' WHERE size > 1')} ORDER BY a DESC LIMIT 2",
            "SELECT id, ts - LAG(ts) OVER (ORDER BY ts, id) AS gap FROM t ORDER BY gap DESC, id LIMIT 2",
            "SELECT id, LEAD(price) OVER (ORDER BY ts, id) - price AS d FROM t ORDER BY d, id LIMIT 3",
            "SELECT id, AVG(price) OVER (ORDER BY ts, id ROWS 2 PRECEDING) AS m FROM t "
            "ORDER BY m DESC, id LIMIT 2",
            "SELECT symbol, id, d FROM (SELECT symbol, id, price - LAG(price) OVER "
            "(PARTITION BY symbol ORDER BY ts, id) AS d FROM t) x "
            "QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY d DESC, id) = 1",
        ),
    ),
    "rows that stand out among their moves": Family(
        Cost.GROUPS,
        (
            f"SELECT COUNT(*) AS n, SUM(m * m) AS s FROM {_ALL_MOVES} "
            f"WHERE m > (SELECT AVG(m) FROM {_ALL_MOVES})",
            f"SELECT symbol, m FROM {_ALL_MOVES} WHERE ABS(m) > 2 * (SELECT STDDEV(m) FROM {_ALL_MOVES})",
            f"SELECT symbol, m FROM {_ALL_MOVES} QUALIFY RANK() OVER (ORDER BY m DESC) <= 2",
            f"SELECT symbol, m FROM {_ALL_MOVES} QUALIFY RANK() OVER (PARTITION BY symbol ORDER BY m) = 1",
        ),
    ),
    "what lies beside rows that are joined": Family(
        Cost.SLICE,
        (
            "SELECT a.id, a.price - LAG(b.size) OVER (PARTITION BY a.symbol ORDER BY a.ts, a.id) AS d "
            "FROM t a JOIN t b ON a.symbol = b.symbol AND a.id = b.id",
            "SELECT a.id, a.price - LAG(b.m) OVER (PARTITION BY a.symbol ORDER BY a.ts, a.id) AS d FROM t a "
            "JOIN (SELECT symbol, ARG_MAX(price, id) AS m FROM t GROUP BY symbol) b ON a.symbol = b.symbol",
            "SELECT a.id, LEAD(b.price) OVER (ORDER BY a.ts, a.id) AS d FROM t a JOIN t b ON b.id = a.id - 1",
        ),
    ),
    # Rows without a time are looked at one by one where there are fewer others.
    "last rows beside what is computed of others": Family(
        Cost.GROUPS,
        (
            "SELECT price, AVG(price) OVER (ORDER BY ts, id ROWS 2 PRECEDING) AS m FROM t "
            "ORDER BY ts DESC, id DESC LIMIT 2",
            "SELECT id, size / SUM(size) OVER () AS part FROM t ORDER BY ts DESC, id DESC LIMIT 2",
            "SELECT id, (SELECT SUM(x.size) FROM t x WHERE x.side = t.side) AS s FROM t "
            "ORDER BY price DESC, id LIMIT 3",
            f"SELECT symbol, fast - slow AS d FROM {_MEANS} ORDER BY ts DESC, id DESC LIMIT 1",
        ),
    ),
    "distances from what is aggregated": Family(
        Cost.LOGARITHMIC,
        (
            "SELECT AVG(ABS(price - (SELECT AVG(price) FROM t))) AS d FROM t",
            "SELECT SUM(ABS(price - (SELECT MEDIAN(price) FROM t)) * size) AS d FROM t",
            "SELECT SUM(SIGN(price - m)) AS d FROM t, (SELECT MAX(price) AS m FROM t WHERE side = 'buy') b",
            "SELECT SUM(CASE WHEN price > m THEN price - m ELSE m - price END) AS d FROM t, "
            "(SELECT AVG(price) AS m FROM t) b",
            "SELECT SUM(GREATEST(price - m, 0) * size) AS d FROM t, "
            "(SELECT MIN(price) AS m FROM t WHERE side = 'sell') b",
            f"SELECT symbol, SUM(LEAST(price - m, 0) * LEAST(price - m, 0)) AS d FROM {_WITH_MEANS} "
            "GROUP BY symbol",
        ),
        ("declared", "nullable", "doubles"),
    ),
    "rows that follow others": Family(
        Cost.SLICE,
        (
            "SELECT bar, MIN(price) AS low, SUM(size) AS v FROM (SELECT price, size, "
            "(ROW_NUMBER() OVER (ORDER BY ts, id) - 1) // 3 AS bar FROM t) d GROUP BY bar",
            "SELECT symbol, run, COUNT(*) AS n FROM (SELECT symbol, "
            f"SUM(CASE WHEN gap > 1 THEN 1 ELSE 0 END) {_EACH} AS run FROM "
            f"(SELECT id, symbol, ts, ts - LAG(ts) {_EACH} AS gap FROM t) a) b GROUP BY symbol, run",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price > m AS up, "
            f"LAG(price > m) {_EACH} AS was FROM (SELECT id, ts, symbol, price, AVG(price) {_EACH} AS m "
            "FROM t) a) b WHERE up <> was GROUP BY symbol",
            f"SELECT symbol, MIN(ts) AS at FROM (SELECT symbol, ts, SUM(size) {_EACH} AS c FROM t) d "
            "WHERE c > 3 GROUP BY symbol",
            "SELECT COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (ORDER BY ts, id) AS n FROM t) d "
            "WHERE n > 4",
        ),
        ("declared", "nullable", "doubles"),
    ),
    "rows beside all up to their moment": Family(
        Cost.SLICE,
        (
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, AVG(price) {_UP_TO} AS m FROM t) d "
            "WHERE price > m GROUP BY symbol",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, AVG(price) {_UP_TO} AS m, "
            f"STDDEV(price) {_UP_TO} AS s FROM t) d WHERE price > m + s GROUP BY symbol",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, SUM(price * size) {_UP_TO} AS c, "
            f"SUM(size) {_UP_TO} AS v FROM t) d WHERE price > c / v GROUP BY symbol",
            "SELECT symbol, MAX(p) AS peak FROM (SELECT symbol, "
            f"SUM(CASE side WHEN 'buy' THEN size ELSE -size END) {_UP_TO} AS p FROM t) d GROUP BY symbol",
            "SELECT COUNT(*) AS n FROM t a WHERE a.size > (SELECT AVG(b.size) FROM t b WHERE b.ts < a.ts)",
            "SELECT a.symbol, SUM(a.size) AS s FROM t a WHERE (SELECT SUM(b.price * b.size) / SUM(b.size) "
            "FROM t b WHERE b.symbol = a.symbol AND b.ts <= a.ts) < a.price GROUP BY a.symbol",
            "SELECT COUNT(*) AS n FROM t a WHERE 1.5 <= (SELECT AVG(b.size) FROM t b WHERE b.ts <= a.ts)",
        ),
        tuple(SCHEMAS),
    ),
    "rows beside a span of time": Family(
        Cost.SLICE,
        (
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, AVG(price) {_WITHIN} AS m FROM t) d "
            "WHERE price > m GROUP BY symbol",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, size / SUM(size) {_WITHIN} AS part FROM t) d "
            "WHERE part > 0.4 GROUP BY symbol",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, COUNT(*) {_WITHIN} AS c FROM t) d "
            "WHERE c >= 3 GROUP BY symbol",
            f"SELECT symbol, MAX(v) AS v FROM (SELECT symbol, SUM(size) {_WITHIN} AS v FROM t) d "
            "GROUP BY symbol",
            "SELECT COUNT(*) AS n FROM t a WHERE (SELECT SUM(b.size) FROM t b WHERE b.symbol = a.symbol "
            "AND b.ts BETWEEN a.ts - 2 AND a.ts) > 4",
            "SELECT COUNT(*) AS n FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.symbol = a.symbol "
            "AND b.side <> a.side AND b.ts BETWEEN a.ts - 1 AND a.ts + 1)",
            "SELECT SUM(a.size * ((SELECT AVG(b.price) FROM t b WHERE b.symbol = a.symbol AND b.ts > a.ts "
            "AND b.ts <= a.ts + 2) - a.price)) AS s FROM t a",
        ),
        tuple(SCHEMAS),
    ),
    "rows beside the latest of a span before or after": Family(
        Cost.SLICE,
        (
            "SELECT a.symbol, SUM(a.size * (b.ts - a.ts)) AS s FROM t a ASOF JOIN t b "
            "ON a.symbol = b.symbol AND a.ts + 2 >= b.ts GROUP BY a.symbol",
            "SELECT a.symbol, AVG(b.ts - a.ts) AS m FROM t a ASOF JOIN t b "
            "ON a.symbol = b.symbol AND a.ts - 2 >= b.ts GROUP BY a.symbol",
            "SELECT a.id, b.ts FROM t a ASOF JOIN t b ON a.symbol = b.symbol AND a.ts + 2 >= b.ts",
            "SELECT COUNT(b.id) AS n, SUM(b.ts - a.ts) AS s FROM t a ASOF LEFT JOIN t b "
            "ON a.symbol = b.symbol AND a.ts - 1 >= b.ts",
        ),
    ),
    "rows beside those of their bucket": Family(
        Cost.SLICE,
        (
            "SELECT a.symbol, a.id FROM t a WHERE a.price = (SELECT MAX(b.price) FROM t b "
            "WHERE b.symbol = a.symbol AND b.size // 2 = a.size // 2)",
            "SELECT a.symbol, COUNT(*) AS n FROM t a WHERE a.price > (SELECT AVG(b.price) FROM t b "
            "WHERE b.symbol = a.symbol AND b.size // 2 = a.size // 2) GROUP BY a.symbol",
            "SELECT a.id, a.price / (SELECT SUM(b.price) FROM t b WHERE b.size // 2 = a.size // 2) AS part "
            "FROM t a",
            "SELECT a.id, (SELECT SUM(b.price) FROM t b WHERE b.size // 2 = a.size // 2 - 1) AS s FROM t a",
            "SELECT SUM(a.price) AS s FROM t a WHERE a.ts = (SELECT MIN(b.ts) FROM t b "
            "WHERE a.id // 4 = b.id // 4 AND a.symbol = b.symbol)",
        ),
    ),
    "rows of two queries in one order": Family(
        Cost.SLICE,
        (
            f"SELECT symbol, k, before, d FROM {_STEPS.format(_IDS, 'ts, k, id')}",
            "SELECT symbol, MAX(r) AS m FROM (SELECT symbol, SUM(p) OVER (PARTITION BY symbol "
            f"ORDER BY ts, k, id ROWS UNBOUNDED PRECEDING) AS r FROM {_IDS}) d GROUP BY symbol",
        ),
    ),
    # A row of the one table is two rows of the order.
    "sums beside rows of two queries in one order": Family(
        Cost.PRODUCT,
        (
            f"SELECT symbol, COUNT(*) AS n FROM {_STEPS.format(_IDS, 'ts, k, id')} "
            "WHERE k = 0 AND before = 1 GROUP BY symbol",
            "SELECT symbol, SUM(d * d) AS v FROM "
            f"{_STEPS.format(_BOTH.format('2 * id', '2 * id + 1'), 'ts, id')} GROUP BY symbol",
        ),
    ),
    "the greatest of a span of time": Family(
        Cost.PRODUCT,
        (
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, price, MAX(price) {_WITHIN} AS m FROM t) d "
            "WHERE price = m GROUP BY symbol",
        ),
        tuple(SCHEMAS),
    ),
    "bars beside all before them": Family(
        Cost.SLICE,
        (
            "SELECT symbol, COUNT(*) AS n FROM "
            f"(SELECT symbol, v, AVG(v) {_BARS_SO_FAR} AS m FROM {_BARS}) d WHERE v > m GROUP BY symbol",
            f"SELECT symbol, bar FROM (SELECT symbol, bar, v, AVG(v) {_BARS_SO_FAR} AS m FROM {_BARS}) d "
            "WHERE v > m",
            f"SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, v / SUM(v) {_BARS_SO_FAR} AS part "
            f"FROM {_BARS}) d WHERE part > 0.2 GROUP BY symbol",
            f"SELECT symbol, MAX(peak - close) AS fall FROM (SELECT symbol, close, "
            f"MAX(close) {_BARS_SO_FAR} AS peak FROM {_BARS}) d GROUP BY symbol",
            "SELECT symbol, COUNT(*) AS n FROM (SELECT symbol, high, MAX(high) "
            f"{_OVER_BARS.format('BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING')} AS before "
            "FROM (SELECT symbol, size // 2 AS bar, MAX(price) AS high FROM t GROUP BY ALL) g) d "
            "WHERE high > before GROUP BY symbol",
        ),
    ),
    "the largest groups": Family(
        Cost.ROWS,
        (
            "SELECT symbol FROM t GROUP BY symbol "
            "HAVING COUNT(*) >= ALL (SELECT COUNT(*) FROM t GROUP BY symbol)",
            "SELECT symbol, COUNT(*) AS n FROM t GROUP BY symbol "
            "HAVING NOT COUNT(*) < ANY (SELECT COUNT(*) FROM t GROUP BY symbol)",
        ),
    ),
    "groups whose aggregates are compared with rows": Family(
        Cost.PRODUCT,
        (
            "SELECT symbol FROM t GROUP BY symbol HAVING MAX(price) >= ALL (SELECT price FROM t x)",
            "SELECT symbol, SUM(size) > ANY (SELECT x.id FROM t x) AS c FROM t GROUP BY symbol",
            "SELECT side FROM t GROUP BY side "
            "HAVING MIN(price) IN (SELECT MAX(price) FROM t GROUP BY symbol)",
            "SELECT MAX(size) NOT IN (SELECT x.id FROM t x) AS c, COUNT(*) AS n FROM t",
        ),
    ),
    # Rows without a price are looked at one by one where there are fewer others.
    "first rows by their key": Family(
        Cost.GROUPS,
        (
            "SELECT symbol, price FROM t WHERE id IN (SELECT id FROM t ORDER BY price DESC, id LIMIT 3)",
            "SELECT symbol, price FROM t WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER "
            "(PARTITION BY symbol ORDER BY ts DESC, id) AS n FROM t WHERE side = 'sell') r WHERE n <= 2)",
            "SELECT x.symbol, x.price FROM t x JOIN (SELECT id, ROW_NUMBER() OVER "
            "(PARTITION BY symbol ORDER BY ts DESC, id DESC) AS n FROM t) r USING (id) WHERE n <= 2",
            "SELECT SUM(size) AS s FROM t x WHERE EXISTS (SELECT 1 FROM (SELECT id, side FROM t "
            "ORDER BY price DESC, id LIMIT 4) r WHERE r.id = x.id AND r.side = 'buy')",
        ),
    ),
    "what a quantity costs": Family(
        Cost.ROWS,
        (
            f"SELECT SUM(price * LEAST(size, 4 - (up_to - size))) AS c FROM ({_RUNNING}) d "
            "WHERE up_to - size < 4",
            f"SELECT SUM(price * CASE WHEN up_to <= 4 THEN size ELSE 4 - (up_to - size) END) AS c "
            f"FROM ({_RUNNING}) d WHERE up_to - size < 4",
            f"SELECT SUM(price * size) AS c, COUNT(*) AS n FROM ({_RUNNING}) d WHERE up_to <= 5",
        ),
    ),
}


def row(generator: random.Random, id: int, schema: str) -> Row:
    """A row with this key; ties in all other columns are frequent."""
    checked = schema in ("declared", "nullable")
    size = generator.randrange(4) if checked or generator.random() < 0.9 else -generator.randrange(1, 3)
    price = Decimal(generator.randrange(8)) / 4
    values = (
        generator.choice(("A", "B", "A")),
        generator.choice(("buy", "sell", "sell")),
        generator.randrange(6),
        *((float(price), float(size)) if schema == "doubles" else (price, size)),
    )
    return (id, *(None if schema != "declared" and generator.random() < 0.2 else v for v in values))


def text(name: str, schema: str) -> str:
    """Declarations, and a view for each spelling."""
    views = (f"CREATE VIEW v{i} AS {s};" for i, s in enumerate(FAMILIES[name].spellings))
    return "\n".join((SCHEMAS[schema], *views))


def check(name: str, schema: str, seed: int, length: int, kinds: Sequence[RuntimeKind]) -> None:
    """Raises AssertionError where a view differs from DuckDB after an event, or an entry is left over."""
    sql, views = text(name, schema), [f"v{i}" for i in range(len(FAMILIES[name].spellings))]
    program = compiled(sql)
    oracle, runtimes = Oracle(sql, few_rows=True), [kind(program) for kind in kinds]
    at_first = [[r.map_sizes()[m.name] for m in program.maps] for r in runtimes]
    done = []
    made = partial(row, schema=schema)
    for event in events(random.Random(seed), length, made, key=0):
        for insert, values in event:
            (oracle.insert if insert else oracle.delete)("t", values)
            for runtime in runtimes:
                runtime.change("t", insert, values)
        done.append(event)
        for view in views:
            expected = oracle.rows(view)
            for runtime in runtimes:
                wrong = difference(expected, runtime.rows(view))
                assert wrong is None, f"{view} of {name}, {schema}, after {done}: {wrong}"
    assert [[r.map_sizes()[m.name] for m in program.maps] for r in runtimes] == at_first, name


def costs(name: str, schema: str) -> dict[str, Cost]:
    """What an event costs by each spelling."""
    found = {}
    for spelling in FAMILIES[name].spellings:
        made = plan(compiled(f"{SCHEMAS[schema]} CREATE VIEW v AS {spelling}"))
        found[spelling] = max(statement_cost(made, s) for t in made.triggers for s in t.statements)
    return found


def cases() -> list[tuple[str, str]]:
    """Each family with each of its schemas."""
    return [(name, schema) for name, family in FAMILIES.items() for schema in family.schemas]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--part", default="0/1", help="every n-th case, from the k-th on, as k/n")
    given = parser.parse_args()
    first, parts = map(int, given.part.split("/"))
    failures = 0
    for name, schema in cases()[first::parts]:
        if given.names and name not in given.names:
            continue
        try:
            for seed in range(given.seed, given.seed + given.seeds):
                check(name, schema, seed, given.length, [GeneratedRuntime])
        except Exception as error:
            failures += 1
            print(f"{name}, {schema}: {type(error).__name__}: {str(error)[-600:]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
