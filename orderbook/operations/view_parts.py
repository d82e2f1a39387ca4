"""The part of a program that keeps one view fresh, and what its events cost."""

from dataclasses import replace

from orderbook.engine.plan.describe import Cost, trigger_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.calculus import maps_read
from orderbook.views.m3 import Program, result_maps


def part_of(program: Program, view: str) -> Program:
    """The view with the maps that it needs and the statements that maintain them."""
    result = program.result(view)
    needed: set[str] = set()
    found = set(result_maps(result))
    statements = [*program.initial, *(s for t in program.triggers for s in t.statements)]
    patterns: set[str] = set()
    while found - needed:
        needed |= found
        found = {name for s in statements if s.target in needed for name in maps_read(s.value)}
        found |= {m.count for m in program.maps if m.name in needed and m.count}
        patterns |= {t.relation for t in program.triggers if any(s.target in needed for s in t.statements)}
        found |= {name for p in program.patterns if p.name in patterns for name in result_maps(p.rows)}
    triggers = [
        replace(t, statements=tuple(s for s in t.statements if s.target in needed)) for t in program.triggers
    ]
    kept = tuple(t for t in triggers if t.statements)
    return Program(
        tuple(r for r in program.relations if any(t.relation == r.name for t in kept)),
        tuple(m for m in program.maps if m.name in needed),
        tuple(s for s in program.initial if s.target in needed),
        kept,
        (result,),
        tuple(p for p in program.patterns if p.name in patterns),
    )


def worst_event(program: Program) -> Cost:
    """The cost class of the program's most expensive event."""
    planned = plan(program)
    return max((trigger_cost(planned, t.statements) for t in planned.triggers), default=Cost.CONSTANT)
