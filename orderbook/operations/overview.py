"""The overview of a view: its columns and their lineage, the maps that keep it, and what events cost.

It is text for people, and the same as values of JSON for scripts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orderbook.engine.distribution.threads import partitions_of
from orderbook.engine.plan.describe import Cost, below_zero, map_text, row_cost, statement_cost, warnings
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics, plan_bytes
from orderbook.engine.plan.steps import Plan, StatementPlan
from orderbook.market.book_relations import filled_relations
from orderbook.operations.declarations import declarations
from orderbook.operations.view_parts import part_of
from orderbook.views.calculus import Const
from orderbook.views.lineage import Lineage, lineage, lineage_json, lineage_lines
from orderbook.views.m3 import scalar_text
from orderbook.views.materialization import Materialization
from orderbook.views.program import CompiledProgram

# What a distribution is explained for; how many partitions a job has is its own affair.
SHOWN_PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class StatementCost:
    """A statement of an event: the map that it writes, by which keys, `+=` or `:=`, and its class of cost."""

    map: str
    keys: tuple[str, ...]
    op: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class EventCost:
    """An insert, delete or update (of columns that are no keys) of a relation, and its statements in turn."""

    event: str
    relation: str
    statements: tuple[StatementCost, ...]

    @property
    def cost(self) -> Cost:
        """That of its worst statement."""
        return max((one.cost for one in self.statements), default=Cost.CONSTANT)

    def __str__(self) -> str:
        named = {"insert": "insert into", "delete": "delete from", "update": "update of"}[self.event]
        return f"{named} {self.relation}{' (not of keys)' if self.event == 'update' else ''}"


@dataclass(frozen=True, slots=True)
class MapCost:
    """A map as text, and the class of its worst statement; entries and bytes are None where not known."""

    name: str
    keys: tuple[str, ...]
    text: str
    cost: Cost
    entries: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What there is to say of a view.

    columns: name, type, and whether it may be NULL. keys: what it has one row for each of. level: how much of
    it is kept where its SQL says so. lineage: None of a view that is written in M3. row: what reading a row
    costs. below_zero: which columns make events dearer while rows have less than 0 there. threads: the column
    by which several can run it, else None and why not.
    """

    view: str
    columns: tuple[tuple[str, str, bool], ...]
    keys: tuple[str, ...]
    lineage: Lineage | None
    level: Materialization | None
    maps: tuple[MapCost, ...]
    events: tuple[EventCost, ...]
    row: Cost
    warnings: tuple[str, ...]
    below_zero: tuple[str, ...]
    declarations: tuple[str, ...]
    threads: tuple[str | None, str]

    @property
    def cost(self) -> Cost:
        """That of the worst event."""
        return max((one.cost for one in self.events), default=Cost.CONSTANT)

    def text(self) -> str:
        """For people."""
        return "\n".join(self._lines()) + "\n"

    def json(self) -> dict[str, Any]:
        """All that `text` says, as values of JSON; costs are texts such as `O(log n)`."""
        column, why = self.threads
        return {
            "columns": [
                {"name": n, "type": kind, "nullable": nullable} for n, kind, nullable in self.columns
            ],
            "keys": self.keys,
            "lineage": None if self.lineage is None else lineage_json(self.lineage),
            "materialize": self.level,
            "cost": str(self.cost),
            "row_cost": str(self.row),
            "maps": [
                {
                    "name": one.name,
                    "keys": one.keys,
                    "text": one.text,
                    "cost": str(one.cost),
                    "entries": one.entries,
                    "bytes": one.bytes,
                }
                for one in self.maps
            ],
            "events": [
                {
                    "event": one.event,
                    "relation": one.relation,
                    "cost": str(one.cost),
                    "statements": [
                        {"map": s.map, "keys": s.keys, "op": s.op, "cost": str(s.cost)}
                        for s in one.statements
                    ],
                }
                for one in self.events
            ],
            "warnings": self.warnings,
            "below_zero": self.below_zero,
            "declarations": self.declarations,
            "threads": {"by": column, "why_one": why or None},
        }

    def _lines(self) -> Iterator[str]:
        yield from (f"view {self.view}", "")
        for name, kind, nullable in self.columns:
            yield f"  {name} {kind}{' or NULL' if nullable else ''}"
        keys = ", ".join(self.keys)
        yield f"  one row for each {keys}" if keys else "  one row"
        if self.lineage is not None:
            yield from ("", "what columns derive from:", "")
            yield from (f"  {line}" for line in lineage_lines(self.lineage))
        kept = "" if self.level is None else f" (materialize = {self.level})"
        yield from ("", f"kept in {len(self.maps)} maps{kept}:", "")
        yield from (f"  {one.text}" for one in self.maps)
        yield from ("", "cost of an event, with n the entries of a map:", "")
        for event in self.events:
            yield f"  {event}: {event.cost}"
            for one in event.statements:
                yield f"    {one.cost!s:<9} {one.map}[{', '.join(one.keys)}] {one.op}"
        yield f"  reading a row: {self.row}"
        yield ""
        yield from (f"warning: {line}" for line in self.warnings)
        if not self.warnings:
            yield "no statement scans a map"
        yield from self.below_zero
        yield from (f"declare: {line}" for line in self.declarations)
        column, why = self.threads
        yield f"threads: one, {why}" if column is None else f"threads: several, by {column}"


