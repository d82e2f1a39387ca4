"""Joins M3 written by hand to the program compiled from SQL.

It is checked against the program it joins; every error has its line and column.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orderbook.views.calculus import (
    COMPARISONS,
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    maps_read,
    product,
    substitute,
    substitute_scalar,
    variable_set,
)
from orderbook.views.intervals import exact, scalar_type
from orderbook.views.m3 import MapDeclaration, Program, Result, Statement, Trigger
from orderbook.views.m3_parse import Places, parse
from orderbook.views.maintenance.ordering import named, ordered_term, ordered_triggers
from orderbook.views.names import apart_from
from orderbook.views.program import CalculusView, ViewColumn, ViewKey
from orderbook.views.scalars import calendar, reals, texts
from orderbook.views.types import DOUBLE, INT128_MAX, Kind, Relation, Type, unscaled

# How many arguments functions take, the least and the most.
_ARGUMENTS = {
    **dict.fromkeys(("neg", "not", "is_null", "abs", "sign", "is_finite", "rest"), (1, 1)),
    **dict.fromkeys(("sqrt", "ln", "log10", "exp", "floor", "ceil", "trunc", *reals.TRIGONOMETRY), (1, 1)),
    **dict.fromkeys((*COMPARISONS, "+", "-", "*", "/", "and", "or", "power", "round", "atan2"), (2, 2)),
    **dict.fromkeys(("floor_div", "ceil_div", "trunc_div", "round_div", "mod", "double", "exact"), (2, 2)),
    **dict.fromkeys(("date_part", "date_trunc", "like", "ilike"), (2, 2)),
    "if": (3, 3),
    "spread": (4, 4),
    "third": (5, 5),
    "fourth": (8, 8),
    **dict.fromkeys(("least", "greatest"), (1, 1000)),
    **{name: (len(own.arguments),) * 2 for name, own in texts.FUNCTIONS.items()},
}
# The most decimal places of a scaled integer: a double holds 10 to this power.
_MOST_PLACES = 300


class M3Check:
    """Checks the parts of one text; `program` holds what SQL and earlier texts declare."""

    def __init__(self, program: Program, places: Places):
        self.relations = {r.name: r for r in program.relations}
        self.maps = {m.name: m for m in program.maps}
        self.results = {r.name for r in program.results}
        self.own: set[str] = set()
        self.places = places

    def relation(self, relation: Relation) -> None:
        """A stream that M3 declares must be the one that SQL declares."""
        if self.relations.get(relation.name) != relation:
            raise self.places.error(
                f"{relation.name} is not declared so in SQL; declare it with CREATE STREAM or CREATE TABLE",
                relation,
            )

    def map(self, declaration: MapDeclaration) -> None:
        """Declares a map."""
        self._new(declaration.name, declaration)
        self._factors(declaration, declaration.definition, reads_maps=False)
        if declaration.count is not None:
            count = self._map(declaration.count, len(declaration.keys), declaration)
            if _class(count.type) != "exact":
                raise self.places.error(f"map {count.name} does not count: it is of DOUBLE", declaration)
        elif not declaration.type.exact:
            raise self.places.error(
                f"map {declaration.name} of DOUBLE needs COUNT and the map that counts its rows", declaration
            )
        self.maps[declaration.name] = declaration
        self.own.add(declaration.name)

    def trigger(self, trigger: Trigger) -> None:
        """Every statement of a trigger."""
        relation = self.relations.get(trigger.relation)
        if relation is None:
            raise self.places.error(f"unknown stream {trigger.relation}", trigger)
        if len(trigger.parameters) != len(relation.columns):
            raise self.places.error(
                f"{relation.name} has {len(relation.columns)} columns, not {len(trigger.parameters)}", trigger
            )
        columns = zip(trigger.parameters, relation.columns, strict=True)
        event = {p: unscaled(c.type) for p, c in columns}
        for statement in trigger.statements:
            self.statement(statement, event)

    def statement(self, statement: Statement, event: Mapping[Var, Type]) -> None:
        """A statement of a trigger, or of INITIAL when there is no event."""
        target = self._map(statement.target, len(statement.keys), statement)
        if target.name not in self.own:
            raise self.places.error(
                f"map {target.name} is not declared in this M3, which may only read it", statement
            )
        self._factors(statement, statement.value, reads_maps=True)
        for term in statement.value.terms:
            types = dict(event)
            value = self._term(statement, term, types)
            if _class(value) != _class(target.type):
                raise self.places.error(
                    f"map {target.name} holds {target.type}, the statement adds {value}", statement
                )
            for key, kind in zip(statement.keys, target.key_types, strict=True):
                self._same(self._scalar(statement, key, types), kind, statement, f"a key of {target.name}")

    def result(self, result: Result) -> None:
        """Declares a view."""
        self._new(result.name, result)
        types = {k.variable: unscaled(k.type) for k in result.keys}
        if result.multiplicity is not None:
            rows = self._map(result.multiplicity, len(result.keys), result)
            for key, kind in zip(result.keys, rows.key_types, strict=True):
                self._same(unscaled(key.type), kind, result, f"key {key.name}")
        elif result.keys:
            raise self.places.error(f"view {result.name} needs GROUPS or ROWS and a map for its keys", result)
        for variable, poly in result.lets:
            self._factors(result, poly, reads_maps=True)
            types[variable] = self._sum(result, poly, types)
        for column in result.columns:
            self._scalar(result, column.valid, types)
            self._same(
                self._scalar(result, column.scalar, types), column.type, result, f"column {column.name}"
            )
        self.results.add(result.name)

    def _new(self, name: str, node: object) -> None:
        for what, names in (("stream", self.relations), ("map", self.maps), ("view", self.results)):
            if name in names:
                raise self.places.error(f"{name} is already the name of a {what}; choose another", node)

    def _map(self, name: str, keys: int, node: object) -> MapDeclaration:
        if name not in self.maps:
            raise self.places.error(f"unknown map {name}; declare it above its use", node)
        found = self.maps[name]
        if len(found.keys) != keys:
            raise self.places.error(f"map {name} has {len(found.keys)} keys, not {keys}", node)
        return found

    def _factors(self, owner: object, poly: Poly, reads_maps: bool) -> None:
        for factor in _factors(poly):
            if isinstance(factor, Rel):
                if factor.name not in self.relations:
                    raise self.places.error(f"unknown stream {factor.name}", factor)
                if reads_maps:
                    raise self.places.error(
                        f"a statement reads maps only; keep the rows of {factor.name} in a map", factor
                    )
                columns = len(self.relations[factor.name].columns)
                if len(factor.args) != columns:
                    raise self.places.error(
                        f"{factor.name} has {columns} columns, not {len(factor.args)}", factor
                    )
            elif isinstance(factor, MapRef):
                if not reads_maps:
                    raise self.places.error("a map's definition reads streams, not maps", factor)
                self._map(factor.name, len(factor.keys), factor)

    def _term(self, owner: object, term: Term, types: dict[Var, Type]) -> Type:
        """The type of a term's value; the variables it binds are added to `types`."""
        try:
            ordered = ordered_term(term, frozenset(types))
        except ValueError:
            raise self.places.error("no factor binds one of the variables that this uses", owner) from None
        value = exact(1, 1)
        for factor in ordered:
            found = self._factor(owner, factor, types)
            value = DOUBLE if DOUBLE in (value, found) else value
        return value

    def _factor(self, owner: object, factor: Factor, types: dict[Var, Type]) -> Type:
        match factor:
            case MapRef(name, keys):
                for key, kind in zip(keys, self.maps[name].key_types, strict=True):
                    if isinstance(key, Var) and key not in types:
                        types[key] = kind
                    self._same(self._scalar(owner, key, types), kind, factor, f"a key of {name}")
                return self.maps[name].type
            case Val(scalar):
                kind = self._scalar(owner, scalar, types)
                if kind.kind is Kind.TEXT:
                    raise self.places.error("a text is not a value", owner)
                return kind
            case Cmp(_, left, right):
                self._same(
                    self._scalar(owner, left, types), self._scalar(owner, right, types), owner, "a comparison"
                )
            case Lift(var, body):
                types.setdefault(var, self._sum(owner, body, types))
            case Exists(group, body):
                inner = self._inside(owner, body, types, group)
                types |= {v: inner[v] for v in group if v in inner}
            case Extreme(var, _, value, body):
                inner = self._inside(owner, body, types, (value,))
                types.setdefault(var, inner.get(value, exact(0, 0)))
        return exact(0, 1)

    def _sum(self, owner: object, poly: Poly, types: Mapping[Var, Type]) -> Type:
        match poly.terms:
            case ((Val(scalar),),):
                return self._scalar(owner, scalar, types)
        kinds = [self._term(owner, t, dict(types)) for t in poly.terms]
        return DOUBLE if DOUBLE in kinds else exact(-(2**63) + 1, 2**63 - 1)

    def _inside(
        self, owner: object, body: Poly, types: Mapping[Var, Type], wanted: Sequence[Var]
    ) -> dict[Var, Type]:
        """The types of variables inside a sum; each of its terms binds those that are wanted of it."""
        found: dict[Var, Type] = {}
        for term in body.terms:
            inner = dict(types)
            self._term(owner, term, inner)
            for variable in wanted:
                if variable not in inner:
                    raise self.places.error(f"nothing binds {variable.name}", owner)
            found |= inner
        return found

    def _scalar(self, owner: object, scalar: Scalar, types: Mapping[Var, Type]) -> Type:
        try:
            _check_form(scalar, types)
            return scalar_type(scalar, types)
        except KeyError as error:
            raise self.places.error(f"nothing binds {error.args[0].name}", owner) from None
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise self.places.error(f"cannot be computed: {error}", owner) from None

    def _same(self, found: Type, expected: Type, node: object, what: str) -> None:
        if _class(found) != _class(expected):
            raise self.places.error(f"{what} is {expected}, not {found}", node)


