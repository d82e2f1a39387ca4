"""Rows of TPC-H's tables, small and so that each predicate of the queries selects some, and a flow of orders.

Values are those of the specification's section 4.2 where a query asks for them, more often than there; texts
that no query reads are short.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind

from .programs import insert_kind

NAMES = tuple(f"q{n}" for n in range(1, 23))
# A day in ns, and the first day of an order.
_DAY, _FIRST = 86_400 * 10**9, int(datetime.datetime(1992, 1, 1, tzinfo=datetime.UTC).timestamp()) * 10**9
_DAYS = 2_400
_NATIONS = (
    *("ALGERIA", "ARGENTINA", "BRAZIL", "CANADA", "EGYPT", "ETHIOPIA", "FRANCE", "GERMANY", "INDIA"),
    *("INDONESIA", "IRAN", "IRAQ", "JAPAN", "JORDAN", "KENYA", "MOROCCO", "MOZAMBIQUE", "PERU", "CHINA"),
    *("ROMANIA", "SAUDI ARABIA", "VIETNAM", "RUSSIA", "UNITED KINGDOM", "UNITED STATES"),
)
_REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_SEGMENTS = ("BUILDING", "AUTOMOBILE", "MACHINERY", "HOUSEHOLD", "FURNITURE")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45", "Brand#51")
_TYPES = ("ECONOMY ANODIZED STEEL", "PROMO BURNISHED COPPER", "LARGE PLATED BRASS", "MEDIUM POLISHED TIN")
_CONTAINERS = ("SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG BOX", "JUMBO JAR")
_MODES = ("AIR", "AIR REG", "MAIL", "SHIP", "TRUCK", "RAIL", "FOB")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")

# A row as SQL has it: integers, DECIMALs as integers of their last place, times in ns, texts.
Row = tuple[int | str, ...]


@cache
def texts() -> Mapping[str, str]:
    """The schema, and each query, by name."""
    whole = (Path(__file__).parent / "tpch.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (schema|q\d+)\n", whole, flags=re.M)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def view(name: str) -> str:
    """The declarations and one query as a view of its name."""
    return f"{texts()['schema']}\nCREATE VIEW {name} AS {texts()[name]}"


def tables(customers: int, generator: np.random.Generator) -> dict[str, list[Row]]:
    """Rows of all tables but orders and lineitem, for so many customers."""

    def of(values: Sequence[str]) -> str:
        return values[int(generator.integers(len(values)))]

    def number(low: int, high: int) -> int:
        return int(generator.integers(low, high))

    def phone(nation: int) -> str:
        return f"{10 + nation}-{number(100, 1000)}"

    suppliers, parts = max(10, customers // 15), max(20, customers * 4 // 3)
    found: dict[str, list[Row]] = {
        "region": [(i, name, "-") for i, name in enumerate(_REGIONS)],
        "nation": [(i, n, _REGION_OF[i], "-") for i, n in enumerate(_NATIONS)],
        "part": [
            (
                i,
                of(("forest green", "green", "almond", "forest", "blue")),
                f"Manufacturer#{number(1, 6)}",
                of(_BRANDS),
                of(_TYPES),
                number(1, 51),
                of(_CONTAINERS),
                number(90_000, 200_000),
                "-",
            )
            for i in range(parts)
        ],
        "partsupp": [
            (i, (i + k * (suppliers // 4 + 1)) % suppliers, number(1, 10_000), number(100, 100_000), "-")
            for i in range(parts)
            for k in range(4)
        ],
    }
    found["supplier"] = []
    for i in range(suppliers):
        nation = number(0, 25)
        comment = "Customer some Complaints" if i % 20 == 0 else "-"
        found["supplier"].append(
            (i, f"Supplier#{i}", "-", nation, phone(nation), number(-99_999, 999_999), comment)
        )
    found["customer"] = []
    for i in range(customers):
        nation = number(0, 25)
        balance = number(-99_999, 999_999)
        found["customer"].append(
            (i, f"Customer#{i}", "-", nation, phone(nation), balance, of(_SEGMENTS), "-")
        )
    return found


def order(key: int, found: Mapping[str, list[Row]], generator: np.random.Generator) -> tuple[Row, list[Row]]:
    """A row of orders and its one to seven rows of lineitem; a third of customers have no orders."""
    number = generator.integers
    customers, parts = len(found["customer"]), len(found["part"])
    ordered = int(number(_DAYS))
    lines = []
    for line in range(1, 2 + int(number(7))):
        part = int(number(parts))
        supplier = int(found["partsupp"][4 * part + int(number(4))][1])
        shipped = ordered + int(number(1, 122))
        received = shipped + int(number(1, 31))
        quantity = int(number(1, 51)) * 100
        words: list[int | str] = [key, part, supplier, line, quantity, quantity * int(number(900, 2000))]
        words += [int(number(11)), int(number(9)), "R" if number(4) == 0 else "N"]
        words += ["F" if shipped < _DAYS // 2 else "O"]
        words += [_FIRST + d * _DAY for d in (shipped, ordered + int(number(30, 91)), received)]
        words += [_INSTRUCTIONS[number(4)], _MODES[number(7)], "-"]
        lines.append(tuple(words))
    customer = int(number(customers))
    customer -= customer % 3 == 0 and customer > 0
    comment = "special some requests" if number(10) == 0 else "-"
    price = sum(int(row[5]) for row in lines)
    status = "F" if number(2) else "O"
    row = (key, customer, status, price, _FIRST + ordered * _DAY, _PRIORITIES[number(5)], "-", 0, comment)
    return row, lines


def batch(program: CompiledProgram, events: Sequence[tuple[str, bool, Row]]) -> ChangeBatch:
    """Changes of the relations that a program reads, each an event and message of its own."""
    read = {t.relation for t in program.program.triggers}
    events = [e for e in events if e[0] in read]
    kinds = {name: insert_kind(program, name) for name in read}
    width = max(len(r.columns) for r in program.program.relations if r.name in read)
    values = np.zeros((len(events), width), np.int64)
    for place, (_, _, row) in enumerate(events):
        values[place, : len(row)] = [
            program.dictionary.encode(word) if isinstance(word, str) else word for word in row
        ]
    which = np.array([kinds[name] + (not insert) for name, insert, _ in events], np.int16)
    flags = np.full(len(events), CHECKED | END_OF_EVENT | END_OF_MESSAGE, np.uint8)
    return ChangeBatch(which, flags, values)


def duckdb_type(kind: Kind, scale: int) -> str:
    """The type of DuckDB's that holds a column as TPC-H has it."""
    names = {Kind.TEXT: "VARCHAR", Kind.TIMESTAMP: "TIMESTAMP", Kind.DECIMAL: f"DECIMAL(18, {scale})"}
    return names.get(kind, "BIGINT")


def columns(rows: Sequence[Row]) -> list[NDArray[np.int64] | list[str]]:
    """Rows as columns."""
    return [
        list(column) if isinstance(column[0], str) else np.array(column, np.int64)
        for column in zip(*rows, strict=True)
    ]
