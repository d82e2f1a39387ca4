"""The stores that a program's reads need: which maps share entries, how each is indexed, which are dense.

A tree may be a dense store where it has few keys and few prefixes, and is read by whole sums and cuts at a
limit only.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orderbook.engine.maps.dense import Domain
from orderbook.engine.plan.statistics import Statistics, distinct
from orderbook.engine.plan.steps import (
    Cursor,
    Dense,
    Extremum,
    FirstKey,
    Loop,
    Pipeline,
    RangeSum,
    Store,
    steps_of,
)
from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    map_reads,
    scalar_variables,
    substitute_factor,
    variable_set,
)
from orderbook.views.calculus import maps_read as maps_in
from orderbook.views.conditions import (
    is_condition,
    is_null,
    known_not_null,
    linear_form,
    not_null,
)
from orderbook.views.m3 import MapDeclaration, Program, Statement
from orderbook.views.types import INT64_MAX, INT128_MAX, Kind, Relation, Type


def excludes_null(declaration: MapDeclaration, position: int, relations: Mapping[str, Relation]) -> bool:
    """Whether no entry of a map has NULL as its key at `position`, by the map's definition."""
    terms = declaration.definition.terms
    return bool(terms) and all(_binds_no_null(t, declaration.keys[position], relations) for t in terms)


def of_null_only(declaration: MapDeclaration, position: int) -> bool:
    """Whether all entries of a map have NULL as their key at `position`, by the map's definition."""
    terms = declaration.definition.terms
    absent = Val(is_null(declaration.keys[position]))
    return bool(terms) and all(absent in t for t in terms)


def _binds_no_null(term: Term, key: Var, relations: Mapping[str, Relation]) -> bool:
    for factor in term:
        match factor:
            case Val(scalar) if scalar == not_null(key):
                return True
            case Rel(name, arguments) if name in relations:
                columns = zip(relations[name].columns, arguments, strict=True)
                if any(argument == key and not column.nullable for column, argument in columns):
                    return True
            case Exists(group, Poly(terms)) if key in group and terms:
                if all(_binds_no_null(t, key, relations) for t in terms):
                    return True
    return False


# Cells of one prefix: a column of 64 bits is 1 MB of them, of which only touched pages are held.
MOST_CELLS = 1 << 17
# Prefixes up to which a dense store is the faster one: cells of more lie too far apart for the caches.
MOST_PREFIXES = 200

Reads = Iterable[RangeSum | Extremum | FirstKey | Loop]


def dense_of(
    relations: Mapping[str, Relation],
    group: Sequence[MapDeclaration],
    position: int,
    layout: str,
    reads: Reads,
    prefixes: int | None,
) -> Dense | None:
    """How the tree over the key at `position` of the maps of a group can be dense; None if it cannot.

    `reads` are all reads of trees in the program; `prefixes` is how many values the other keys have, where it
    was measured.
    """
    if set(layout) - set("iw") or (prefixes is not None and prefixes > MOST_PREFIXES):
        return None
    bounds = [_bounds(relations, d, position) for d in group]
    found = [b for b in bounds if b is not None]
    if len(found) < len(bounds):
        return None
    low, high = min(b[0] for b in found), max(b[1] for b in found)
    cursors = _cursors({d.name for d in group}, len(group[0].keys), position, reads)
    if cursors is None or not 0 < high - low < MOST_CELLS:
        return None
    descending = any(down for _, down in cursors)
    if not all(down == descending for _, down in cursors):
        return None
    return Dense(Domain(low, high - low + 1, descending), tuple(dict.fromkeys(c for c, _ in cursors)))


def _bounds(
    relations: Mapping[str, Relation], declaration: MapDeclaration, position: int
) -> tuple[int, int] | None:
    """The least and greatest value of a key that is a column which is never NULL in every term."""
    found = column_types(relations, declaration, position)
    if not found or not all(kind.exact for kind in found):
        return None
    return min(k.low for k in found), max(k.high for k in found)


def column_types(
    relations: Mapping[str, Relation], declaration: MapDeclaration, position: int
) -> list[Type] | None:
    """For every term the type of a column that is the key and never NULL; None where one has none."""
    key, found = declaration.keys[position], []
    for term in declaration.definition.terms:
        kinds = [
            kind for f in term if isinstance(f, Rel) for kind in _columns_of(relations[f.name], f.args, key)
        ]
        if not kinds:
            return None
        found.append(kinds[0])
    return found or None


def _columns_of(relation: Relation, arguments: Sequence[object], key: Var) -> Iterable[Type]:
    """The types of the columns that bind `key`."""
    for column, argument in zip(relation.columns, arguments, strict=True):
        if argument == key and not column.nullable:
            yield column.type


