"""The stages of a view as text, from the bound query to generated code and partitions.

Also which declarations of columns would make the events of a view cheaper: each is tried. What a declaration
does is not guessed from plans: the texts are bound and compiled again with the one column declared
otherwise, and the cost of the worst event is compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from orderbook.core.errors import UserError, visible
from orderbook.engine.distribution.distribute import describe, planned
from orderbook.engine.distribution.threads import partitions_of
from orderbook.engine.plan.describe import Cost, map_text, plan_text, statement_cost, trigger_cost, warnings
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics, plan_bytes
from orderbook.engine.plan.steps import Plan, StatementPlan
from orderbook.market.book_relations import filled_relations
from orderbook.views.binding.bound_print import bound_text
from orderbook.views.calculus import (
    ZERO,
    Const,
    Exists,
    Lift,
    Poly,
    Var,
    maps_read,
    scalar_variables,
    variable_set,
)
from orderbook.views.compilation import bound_source
from orderbook.views.m3 import Program, Trigger, factor_text, program_text, scalar_text, statement_text
from orderbook.views.program import CalculusView, CompiledProgram
from orderbook.views.types import DEFAULT_MAX_ROWS, Column, Kind, Relation, Type

# What rows and values are tried to be bounded by: a sum of them fits 64 bits.
_FEW_ROWS, _SMALL = 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Try:
    """A column declared otherwise: its relations with it, what it may be now, and what to write instead."""

    relations: Mapping[str, Relation]
    column: str
    now: str
    instead: str

    def __str__(self) -> str:
        return f"{self.column} of {' and '.join(self.relations)} {self.now}: {self.instead}"


def declarations(compiled: CompiledProgram, view: str) -> list[str]:
    """A line for each column that, declared otherwise, would make the worst event of a view cheapest.

    `volume of bids may be below 0: CHECK (volume >= 0) would make O(n) O(log n)`. None where the worst event
    is O(log n + rows) at most.
    """
    part = part_of(compiled.program, view)
    cost = worst_event(part)
    if cost <= Cost.ROWS:
        return []
    alone = list(_tries(part))
    for tries in (alone, _together(alone)):
        found = [(c, t) for t in tries if (c := _cost_with(compiled, view, t.relations)) < cost]
        if found:
            least = min(c for c, _ in found)
            # Of one column the first that helps asks for the least.
            chosen = {(t.column, *t.relations): str(t) for c, t in reversed(found) if c == least}
            return [f"{text} would make {cost} {least}" for text in reversed(chosen.values())]
    return []


def _together(alone: Iterable[_Try]) -> Iterator[_Try]:
    """The same for columns of one name in several relations, which are compared with each other."""
    same: dict[tuple[str, str, str], dict[str, Relation]] = {}
    for one in alone:
        same.setdefault((one.column, one.now, one.instead), {}).update(one.relations)
    return (_Try(relations, *what) for what, relations in same.items() if len(relations) > 1)


def worst_event(program: Program) -> Cost:
    """The cost class of the program's most expensive event."""
    planned = plan(program)
    return max((trigger_cost(planned, t.statements) for t in planned.triggers), default=Cost.CONSTANT)


def _cost_with(compiled: CompiledProgram, view: str, instead: Mapping[str, Relation]) -> Cost:
    """The cost of the worst event were the relations declared so."""
    try:
        source = bound_source(compiled.texts, compiled.parameters, compiled.levels, instead)
        return worst_event(part_of(source.compiled().program, view))
    except UserError:
        return Cost.PRODUCT


def _tries(program: Program) -> Iterator[_Try]:
    for relation in program.relations:
        used = frozenset[int]().union(*(_used(t) for t in program.triggers if t.relation == relation.name))
        for place, column in enumerate(relation.columns):
            if place in used:
                yield from _tries_of(relation, column)


def _used(trigger: Trigger) -> frozenset[int]:
    """The places of the parameters that the statements of a trigger use."""
    found: frozenset[Var] = frozenset()
    for statement in trigger.statements:
        found |= variable_set(statement.value) | {v for k in statement.keys for v in scalar_variables(k)}
    return frozenset(i for i, parameter in enumerate(trigger.parameters) if parameter in found)


