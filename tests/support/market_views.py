"""The views of views/market and views/surveillance, in DuckDB too, and random streams of what they read.

Streams insert, delete and update rows: two venues and two symbols, trades and quotes with numbers.
As a script, generated code is compared with the interpreter for the views of views/surveillance, or for
every n-th from the k-th on, given as k/n.
"""

import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path

from first_week import UNITS, plain
from fuzz import Change, InterpreterRuntime
from generated_runner import GeneratedRuntime
from kept_programs import kept_program
from oracle import Oracle, Row, difference
from paths import VIEWS

from orderbook.views.compilation import compile_views
from orderbook.views.library import (
    described,
    shipped_file,
    shipped_that_declares,
    shipped_views,
    text_of,
    with_read,
)
from orderbook.views.m3 import Program
from orderbook.views.types import Parameter

SECOND = 10**9
START = 1_700_000_000 * SECOND
# Where a default is too much for some tens of rows.
SMALL: Mapping[str, Parameter] = {
    "bar_volume": 10, "vpin_bars": 3, "levels": 2, "slope_levels": 3, "size": 4, "bar": "20 seconds",
    "step": "10 seconds", "distance_bps": 60, "reach_bps": 80, "spot_venue": "X", "spot_symbol": "A",
    "futures_venue": "Y", "futures_symbol": "A", "queue_step": 2, "level_bps": 30,
    "spoof_value": 50, "spoof_share": 0.1, "spoof_bps": 1000, "spoof_life": "80 seconds",
    "layer_window": "200 seconds", "layer_life": "200 seconds", "layer_order_value": 1, "layers": 1,
    "layer_value": 50, "layer_ratio": 0.1, "layer_leave": "200 seconds", "spoof_ratio": 0.1,
    "spoof_leave": "80 seconds", "filled_within": "90 seconds", "wash_net": 1,
    "flip_value": 50, "flip_bps": 1000, "flip_life": "80 seconds", "flip_delay": "60 seconds",
    "flip_share": 0.1,
    "stuffing_window": "20 seconds", "stuffing_events": 2, "stuffing_trades": 0.5,
    "ping_life": "100 seconds", "ping_value": 500, "pings": 1, "ping_window": "20 seconds",
    "iceberg_window": "1000 seconds", "iceberg_ratio": 0.3, "iceberg_fills": 1, "iceberg_refills": 0,
    "iceberg_delay": "90 seconds", "wash_window": "1000 seconds",
    "wash_rounds": 1, "wash_value": 100, "ignition_window": "10 seconds", "ignition_bps": 1,
    "ignition_back": 0.1, "ignition_trades": 1, "ignition_sided": 0.1, "close_at": "23 hours",
    "close_window": "60 minutes", "close_bps": 1, "close_sided": 0.1,
}  # fmt: skip


@cache
def files(name: str) -> list[Path]:
    """A file of the library and those that it reads."""
    return with_read([shipped_file(name)], shipped_that_declares)