def is_one_row(
    relations: Mapping[str, Relation], declaration: MapDeclaration, known: Collection[int]
) -> bool:
    """Whether at most one entry of a map has given keys at the places `known`."""
    terms = declaration.definition.terms
    return bool(terms) and all(_is_one_row(relations, t, declaration.keys, known) for t in terms)


def _is_one_row(
    relations: Mapping[str, Relation], term: Term, keys: Sequence[Var], known: Collection[int]
) -> bool:
    """Whether the keys at the places `known` have a primary key of rows that bind all keys.

    A value that is computed from them, such as an extreme or a sum, is one, too.
    """
    bound: set[Scalar] = {keys[i] for i in known}
    around = {v for f in term for v in (bound_by(f) if isinstance(f, NESTED) else variable_set(f))}
    kinds = {
        a: c.type
        for f in term
        if isinstance(f, Rel)
        for a, c in zip(f.args, relations[f.name].columns, strict=True)
    }
    for _ in term:
        before = len(bound)
        for factor in term:
            match factor:
                case Rel(name, args):
                    key = key_of(relations[name], args)
                    if key is not None and bound.issuperset(key):
                        bound.update(args)
                case Lift(var, Poly(((Val(scalar),),))) if var in bound and _tells(scalar, kinds):
                    bound |= variable_set(Val(scalar))
                case Lift(var, body) | Extreme(var, _, _, body):
                    if bound.issuperset((variable_set(body) & around) - {var}):
                        bound.add(var)
        if len(bound) == before:
            break
    return bound.issuperset(keys)


def _tells(scalar: Scalar, kinds: Mapping[Scalar, Type]) -> bool:
    """Whether a scalar tells a column: it is its value or, where that is NULL, what no value is."""
    match scalar:
        case Apply("if", (Apply("not", (Apply("is_null", (column,)),)), value, Const(int() as instead))):
            kind = kinds.get(column) if column == value else None
            return kind is not None and kind.exact and not kind.low <= instead <= kind.high
    return False


def are_first_rows(declaration: MapDeclaration, known: Collection[int]) -> bool:
    """Whether entries with given keys at the places `known` are of the first so many rows of an order."""
    keys = {declaration.keys[i] for i in known}
    terms = declaration.definition.terms
    return bool(terms) and all(any(_is_of_first_rows(t, f, keys) for f in t) for t in terms)


def _is_of_first_rows(term: Term, running: Factor, keys: Collection[Var]) -> bool:
    """Whether a factor counts rows before the row at hand, all that share `keys` at most, and is small."""
    if not isinstance(running, Lift) or not any(_limits(f, running.var) for f in term):
        return False
    groups = (t for f in term if isinstance(f, Exists) for t in f.body.terms)
    rows = tuple(f for t in (term, *groups) for f in t)
    for row in (f for f in rows if isinstance(f, Rel)):
        shared = [_shared_with(row, rows, inner) for inner in running.body.terms]
        if shared and None not in shared and frozenset.intersection(*shared) <= {*keys}:  # type: ignore[arg-type]
            return True
    return False


def _limits(condition: Factor, value: Var) -> bool:
    """Whether a condition sets a constant limit to a value from above."""
    if not isinstance(condition, Cmp) or condition.op == "<>":
        return False
    form, _ = linear_form(Apply("-", (condition.left, condition.right))) or ({}, 0)
    upwards = condition.op in ("<", "<=", "=") if form.get(value, 0) > 0 else condition.op in (">", ">=", "=")
    return [*form] == [value] and upwards


def _shared_with(row: Rel, term: Term, counted: Term) -> frozenset[Var] | None:
    """The columns that rows counted have in common with the row; None where they are not others of its kind.

    Nor where they are asked for what the row is not.
    """
    rows = [f for f in counted if isinstance(f, Rel)]
    if [r.name for r in rows] != [row.name]:
        return None
    pairs = tuple(zip(rows[0].args, row.args, strict=True))
    own: dict[Var, Scalar] = {a: b for a, b in pairs if a != b and isinstance(a, Var)}
    asked = (
        f for f in counted if f is not rows[0] and known_not_null(f) is None and variable_set(f) <= own.keys()
    )
    if any(substitute_factor(f, own) not in term for f in asked):
        return None
    return frozenset(a for a, b in pairs if a == b and isinstance(a, Var))


def key_of(relation: Relation, row: Sequence[Scalar]) -> frozenset[Var] | None:
    """The variables that a row's primary key is of; None without one."""
    if not relation.primary_key:
        return None
    columns = zip(row, relation.columns, strict=True)
    return frozenset(a for a, c in columns if c.name in relation.primary_key and isinstance(a, Var))


