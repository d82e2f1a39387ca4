"""TPC-H on a few rows: its queries, values that their predicates select, and DuckDB on the same rows."""

import datetime as dt
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache

import duckdb
from oracle import Row, SqlValue, ordered
from paths import PROJECT

from orderbook.views.m3 import Program
from orderbook.views.types import Kind

Change = tuple[str, bool, Row]
_SINCE = dt.datetime(1970, 1, 1)


@cache
def texts() -> Mapping[str, str]:
    """The schema, and each query, by name."""
    parts = re.split(r"^-- (schema|q\d+)\n", (PROJECT / "benchmarks" / "tpch.sql").read_text(), flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def view(name: str, keys: bool) -> str:
    """The declarations, with primary keys or without, and a query as a view of its name."""
    schema = texts()["schema"]
    if not keys:
        schema = re.sub(r",\s*PRIMARY KEY \([^)]*\)", "", schema)
    return f"{schema}\nCREATE VIEW {name} AS {texts()[name]}"


def _days(*days: str) -> tuple[int, ...]:
    return tuple(int((dt.datetime.fromisoformat(d) - _SINCE).total_seconds()) * 10**9 for d in days)


def _prices(*amounts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, amounts))


# What columns take in any query; others are `-`, or 1.
_VALUES: Mapping[str, Sequence[SqlValue]] = {
    **dict.fromkeys(("p_partkey", "s_suppkey", "ps_partkey", "ps_suppkey", "c_custkey"), (1, 2, 3)),
    **dict.fromkeys(("l_partkey", "l_suppkey", "l_linenumber", "o_custkey"), (1, 2, 3)),
    **dict.fromkeys(("o_orderkey", "l_orderkey"), (1, 2, 3, 4)),
    **dict.fromkeys(("n_nationkey", "n_regionkey", "r_regionkey", "s_nationkey", "c_nationkey"), (1, 2)),
    "p_name": ("green x", "forest y"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#34"),
    "p_type": ("ECONOMY ANODIZED STEEL", "LARGE BRASS", "PROMO BRASS"),
    "p_size": (15, 3, 1, 9),
    "p_container": ("SM CASE", "MED BOX", "LG CASE"),
    "s_name": ("s1", "s2"),
    "s_acctbal": _prices("1.50", "2.50"),
    "s_comment": ("-", "Customer bad Complaints"),
    "ps_availqty": (1, 5, 20),
    "ps_supplycost": _prices("1.00", "2.00"),
    "c_name": ("n1", "n2"),
    "c_phone": ("13-1", "31-2", "99-1"),
    "c_acctbal": _prices("-1.00", "5.00", "7.00"),
    "c_mktsegment": ("BUILDING", "BUILDING", "OTHER"),
    "o_orderstatus": ("F", "F", "O"),
    "o_totalprice": _prices("10.00", "20.00"),
    "o_orderdate": _days("1993-07-02", "1993-10-05", "1994-03-01", "1995-02-01", "1996-05-01"),
    "o_orderpriority": ("1-URGENT", "3-LOW"),
    "o_shippriority": (0, 1),
    "o_comment": ("-", "special x requests"),
    "l_quantity": _prices("5.00", "15.00", "200.00"),
    "l_extendedprice": _prices("10.00", "20.00", "30.00"),
    "l_discount": _prices("0.00", "0.06", "0.10"),
    "l_tax": _prices("0.02"),
    "l_returnflag": ("R", "A"),
    "l_shipdate": _days("1994-02-01", "1995-04-01", "1995-09-05", "1996-02-01"),
    "l_commitdate": _days("1994-03-01", "1995-05-01"),
    "l_receiptdate": _days("1994-04-01", "1994-02-02", "1996-05-06"),
    "l_shipinstruct": ("DELIVER IN PERSON",),
    "l_shipmode": ("AIR", "MAIL", "SHIP"),
    "n_name": ("FRANCE", "GERMANY"),
    "r_name": ("EUROPE", "ASIA", "AMERICA"),
}
# What makes a query select more.
_OF_QUERY: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "q2": {"r_name": ("EUROPE",), "p_size": (15,), "p_type": ("A BRASS",)},
    "q3": {
        "o_orderdate": _days("1995-02-01", "1995-03-01", "1995-04-01"),
        "l_shipdate": _days("1995-04-01", "1995-05-01", "1995-02-01"),
    },
    "q4": {"o_orderdate": _days("1993-07-02", "1993-09-01"), "l_commitdate": _days("1994-03-01")},
    "q5": {"r_name": ("ASIA",), "c_nationkey": (1,), "o_orderdate": _days("1994-02-01", "1994-03-01")},
    "q7": {"l_shipdate": _days("1995-10-01", "1996-12-01")},
    "q8": {
        "r_name": ("AMERICA",),
        "n_name": ("BRAZIL", "PERU"),
        "p_type": ("ECONOMY ANODIZED STEEL",),
        "o_orderdate": _days("1995-10-01", "1996-12-01", "1997-04-01"),
    },
    "q9": {"p_name": ("green x",), **dict.fromkeys(("l_suppkey", "ps_suppkey"), (1, 2))},
    "q10": {"o_orderdate": _days("1993-10-01", "1993-12-01", "1995-04-01")},
    "q11": {"n_name": ("GERMANY",)},
    "q12": {
        "l_shipdate": _days("1994-02-01"),
        "l_commitdate": _days("1994-03-01"),
        "l_shipmode": ("MAIL", "SHIP"),
    },
    "q15": {"l_shipdate": _days("1996-02-01", "1996-03-01")},
    "q17": {"p_brand": ("Brand#23",), "p_container": ("MED BOX",), "l_partkey": (1, 2)},
    "q18": {"l_quantity": _prices("200.00", "150.00")},
    "q19": {
        "p_brand": ("Brand#12",),
        "p_container": ("SM CASE",),
        "p_size": (3, 4),
        "l_quantity": _prices("5.00", "8.00"),
        "l_shipmode": ("AIR",),
    },
    "q20": {
        "n_name": ("CANADA",),
        "p_name": ("forest y",),
        "l_shipdate": _days("1994-02-01"),
        "l_quantity": _prices("5.00"),
        **dict.fromkeys(("l_suppkey", "ps_suppkey", "l_partkey", "ps_partkey"), (1, 2)),
    },
    "q21": {
        "n_name": ("SAUDI ARABIA",),
        "l_commitdate": _days("1994-03-01"),
        "l_receiptdate": _days("1994-04-01", "1994-02-02", "1994-02-03"),
        "o_orderstatus": ("F",),
        **dict.fromkeys(("o_orderkey", "l_orderkey"), (1, 2)),
    },
}
# By what a query with a limit orders its rows; others may be any of those that are equal in it.
ORDERED_BY = {"q2": (0, 2, 1, 3), "q3": (1, 2), "q10": (2,), "q18": (4, 3), "q21": (1, 0)}
_OFTEN = {"lineitem": 5, "orders": 3}