def _tries_of(relation: Relation, column: Column) -> Iterator[_Try]:
    name, kind = column.name, column.type

    def tried(now: str, instead: str, rows: int = relation.max_rows, **change: object) -> _Try:
        columns = tuple(replace(c, **change) if c is column else c for c in relation.columns)  # type: ignore[arg-type]
        return _Try({relation.name: replace(relation, columns=columns, max_rows=rows)}, name, now, instead)

    if column.nullable:
        yield tried("may be NULL", "NOT NULL", nullable=False)
    if kind.kind is Kind.DOUBLE:
        exact = Type(Kind.DECIMAL, 8, -(10**18) + 1, 10**18 - 1)
        yield tried("is DOUBLE", "DECIMAL(18, 8)", type=exact)
        yield tried("is DOUBLE", f"DECIMAL(18, 8) CHECK ({name} >= 0)", type=replace(exact, low=0))
    elif kind.numeric:
        if kind.low < 0:
            yield tried("may be below 0", f"CHECK ({name} >= 0)", type=replace(kind, low=0))
        if relation.max_rows == DEFAULT_MAX_ROWS or kind.high > _SMALL:
            low, high = max(kind.low, 0), min(kind.high, _SMALL)
            written = f"CHECK ({name} BETWEEN 0 AND {_number(high, kind.scale)}) and max_rows = {_FEW_ROWS}"
            rows = min(relation.max_rows, _FEW_ROWS)
            yield tried("is hardly bounded", written, rows, type=replace(kind, low=low, high=high))


def _number(value: int, scale: int) -> str:
    return f"{value / 10**scale:g}" if scale else str(value)


def part_of(program: Program, view: str) -> Program:
    """The view with the maps that it needs and the statements that maintain them."""
    result = program.result(view)
    needed: set[str] = set()
    found = {name for _, poly in result.lets for name in maps_read(poly)}
    found |= {result.multiplicity} if result.multiplicity else set()
    statements = [*program.initial, *(s for t in program.triggers for s in t.statements)]
    while found - needed:
        needed |= found
        found = {name for s in statements if s.target in needed for name in maps_read(s.value)}
        found |= {m.count for m in program.maps if m.name in needed and m.count}
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
    )


def explain(
    compiled: CompiledProgram, view: str, stage: str | None = None, statistics: Statistics | None = None
) -> str:
    """The text of one stage of STAGES, None for an overview with the cost of every event.

    The program shown is the part that keeps this view fresh. With `statistics` of the program, plans are
    chosen by them, and the overview has the entries of maps and an estimate of their bytes.
    """
    return overview(compiled, view, statistics) if stage is None else STAGES[stage](compiled, view)


def overview(compiled: CompiledProgram, view: str, statistics: Statistics | None = None) -> str:
    """Columns, maps and triggers of a view, with the cost class of every statement."""
    program = part_of(compiled.program, view)
    planned = plan(program, statistics)
    lines = [f"view {view}", ""]
    for column in program.result(view).columns:
        lines.append(f"  {column.name} {column.type}{'' if column.valid == Const(1) else ' or NULL'}")
    keys = ", ".join(program.result(view).shown_keys)
    lines += [f"  one row for each {keys}" if keys else "  one row"]
    level = compiled.level(view)
    kept = "" if level is None else f" (materialize = {level})"
    lines += ["", f"kept in {len(program.maps)} maps{kept}:", ""]
    entries = {} if statistics is None else statistics.entries
    held = {} if statistics is None else plan_bytes(planned, statistics)
    for declaration in program.maps:
        lines.append(f"  {map_text(planned, declaration.name, entries, held, 'about ')}")
    lines += ["", "cost of an event, with n the entries of a map:", ""]
    lines += _costs(planned)
    warned = warnings(planned)
    lines += ["", *(f"warning: {line}" for line in warned)] if warned else ["", "no statement scans a map"]
    lines += [f"declare: {line}" for line in declarations(compiled, view)]
    found = partitions_of(program, SHOWN_PARTITIONS, filled_relations(program))
    lines.append(
        f"threads: one, {found}" if isinstance(found, str) else f"threads: several, by {found.column}"
    )
    return "\n".join(lines) + "\n"


def _costs(planned: Plan) -> Iterator[str]:
    for trigger in planned.triggers:
        what = "insert into" if trigger.insert else "delete from"
        yield f"  {what} {trigger.relation}: {trigger_cost(planned, trigger.statements)}"
        yield from _statement_costs(planned, trigger.statements)
    for update in planned.updates:
        statements = [s for part in update.parts for s in part]
        yield f"  update of {update.relation} (not of keys): {trigger_cost(planned, statements)}"
        yield from _statement_costs(planned, statements)


def _statement_costs(planned: Plan, statements: Iterable[StatementPlan]) -> Iterator[str]:
    for statement in statements:
        keys = ", ".join(map(scalar_text, statement.keys))
        yield f"    {statement_cost(planned, statement)!s:<9} {statement.target}[{keys}] {statement.op}"


