"""Functions that triggers share: writes of an entry in trees, and statements that no row is in.

A group that is ranked stands in as many trees as its order has places, and which rows are the first is asked
of the trees alone, whatever row has changed them. Both are compiled once, not with each trigger.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from orderbook.engine.generate.expressions import Code
from orderbook.engine.generate.module_text import ModuleText, shared_pivots
from orderbook.engine.generate.pipelines import signature
from orderbook.engine.generate.writes import Writes
from orderbook.engine.plan.steps import Gather, Loop, Pipeline, Plan, StatementPlan, steps_of, variables
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import Var

_PUT = "Adds to the value of an entry, given by its words."
_AGAIN = "Writes what the state says, whatever the event was."


def put_functions(module: ModuleText) -> None:
    """`put_<map>(S, keys.., words..)` for each map whose entries are written so."""
    for declaration in module.plan.program.maps:
        name = declaration.name
        if not module.reads.is_put(name):
            continue
        wide = layout_of(declaration.type) != "i"
        keys = [f"k{i}" for i in range(len(declaration.keys))]
        words = ["low", "high"] if wide else ["value"]
        with module.exported(f"put_{name}({', '.join(['S', *keys, *words])})", _PUT) as emitter:
            if wide:
                emitter.writer.line("value = words_to_wide(low, high)")
            code = Code("value", declaration.type)
            Writes(emitter, {}).entry_write(name, "add", keys, {name: code}, in_loop=True)
            emitter.writer.line("return 0")


def again_functions(module: ModuleText) -> None:
    """`again_<n>(S)` for each statement that several triggers have, and that says nothing of their rows."""
    alike: defaultdict[str, list[StatementPlan]] = defaultdict(list)
    for statement in _without_event(module.plan):
        alike[_said(statement)].append(statement)
    for statements in alike.values():
        if len(statements) < 2:
            continue
        name = f"again_{len(set(module.again.values()))}"
        with module.exported(f"{name}(S)", _AGAIN) as emitter:
            emitter.pivots = shared_pivots(emitter.plan, statements[:1], ())
            Writes(emitter, {}).statements(statements[:1])
            emitter.writer.line("return 0")
        module.again |= dict.fromkeys(map(id, statements), name)


def _without_event(plan: Plan) -> Iterator[StatementPlan]:
    """Statements over the state after, with loops, that no variable of an event is in."""
    events: list[tuple[Sequence[Var], Sequence[StatementPlan]]] = [
        (t.parameters, t.statements) for t in plan.triggers
    ]
    events += [((*u.old, *u.new), part) for u in plan.updates for part in u.parts]
    for parameters, statements in events:
        for statement in statements:
            parts = (statement.keys, statement.pipelines, statement.erased)
            walks = statement.level and _walks(statement) and _is_alone(plan, statement.target)
            if walks and {*parameters}.isdisjoint(variables(parts)):
                yield statement


def _walks(statement: StatementPlan) -> bool:
    return any(isinstance(s, Loop | Gather) for s in steps_of((*statement.pipelines, *statement.erased)))


def _is_alone(plan: Plan, name: str) -> bool:
    """Whether a map is written by itself, whatever other maps are."""
    stores = plan.stores_of(name)
    counts = plan.program.map(name).count is not None or plan.program.counted.get(name)
    return not counts and name not in plan.projected and all(s.layout in ("i", "w", "W") for s in stores)


def _said(statement: StatementPlan) -> str:
    """Equal for statements that do the same."""
    parts = [Pipeline(p.steps, (*p.values, *statement.keys)) for p in statement.pipelines]
    pipelines = signature((*statement.erased, *parts), {})
    return f"{statement.target} {statement.op} {len(statement.erased)} {len(statement.keys)} {pipelines}"
