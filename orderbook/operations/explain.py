"""The stages of a view as text, from the bound query to generated code and partitions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from orderbook.core.errors import visible
from orderbook.engine.distribution.distribute import describe, planned
from orderbook.engine.plan.describe import plan_text
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics
from orderbook.operations.overview import SHOWN_PARTITIONS, overview
from orderbook.operations.view_parts import part_of
from orderbook.views.binding.bound_print import bound_text
from orderbook.views.calculus import ZERO, Const, Exists, Lift, Poly
from orderbook.views.m3 import factor_text, program_text, scalar_text, statement_text
from orderbook.views.program import CalculusView, CompiledProgram


def explain(
    compiled: CompiledProgram, view: str, stage: str | None = None, statistics: Statistics | None = None
) -> str:
    """The text of one stage of STAGES, None for an overview with the cost of every event.

    The program shown is the part that keeps this view fresh. With `statistics` of the program, plans are
    chosen by them, and the overview has the entries of maps and an estimate of their bytes.
    """
    return overview(compiled, view, statistics).text() if stage is None else STAGES[stage](compiled, view)


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