def _check_form(scalar: Scalar, types: Mapping[Var, Type]) -> None:
    """Raises ValueError where a function, or what it is given, is not in the calculus."""
    if isinstance(scalar, Const) and isinstance(scalar.value, int) and abs(scalar.value) > INT128_MAX:
        raise ValueError("a constant that 128 bits do not hold")
    if not isinstance(scalar, Apply):
        return
    op, args = scalar.op, scalar.args
    if op not in _ARGUMENTS:
        raise ValueError(f"unknown function {op}")
    least, most = _ARGUMENTS[op]
    if not least <= len(args) <= most:
        raise ValueError(f"{op} takes {least if least == most else 'one or more'}, not {len(args)} arguments")
    match scalar:
        case Apply("date_part" | "date_trunc", (Const(str() as unit), moment)):
            if unit not in (calendar.UNITS if op == "date_trunc" else calendar.PARTS):
                raise ValueError(f"unknown unit {unit!r} of {op}")
            args = (moment,)
        case Apply("call"):
            raise ValueError("functions in Python are called by SQL alone")
        case Apply("date_part" | "date_trunc"):
            raise ValueError(f"{op} takes the name of a unit first")
        case Apply("like" | "ilike", (text, Const(str()))):
            if scalar_type(text, types).kind is not Kind.TEXT:
                raise ValueError(f"{op} takes a text")
            args = (text,)
        case Apply("like" | "ilike"):
            raise ValueError(f"{op} takes a constant pattern")
        case Apply("double" | "exact", (value, Const(int() as places))) if 0 <= places <= _MOST_PLACES:
            args = (value,)
        case Apply("double" | "exact"):
            raise ValueError(f"{op} takes a number of decimal places up to {_MOST_PLACES}")
        case Apply() if op in texts.FUNCTIONS:
            _check_texts(op, [scalar_type(a, types) for a in args])
    for argument in args:
        _check_form(argument, types)