def read_by(program: Program) -> list[str]:
    """The relations that a program reads, in the order of their declarations."""
    read = {t.relation for t in program.triggers}
    return [r.name for r in program.relations if r.name in read]


def changes(name: str, program: Program, keys: bool, count: int, seed: int) -> Iterator[Change]:
    """Rows that come, change and go, small tables first, and at last all that are left; keys are kept."""
    choose = random.Random(f"{name} {keys} {seed}")
    relations = {n: program.relation(n) for n in read_by(program)}
    live: dict[str, dict[object, Row]] = {n: {} for n in relations}
    values = {**_VALUES, **_OF_QUERY.get(name, {})}
    small = [(n, k) for k in range(3) for n in relations if n not in _OFTEN]
    weights = [_OFTEN.get(n, 1) for n in relations]
    for place in range(count):
        beginning = place < len(small)
        relation = small[place][0] if beginning else choose.choices(list(relations), weights)[0]
        rows, columns = live[relation], relations[relation].columns
        if not beginning and rows and choose.random() < 0.2:
            yield relation, False, rows.pop(choose.choice(list(rows)))
            continue
        row = tuple(
            choose.choice(values.get(c.name, ("-",) if c.type.kind is Kind.TEXT else (1,))) for c in columns
        )
        if beginning:
            # Keys in turn, so that other rows find them.
            keys_of = values[columns[0].name]
            row = (keys_of[small[place][1] % len(keys_of)], *row[1:])
        own = [v for v, c in zip(row, columns, strict=True) if c.name in relations[relation].primary_key]
        key: object = tuple(own) if own else place
        if key in rows:
            yield relation, False, rows.pop(key)
        rows[key] = row
        yield relation, True, row
    left = [(n, False, row) for n, rows in live.items() for row in rows.values()]
    choose.shuffle(left)
    yield from left


class TpchOracle:
    """DuckDB with the tables that a program reads, their times as timestamps, and one query."""

    def __init__(self, name: str, program: Program):
        self._connection = duckdb.connect(config={"threads": 1})
        self._times: dict[str, list[bool]] = {}
        types = {Kind.TEXT: "VARCHAR", Kind.TIMESTAMP: "TIMESTAMP", Kind.INTEGER: "HUGEINT"}
        for relation in map(program.relation, read_by(program)):
            kinds = [(c.name, c.type) for c in relation.columns]
            columns = (f"{n} {types.get(k.kind, f'DECIMAL(38, {k.scale})')}" for n, k in kinds)
            self._connection.execute(f"CREATE TABLE {relation.name} ({', '.join(columns)})")
            self._times[relation.name] = [k.kind is Kind.TIMESTAMP for _, k in kinds]
        self._query = texts()[name]
        self._unlimited = re.sub(r"\nLIMIT \d+$", "", self._query)

    def change(self, relation: str, insert: bool, row: Row) -> None:
        values = [
            _SINCE + dt.timedelta(microseconds=int(v) // 1000) if time and v is not None else v
            for v, time in zip(row, self._times[relation], strict=True)
        ]
        if insert:
            self._connection.execute(f"INSERT INTO {relation} VALUES ({', '.join('?' * len(row))})", values)
            return
        names = [c[0] for c in self._connection.execute(f"SELECT * FROM {relation} LIMIT 0").description]
        same = " AND ".join(f"{n} IS NOT DISTINCT FROM ?" for n in names)
        self._connection.execute(
            f"DELETE FROM {relation} WHERE rowid = (SELECT MIN(rowid) FROM {relation} WHERE {same})", values
        )

    def rows(self) -> list[Row]:
        """The query's rows, sorted."""
        return self._rows(self._query)

    def unlimited_rows(self) -> list[Row]:
        """What they are of, without a limit."""
        return self._rows(self._unlimited)

    def _rows(self, query: str) -> list[Row]:
        found = self._connection.execute(query).fetchall()
        return ordered([tuple(map(_sql_value, row)) for row in found])


def _sql_value(value: object) -> SqlValue:
    if isinstance(value, dt.datetime):
        return (value - _SINCE) // dt.timedelta(microseconds=1) * 1000
    assert value is None or isinstance(value, int | float | str | Decimal)
    return None if value != value else value
