"""More views of the catalogue: cuts, ranges and first rows by columns that may be NULL, of many NULLs."""

from decimal import Decimal

NULLS = """
CREATE STREAM n (symbol TEXT, id BIGINT, price BIGINT, volume BIGINT CHECK (volume >= 0));
CREATE STREAM o (symbol TEXT, price BIGINT, volume BIGINT CHECK (volume >= 0));
CREATE STREAM nd (price DOUBLE, size DECIMAL(18, 8), volume BIGINT CHECK (volume >= 0));
CREATE STREAM narrow (price SMALLINT CHECK (price BETWEEN 0 AND 50), volume SMALLINT CHECK (volume >= 0))
    WITH (max_rows = 1000);
"""

_SIZES = (None, None, Decimal("0.00000001"), Decimal("-2.5"), Decimal("3.00000000"))
NULLS_DOMAINS = {
    "n": {
        "symbol": ("A", "B", None),
        "id": (1, 2, None),
        "price": (10, 11, 12, None, None, -5, 2**62, -(2**62)),
        "volume": (1, 2, 4, 0, None, 3),
    },
    "o": {"symbol": ("A", "B", None), "price": (10, 11, None, -5), "volume": (1, 2, 0, None)},
    "nd": {"price": (0.0, -0.0, 0.5, -1.25, None, None), "size": _SIZES, "volume": (1, 2, 4, 0, None)},
    "narrow": {"price": (0, 1, 17, 50, None, None), "volume": (1, 2, 4, 0, None)},
}

_VWAP = (
    "SELECT {keys} {shown} AS v FROM {t} b WHERE 0.25 * (SELECT SUM(z.volume) FROM {t} z {of_all}) {op} "
    "(SELECT {above} FROM {t} x WHERE x.{p} {side} b.{p} {of_rest}) {group}"
)
_PLAIN = {
    "t": "n", "p": "price", "keys": "", "shown": "SUM(b.price * b.volume)", "of_all": "", "op": ">",
    "above": "COALESCE(SUM(x.volume), 0)", "side": ">", "of_rest": "", "group": "",
}  # fmt: skip
_BY_SYMBOL = {
    "keys": "b.symbol,", "of_all": "WHERE z.symbol = b.symbol", "of_rest": "AND x.symbol = b.symbol",
    "group": "GROUP BY b.symbol",
}  # fmt: skip


def _vwap(**options: str) -> str:
    return _VWAP.format(**{**_PLAIN, **options})


