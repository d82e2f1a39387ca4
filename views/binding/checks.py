"""What CHECK says: bounds of one name, a column of a relation or a parameter."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp

from orderbook.views.binding.parser import SqlText

CHECK_FORM = "CHECK takes a range of one column, as in price >= 0 or price BETWEEN 0 AND 1000"
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """`column op value`, op one of the sqlglot comparison classes."""

    column: exp.Column
    op: type[exp.Expr]
    value: Decimal

    def holds(self, value: Decimal) -> bool:
        """Whether a value is on the right side of it."""
        if value == self.value:
            return self.op in (exp.GTE, exp.LTE, exp.EQ)
        return self.op in ((exp.GT, exp.GTE) if value > self.value else (exp.LT, exp.LTE))


def number(node: Any, text: SqlText) -> Decimal:
    """The value of a number with or without a sign. Raises SqlError for anything else."""
    if isinstance(node, exp.Paren):
        return number(node.this, text)
    if isinstance(node, exp.Neg):
        return number(node.this, text).copy_negate()
    if isinstance(node, exp.Literal) and not node.is_string and node.name.replace(".", "", 1).isdigit():
        return Decimal(node.name)
    raise text.error(f"a number is needed here; {CHECK_FORM}", node)


def bounds_of(
    node: exp.Expr, text: SqlText, value_of: Callable[[Any, SqlText], Decimal] = number
) -> list[Bound]:
    """The bounds that all hold where a condition does; `value_of` reads what a name is compared with.

    Raises SqlError for any other condition.
    """
    match node:
        case exp.Paren():
            return bounds_of(node.this, text, value_of)
        case exp.And():
            return [b for part in node.flatten() for b in bounds_of(part, text, value_of)]
        case exp.Between(this=exp.Column()) if not node.args.get("symmetric"):
            low, high = (value_of(node.args[k], text) for k in ("low", "high"))
            return [Bound(node.this, exp.GTE, low), Bound(node.this, exp.LTE, high)]
        case exp.Expr(this=exp.Column()) if type(node) in _MIRRORED:
            return [Bound(node.this, type(node), value_of(node.expression, text))]
        case exp.Expr(expression=exp.Column()) if type(node) in _MIRRORED:
            return [Bound(node.expression, _MIRRORED[type(node)], value_of(node.this, text))]
    raise text.error(f"this CHECK is not supported; {CHECK_FORM}", node)
