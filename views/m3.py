"""M3: maps, the triggers that maintain them, and the views read from them (Cumulus, section 2); and its text.

`m3_parse.parse` reads the text back to the same program. A condition on the rows of a view is a scalar over
the view's columns, which `over_lets` puts over what the columns are read from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from orderbook.views.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    maps_read,
    relations,
    substitute_scalar,
)
from orderbook.views.types import (
    BIGINT,
    BOOLEAN,
    DEFAULT_MAX_ROWS,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Column,
    Kind,
    Relation,
    Type,
    decimal,
)


@dataclass(frozen=True, slots=True)
class MapDeclaration:
    """A map from key values to one value; an absent entry is 0.

    `definition` is what the map holds, as a polynomial over relations summed for each binding of
    `keys` (documentation, and what a new view is filled from). A map of doubles names the map that
    counts the same rows in `count`: its entry is gone when that count is 0, whatever rounding left.
    """

    name: str
    keys: tuple[Var, ...]
    key_types: tuple[Type, ...]
    type: Type
    definition: Poly
    count: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """`target[keys] op value`, for every binding of the variables the event does not bind.

    `+=` reads the state before the event unless `after`; `:=` replaces all entries that agree with
    the bound keys by the value, and reads the state after the event's other changes.
    """

    target: str
    keys: tuple[Scalar, ...]
    op: str
    value: Poly
    after: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """The statements for one inserted or deleted row of a relation, in an order that may be run."""

    relation: str
    insert: bool
    parameters: tuple[Var, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class ResultKey:
    """A key of a view's rows; `type` has the scale its values are shown with."""

    variable: Var
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a view: a scalar over keys and lets where `valid` holds (not 0), else NULL."""

    name: str
    type: Type
    scalar: Scalar
    valid: Scalar


@dataclass(frozen=True, slots=True)
class Result:
    """How a view is read.

    Rows are the entries of `multiplicity`, each standing for as many equal rows as its value (one
    when `grouped`); without that map there is exactly one row. `lets` are bound in order, for each
    row's keys, then the columns.
    """

    name: str
    keys: tuple[ResultKey, ...]
    multiplicity: str | None
    grouped: bool
    lets: tuple[tuple[Var, Poly], ...]
    columns: tuple[ResultColumn, ...]

    @property
    def shown_keys(self) -> list[str]:
        """The keys of rows, those of expressions by the columns that show them."""
        shown = {column.scalar: column.name for column in reversed(self.columns)}
        return [shown.get(key.variable, key.name) for key in self.keys]


def row_value(back: int, column: int) -> Var:
    """The value of a column in the row so many rows before the one at hand."""
    return Var(f"r{back}_c{column}")


def row_there(back: int, column: int) -> Var:
    """Whether it is there: 1, or 0 for NULL and where there is no such row."""
    return Var(f"r{back}_t{column}")


def kept_value(number: int) -> Var:
    """What is kept of a match's rows, by its place."""
    return Var(f"kept_{number}")