def parameters(name: str, given: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Those of a file and of what it reads."""
    known = {one.name: one.default for file in files(name) for one in described(file).parameters}
    return {**known, **{key: value for key, value in given.items() if key in known}}


def compiled(name: str, given: Mapping[str, Parameter] = SMALL) -> Program:
    """The program of a view that ships, compiled once."""
    return kept_program(name, tuple(parameters(name, given).items()))


def oracle(name: str, given: Mapping[str, Parameter] = SMALL) -> Oracle:
    """The same views in DuckDB, where times are integers of ns."""
    values = parameters(name, given)

    def length(match: re.Match[str]) -> str:
        count, unit = str(values[match[1]]).split()
        return str(int(count) * UNITS[unit.removesuffix("s")])

    # Views after those that they read.
    sql = "\n".join(re.sub(r"CREATE PARAMETER[^;]*;", "", text_of(file)) for file in reversed(files(name)))
    sql = re.sub(r"INTERVAL :(\w+)", length, sql)
    return Oracle(text_of(VIEWS / "schema.sql") + plain(sql), values, few_rows=True)


def check_generated(name: str) -> None:
    """Generated code has the interpreter's rows after every event, and nothing is left of deleted rows.

    Of a stream that shows something.
    """
    _check([name.rpartition("/")[2]], compiled(name), name, length_of(name))


def check_together(names: Sequence[str]) -> None:
    """The same of several views in one program, whose triggers are divided by them."""
    given = {key: value for name in names for key, value in parameters(name, SMALL).items()}
    program = compile_views(list(names), given).program
    _check([name.rpartition("/")[2] for name in names], program, " ".join(names), 400)


def _check(views: Sequence[str], program: Program, name: str, length: int) -> None:
    interpreter, generated = InterpreterRuntime(program), GeneratedRuntime(program)
    at_first, shown = generated.map_sizes(), set[str]()
    for seed in range(6):
        if len(shown) == len(views):
            break
        for event in events(program, random.Random(f"{name} {seed}"), length):
            for change in event:
                interpreter.change(*change)
                generated.change(*change)
            for view in views:
                rows = interpreter.rows(view)
                shown |= {view} if rows else set()
                wrong = difference(rows, generated.rows(view))
                assert wrong is None, f"{view} of {name} after {event}: {wrong}"
        assert generated.map_sizes() == at_first
    assert len(shown) == len(views), f"{name}: only {sorted(shown)} show anything"


def length_of(name: str) -> int:
    """Events of a stream after which a view has shown something: a detector's rows are rare."""
    return 120 if name.startswith("surveillance/") else 60


def _some(*values: object) -> Callable[[random.Random], object]:
    return lambda generator: generator.choice(values)


def _decimals(*texts: str) -> Callable[[random.Random], object]:
    return _some(*map(Decimal, texts))


_VOLUMES = _decimals("1", "2", "2.5", "4", "10")
_COLUMNS: Mapping[str, Callable[[random.Random], object]] = {
    "venue": _some("X", "Y"), "symbol": _some("A", "A", "B"), "broker_id": _some(1, 2),
    "volume": _VOLUMES, "bid_volume": _VOLUMES, "ask_volume": _VOLUMES,
    "price": _decimals("99.00", "99.50", "100.00", "100.25", "100.50", "101.00"),
    "bid": _decimals("99.00", "99.50", "100.00", "100.25"), "ask": _decimals("100.25", "100.50", "101.00"),
    "side": _some("buy", "sell"), "state": _some("valid", "valid", "stale"), "reason": _some("none"),
}  # fmt: skip
# Of book_events, whose sides are those of orders.
_OF_EVENTS: Mapping[str, Callable[[random.Random], object]] = {
    "side": _some("bid", "ask"), "id": _some(0, 1, 2, 3), "broker_id": _some(1, 1, 1, 2),
    "reason": _some(*["order"] * 5, "trade", "late", "snapshot"),
    "action": _some("add", *["cancel"] * 3, *["execute"] * 3, "modify", "replace", "clear"),
    "price": _decimals("99.50", "100.00"), "volume": _decimals("1", "2"),
    "remaining": _decimals(*["0"] * 5, "1", "4"), "old_price": _decimals("99.00", "100.50"),
    "level_volume_ahead": _decimals("0", "1", "5"), "level_volume": _decimals("1", "4"),
}  # fmt: skip
_KEYS = {"book_states": ("venue", "symbol"), "trades": ("id",), "quotes": ("venue", "symbol", "id"),
    "book_events": ("venue", "symbol", "number"),
}  # fmt: skip


def events(program: Program, generator: random.Random, length: int) -> Iterator[list[Change]]:
    """Rows of what the program reads inserted, deleted and updated, and at last all deleted."""
    read = sorted({trigger.relation for trigger in program.triggers})
    live: dict[str, dict[object, Row]] = {name: {} for name in read}
    for _ in range(length):
        relation = program.relation(generator.choice(read))
        rows, event = live[relation.name], list[Change]()
        if rows and generator.random() < 0.4:
            event.append((relation.name, False, rows.pop(generator.choice(list(rows)))))
        if generator.random() < 0.75:
            of = _OF_EVENTS if relation.name == "book_events" else {}
            row = _row([column.name for column in relation.columns], generator, of)
            names = _KEYS.get(relation.name, ("venue", "symbol", "id", "price"))
            key = tuple(row[name] for name in names)
            if key not in rows:
                rows[key] = tuple(row.values())  # type: ignore[arg-type]
                event.append((relation.name, True, rows[key]))
        if event:
            yield event
    left = [(name, False, row) for name, rows in live.items() for row in rows.values()]
    generator.shuffle(left)
    yield from ([change] for change in left)


def _row(
    columns: list[str], generator: random.Random, of: Mapping[str, Callable[[random.Random], object]]
) -> dict[str, object]:
    number = generator.randrange(1, 60)
    row: dict[str, object] = {}
    for column in columns:
        if column == "ts":
            # No two rows of an instrument have one time, of which DuckDB's ASOF JOIN takes any.
            row[column] = START + number * 2 * SECOND
        elif column in of:
            row[column] = of[column](generator)
        elif column == "placed_at":
            row[column] = START + (number - generator.choice([0, 1, 4, 30])) * 2 * SECOND
        elif column in ("id", "mid", "number"):
            row[column] = None if column == "mid" else number
        else:
            row[column] = _COLUMNS[column](generator)
    if "bid" in row and generator.random() < 0.1:
        row.update(dict.fromkeys({"bid", "bid_volume"} & row.keys()))
    if "old_price" in row and row["action"] != "replace":
        row["old_price"] = None
    return row


if __name__ == "__main__":
    if sys.argv[1] == "together":
        check_together(["surveillance/spoofing", "surveillance/layering"])
    else:
        first, parts = map(int, sys.argv[1].split("/"))
        for shipped in [name for name in shipped_views() if name.startswith("surveillance/")][first::parts]:
            check_generated(shipped)