def _cursors(names: set[str], keys: int, position: int, reads: Reads) -> list[tuple[Cursor, bool]] | None:
    """The cursors that the reads of a tree need, and which way each walks; None for any other read."""
    found = []
    for read in reads:
        within = read.range
        if within is None:
            continue
        cuts = [c for c in within.cuts if c.position == position and c.sums[0][1] in names]
        own = read.map in names and within.position == position
        if not own and not cuts:
            continue
        if not own or not isinstance(read, RangeSum) or within.low or within.high:
            return None
        if within.everything:
            continue
        prefix = tuple(read.keys[i] for i in range(keys) if i != position)
        cut = cuts[0] if cuts else None
        if (
            cut is None
            or len(within.cuts) != 1
            or not cut.leading
            or cut.prefix != prefix
            or cut.limit is None
        ):
            return None
        found.append((Cursor(cut.sums[0][1], cut.inclusive, cut.limit), cut.descending))
    return found


def levels(statements: Sequence[Statement], together: Sequence[Collection[str]] = ()) -> list[int]:
    """For each statement how late it comes: 0 reads the state before, others what lower ones wrote.

    together: names of maps that share their entries, which what the state after says is written of at once.
    """
    earliest: dict[str, int] = {}
    while True:
        written: dict[str, int] = {}
        said: dict[str, int] = {}
        found = []
        for statement in statements:
            level, target = 0, statement.target
            if statement.after:
                level = 1 + max((written.get(m, 0) for m in maps_in(statement.value)), default=0)
                if statement.op == ":=":
                    level = said[target] = max(level, earliest.get(target, 0))
                written[target] = max(level, written.get(target, 0))
            found.append(level)
        late = {
            name: max(said[own] for own in said.keys() & group) for group in together for name in group
            if name in said
        }  # fmt: skip
        if all(said[name] == level for name, level in late.items()):
            return found
        earliest = late


def sharing(program: Program) -> list[list[MapDeclaration]]:
    """Maps that every trigger writes together, at one and the same key: they can share their entries.

    A map whose extreme keys are read shares none, so that an entry of its store is one of its own.
    """
    writes: defaultdict[str, list[object]] = defaultdict(list)
    alone = {s.target for s in program.initial} | set(_extremes_of(program))
    for number, trigger in enumerate(program.triggers):
        for level, statement in zip(levels(trigger.statements), trigger.statements, strict=True):
            free = {v for k in statement.keys for v in scalar_variables(k)} - set(trigger.parameters)
            if free:
                alone.add(statement.target)
            writes[statement.target].append((number, level, statement.op, statement.keys))
    groups: dict[object, list[MapDeclaration]] = {}
    for declaration in program.maps:
        own = writes[declaration.name]
        twice = len({w[:1] for w in own}) != len(own)  # type: ignore[index]
        signature: object = (
            declaration.name if twice or declaration.name in alone else (declaration.key_types, tuple(own))
        )
        groups.setdefault(signature, []).append(declaration)
    return [part for group in groups.values() for part in _counted_alike(group)]


def fewer_apart(
    program: Program, groups: list[list[MapDeclaration]], walked: Collection[str]
) -> list[list[MapDeclaration]]:
    """Groups of maps that share entries, less those that are walked and have fewer entries than others."""
    conditions: dict[str, frozenset[Factor]] = {}
    for trigger in program.triggers:
        for statement in trigger.statements:
            own = frozenset.intersection(*map(_conditions, statement.value.terms or ((),)))
            conditions[statement.target] = conditions.get(statement.target, own) & own
    result: list[list[MapDeclaration]] = []
    for group in groups:
        parts: dict[frozenset[Factor] | None, list[MapDeclaration]] = {}
        wide = [conditions.get(d.name, frozenset[Factor]()) for d in group]
        for declaration, own in zip(group, wide, strict=True):
            fewer = declaration.name in walked and not all(own <= other for other in wide)
            parts.setdefault(own if fewer else None, []).append(declaration)
        result += (part for own in parts.values() for part in _counted_alike(own))
    return result


def _conditions(term: Term) -> frozenset[Factor]:
    return frozenset(f for f in term if isinstance(f, Cmp) or (isinstance(f, Val) and is_condition(f.scalar)))


def _counted_alike(group: Sequence[MapDeclaration]) -> Iterable[list[MapDeclaration]]:
    """The group, less doubles that are counted outside of it, whose entries stay while their count does."""
    names = {d.name for d in group}
    parts: dict[str | None, list[MapDeclaration]] = {}
    for declaration in group:
        outside = None if declaration.count in names else declaration.count
        parts.setdefault(outside, []).append(declaration)
    return parts.values()


