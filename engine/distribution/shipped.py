"""How the entries of a map travel: as rows of an output, and as a replica kept by their changes.

A row is the entry's keys and value. A value that needs more than 64 bits is several words of 62 bits, the
last of which has the sign; their sum, each with its weight, is the value again.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine.plan.dense_keys import column_types
from engine.plan.stores import key_type
from views.compiler.calculus import Apply, Const, MapRef, Rel, Scalar, Val, Var, product
from views.compiler.intervals import exact
from views.compiler.m3 import MapDeclaration, Program, Result, ResultColumn, ResultKey, Statement, Trigger
from views.compiler.types import DOUBLE, INT64_MAX, INT128_MAX, Column, Kind, Relation, Type

_BITS = 62


def words_of(kind: Type) -> int:
    """In how many words a value travels."""
    if kind.kind is Kind.DOUBLE:
        return 1
    return len(_bounds(kind))


def _bounds(kind: Type) -> list[int]:
    """The largest magnitude of the value, and of what is left of it above each word but the last."""
    found = [min(max(abs(kind.low), abs(kind.high)), INT128_MAX)]
    while found[-1] > INT64_MAX:
        found.append((found[-1] >> _BITS) + 1)
    return found


def output_view(declaration: MapDeclaration, name: str) -> Result:
    """The entries of a map as rows of a view: keys, then the words of the value."""
    value = Var("value")
    keys = tuple(
        ResultKey(Var(f"key_{i}"), f"key_{i}", kind) for i, kind in enumerate(declaration.key_types)
    )
    lets = ((value, product(MapRef(declaration.name, tuple(k.variable for k in keys)))),)
    rows = declaration.count or declaration.name
    columns = tuple(
        ResultColumn(f"value_{i}", kind, scalar, Const(1))
        for i, (kind, scalar) in enumerate(zip(*_travelling(value, declaration.type), strict=True))
    )
    return Result(name, keys, rows if keys else None, True, lets, columns)


def _travelling(value: Var, kind: Type) -> tuple[list[Type], list[Scalar]]:
    return _word_types(kind), _words(value, kind)


def _word_types(kind: Type) -> list[Type]:
    count = words_of(kind)
    if kind.kind is Kind.DOUBLE or count == 1:
        return [DOUBLE if kind.kind is Kind.DOUBLE else exact(min(kind.low, 0), max(kind.high, 0))]
    low = exact(0, (1 << _BITS) - 1)
    most = _bounds(kind)[-1]
    return [*(low for _ in range(count - 1)), exact(-most if kind.low < 0 else 0, most)]


def _words(value: Var, kind: Type) -> list[Scalar]:
    """The words of a value, the least first."""
    rest: Scalar = value
    found: list[Scalar] = []
    weight = Const(1 << _BITS)
    for _ in range(words_of(kind) - 1):
        above = Apply("floor_div", (rest, weight))
        found.append(Apply("-", (rest, Apply("*", (above, weight)))))
        rest = above
    return [*found, rest]


def replica_relation(declaration: MapDeclaration, stream: str, program: Program) -> Relation:
    """The stream that carries the entries of a map."""
    relations = {r.name: r for r in program.relations}
    columns = []
    for place, kind in enumerate(declaration.key_types):
        try:
            nullable = not column_types(relations, declaration, place)
        except KeyError:
            nullable = True
        columns.append(Column(f"key_{place}", key_type(kind) if kind.exact else kind, nullable))
    columns += [Column(f"value_{i}", t, False) for i, t in enumerate(_word_types(declaration.type))]
    return Relation(stream, tuple(columns))


def replica(
    declaration: MapDeclaration, stream: Relation, counted: str
) -> tuple[list[MapDeclaration], list[Trigger]]:
    """The declarations of a replica and what keeps it.

    A row adds its value when it comes and takes it away when it goes, so rows of partial sums add up too.
    Of doubles `counted` counts the rows, so that nothing is left of an entry that goes.
    """
    keys = declaration.keys
    words = tuple(Var(c.name) for c in stream.columns[len(keys) :])
    row = Rel(stream.name, (*keys, *words))
    value = _value(words)
    definition = product(row, Val(value))
    double = declaration.type.kind is Kind.DOUBLE
    own = replace(declaration, definition=definition, count=counted if double else None)
    maps = [own]
    if double:
        rows = MapDeclaration(counted, keys, declaration.key_types, exact(0, INT64_MAX), product(row))
        maps.insert(0, rows)
    triggers = []
    for insert in (True, False):
        sign: Sequence[Val] = () if insert else (Val(Const(-1)),)
        statements = [Statement(own.name, keys, "+=", product(*sign, Val(value)))]
        if double:
            statements.insert(0, Statement(counted, keys, "+=", product(*(sign or (Val(Const(1)),)))))
        triggers.append(Trigger(stream.name, insert, (*keys, *words), tuple(statements)))
    return maps, triggers


def _value(words: Sequence[Var]) -> Scalar:
    found: Scalar = words[-1]
    for word in reversed(words[:-1]):
        found = Apply("+", (Apply("*", (found, Const(1 << _BITS))), word))
    return found