def _sql(compiled: CompiledProgram, view: str) -> str:
    bound = next((v for v in compiled.catalog.views if v.name == view), None)
    return f"-- {view} is written in M3, which the stage m3 shows\n" if bound is None else bound_text(bound)


def _calculus(compiled: CompiledProgram, view: str) -> str:
    return calculus_text(next(v for v in compiled.views if v.name == view))


def calculus_text(view: CalculusView) -> str:
    """A view in the calculus, a factor a line: what counts its rows, what its columns read, the columns."""
    lines = [f"VIEW {view.name}[{', '.join(k.variable.name for k in view.keys)}]"]
    if view.multiplicity is not None:
        lines += ["  GROUPS =" if view.grouped else "  ROWS =", *_poly_lines(view.multiplicity, "    ")]
    for variable, poly in view.lets:
        lines += [f"  {variable.name} =", *_poly_lines(poly, "    ")]
    for column in view.columns:
        when = "" if column.valid == Const(1) else f" WHEN {scalar_text(column.valid)}"
        lines.append(f"  COLUMN {column.name} = {scalar_text(column.scalar)}{when}")
    return "\n".join(lines) + "\n"


def _poly_lines(poly: Poly, indent: str) -> Iterator[str]:
    """The text of `poly_text`, each factor on its own line and nested polynomials indented."""
    if not poly.terms:
        yield f"{indent}0"
    for place, term in enumerate(poly.terms):
        if place:
            yield f"{indent}+"
        for number, factor in enumerate(term):
            end = " *" if number < len(term) - 1 else ""
            if isinstance(factor, Lift | Exists) and any(len(t) > 1 for t in factor.body.terms):
                head = factor_text(replace(factor, body=ZERO)).removesuffix("0)")
                yield f"{indent}{head.rstrip()}"
                yield from _poly_lines(factor.body, indent + "  ")
                yield f"{indent}){end}"
            else:
                yield f"{indent}{factor_text(factor)}{end}"
        if not term:
            yield f"{indent}1"


def _m3(compiled: CompiledProgram, view: str) -> str:
    return program_text(part_of(compiled.program, view))


def _plan(compiled: CompiledProgram, view: str) -> str:
    return plan_text(plan(part_of(compiled.program, view)))


def _python(compiled: CompiledProgram, view: str) -> str:
    """The module that runs, with comments that say what users called what has numbers in it."""
    from orderbook.engine.generate.numbering import Numbering
    from orderbook.engine.generate.program import program_module, trigger_name, update_name

    planned, numbering = plan(part_of(compiled.program, view)), Numbering({})
    numbered = numbering.plan(planned)
    said: dict[str, list[str]] = {}
    for own, store in zip(planned.stores, numbered.stores, strict=True):
        said[f"{store.name} = "] = [f"{own.name}: {', '.join(own.maps)}"]
    statements = {(t.relation, t.insert): t.statements for t in planned.program.triggers}
    for trigger, its in zip(planned.triggers, numbered.triggers, strict=True):
        called = zip(trigger.parameters, its.parameters, strict=True)
        columns = ", ".join(f"{own.name} is {number.name}" for own, number in called)
        said[f"def {trigger_name(its)}("] = [
            f"{'insert into' if trigger.insert else 'delete from'} {trigger.relation}: {columns}",
            *(f"    {statement_text(s)}" for s in statements[trigger.relation, trigger.insert]),
        ]
    for update, its_update in zip(planned.updates, numbered.updates, strict=True):
        named = dict(zip((*update.old, *update.new), (*its_update.old, *its_update.new), strict=True))
        columns = ", ".join(f"{name.name} is {number.name}" for name, number in named.items())
        said[f"def {update_name(its_update)}("] = [f"update of {update.relation}: {columns}"]
    constants = [f"constant {place} is {own!r}" for own, place in numbering.constants.items()]
    lines = [f"# {comment}" for comment in map(visible, constants)]
    for line in program_module(numbered).splitlines():
        comments = next((own for start, own in said.items() if line.startswith(start)), [])
        inside = "    " if line.startswith("def ") else ""
        lines += [line, *(f"{inside}# {visible(comment)}" for comment in comments)]
    return "\n".join(lines) + "\n"


# What a distribution is explained for; how many partitions a job has is its own affair.
SHOWN_PARTITIONS = 8


def _spark(compiled: CompiledProgram, view: str) -> str:
    return describe(planned(part_of(compiled.program, view), partitions=SHOWN_PARTITIONS))


STAGES: Mapping[str, Callable[[CompiledProgram, str], str]] = {
    "sql": _sql,
    "calculus": _calculus,
    "m3": _m3,
    "plan": _plan,
    "python": _python,
    "spark": _spark,
}