def overview(compiled: CompiledProgram, view: str, statistics: Statistics | None = None) -> Overview:
    """That of a view of a program. Raises UserError where there is none.

    With `statistics` of the program plans are chosen by them, and maps have entries and an estimate of bytes.
    """
    program = part_of(compiled.program, view)
    planned = plan(program, statistics)
    result = program.result(view)
    bound = next((one for one in compiled.catalog.views if one.name == view), None)
    entries = {} if statistics is None else statistics.entries
    held = {} if statistics is None else plan_bytes(planned, statistics)
    events = tuple(event_costs(planned))
    costs = map_costs(events)
    maps = tuple(
        MapCost(
            one.name,
            tuple(key.name for key in one.keys),
            map_text(planned, one.name, entries, held, "about "),
            costs.get(one.name, Cost.CONSTANT),
            entries.get(one.name),
            held.get(one.name),
        )
        for one in program.maps
    )
    found = partitions_of(program, SHOWN_PARTITIONS, filled_relations(program))
    return Overview(
        view,
        tuple((c.name, str(c.type), c.valid != Const(1)) for c in result.columns),
        tuple(result.shown_keys),
        None if bound is None else lineage(bound.query),
        compiled.level(view),
        maps,
        events,
        row_cost(planned, next(r for r in planned.results if r.result.name == view)),
        tuple(warnings(planned)),
        tuple(below_zero(planned)),
        tuple(declarations(compiled, view)),
        (None, found) if isinstance(found, str) else (found.column, ""),
    )


def event_costs(planned: Plan) -> Iterator[EventCost]:
    """What each event costs, inserts and deletes of every relation before updates."""
    for trigger in planned.triggers:
        event = "insert" if trigger.insert else "delete"
        yield EventCost(event, trigger.relation, _statements(planned, trigger.statements))
    for update in planned.updates:
        statements = (s for part in update.parts for s in part)
        yield EventCost("update", update.relation, _statements(planned, statements))


def map_costs(events: Iterable[EventCost]) -> Mapping[str, Cost]:
    """Of each map that events write, the class of its worst statement."""
    found: dict[str, Cost] = {}
    for event in events:
        for one in event.statements:
            found[one.map] = max(one.cost, found.get(one.map, Cost.CONSTANT))
    return found


def _statements(planned: Plan, statements: Iterable[StatementPlan]) -> tuple[StatementCost, ...]:
    return tuple(
        StatementCost(s.target, tuple(map(scalar_text, s.keys)), s.op, statement_cost(planned, s))
        for s in statements
    )
