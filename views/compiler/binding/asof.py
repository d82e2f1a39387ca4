"""ASOF JOIN: each row of the left with the latest row of the right that its ON lets through.

`t ASOF JOIN q ON t.s = q.s AND t.ts >= q.ts` is `t JOIN q ON t.s = q.s AND q.ts = (SELECT MAX(q2.ts) FROM q
q2 WHERE t.s = q2.s AND t.ts >= q2.ts)`. So several rows of the right with the same latest ts all match.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from .bound import (
    Aggregate,
    ColumnRef,
    Comparison,
    Expression,
    Logical,
    Output,
    ScalarSubquery,
    Select,
    Source,
)
from .building import comparison, logical
from .dialect import SqlText
from .scope import Scope
from .walk import parts

_FORM = "ASOF JOIN takes equalities and one inequality, as in ON t.symbol = q.symbol AND t.ts >= q.ts"
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Match:
    """The conditions of ON: `value op theirs`, op one of the four inequalities, and the others."""

    value: Expression
    op: str
    theirs: Expression
    others: tuple[Expression, ...]


def conditions(
    text: SqlText,
    join: exp.Join,
    scope: Scope,
    bind: Callable[[], list[Expression]],
    again: Callable[[], Source],
) -> list[Expression]:
    """What rows of an ASOF JOIN satisfy; the right side is the last item of the scope.

    `bind` binds ON anew, `again` puts the right side bound anew in the place of the last item.
    """
    item = scope.items[-1]
    match = _match(text, join, item.id, bind())
    source = again()
    candidate = _match(text, join, source.id, bind())
    scope.items[-1] = item
    kind = candidate.theirs.type
    latest = Aggregate("max" if match.op in (">", ">=") else "min", candidate.theirs, kind, nullable=True)
    where = logical("AND", [*candidate.others, comparison(candidate.op, candidate.value, candidate.theirs)])
    query = Select((source,), where, (), (Output(latest.function, latest),), True)
    return [*match.others, comparison("=", match.theirs, ScalarSubquery(query, kind, nullable=True))]


def _match(text: SqlText, join: exp.Join, right: str, on: list[Expression]) -> _Match:
    conjuncts = [c for e in on for c in (e.args if isinstance(e, Logical) and e.op == "AND" else (e,))]
    inequalities = [c for c in conjuncts if isinstance(c, Comparison) and c.op in _MIRRORED]
    others = tuple(c for c in conjuncts if c not in inequalities)
    if len(inequalities) != 1 or not all(isinstance(c, Comparison) and c.op == "=" for c in others):
        raise text.error(_FORM, join)
    (inequality,) = inequalities
    value, op, theirs = inequality.left, inequality.op, inequality.right
    if _reads(value, right):
        value, op, theirs = theirs, _MIRRORED[op], value
    if _reads(value, right) or not _reads(theirs, right, alone=True):
        raise text.error(_FORM, join)
    return _Match(value, op, theirs, others)


def _reads(expression: Expression, source: str, alone: bool = False) -> bool:
    """Whether an expression has columns of the source, `alone`: and of no other."""
    sources = {p.source for p in parts(expression) if isinstance(p, ColumnRef)}
    return source in sources and (not alone or sources == {source})
