"""Plans as text: the stores, every statement's access paths, and what each costs an event.

A map as text has its keys, the indexes it is read by, entries and bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from orderbook.engine.plan.steps import (
    Aggregate,
    Cut,
    Extremum,
    Filter,
    FirstKey,
    Gather,
    Lookup,
    Loop,
    Pipeline,
    Plan,
    Range,
    RangeSum,
    ResultPlan,
    StatementPlan,
    Step,
    Store,
    TriggerPlan,
    steps_of,
)
from orderbook.engine.plan.stores import are_first_rows, is_one_row, layout_of
from orderbook.views.calculus import Poly, Scalar, Val, Var, scalar_variables, variable_set
from orderbook.views.conditions import is_null
from orderbook.views.m3 import scalar_text
from orderbook.views.types import Relation
from orderbook.views.weights import counted_rows


class Cost(IntEnum):
    """What a statement costs an event, in the entries of the maps it reads or writes.

    Rows are those before a cut, such as the first ten. Groups are those of a view with GROUP BY, or of a
    map's keys but one. A slice is what agrees with the event, or joins it from key to key, or the rows within
    a range.
    """

    CONSTANT = 0
    LOGARITHMIC = 1
    ROWS = 2
    GROUPS = 3
    SLICE = 4
    LINEAR = 5
    PRODUCT = 6

    def __str__(self) -> str:
        return (
            "O(1)", "O(log n)", "O(log n + rows)", "O(groups * log n)", "O(slice)", "O(n)", "O(n * m)"
        )[self]  # fmt: skip


def plan_text(plan: Plan) -> str:
    """The whole plan: stores with their keys and columns, then triggers with a cost for each statement."""
    lines = [_store_text(plan, s) for s in plan.stores]
    for trigger in plan.triggers:
        lines.append("")
        lines.append(f"ON {_event(trigger)}: {trigger_cost(plan, trigger.statements)}")
        for statement in trigger.statements:
            lines += _statement_lines(plan, statement)
    for update in plan.updates:
        statements = [s for part in update.parts for s in part]
        lines.append("")
        lines.append(f"ON UPDATE {update.relation}: {trigger_cost(plan, statements)}")
        for statement in statements:
            lines += _statement_lines(plan, statement)
    for result in plan.results:
        lines.append("")
        lines.append(f"VIEW {result.result.name}: a row costs {row_cost(plan, result)}")
        for variable, pipelines in result.lets:
            lines += [f"  {variable.name} =", *_pipeline_lines(plan, pipelines, "    ")]
    return "\n".join(lines) + "\n"


def _event(trigger: TriggerPlan) -> str:
    return f"{'+' if trigger.insert else '-'} {trigger.relation}"


def statement_cost(plan: Plan, statement: StatementPlan) -> Cost:
    """The cost class of one statement: its reads, and its writes for every entry it writes."""
    cost = _worst(plan, (*statement.erased, *statement.pipelines))
    return max(cost, _write_cost(plan, statement.target))


def trigger_cost(plan: Plan, statements: Iterable[StatementPlan]) -> Cost:
    return max((statement_cost(plan, s) for s in statements), default=Cost.CONSTANT)


def row_cost(plan: Plan, result: ResultPlan) -> Cost:
    """What reading one row of a view costs, as each does that is looked at, queried or told of."""
    return _worst(plan, (p for _, pipelines in result.lets for p in pipelines))


def warnings(plan: Plan) -> list[str]:
    """A line for each map that a scan changes: which, for which event, and over what."""
    found = []
    for trigger in plan.triggers:
        for statement in trigger.statements:
            scans = [s.map for s in _loops(statement) if _step_cost(plan, s, ()) == Cost.LINEAR]
            if scans:
                event = _event(trigger)
                found.append(
                    f"{statement.target}: every event {event} scans {', '.join(dict.fromkeys(scans))}"
                )
    return list(dict.fromkeys(found))


def below_zero(plan: Plan) -> list[str]:
    """A line for each column that makes events dearer while rows have less than 0 there: how dear.

    `while a volume of trades is below 0 an event costs O(n)`.
    """
    found: dict[str, Cost] = {}
    relations = _relations(plan)
    for statement in plan.statements:
        for pipeline in (p for p in statement.pipelines if p.seldom):
            counted = (s for s in steps_of((Pipeline(pipeline.steps[:1], ()),)) if isinstance(s, Lookup))
            for one in counted:
                rows = counted_rows(plan.program.map(one.map).definition, {}, relations)
                if rows is not None:
                    text = f"{relations[rows.relation].columns[rows.column].name} of {rows.relation}"
                    found[text] = max(found.get(text, Cost.CONSTANT), _pipeline_cost(plan, pipeline))
    return [f"while a {column} is below 0 an event costs {cost}" for column, cost in found.items()]


def _loops(statement: StatementPlan) -> Iterable[Loop]:
    usual = (p for p in (*statement.erased, *statement.pipelines) if not p.seldom)
    return (s for s in steps_of(usual) if isinstance(s, Loop))


def _write_cost(plan: Plan, name: str) -> Cost:
    names = (name, *(d.name for d in plan.directories_of(name)))
    trees = any(s.ordered is not None for n in names for s in plan.stores_of(n))
    return Cost.LOGARITHMIC if trees else Cost.CONSTANT


def _worst(plan: Plan, pipelines: Iterable[Pipeline]) -> Cost:
    return max((_pipeline_cost(plan, p) for p in pipelines if not p.seldom), default=Cost.CONSTANT)


def _pipeline_cost(plan: Plan, pipeline: Pipeline) -> Cost:
    """The worst step; what comes inside a loop is done for each of its entries.

    The entries that have the keys of a directory before a cut are themselves before the cut; so are those of
    NULL where a condition on a sum decides whether they are met at all.
    """
    cost, looping = Cost.CONSTANT, Cost.CONSTANT
    before_cut: set[str] = set()
    sums: set[Var] = set()
    limited = False
    around: list[Loop] = []
    computed: set[Var] = set()
    for place, step in enumerate(pipeline.steps):
        own = _step_cost(plan, step, pipeline.steps[place + 1 :])
        match step:
            case Aggregate(value, _):
                sums.add(value)
            case Filter(condition):
                limited = limited or not sums.isdisjoint(scalar_variables(condition))
            case Loop(range=Range() as within) if limited and within.of_null:
                before_cut |= _behind_directory(plan, step.map)
        if isinstance(step, Loop):
            if limited and own >= Cost.SLICE and _has_rows_of_null(plan, step.map):
                own = Cost.ROWS
            elif step.map in before_cut and own == Cost.SLICE:
                own = Cost.ROWS
                before_cut.remove(step.map)
            elif own == Cost.ROWS:
                before_cut |= _behind_directory(plan, step.map)
        if looping == Cost.GROUPS and own >= Cost.GROUPS:
            own = max(own, Cost.LINEAR)
        elif looping >= Cost.SLICE and own >= Cost.SLICE:
            apart = (
                looping == own == Cost.SLICE
                and isinstance(step, Loop)
                and _are_apart(plan, around, step, computed)
            )
            own = Cost.SLICE if apart else Cost.PRODUCT
        cost = max(cost, own)
        if isinstance(step, Loop):
            looping = max(looping, own)
            around.append(step)
        elif not isinstance(step, Filter | Gather):
            computed.add(step.value)
    return cost


def _are_apart(plan: Plan, around: Sequence[Loop], inner: Loop, computed: set[Var]) -> bool:
    """Whether no entry is met twice by a loop within others: what it knows says which of theirs it is in.

    So all of them are no more than what joins the event. computed: variables that steps between them bind.
    """
    known = {k for i in inner.known for k in scalar_variables(inner.keys[i])}
    found: set[Var] = set()
    for loop in around:
        found |= {k for k in loop.keys if isinstance(k, Var) and loop.keys.index(k) not in loop.known}
    event = {v for loop in around for k in loop.keys for v in scalar_variables(k)} - found - computed
    known |= event
    for loop in reversed(around):
        declared = next((m for m in plan.program.maps if m.name == loop.map), None)
        given = [i for i, k in enumerate(loop.keys) if known.issuperset(scalar_variables(k))]
        if declared is not None and is_one_row(_relations(plan), declared, given):
            known.update(k for k in loop.keys if isinstance(k, Var))
    return found <= known


def _relations(plan: Plan) -> dict[str, Relation]:
    return {r.name: r for r in plan.program.relations}


def _step_cost(plan: Plan, step: Step, rest: Sequence[Step]) -> Cost:
    match step:
        case Filter():
            return Cost.CONSTANT
        case Lookup(_, name, _):
            return Cost.CONSTANT if plan.stores_of(name)[0].ordered is None else Cost.LOGARITHMIC
        case Aggregate(_, pipelines):
            return _worst(plan, pipelines)
        case Gather(_, _, pipelines):
            return max(_worst(plan, pipelines), Cost.LOGARITHMIC)
        case RangeSum() | Extremum():
            return Cost.LOGARITHMIC
        case FirstKey(map=name, pipelines=pipelines):
            # What is looked up alone is there at the first.
            is_first = all(isinstance(s, Lookup) and s.map == name for p in pipelines for s in p.steps)
            return max(_worst(plan, pipelines), Cost.LOGARITHMIC if is_first else Cost.ROWS)
        case Loop():
            return _loop_cost(plan, step, rest)
    raise TypeError(step)


def _loop_cost(plan: Plan, step: Loop, rest: Sequence[Step]) -> Cost:
    """The keys of a directory in a range are no more than the entries that the `rest` loops over by them."""
    directory = next((d for d in plan.directories if d.name == step.map), None)
    if step.map in plan.scratch:
        return Cost.LOGARITHMIC
    if step.range is not None and any(c.leading for c in step.range.cuts):
        return Cost.ROWS
    if step.range is not None:
        behind = _behind_directory(plan, step.map)
        counted = any(isinstance(s, Loop) and s.map in behind for s in rest)
        return Cost.LOGARITHMIC if counted or step.range.of_one else Cost.SLICE
    declared = next((m for m in plan.program.maps if m.name == step.map), None)
    if declared is not None and is_one_row(_relations(plan), declared, step.known):
        return Cost.CONSTANT
    if directory:
        source, known = plan.program.map(directory.source), [directory.positions[i] for i in step.known]
        return Cost.ROWS if are_first_rows(source, known) else Cost.GROUPS
    if step.map in _maps_of_groups(plan):
        return Cost.GROUPS
    if declared is not None and are_first_rows(declared, step.known):
        return Cost.ROWS
    return Cost.SLICE if step.known else Cost.LINEAR


def _has_rows_of_null(plan: Plan, name: str) -> bool:
    """Whether a map has rows alone that have NULL in one of their columns."""
    terms = next((m.definition.terms for m in plan.program.maps if m.name == name), ())
    variables = variable_set(Poly(terms[:1]))
    return any(all(Val(is_null(v)) in t for t in terms) for v in variables)


def _behind_directory(plan: Plan, name: str) -> set[str]:
    """The maps whose entries a directory counts; none for another map."""
    sources = [d.source for d in plan.directories if d.name == name]
    return {m for source in sources for s in plan.stores_of(source) for m in s.maps}


def _maps_of_groups(plan: Plan) -> frozenset[str]:
    """The maps that hold what a grouped view shows, an entry for each of its rows at most."""
    found: set[str] = set()
    for result in plan.results:
        keys = {k.variable for k in result.result.keys}
        if not result.result.grouped or result.result.multiplicity is None or not keys:
            continue
        found.add(result.result.multiplicity)
        steps = steps_of(p for _, pipelines in result.lets for p in pipelines)
        found |= {s.map for s in steps if isinstance(s, Lookup) and set(s.keys) == keys}
    return frozenset(found)


def _store_text(plan: Plan, store: Store) -> str:
    kind = "hash" if store.ordered is None else "tree" if store.dense is None else "array"
    names = [k.name for k in plan.program.map(store.maps[0]).keys]
    keys = ", ".join(f"{n} (ordered)" if i == store.ordered else n for i, n in enumerate(names))
    slices = "".join(f", slice by [{', '.join(names[i] for i in s)}]" for s in store.slices)
    columns = ", ".join(f"{m} {_layout_text(c)}" for m, c in zip(store.maps, store.layout, strict=False))
    return f"{kind} {store.name}[{keys}]{slices}{_dense_text(store)}: {columns}"


def _dense_text(store: Store) -> str:
    if store.dense is None:
        return ""
    cursors = len(store.dense.cursors)
    kept = "" if cursors == 0 else ", a cursor at its cut" if cursors == 1 else f", {cursors} cursors at cuts"
    return f", {store.dense.domain.size:,} cells{kept}"


def _layout_text(column: str) -> str:
    return {"i": "int64", "w": "int128", "W": "int128, checked", "d": "double"}[column]


def _statement_lines(plan: Plan, statement: StatementPlan) -> list[str]:
    after = "after " if statement.after and statement.op == "+=" else ""
    cost = statement_cost(plan, statement)
    head = f"  {after}{statement.target}[{_keys(statement.keys)}] {statement.op}  -- {cost}"
    lines = [head]
    if statement.erased:
        lines += ["    first", *_pipeline_lines(plan, statement.erased, "      ")]
    return lines + _pipeline_lines(plan, statement.pipelines, "    ")


def _pipeline_lines(plan: Plan, pipelines: Iterable[Pipeline], indent: str) -> list[str]:
    lines = []
    for pipeline in pipelines:
        inner = indent
        for step in pipeline.steps:
            lines += _step_lines(plan, step, inner)
            if isinstance(step, Loop | Filter | Extremum | FirstKey):
                inner += "  "
        lines.append(inner + "add " + (" * ".join(scalar_text(v) for v in pipeline.values) or "1"))
    return lines


def _step_lines(plan: Plan, step: Step, indent: str) -> list[str]:
    match step:
        case Filter(condition):
            return [f"{indent}if {scalar_text(condition)}"]
        case Lookup(value, name, keys):
            return [f"{indent}{value.name} = look up {name}[{_keys(keys)}]"]
        case Aggregate(value, pipelines):
            return [f"{indent}{value.name} = sum of", *_pipeline_lines(plan, pipelines, indent + "  ")]
        case Gather(name, keys, pipelines):
            return [
                f"{indent}{name}[{_keys(keys)}] = sum of",
                *_pipeline_lines(plan, pipelines, indent + "  "),
            ]
        case RangeSum():
            read = f"{step.map}[{_keys(step.keys)}]{_range_text(step.keys, step.range)}"
            return [f"{indent}{step.value.name} = range sum of {read}"]
        case Extremum():
            which = "last" if step.greatest else "first"
            read = f"{step.map}[{_keys(step.keys)}]{_range_text(step.keys, step.range)}"
            return [f"{indent}with {step.value.name} = {which} key of {read}"]
        case FirstKey():
            which = "last" if step.greatest else "first"
            read = f"{step.map}[{_keys(step.keys)}]{_range_text(step.keys, step.range)}"
            return [
                f"{indent}with {step.value.name} = {which} key of {read} that has a sum of",
                *_pipeline_lines(plan, step.pipelines, indent + "  "),
            ]
        case Loop():
            how = "range" if step.range is not None else "slice" if step.known else "scan"
            within = "" if step.range is None else _range_text(step.keys, step.range)
            return [f"{indent}for {step.value.name} in {how} of {step.map}[{_keys(step.keys)}]{within}"]
    raise TypeError(step)


def _range_text(keys: Sequence[Scalar], within: Range) -> str:
    bounds = [f">= {scalar_text(s)}" for s in within.low] + [f"<= {scalar_text(s)}" for s in within.high]
    bounds += [_cut_text(c) for c in within.cuts]
    return f" for {scalar_text(keys[within.position])} {' and '.join(bounds) or 'of any value'}"


def _cut_text(cut: Cut) -> str:
    order = "down" if cut.descending else "up"
    sums = ", ".join(f"{v.name} = sum of {m} so far" for v, m in cut.sums)
    condition = f"{scalar_text(cut.condition.left)} {cut.condition.op} {scalar_text(cut.condition.right)}"
    side, sense = ("before", "while") if cut.leading else ("beyond", "while not")
    return f"{side} the cut, going {order} {sense} {condition} ({sums})"


def _keys(keys: Iterable[Scalar]) -> str:
    return ", ".join(k.name if isinstance(k, Var) else scalar_text(k) for k in keys)


_WIDTHS = {"i": "64 bits", "w": "128 bits", "W": "128 bits checked", "d": "double"}


def map_text(plan: Plan, name: str, entries: Mapping[str, int], held: Mapping[str, int], about: str) -> str:
    """`m1[a, b] 64 bits, hash, slice by [a]: 3 entries, 264 bytes`; numbers where the mappings have them."""
    keys = [key.name for key in plan.program.map(name).keys]
    column = layout_of(plan.program.map(name).type)
    indexes = [_WIDTHS[column]]
    for store in plan.stores_of(name):
        if store.ordered is None:
            indexes += ["hash", *(f"slice by [{', '.join(keys[i] for i in s)}]" for s in store.slices)]
        else:
            indexes.append(f"{'tree' if store.dense is None else 'array'} by {keys[store.ordered]}")
    numbers = [f"{entries[name]:,} entries"] if name in entries else []
    numbers += [f"{about}{held[name]:,} bytes"] if name in held else []
    return f"{name}[{', '.join(keys)}] {', '.join(indexes)}" + (f": {', '.join(numbers)}" if numbers else "")
