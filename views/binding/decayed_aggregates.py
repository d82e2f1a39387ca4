"""Aggregates whose rows weigh by their age.

EWMA(x, half_life, ts) and DECAYED_SUM(x, half_life, ts) weigh rows by their age. The moment of a row is the
third argument, or what ORDER BY in the call or in OVER begins with, or the only TIMESTAMP that the relation
of x has.
"""

from collections.abc import Sequence

from sqlglot import exp

from orderbook.views.binding.bound import (
    ColumnRef,
    Expression,
    Literal,
    OrderItem,
    ScalarSubquery,
    Source,
    rewritten,
)
from orderbook.views.binding.nodes import DecayedSum
from orderbook.views.binding.scope import Binder, Scope, refusal
from orderbook.views.types import CLOCK, Kind, Relation

# Twice 32 of these, which is what moments are the remainders of, fit 64 bits.
LONGEST_HALF_LIFE = 4 * 365 * 86_400 * 10**9


def decayed_by(
    binder: Binder, node: exp.Func, value: Expression, scope: Scope, over: Sequence[OrderItem]
) -> tuple[Expression, ...]:
    """The moment of a row, the half-life in ns, and NOW() where the sum is as of then.

    value: the argument x. over: ORDER BY of the window, if it is one.
    """
    name = node.sql_name()
    _refuse_other_forms(binder, node)
    given = node.args["half_life"]
    moments = [i.expression for i in over]
    if isinstance(given, exp.Order):
        given, moments = given.this, [binder.value(i.this, scope) for i in given.expressions]
    half_life = binder.value(given, scope)
    known = isinstance(half_life, Literal) and half_life.type.kind is Kind.INTEGER
    plain = isinstance(given.unnest(), exp.Literal)
    if plain or not known or not 0 < half_life.type.low <= LONGEST_HALF_LIFE:
        message = f"{name} takes a half-life that is a constant INTERVAL above 0, of 1460 days at most"
        raise binder.text.error(message, given)
    if node.expression is not None:
        moment = binder.value(node.expression, scope)
    else:
        moment = moments[0] if moments else _only_moment(binder, node, value, scope)
    if moment.type.kind is not Kind.TIMESTAMP:
        kind = moment.type.kind.value
        raise refusal(binder, f"{name} by {kind}", f"write {name}(x, half_life, ts) with a TIMESTAMP", node)
    return moment, half_life, *_as_of(binder, node, scope)


def _refuse_other_forms(binder: Binder, node: exp.Func) -> None:
    name = node.sql_name()
    if node.args.get("half_life") is None:
        raise binder.text.error(f"{name} takes x, a half-life and the TIMESTAMP of a row", node)
    for key in ("expression", "as_of"):
        if isinstance(node.args.get(key), exp.Order):
            instead = f"write {name}(x, half_life, ts), or {name}(x, half_life ORDER BY ts)"
            raise refusal(binder, f"ORDER BY beside a third argument of {name}", instead, node)


def _only_moment(binder: Binder, node: exp.Func, value: Expression, scope: Scope) -> Expression:
    """The only TIMESTAMP column of the relations that x is from, of all in FROM where x is from none."""
    read: set[str] = set()

    def note(part: object) -> None:
        if isinstance(part, ColumnRef):
            read.add(part.source)

    rewritten(value, note)
    items = [i for i in scope.items if i.id in read] or scope.items
    found = [(i, c) for i in items for c in i.columns if c.type.kind is Kind.TIMESTAMP]
    if len(found) == 1:
        return scope.reference(*found[0], node)
    names = ", ".join(f"{i.alias}.{c.name}" for i, c in found) or "none"
    message = (
        f"{node.sql_name()} needs the TIMESTAMP of a row as third argument; columns of that type: {names}"
    )
    raise binder.text.error(message, node)


def _as_of(binder: Binder, node: exp.Func, scope: Scope) -> tuple[Expression, ...]:
    given = node.args.get("as_of")
    if given is None:
        return ()
    if not isinstance(node, DecayedSum):
        instead = "a mean is the same at any later time: leave the fourth argument out"
        raise refusal(binder, f"{node.sql_name()} as of a time", instead, given)
    value = binder.value(given, scope)
    if not _is_now(value):
        instead = "write NOW(), or leave it out for the latest row"
        raise refusal(binder, f"{node.sql_name()} as of another time", instead, given)
    return (value,)


def _is_now(value: Expression) -> bool:
    if not isinstance(value, ScalarSubquery) or value.query.where is not None:
        return False
    (source, *others) = value.query.sources
    return (
        not others
        and isinstance(source, Source)
        and isinstance(source.relation, Relation)
        and source.relation.name == CLOCK
        and value.type.kind is Kind.TIMESTAMP
    )