def _extremes_of(program: Program) -> Iterator[str]:
    """Names of the maps of which an Extreme goes through keys, rather than look one up."""
    read = [(s.value, frozenset[Var]()) for s in program.initial]
    read += [(s.value, frozenset(t.parameters)) for t in program.triggers for s in t.statements]
    for result in program.all_results:
        known = frozenset(key.variable for key in result.keys)
        for variable, poly in result.lets:
            read.append((poly, known))
            known |= {variable}
    for poly, known in read:
        for extreme in _extremes(poly):
            yield from (r.name for r in map_reads(extreme.body) if not _variables(r.keys) <= known)


def _variables(scalars: Iterable[Scalar]) -> frozenset[Var]:
    return frozenset(v for scalar in scalars for v in scalar_variables(scalar))


def _extremes(node: Factor | Term | Poly) -> Iterator[Extreme]:
    if isinstance(node, Poly):
        for term in node.terms:
            yield from _extremes(term)
    elif isinstance(node, tuple):
        for factor in node:
            yield from _extremes(factor)
    elif isinstance(node, Extreme):
        yield node
    elif hasattr(node, "body"):
        yield from _extremes(node.body)


@dataclass(slots=True)
class Access:
    """How maps are read: slices and scans (by known positions), trees (ordered position), sums of trees."""

    hashed: defaultdict[str, set[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(set))
    ordered: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    summed: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    ranged: list[RangeSum | Extremum | FirstKey | Loop] = field(default_factory=list)

    def read_all(self, pipelines: Iterable[Pipeline]) -> None:
        for step in steps_of(pipelines):
            within = step.range if isinstance(step, RangeSum | Extremum | FirstKey | Loop) else None
            if isinstance(step, Loop) and within is None:
                self.hashed[step.map].add(step.known if len(step.known) < len(step.keys) else ())
            elif isinstance(step, RangeSum | Extremum | FirstKey | Loop) and within is not None:
                self.ranged.append(step)
                self.ordered[step.map].add(within.position)
                if isinstance(step, RangeSum):
                    self.summed[step.map].add(within.position)
                for cut in within.cuts:
                    for _, name in cut.sums:
                        self.ordered[name].add(cut.position)
                        self.summed[name].add(cut.position)


def stores_for(
    types: Mapping[str, Type],
    relations: Mapping[str, Relation],
    group: Sequence[MapDeclaration],
    access: Access,
    statistics: Statistics | None,
) -> list[Store]:
    """The stores of a group: a hashed one for look-ups, slices and scans, a tree for every ordered key."""
    names = tuple(d.name for d in sorted(group, key=lambda d: d.type.kind is Kind.DOUBLE))
    key_types = group[0].key_types
    layout = "".join(layout_of(types[n]) for n in names)
    if "d" in layout and "i" not in layout:
        layout += "i"
    slices = sorted({p for n in names for p in access.hashed.get(n, ())})
    positions = sorted({p for n in names for p in access.ordered.get(n, ())})
    stores = []
    if slices or not positions:
        stores.append(Store(names[0], names, key_types, layout, slices=tuple(p for p in slices if p)))
    for position in positions:
        prefix = tuple(i for i in range(len(key_types)) if i != position)
        prefixes = None if statistics is None else _prefixes(statistics, group[0].name, prefix)
        dense = dense_of(relations, group, position, layout, access.ranged, prefixes)
        name = f"{names[0]}_by_{position}"
        nullable = not all(excludes_null(d, position, relations) for d in group)
        summed = set(layout) != {"i"} or dense is not None or any(position in access.summed[n] for n in names)
        stores.append(Store(name, names, key_types, layout, prefix, position, (), dense, nullable, summed))
    return stores


def _prefixes(statistics: Statistics, name: str, prefix: Sequence[int]) -> int | None:
    """How many values the keys at `prefix` have; None where that was not measured."""
    if not statistics.loop_length(name, prefix):
        return None
    return distinct(statistics, name, statistics.entries.get(name, 0), prefix)


def layout_of(kind: Type) -> str:
    """The value column of a map: 64 bits, 128 bits, 128 bits checked, or a compensated double."""
    if kind.kind is Kind.DOUBLE:
        return "d"
    bound = max(abs(kind.low), abs(kind.high))
    return "i" if bound <= INT64_MAX else "w" if bound <= INT128_MAX else "W"


def key_type(kind: Type) -> Type:
    """The type of a key as a map holds it: in 64 bits, whatever the value that makes it may be."""
    return replace(kind, low=max(kind.low, -INT64_MAX), high=min(kind.high, INT64_MAX))
