"""Programs as single stages, streams of versioned changes, and what an engine says of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.engine.distribution.blocks import VERSION, Block
from orderbook.engine.distribution.stage_runner import Granularity, History, StageRunner
from orderbook.engine.distribution.stages import Input, Output, Phase, Stage
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.live_view import view_layout
from orderbook.views.encoding.rows import encode_row
from orderbook.views.program import CompiledProgram

SQL = """
CREATE STREAM t (g TEXT NOT NULL, x DECIMAL(12, 2) NOT NULL, d DOUBLE, big BIGINT NOT NULL);
CREATE STREAM u (g TEXT, y INTEGER NOT NULL);
CREATE VIEW sums AS SELECT g, SUM(x) AS s, SUM(d) AS e, COUNT(*) AS n, AVG(x) AS a FROM t GROUP BY g;
CREATE VIEW most AS SELECT MAX(x) AS m, COUNT(*) AS n FROM t;
CREATE VIEW pairs AS SELECT u.g, t.x, u.y FROM t JOIN u ON t.g = u.g;
CREATE VIEW shares AS SELECT g, SUM(x) / (SELECT SUM(x) FROM t) AS part FROM t GROUP BY g;
CREATE VIEW squares AS SELECT g, SUM(big * big) AS q FROM t GROUP BY g;
"""
VIEWS = ("sums", "most", "pairs", "shares", "squares")
# Outputs whose rows fit 64 bits.
OUTPUTS = ("sums", "most", "pairs")
_T_ROWS = [
    {"g": g, "x": Decimal(x), "d": d, "big": big}
    for g in ("a", "b", "ü")
    for x, d, big in (("0.25", 0.5, 7), ("1.50", None, 10**18), ("-2.00", -0.25, -3), ("1.50", 0.75, 2**62))
]
_U_ROWS: list[dict[str, Any]] = [{"g": g, "y": y} for g in ("a", "b", None) for y in (0, 5)]
ROWS: dict[str, list[dict[str, Any]]] = {"t": _T_ROWS, "u": _U_ROWS}
Entry = tuple[tuple[int, int, int], str, tuple[Any, ...], Any]


@cache
def program() -> CompiledProgram:
    return orderbook.compile(SQL)


def single_stage() -> Stage:
    """The whole program as one stage."""
    inputs = tuple(
        Input(r.name, r.name, Phase.BEFORE, tuple(range(len(r.columns))), ()) for r in program().relations
    )
    outputs = tuple(Output(f"{view} rows", view, partial=False) for view in OUTPUTS)
    return Stage(1, (), program().program, inputs, outputs, VIEWS)


@dataclass(frozen=True)
class Stream:
    """Changes in order: VERSION[n], kinds by relation, rows as codes."""

    versions: np.ndarray
    kinds: np.ndarray
    values: np.ndarray

    def batch(self) -> ChangeBatch:
        """As an engine takes them."""
        flags = np.zeros(len(self.kinds), np.uint8)
        for i, one in enumerate(self.versions):
            after = self.versions[i + 1] if i + 1 < len(self.versions) else None
            if after is None or any(after[f] != one[f] for f in ("stamp", "switch", "sequence")):
                flags[i] |= END_OF_EVENT
            if after is None or any(after[f] != one[f] for f in ("stamp", "switch", "last")):
                flags[i] |= END_OF_MESSAGE
        return ChangeBatch(self.kinds, flags, self.values)

    def blocks(self, start: int, end: int) -> list[Block]:
        """Changes start … end - 1, a block for each relation."""
        found = []
        for index in range(len(program().relations)):
            places = np.flatnonzero(self.kinds >> 1 == index)
            places = places[(places >= start) & (places < end)]
            relation = program().relations[index]
            values = self.values[places, : len(relation.columns)]
            found.append(Block(relation.name, self.versions[places], self.kinds[places] % 2 == 1, values))
        return [block for block in found if len(block)]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Messages of events of two sources; every delete names a row that is there."""
    held: dict[str, list[int]] = {"t": [], "u": []}
    stamp, counts = 100, [0, 0]
    versions: list[tuple[int, ...]] = []
    changes: list[tuple[str, bool, int]] = []
    for _ in range(draw(st.integers(0, 8))):
        step, switch = draw(st.integers(0, 3)), draw(st.integers(0, 1))
        # At one stamp, switches come in their order.
        if step == 0 and versions and switch < versions[-1][1]:
            step = 1
        stamp += step
        events = draw(st.integers(1, 3))
        last = counts[switch] + events
        for _ in range(events):
            counts[switch] += 1
            for part, change in enumerate(draw(_events(held))):
                versions.append((stamp, switch, part, counts[switch], last))
                changes.append(change)
    return _stream(versions, changes)