def kept_there(number: int) -> Var:
    """Whether it is there: 1, or 0 for NULL."""
    return Var(f"there_{number}")


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of the rows of a match: first, last, count, sum, min or max of a value, or the variable.

    Over the rows of these pattern variables, by number, or of all where there are none, where `valid` holds;
    `first` and `last` are of a row, valid or not.
    """

    how: str
    variables: tuple[int, ...]
    value: Scalar
    valid: Scalar
    type: Type


@dataclass(frozen=True, slots=True)
class RowPattern:
    """A pattern in the rows of a result; the rows of the relation `name` are its matches.

    `partition` and `order` are places of columns, each of the order with whether it descends: a total order
    within a partition. Positions of the automaton ask for a variable each (`variable_of`), whose condition
    reads `row_value`, `kept_value` and whether these are there; `first` positions begin a match, and `follow`
    each other, the preferred first, where END (pattern_automaton.py) ends it. With `overlapping` a match
    begins at every row that one can, else after the last row of the one before. `within`: the first column of
    the order rises by less from the first to the last row. `back`: how many rows before one are read.
    `columns` are read at the last row.
    """

    name: str
    rows: Result
    partition: tuple[int, ...]
    order: tuple[tuple[int, bool], ...]
    variable_of: tuple[int, ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]
    conditions: tuple[Scalar, ...]
    kept: tuple[Kept, ...]
    overlapping: bool
    within: int | float | None
    back: int
    columns: tuple[ResultColumn, ...]


@dataclass(frozen=True)
class Program:
    """A whole program; `initial` statements run once on empty maps.

    After an event the matches of `patterns` follow from their rows, one pattern after the other: what goes
    and comes are changes of relations, and part of that event.
    """

    relations: tuple[Relation, ...]
    maps: tuple[MapDeclaration, ...]
    initial: tuple[Statement, ...]
    triggers: tuple[Trigger, ...]
    results: tuple[Result, ...]
    patterns: tuple[RowPattern, ...] = ()

    @property
    def all_results(self) -> tuple[Result, ...]:
        """The views, then the rows that patterns are sought in."""
        return (*self.results, *(pattern.rows for pattern in self.patterns))

    def made_of(self, relation: str) -> frozenset[str]:
        """The relations whose rows make those of a relation: itself, or those that its pattern reads."""
        for pattern in self.patterns:
            if pattern.name == relation:
                read = [relations(self.map(name).definition) for name in result_maps(pattern.rows)]
                return frozenset().union(*(self.made_of(one) for names in read for one in names))
        return frozenset((relation,))

    @cached_property
    def map_names(self) -> Mapping[str, MapDeclaration]:
        """The maps by their names."""
        return {m.name: m for m in self.maps}

    @cached_property
    def counted(self) -> Mapping[str, tuple[str, ...]]:
        """The maps of doubles by the map that counts their rows."""
        found: dict[str, tuple[str, ...]] = {}
        for declaration in self.maps:
            if declaration.count is not None:
                found[declaration.count] = (*found.get(declaration.count, ()), declaration.name)
        return found

    def map(self, name: str) -> MapDeclaration:
        return self.map_names[name]

    def result(self, name: str) -> Result:
        return next(r for r in self.results if r.name == name)

    def relation(self, name: str) -> Relation:
        return next(r for r in self.relations if r.name == name)


def result_maps(result: Result) -> frozenset[str]:
    """The maps that the rows of a view are read from."""
    read = {name for _, poly in result.lets for name in maps_read(poly)}
    return frozenset(read | ({result.multiplicity} if result.multiplicity else set()))


INFIX = ("+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">=", "and", "or")
PLAIN = {"INTEGER": INTEGER, "BIGINT": BIGINT, "TEXT": TEXT, "TIMESTAMP": TIMESTAMP, "BOOLEAN": BOOLEAN}


def program_text(program: Program) -> str:
    """The whole program: streams, maps, initial statements, triggers, views."""
    blocks = ["\n".join(relation_text(r) for r in program.relations)]
    blocks.append("\n".join(map_text(m) for m in program.maps))
    if program.initial:
        blocks.append("INITIAL {\n" + _body(program.initial) + "}")
    blocks += [trigger_text(t) for t in program.triggers]
    blocks += [result_text(r) for r in program.results]
    blocks += [pattern_text(p) for p in program.patterns]
    return "\n\n".join(b for b in blocks if b) + "\n"


def relation_text(relation: Relation) -> str:
    columns = ", ".join(_column(c) for c in relation.columns)
    rows = "" if relation.max_rows == DEFAULT_MAX_ROWS else f" MAX {relation.max_rows}"
    source = "" if relation.source is None else f" SOURCE {_quoted(relation.source)}"
    key = f" PRIMARY KEY ({', '.join(relation.primary_key)})" if relation.primary_key else ""
    retain = "" if relation.retain is None else f" RETAIN {relation.retain} BY {relation.retain_by}"
    what = "TABLE" if relation.static else "STREAM"
    return f"{what} {relation.name}({columns}){rows}{source}{key}{retain};"


def _column(column: Column) -> str:
    return f"{column.name} {type_text(column.type)}{' NULL' if column.nullable else ''}"


def type_text(kind: Type) -> str:
    """The type's SQL name, or its kind with the interval of its scaled integer where no name says it."""
    if kind.kind is Kind.DOUBLE:
        return str(kind.kind.value)
    for name, plain in PLAIN.items():
        if plain == kind:
            return name
    precision = len(str(kind.high))
    if kind == decimal(precision, kind.scale):
        return f"DECIMAL({precision}, {kind.scale})"
    return f"{kind.kind.value}{f'({kind.scale})' if kind.scale else ''}[{kind.low}..{kind.high}]"


def map_text(declaration: MapDeclaration) -> str:
    keys = ", ".join(
        f"{k.name} {type_text(t)}" for k, t in zip(declaration.keys, declaration.key_types, strict=True)
    )
    count = f" COUNT {declaration.count}" if declaration.count else ""
    head = f"MAP {declaration.name}[{keys}] {type_text(declaration.type)}{count}"
    return f"{head} =\n  {poly_text(declaration.definition)};"


def trigger_text(trigger: Trigger) -> str:
    """One trigger, `ON + relation(parameters) { statements }`."""
    parameters = ", ".join(p.name for p in trigger.parameters)
    head = f"ON {'+' if trigger.insert else '-'} {trigger.relation}({parameters})"
    return f"{head} {{\n{_body(trigger.statements)}}}"


def _body(statements: tuple[Statement, ...]) -> str:
    return "".join(f"  {statement_text(s)};\n" for s in statements)


def statement_text(statement: Statement) -> str:
    after = "after " if statement.after and statement.op == "+=" else ""
    keys = ", ".join(scalar_text(k) for k in statement.keys)
    return f"{after}{statement.target}[{keys}] {statement.op} {poly_text(statement.value)}"


