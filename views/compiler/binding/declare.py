"""CREATE STREAM and CREATE TABLE to relations; CHECK ranges narrow the columns' intervals."""

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from views.compiler import types
from views.compiler.types import Column, Kind, Relation, Type

from .declaration_grammar import TYPES, CreateRelation
from .dialect import SqlText, Statement
from .scope import identifier, nearest
from .time_text import interval_of

MAX_PRECISION = 18
_SMALLINT = Type(Kind.INTEGER, 0, -(2**15), 2**15 - 1)
_TYPES = {
    exp.DType.SMALLINT: _SMALLINT,
    exp.DType.INT: types.INTEGER,
    exp.DType.BIGINT: types.BIGINT,
    exp.DType.DOUBLE: types.DOUBLE,
    exp.DType.FLOAT: types.DOUBLE,
    exp.DType.BOOLEAN: types.BOOLEAN,
    exp.DType.TEXT: types.TEXT,
    exp.DType.VARCHAR: types.TEXT,
    exp.DType.TIMESTAMP: types.TIMESTAMP,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_CHECK_FORM = "CHECK takes a range of one column, as in price >= 0 or price BETWEEN 0 AND 1000"


def declare(statement: Statement) -> Relation:
    """The relation that a CREATE STREAM or CREATE TABLE declares; raises SqlError with the position."""
    tree, text = statement.tree, statement.text
    assert isinstance(tree, CreateRelation)
    columns = _columns(tree, text)
    for check in tree.find_all(exp.CheckColumnConstraint):
        _narrow(check.this, columns, text)
    primary_key = _primary_key(tree, columns, text)
    retain, retain_by = _retention(tree, columns, text)
    source, max_rows = tree.args.get("source"), tree.args.get("max_rows")
    return Relation(
        identifier(tree.this, text),
        tuple(columns.values()),
        int(max_rows.name) if max_rows else types.DEFAULT_MAX_ROWS,
        source.name if source else None,
        tree.args["static"],
        primary_key,
        retain,
        retain_by,
    )


def _columns(tree: CreateRelation, text: SqlText) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for definition in tree.expressions:
        if not isinstance(definition, exp.ColumnDef):
            continue
        name = identifier(definition.this, text)
        if name in columns:
            raise text.error(f"column {name} is declared twice", definition)
        not_null = any(isinstance(c, exp.NotNullColumnConstraint) for c in definition.args["constraints"])
        columns[name] = Column(name, _type(definition.args["kind"], text), not not_null)
    if not columns:
        raise text.error("a relation needs at least one column", tree)
    return columns


def _primary_key(tree: CreateRelation, columns: dict[str, Column], text: SqlText) -> tuple[str, ...]:
    """The columns of the primary key, which become NOT NULL; none without one."""
    keys = list(tree.find_all(exp.PrimaryKey, exp.PrimaryKeyColumnConstraint, bfs=False))
    if not keys:
        return ()
    if len(keys) > 1:
        raise text.error("a relation has one PRIMARY KEY; list its columns in one", keys[1])
    named = keys[0].expressions if isinstance(keys[0], exp.PrimaryKey) else [_parent(keys[0]).this]
    names = [identifier(n, text) for n in named]
    for name, node in zip(names, named, strict=True):
        columns[name] = replace(_column(name, columns, node, text), nullable=False)
    return tuple(dict.fromkeys(names))


def _parent(constraint: exp.Expr) -> exp.Expr:
    assert constraint.parent is not None
    return constraint.parent


def _retention(
    tree: CreateRelation, columns: dict[str, Column], text: SqlText
) -> tuple[int | None, str | None]:
    """For how many ns rows stay, and the column that this counts from: the one named, or `ts`."""
    node, by = tree.args.get("retain"), tree.args.get("retain_by")
    if node is None:
        return None, None
    if tree.args["static"]:
        raise text.error("RETAIN is for a stream; rows of a TABLE stay until they are deleted", node)
    unit = node.args.get("unit")
    span = interval_of(f"{node.this.name} {unit.name}" if unit else node.this.name) if node.this else None
    if span is None or span[1] or span[0] <= 0:
        message = "RETAIN takes an INTERVAL above 0 of days or less, as in RETAIN INTERVAL '1 hour'"
        raise text.error(message, node)
    if by is None and "ts" not in columns:
        message = "RETAIN needs a TIMESTAMP column ts, or another one: RETAIN INTERVAL '1 hour' ON column"
        raise text.error(message, node)
    name = identifier(by, text) if by else "ts"
    kind = _column(name, columns, by or node, text).type.kind
    if kind is not Kind.TIMESTAMP:
        raise text.error(f"RETAIN counts from a TIMESTAMP column; {name} is {kind.value}", by or node)
    return span[0], name


def _column(name: str, columns: dict[str, Column], node: exp.Expr, text: SqlText) -> Column:
    column = columns.get(name)
    if column is None:
        raise text.error(f"unknown column {name}{nearest(name, columns)}", node)
    return column


def _type(node: exp.DataType, text: SqlText) -> Type:
    if node.this is exp.DType.DECIMAL:
        return _decimal(node, text)
    kind = _TYPES.get(node.this)
    takes_length = node.this is exp.DType.VARCHAR
    if kind is None or node.args.get("nested") or (node.expressions and not takes_length):
        raise text.error(f"type {node.sql()} is not supported; the types are {TYPES}", node)
    return kind


def _decimal(node: exp.DataType, text: SqlText) -> Type:
    parameters = [e.name for e in node.expressions]
    if not parameters:
        raise text.error("DECIMAL needs a precision and a scale, as in DECIMAL(18, 8)", node)
    precision, scale = (int(p) if p.isdigit() else -1 for p in (*parameters, "0")[:2])
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision or len(parameters) > 2:
        message = f"{node.sql()} is not supported; DECIMAL(p, s) has 1 <= p <= {MAX_PRECISION}, 0 <= s <= p"
        raise text.error(message, node)
    return types.decimal(precision, scale)


@dataclass(frozen=True, slots=True)
class _Bound:
    """`column op value`, op one of the sqlglot comparison classes."""

    column: exp.Column
    op: type[exp.Expr]
    value: Decimal


def _narrow(node: exp.Expr, columns: dict[str, Column], text: SqlText) -> None:
    bounds = _bounds(node, text)
    if len({b.column.name.lower() for b in bounds}) > 1:
        raise text.error(f"a CHECK over several columns is not supported; {_CHECK_FORM}", node)
    for bound in bounds:
        name = identifier(bound.column.this, text)
        column = _column(name, columns, bound.column, text)
        if column.type.kind not in (Kind.INTEGER, Kind.DECIMAL):
            kind = column.type.kind.value
            raise text.error(f"CHECK on a {kind} column is not supported; it takes INTEGER and DECIMAL", node)
        narrowed = _narrowed(column.type, bound)
        if narrowed.low > narrowed.high:
            raise text.error(f"CHECK leaves no value for column {name}", node)
        columns[name] = replace(column, type=narrowed)


def _narrowed(kind: Type, bound: _Bound) -> Type:
    """The scaled integers of `kind` on the right side of the bound."""
    numerator, denominator = bound.value.as_integer_ratio()
    numerator *= 10**kind.scale
    floor, ceiling = numerator // denominator, -(-numerator // denominator)
    low, high = kind.low, kind.high
    if bound.op in (exp.GTE, exp.EQ):
        low = max(low, ceiling)
    if bound.op in (exp.LTE, exp.EQ):
        high = min(high, floor)
    if bound.op is exp.GT:
        low = max(low, floor + 1)
    if bound.op is exp.LT:
        high = min(high, ceiling - 1)
    return replace(kind, low=low, high=high)


def _bounds(node: exp.Expr, text: SqlText) -> list[_Bound]:
    match node:
        case exp.Paren():
            return _bounds(node.this, text)
        case exp.And():
            return [b for part in node.flatten() for b in _bounds(part, text)]
        case exp.Between(this=exp.Column()) if not node.args.get("symmetric"):
            low, high = (_number(node.args[k], text) for k in ("low", "high"))
            return [_Bound(node.this, exp.GTE, low), _Bound(node.this, exp.LTE, high)]
        case exp.Expr(this=exp.Column()) if type(node) in _MIRRORED:
            return [_Bound(node.this, type(node), _number(node.expression, text))]
        case exp.Expr(expression=exp.Column()) if type(node) in _MIRRORED:
            return [_Bound(node.expression, _MIRRORED[type(node)], _number(node.this, text))]
    raise text.error(f"this CHECK is not supported; {_CHECK_FORM}", node)


def _number(node: Any, text: SqlText) -> Decimal:
    if isinstance(node, exp.Paren):
        return _number(node.this, text)
    if isinstance(node, exp.Neg):
        return _number(node.this, text).copy_negate()
    if isinstance(node, exp.Literal) and not node.is_string and node.name.replace(".", "", 1).isdigit():
        return Decimal(node.name)
    raise text.error(f"a number is needed here; {_CHECK_FORM}", node)
