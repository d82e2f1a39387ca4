"""More views of the catalogue: cuts over columns of few values, which are answered by dense stores."""

LADDER = """
CREATE STREAM ladder (symbol TEXT NOT NULL, price DECIMAL(4, 1) NOT NULL CHECK (price BETWEEN 9.5 AND 40),
                      volume INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 1000)) WITH (max_rows = 1000);
CREATE STREAM loose (price SMALLINT CHECK (price BETWEEN 0 AND 50),
                     volume SMALLINT NOT NULL CHECK (volume >= 0)) WITH (max_rows = 1000);
"""

_VWAP = (
    "SELECT {keys} SUM(b.price * b.volume) / SUM(b.volume) AS vwap FROM ladder b WHERE {share} * (SELECT "
    "SUM(t.volume) FROM ladder t {of_all}) {op} (SELECT COALESCE(SUM(x.volume), 0) FROM ladder x WHERE "
    "x.price {side} b.price {of_rest}) {group}"
)
_ALL = {"keys": "", "of_all": "", "of_rest": "", "group": ""}
_BY_SYMBOL = {
    "keys": "b.symbol,",
    "of_all": "WHERE t.symbol = b.symbol",
    "of_rest": "AND x.symbol = b.symbol",
    "group": "GROUP BY b.symbol",
}


def _vwap(keys: dict[str, str], op: str, side: str, share: str = "0.25") -> str:
    return _VWAP.format(**keys, op=op, side=side, share=share)


def _band(table: str, side: str, outer: str, inner: str) -> str:
    """What lies between two shares of the volume; nothing where they are turned."""
    above = f"(SELECT COALESCE(SUM(x.volume), 0) FROM {table} x WHERE x.price {side} b.price)"
    total = f"(SELECT SUM(volume) FROM {table})"
    return (
        f"SELECT SUM(b.price * b.volume) AS v, COUNT(*) AS n FROM {table} b "
        f"WHERE {outer} * {total} > {above} AND {inner} * {total} <= {above}"
    )


DENSE = {
    "dense_vwap": _vwap(_ALL, ">", ">"),
    "dense_vwap_upwards": _vwap(_ALL, ">=", "<"),
    "dense_vwap_inclusive": _vwap(_ALL, ">=", ">="),
    "dense_vwap_of_the_worst": _vwap(_ALL, "<", ">"),
    "dense_vwap_by_symbol": _vwap(_BY_SYMBOL, ">", ">"),
    "dense_vwap_by_symbol_inclusive": _vwap(_BY_SYMBOL, ">", "<="),
    "dense_two_cuts": "CREATE VIEW near AS {}; CREATE VIEW far AS {}".format(
        _vwap(_BY_SYMBOL, ">", ">"), _vwap(_BY_SYMBOL, ">", ">", "0.6")
    ),
    "dense_both_ways": "CREATE VIEW down AS {}; CREATE VIEW up AS {}".format(
        _vwap(_ALL, ">", ">"), _vwap(_ALL, ">", "<")
    ),
    "dense_vwap_and_best": "CREATE VIEW best AS SELECT MAX(price) AS p FROM ladder; CREATE VIEW cut AS "
    + _vwap(_ALL, ">", ">"),
    "dense_band": _band("ladder", ">", "0.6", "0.2"),
    "dense_band_turned": _band("ladder", "<", "0.2", "0.6"),
    "loose_band": _band("loose", ">", "0.7", "0.25"),
    "loose_band_upwards": _band("loose", "<", "0.7", "0.25"),
    "loose_band_turned": _band("loose", ">", "0.25", "0.7"),
    "loose_vwap": "SELECT SUM(b.price * b.volume) AS v FROM loose b WHERE 0.5 * (SELECT SUM(volume) FROM "
    "loose) > (SELECT COALESCE(SUM(x.volume), 0) FROM loose x WHERE x.price > b.price)",
}