def result_text(result: Result) -> str:
    """How a view is read: its keys, the map that counts its rows, lets, columns."""
    keys = ", ".join(f"{k.variable.name} {type_text(k.type)} {k.name}" for k in result.keys)
    head = f"VIEW {result.name}[{keys}]"
    if result.multiplicity is not None:
        head += f" {'GROUPS' if result.grouped else 'ROWS'} {result.multiplicity}"
    lines = [f"  {v.name} = {poly_text(p)};\n" for v, p in result.lets]
    for column in result.columns:
        value = _when(column.scalar, column.valid)
        lines.append(f"  COLUMN {column.name} {type_text(column.type)} = {value};\n")
    return head + " {\n" + "".join(lines) + "}"


def pattern_text(pattern: RowPattern) -> str:
    """A row pattern: the rows it is sought in, then what it is."""
    order = ", ".join(f"{place} DESC" if descending else str(place) for place, descending in pattern.order)
    lines = [f"PARTITION {', '.join(map(str, pattern.partition))}", f"ORDER {order}", f"BACK {pattern.back}"]
    lines += ["SKIP NEXT"] * pattern.overlapping
    lines += [] if pattern.within is None else [f"WITHIN {pattern.within!r}"]
    lines += [f"FIRST {', '.join(map(str, pattern.first))}"]
    for variable, follow in zip(pattern.variable_of, pattern.follow, strict=True):
        lines.append(f"POSITION {variable}: {', '.join(map(str, follow))}")
    for kept in pattern.kept:
        of = "".join(f" {v}" for v in kept.variables)
        lines.append(f"KEEP {kept.how}{of} {type_text(kept.type)} = {_when(kept.value, kept.valid)}")
    lines += [f"DEFINE {scalar_text(condition)}" for condition in pattern.conditions]
    lines += [f"COLUMN {c.name} {type_text(c.type)} = {_when(c.scalar, c.valid)}" for c in pattern.columns]
    body = "".join(f"  {line};\n" for line in lines)
    return f"MATCHES {pattern.name} OF {result_text(pattern.rows).removeprefix('VIEW ')} {{\n{body}}}"


def _when(value: Scalar, valid: Scalar) -> str:
    return scalar_text(value) + ("" if valid == Const(1) else f" WHEN {scalar_text(valid)}")


def poly_text(poly: Poly) -> str:
    return " + ".join(term_text(t) for t in poly.terms) or "0"


def term_text(term: Term) -> str:
    return " * ".join(factor_text(f) for f in term) or "1"


def factor_text(factor: Factor) -> str:
    match factor:
        case Rel(name, args):
            return f"{name}({', '.join(map(scalar_text, args))})"
        case MapRef(name, keys):
            return f"{name}[{', '.join(map(scalar_text, keys))}]"
        case Val(Var() | Const() as scalar):
            return scalar_text(scalar)
        case Val(scalar):
            return f"[{scalar_text(scalar)}]"
        case Cmp(op, left, right):
            return f"{{{scalar_text(left)} {op} {scalar_text(right)}}}"
        case Lift(var, body):
            return f"({var.name} ^= {poly_text(body)})"
        case Exists(group, body):
            return f"EXISTS[{', '.join(v.name for v in group)}]({poly_text(body)})"
        case Extreme(var, greatest, value, body):
            return f"({var.name} ^= {'MAX' if greatest else 'MIN'}[{value.name}]({poly_text(body)}))"
        case Neighbour(found, there, greatest, values, order, partition, body, _, away):
            names = ", ".join(v.name for v in (found, *there))
            places = zip(values, greatest, order, strict=True)
            nearest = ", ".join(f"{v.name} {'<' if g else '>'} {scalar_text(o)}" for v, g, o in places)
            by = f" BY {', '.join(map(scalar_text, partition))}" if partition else ""
            steps = f" {away}" if away else ""
            return f"({names} ^= NEXT{steps}[{nearest}{by}]({poly_text(body)}))"
    raise TypeError(factor)


def scalar_text(scalar: Scalar) -> str:
    match scalar:
        case Var(name):
            return name
        case Const(None):
            return "null"
        case Const(str() as value):
            return _quoted(value)
        case Const(value):
            return repr(value)
        case Apply(op, args) if op in INFIX:
            return "(" + f" {op} ".join(map(scalar_text, args)) + ")"
        case Apply(op, args):
            return f"{op}({', '.join(map(scalar_text, args))})"
    raise TypeError(scalar)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def column_there(column: str) -> Var:
    """Whether a column is not NULL, 1 or 0."""
    return Var(f"{column} is not NULL")


def over_lets(result: Result, condition: Scalar) -> Scalar:
    """A condition over the keys and lets that the columns are read from."""
    columns = {Var(c.name): c.scalar for c in result.columns}
    there = {column_there(c.name): c.valid for c in result.columns}
    return substitute_scalar(condition, {**columns, **there})
