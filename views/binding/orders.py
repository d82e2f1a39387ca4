"""What CREATE STRATEGY says beyond a view: its options, the columns of orders, and whose rows it sees.

The rows of a strategy are the orders that should be there. `venue`, `symbol`, `side` and, where there are
several of a side, `tag` tell one order from another; `price` (NULL: a market order), `volume`, `kind`,
`stop`, `trail`, `display`, `reduce_only` and `good_until` say what it is. Of `orders`, `fills` and
`positions` a strategy sees its own rows, also through views.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from orderbook.core.errors import SqlError, UserError
from orderbook.core.units import delay
from orderbook.views.binding.bound import (
    Case,
    ColumnRef,
    Expression,
    Literal,
    OrderRules,
    OuterJoin,
    Select,
    Source,
    UnionAll,
)
from orderbook.views.binding.grouping import Lookup, ViewDefinition
from orderbook.views.binding.nodes import CreateStrategy
from orderbook.views.binding.parser import SqlText, Statement, parse, shown
from orderbook.views.binding.scope import nearest
from orderbook.views.binding.typed_nodes import interval_of
from orderbook.views.types import Kind, Relation

SIDES = ("buy", "sell")
KINDS = ("limit", "post only", "ioc", "fok")
# What tells orders apart.
KEY = ("venue", "symbol", "side", "tag")
# Relations of which a strategy sees its own rows.
OWN = ("orders", "fills", "positions")

_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)
_TEXTS = (Kind.TEXT,)
_NEEDED: Mapping[str, tuple[Kind, ...]] = {
    "venue": _TEXTS, "symbol": _TEXTS, "side": _TEXTS, "price": _NUMBERS, "volume": _NUMBERS,
}  # fmt: skip
_OPTIONAL: Mapping[str, tuple[Kind, ...]] = {
    "kind": _TEXTS, "tag": (Kind.TEXT, Kind.INTEGER, Kind.TIMESTAMP), "stop": _NUMBERS, "trail": _NUMBERS,
    "display": _NUMBERS, "reduce_only": (Kind.BOOLEAN,), "good_until": (Kind.TIMESTAMP, Kind.INTEGER),
}  # fmt: skip
# What orders may have elsewhere, and what to write here.
_ABSENT = {
    "time_in_force": "write kind, which is 'limit', 'post only', 'ioc' or 'fok'",
    "take_profit": "write a row of its own, which comes with the position",
    "stop_loss": "write a row of its own with a stop, which comes with the position",
    "oco": "let one row go where the other's order is filled, by a join with positions",
    "post_only": "write 'post only' AS kind",
}
_OPTIONS = "min_life = '50ms', min_move = 2, max_requests = 20 and refill"


def order_rules(statement: Statement, parameters: Mapping[str, Any]) -> OrderRules:
    """The options of a CREATE STRATEGY. Raises SqlError for one that there is not, and for its value."""
    tree, text = statement.tree, statement.text
    assert isinstance(tree, CreateStrategy)
    place = text.error("", tree.this)
    found: dict[str, Any] = {}
    for option in tree.args.get("options") or ():
        name = option.this.name.lower()
        read = _RULES.get(name)
        if read is None:
            message = (
                f"unknown option {shown(name)} of a strategy{nearest(name, _RULES)}; there are {_OPTIONS}"
            )
            raise text.error(message, option)
        if name in found:
            raise text.error(f"{name} is given twice", option)
        found[name] = read(name, _constant(option.expression, parameters, text), option, text)
    return OrderRules(**found, line=place.line, column=place.column, file=place.file)


def _constant(node: exp.Expr, parameters: Mapping[str, Any], text: SqlText) -> object:
    """The value of an option."""
    match node:
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return str(node.this) if node.is_string else _whole(node.name)
        case exp.Interval(this=exp.Literal()):
            unit = node.args.get("unit")
            span = interval_of(f"{node.this.name} {unit.name}" if unit else node.this.name)
            return None if span is None or span[1] else f"{span[0]}ns"
        case exp.Placeholder():
            if node.name not in parameters:
                raise text.error(f"parameter :{node.name} has no value", node)
            value = parameters[node.name]
            return value if isinstance(value, bool | str) else _whole(str(value))
    return None


def _whole(number: str) -> int | None:
    return int(number) if number.isdecimal() and len(number) < 19 else None


def _life(name: str, value: object, at: exp.Expr, text: SqlText) -> int:
    try:
        if isinstance(value, str):
            return delay(value)
    except UserError as error:
        raise text.error(f"{name}: {error}", at) from None
    raise text.error(f"{name} is a length of time, as in {name} = '50ms'", at)


def _count(name: str, value: object, at: exp.Expr, text: SqlText) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        what = "ticks" if name == "min_move" else "requests in a second"
        raise text.error(f"{name} is a number of {what}, 1 or more, as in {name} = 2", at)
    return value


def _flag(name: str, value: object, at: exp.Expr, text: SqlText) -> bool:
    if not isinstance(value, bool):
        raise text.error(f"{name} is TRUE or FALSE, or stands alone", at)
    return value


_RULES = {"min_life": _life, "min_move": _count, "max_requests": _count, "refill": _flag}


def check_orders(view: ViewDefinition, query: Select) -> None:
    """Raises SqlError where the rows of a strategy cannot be orders."""
    known = {output.name: output.expression for output in query.outputs}
    for name, kinds in {**_NEEDED, **_OPTIONAL}.items():
        if name not in known:
            if name in _NEEDED:
                raise view.text.error(
                    f"strategy {view.name} has no column {name}{_instead(name)}; an order has "
                    f"{', '.join(_NEEDED)}, and {', '.join(_OPTIONAL)} where they are wanted", view.named_at,
                )  # fmt: skip
            continue
        expression = known[name]
        if expression.type.kind not in kinds and not _is_null(expression, name):
            what = "a number" if kinds is _NUMBERS else " or ".join(kind.value for kind in kinds)
            found = expression.type.kind.value
            raise view.text.error(f"{name} of an order is {what}, not {found}", _column(view, name))
    for name in known:
        if name not in _NEEDED and name not in _OPTIONAL:
            instead = _ABSENT.get(name, "leave it out, or select it in a view that this one reads")
            raise view.text.error(f"an order has no {name} here; {instead}", _column(view, name))
    for name, words in (("side", SIDES), ("kind", KINDS)):
        for value in _constants(known[name], query) if name in known else ():
            if value is None and name == "kind":
                continue
            if value is None:
                message = (
                    "side of an order may be NULL here: give the CASE an ELSE, or leave rows out by WHERE"
                )
                raise view.text.error(message, _column(view, name))
            if value not in words:
                message = f"{name} {value!r} of an order; there are {', '.join(map(repr, words))}"
                raise view.text.error(message, _column(view, name))


def _instead(name: str) -> str:
    return {"price": " (NULL is a market order)", "side": " ('buy' or 'sell')"}.get(name, "")


def _is_null(expression: Expression, name: str) -> bool:
    nullable = name == "price" or name in _OPTIONAL
    return nullable and isinstance(expression, Literal) and expression.value is None


def _column(view: ViewDefinition, name: str) -> exp.Expr:
    """Where a column is selected, as far as that can be told."""
    select = view.tree.find(exp.Select)
    named = () if select is None else select.expressions
    return next((node for node in named if node.alias_or_name.lower() == name), view.named_at)


def _constants(expression: Expression, query: Select | UnionAll) -> Iterator[object]:
    """The texts that an output is made of, as far as they are constants."""
    match expression:
        case Literal():
            yield expression.value
        case Case():
            for branch in (*(value for _, value in expression.branches), expression.otherwise):
                if branch is not None:
                    yield from _constants(branch, query)
        case ColumnRef() if isinstance(query, Select):
            for source in _sources(query.sources):
                if source.id != expression.source or isinstance(source.relation, Relation):
                    continue
                inner = source.relation
                for one in inner.branches if isinstance(inner, UnionAll) else (inner,):
                    place = [o.name for o in inner.outputs].index(expression.name)
                    yield from _constants(one.outputs[place].expression, one)


def _sources(rows: tuple[Source | OuterJoin, ...]) -> Iterator[Source]:
    return (row for row in rows if isinstance(row, Source))


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Gives a strategy the rows of `orders`, `fills` and `positions` that are its own, in place of all."""

    strategy: str
    lookup: Lookup

    def __call__(self, name: str, text: SqlText, node: exp.Expr) -> Relation | ViewDefinition:
        """See Lookup."""
        if name not in OWN or text.file == _OWN_FILE:
            return self.lookup(name, text, node)
        sql = f"SELECT * FROM {name} WHERE strategy = '{self.strategy}'"
        (statement,) = parse(_OWN_FILE, sql)
        own = ViewDefinition(name, statement.tree, statement.text, sql, statement.tree)
        try:
            relation = self.lookup(name, statement.text, node)
        except SqlError:
            return self.lookup(name, text, node)
        if isinstance(relation, Relation) and relation.column("strategy") is None:
            return relation
        return own


_OWN_FILE = "a strategy's own rows"


def with_rules(view: ViewDefinition, statement: Statement, parameters: Mapping[str, Any]) -> ViewDefinition:
    """The definition with the rules of the strategy that it is, if it is one."""
    if not isinstance(statement.tree, CreateStrategy):
        return view
    return replace(view, orders=order_rules(statement, parameters))