NULL_VIEWS = {
    "null_vwap": _vwap(),
    # Rows without a price have nothing above them, so they count.
    "null_vwap_of_volume": _vwap(shown="SUM(b.volume)"),
    "null_vwap_upwards": _vwap(shown="COUNT(*)", op=">=", side="<"),
    "null_vwap_of_the_worst": _vwap(shown="SUM(b.volume)", op="<", side=">="),
    "null_vwap_strict": _vwap(shown="SUM(b.volume)", above="SUM(x.volume)"),
    "null_vwap_by_symbol": _vwap(**_BY_SYMBOL),
    "null_vwap_of_volume_by_symbol": _vwap(**_BY_SYMBOL, shown="SUM(b.volume)"),
    "null_vwap_by_double": _vwap(t="nd", shown="SUM(b.volume)"),
    "null_vwap_by_decimal": _vwap(t="nd", p="size", shown="SUM(b.size * b.volume)"),
    # All rows are above the limit, and the cut ends at the first.
    "null_vwap_worst_of_all": _vwap(t="nd", p="size", shown="MIN(b.size)").replace("0.25", "1.5"),
    "null_vwap_dense": _vwap(t="narrow"),
    "null_vwap_dense_by_volume": _vwap(t="narrow", shown="SUM(b.volume)"),
    "null_beside_doubles": "SELECT volume, price AS p FROM nd UNION ALL SELECT volume, NULL AS p FROM nd "
    "UNION ALL SELECT volume, volume / 3 AS p FROM nd",
    "null_of_cases_of_doubles": "SELECT volume, CASE WHEN volume > 1 THEN NULL WHEN volume = 1 THEN size / 3 "
    "ELSE price END AS p, CASE WHEN price > 0 THEN price END AS q FROM nd",
    "null_beside_decimals": "SELECT volume, NULL AS p FROM nd UNION ALL SELECT volume, size AS p FROM nd",
    "null_first_rows": "SELECT price, id FROM n ORDER BY price DESC, id LIMIT 3",
    "null_first_rows_upwards": "SELECT price, volume FROM n ORDER BY price, volume DESC LIMIT 2 OFFSET 1",
    "null_first_rows_nulls_first": "SELECT price, id FROM n ORDER BY price DESC NULLS FIRST, id LIMIT 3",
    "null_first_rows_nulls_first_twice": "SELECT id, price, volume FROM n "
    "ORDER BY price NULLS FIRST, volume DESC NULLS FIRST LIMIT 2 OFFSET 1",
    "null_first_rows_by_double_nulls_first": "SELECT price FROM nd "
    "ORDER BY price NULLS FIRST LIMIT 3 OFFSET 1",
    "null_first_of_groups_nulls_first": "SELECT symbol, price, id FROM n QUALIFY ROW_NUMBER() OVER "
    "(PARTITION BY symbol ORDER BY price DESC NULLS FIRST, id DESC NULLS FIRST) <= 2",
    "null_first_rows_by_double": "SELECT price, size FROM nd ORDER BY price, size DESC LIMIT 3",
    "null_first_of_groups": "SELECT symbol, price FROM n QUALIFY "
    "ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) <= 2",
    "null_levels": "SELECT symbol, price, SUM(volume) AS v, "
    "ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC) AS level FROM n GROUP BY symbol, price "
    "QUALIFY level <= 2",
    "null_first_sums": "SELECT symbol, SUM(id) AS s FROM n GROUP BY symbol ORDER BY s DESC, symbol LIMIT 2",
    "null_first_sums_nulls_first": "SELECT volume, SUM(id) AS s FROM n GROUP BY volume "
    "ORDER BY s NULLS FIRST, volume DESC NULLS FIRST LIMIT 2 OFFSET 1",
    "null_first_wide_sums": "SELECT id, SUM(price * volume) AS s FROM n GROUP BY id ORDER BY s, id LIMIT 2",
    "null_first_sums_of_doubles": "SELECT volume, SUM(price) AS s, COUNT(*) AS c FROM nd GROUP BY volume "
    "ORDER BY s DESC, volume LIMIT 2",
    "null_first_quotients_of_doubles": "SELECT volume, SUM(price) / COUNT(price) AS q FROM nd "
    "GROUP BY volume ORDER BY q NULLS FIRST, volume LIMIT 2",
    "null_first_sums_of_partitions": "SELECT symbol, id, SUM(volume) AS s FROM n GROUP BY symbol, id QUALIFY "
    "ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY s DESC, id) <= 1",
    "null_first_ranks_of_sums": "SELECT volume, SUM(price) AS s FROM nd GROUP BY volume "
    "QUALIFY RANK() OVER (ORDER BY s DESC) <= 2",
    "null_first_extremes": "SELECT symbol, MAX(price) AS m FROM n GROUP BY symbol ORDER BY m, symbol LIMIT 2",
    "null_first_differences_of_extremes": "SELECT volume, MAX(price) - MIN(price) AS m FROM nd "
    "GROUP BY volume ORDER BY m DESC, volume LIMIT 2",
    "null_first_by_what_is_first": "SELECT id, ARG_MAX(volume * 2, volume) AS m FROM n GROUP BY id "
    "ORDER BY m DESC, id LIMIT 2",
    "null_ranks_of_sums": "SELECT volume, RANK() OVER (ORDER BY SUM(price) DESC) AS k, "
    "RANK() OVER (ORDER BY MIN(size)) AS d FROM nd GROUP BY volume",
    "null_groups_above": "SELECT COUNT(*) AS c, SUM(s) AS t FROM (SELECT volume, SUM(price) AS s FROM nd "
    "GROUP BY volume) g WHERE s > (SELECT AVG(price) FROM nd)",
    "null_distinct_on": "SELECT DISTINCT ON (symbol) symbol, price FROM n ORDER BY symbol, price DESC",
    "null_one": "SELECT (SELECT price FROM n ORDER BY volume DESC, price LIMIT 1) AS p",
    "null_all": "SELECT id FROM n WHERE price > ALL (SELECT price FROM o)",
    "null_any": "SELECT id, volume FROM n WHERE price <= ANY (SELECT price FROM o WHERE o.volume > 1)",
    "null_rank": "SELECT symbol, price, RANK() OVER (PARTITION BY symbol ORDER BY price DESC) AS k FROM n",
}
