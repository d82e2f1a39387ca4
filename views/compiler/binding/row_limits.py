"""Limits on row numbers: `ROW_NUMBER() OVER (...) AS rn` where `rn <= n` is the first n rows of a partition.

The row number has to be seen by the limit alone, in QUALIFY or in WHERE around a derived table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from .definitions import RowLimit

# The whole number that an expression stands for, or None.
Number = Callable[[exp.Expr], int | None]
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Limited:
    """A conjunct that limits `subject`."""

    conjunct: exp.Expr
    subject: exp.Expr
    limit: RowLimit


def is_row_number(node: exp.Expr) -> bool:
    """Whether it is ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...), with an ORDER BY."""
    return (
        isinstance(node, exp.Window)
        and isinstance(node.this, exp.RowNumber)
        and bool(node.args.get("order"))
        and not node.args.get("spec")
        and not node.args.get("alias")
    )


def limited(conjunct: exp.Expr, number: Number) -> Limited | None:
    """The subject that a conjunct limits to row numbers, as in `rn <= 10`; None for another conjunct."""
    node = conjunct.unnest()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = number(node.args["low"]), number(node.args["high"])
        if low is None or high is None:
            return None
        return _between(conjunct, node.this, low, high)
    op = type(node)
    if op not in _MIRRORED:
        return None
    subject, value = node.this, number(node.expression)
    if value is None:
        subject, value, op = node.expression, number(node.this), _MIRRORED[op]
    if value is None or op in (exp.GT, exp.GTE):
        return None
    if op is exp.EQ:
        return _between(conjunct, subject, value, value)
    return _between(conjunct, subject, 1, value if op is exp.LTE else value - 1)


def _between(conjunct: exp.Expr, subject: exp.Expr, low: int, high: int) -> Limited | None:
    low = max(low, 1)
    if high < low:
        return None
    return Limited(conjunct, subject.unnest(), RowLimit(high - low + 1, low - 1))


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts that AND connects."""
    if condition is None:
        return []
    node = condition.unnest()
    return (
        [p for part in node.flatten() for p in conjuncts(part)] if isinstance(node, exp.And) else [condition]
    )


def hidden_limits(tree: exp.Select, number: Number) -> list[Limited]:
    """The limits in WHERE on columns that the query names nowhere else."""
    joins = tree.args.get("joins") or ()
    if any(j.side or j.args.get("method") or j.args.get("using") for j in joins) or any(
        e.is_star for e in tree.expressions
    ):
        return []
    limits = (limited(c, number) for c in conjuncts(_where(tree)))
    found = [f for f in limits if f and isinstance(f.subject, exp.Column)]
    seen = [c.name.lower() for c in _columns(tree)]
    alone = not joins
    return [
        f for f in found if seen.count(f.subject.name.lower()) == 1 and (alone or f.subject.args.get("table"))
    ]


def by_source(found: Sequence[Limited]) -> Mapping[str | None, dict[str, RowLimit]]:
    """The limits by the alias they name (None: without one) and the column."""
    result: dict[str | None, dict[str, RowLimit]] = {}
    for item in found:
        table = item.subject.args.get("table")
        alias = table.name.lower() if table else None
        result.setdefault(alias, {})[item.subject.name.lower()] = item.limit
    return result


def _where(tree: exp.Select) -> exp.Expr | None:
    where = tree.args.get("where")
    return where.this if where else None


def _columns(tree: exp.Select) -> Iterator[exp.Column]:
    """The columns that a query names outside of its derived tables and common table expressions."""

    def apart(node: exp.Expr) -> bool:
        return isinstance(node, exp.With | exp.From) or (
            isinstance(node, exp.Subquery) and isinstance(node.parent, exp.Join)
        )

    return (n for n in tree.walk(prune=apart) if isinstance(n, exp.Column))