def _check_texts(op: str, kinds: Sequence[Type]) -> None:
    wanted = {"t": "text", "d": "double"}
    for place, (letter, kind) in enumerate(zip(texts.FUNCTIONS[op].arguments, kinds, strict=True), 1):
        if _class(kind) != wanted.get(letter, "exact"):
            raise ValueError(f"argument {place} of {op} is {wanted.get(letter, 'exact')}, not {_class(kind)}")


def _class(kind: Type) -> str:
    return {Kind.DOUBLE: "double", Kind.TEXT: "text"}.get(kind.kind, "exact")


def _factors(poly: Poly) -> Iterable[Factor]:
    for term in poly.terms:
        for factor in term:
            yield factor
            if isinstance(factor, NESTED):
                yield from _factors(factor.body)


M3_TEXT = re.compile(r"(\s|--[^\n]*\n)*(STREAM|TABLE|MAP|INITIAL|ON|VIEW)\b")


def is_m3(file: str | None, text: str) -> bool:
    """Whether a text is M3: its file ends in .m3, or it begins as only M3 does."""
    return (file is not None and file.endswith(".m3")) or M3_TEXT.match(text) is not None


def maps_by_hand(texts: Iterable[tuple[str | None, str]]) -> frozenset[str]:
    """Names of the maps that the M3 among the texts declares."""
    parsed = [parse(text, file)[0] for file, text in texts if is_m3(file, text)]
    return frozenset(m.name for program in parsed for m in program.maps)