@st.composite
def _events(draw: st.DrawFn, held: dict[str, list[int]]) -> list[tuple[str, bool, int]]:
    name = draw(st.sampled_from(["t", "t", "u"]))
    rows = held[name]
    changes = []
    how = draw(st.sampled_from(["insert", "delete", "update"]))
    if rows and how != "insert":
        changes.append((name, True, rows.pop(draw(st.integers(0, len(rows) - 1)))))
    if how != "delete" or not changes:
        row = draw(st.integers(0, len(ROWS[name]) - 1))
        rows.append(row)
        changes.append((name, False, row))
    return changes


def _stream(versions: Sequence[Any], changes: Sequence[tuple[str, bool, int]]) -> Stream:
    relations = list(program().relations)
    names = [r.name for r in relations]
    width = max(len(r.columns) for r in relations)
    values = np.zeros((len(changes), width), np.int64)
    kinds = np.zeros(len(changes), np.int16)
    for i, (name, delete, row) in enumerate(changes):
        place = names.index(name)
        codes = encode_row(relations[place], ROWS[name][row], program().dictionary)
        values[i, : len(codes)] = codes
        kinds[i] = 2 * place + delete
    return Stream(np.array(versions, VERSION), kinds, values)


def engine_history(stream: Stream, unit: Literal["event", "message"]) -> set[Entry]:
    """What subscriptions of the reference engine are told, with the versions of events or messages."""
    engine = Engine(program(), "interpreter", check_rows=False)
    batch = stream.batch()
    ends = np.flatnonzero(batch.flags & END_OF_EVENT)
    found = {((0, 0, 0), v, key, _plain(row)) for v in VIEWS for key, row in engine[v].items()}

    def told(event: Any) -> None:
        at = stream.versions[ends[event.version[2] - 1]]
        look = (int(at["stamp"]), int(at["switch"]), int(at["last" if unit == "message" else "sequence"]))
        found.add((look, event.view, event.key, _plain(event.new)))

    for view in VIEWS:
        engine.subscribe(view, told, on=unit, fire="change")
    engine.apply(batch)
    return found


def coarser(history: Iterable[Entry], length: int | None) -> set[Entry]:
    """The history of events as that of intervals, or of the end (None)."""
    before: dict[Any, Any] = {}
    after: dict[Any, Any] = {}
    found: set[Entry] = set()
    current = None

    def look() -> None:
        for where, row in after.items():
            if before.get(where) != row:
                found.add((current or (0, 0, 0), *where, row))
        before.update(after)

    for version, view, key, row in sorted(history, key=lambda e: e[0]):
        unit = (0, 0, 0)
        if length is not None and version != unit:
            unit = ((version[0] // length + 1) * length, 0, 0)
        if unit != current:
            look()
            current = unit
        after[view, key] = row
    look()
    return found if length else {entry for entry in found if entry[3] is not None}


def stage_history(histories: Iterable[History]) -> set[Entry]:
    """History rows as users see them; raises AssertionError where one comes twice."""
    found: set[Entry] = set()
    for history in histories:
        keys = {v.name: tuple(k.name for k in v.keys) for v in program().views}[history.view]
        layout = view_layout(program().program.result(history.view), keys, program().dictionary)
        for look, key, row in history.entries(layout):
            entry = (look, history.view, key, _plain(row))
            assert entry not in found
            found.add(entry)
    return found


def runner(backend: str, granularity: Granularity) -> StageRunner:
    return StageRunner(single_stage(), program().dictionary, backend, granularity)


def _plain(row: Any) -> Any:
    return None if row is None else (row.multiplicity, tuple(row.values()))