def linked(program: Program, texts: Iterable[tuple[str | None, str]]) -> Program:
    """The program with the maps, triggers and views of M3 texts.

    A text may read every map declared before it and change its own. Raises SqlError with line and
    column for names that collide or are unknown, wrong numbers of keys, types that differ, and maps
    that depend on each other in a cycle.
    """
    for file, text in texts:
        own, places = parse(text, file)
        _check(program, own, places)
        program = named(_joined(program, own))
    return program


def view_of(result: Result) -> CalculusView:
    """A view that M3 declares, as the calculus has it: over maps."""
    keys = tuple(k.variable for k in result.keys)
    rows = None if result.multiplicity is None else product(MapRef(result.multiplicity, keys))
    return CalculusView(
        result.name,
        tuple(ViewKey(k.variable, k.name, k.type) for k in result.keys),
        rows,
        result.grouped,
        result.lets,
        tuple(ViewColumn(c.name, c.type, c.scalar, c.valid) for c in result.columns),
    )


def _check(program: Program, own: Program, places: Places) -> None:
    check = M3Check(program, places)
    for pattern in own.patterns:
        raise places.error("MATCHES is made of MATCH_RECOGNIZE in SQL; declare the view there", pattern)
    for relation in own.relations:
        check.relation(relation)
    for declaration in own.maps:
        check.map(declaration)
    for statement in own.initial:
        check.statement(statement, {})
    for trigger in own.triggers:
        check.trigger(trigger)
    for result in own.results:
        check.result(result)
    _check_acyclic([s for t in own.triggers for s in t.statements], places)


def _check_acyclic(statements: Sequence[Statement], places: Places) -> None:
    """Refuses maps whose maintenance reads each other; a map may read itself."""
    reads: dict[str, dict[str, Statement]] = {}
    for statement in statements:
        for name in sorted(maps_read(statement.value) - {statement.target}):
            reads.setdefault(statement.target, {}).setdefault(name, statement)
    done: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = (*path[path.index(name) :], name)
            raise places.error(
                f"maps depend on each other in a cycle: {' -> '.join(cycle)}; "
                "compute one of them from the event or from other maps",
                reads[cycle[0]][cycle[1]],
            )
        if name not in done:
            for read in reads.get(name, ()):
                follow(read, (*path, name))
            done.add(name)

    for name in list(reads):
        follow(name, ())


def _joined(program: Program, own: Program) -> Program:
    maps = (*program.maps, *own.maps)
    triggers = {(t.relation, t.insert): t for t in program.triggers}
    for trigger in own.triggers:
        place = (trigger.relation, trigger.insert)
        before = triggers.get(place, replace(trigger, statements=()))
        statements = tuple(_renamed(s, trigger, before) for s in trigger.statements)
        triggers[place] = replace(before, statements=(*before.statements, *statements))
    ordered = ordered_triggers(triggers.values(), {m.name: m.count for m in maps})
    initial = (*program.initial, *own.initial)
    return replace(
        program, maps=maps, initial=initial, triggers=ordered, results=(*program.results, *own.results)
    )


def _renamed(statement: Statement, trigger: Trigger, target: Trigger) -> Statement:
    """The statement with the parameters' names of another trigger of the same event."""
    names: Mapping[Var, Var] = dict(zip(trigger.parameters, target.parameters, strict=True))
    local = variable_set(statement.value) - set(names)
    names = {**names, **apart_from(local, set(target.parameters))}
    return replace(
        statement,
        keys=tuple(substitute_scalar(k, names) for k in statement.keys),
        value=substitute(statement.value, names),
    )
