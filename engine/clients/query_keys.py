"""Keys of SQL expressions: equal where they mean the same, whatever aliases, order or layout say."""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import count
from typing import Any

from sqlglot import exp

from views.compiler.binding.bind import Parameter

# What every alias in scope is called instead.
Aliases = Mapping[str, str]
Key = Any

_COMMUTATIVE = (exp.EQ, exp.NEQ, exp.Add, exp.Mul)
_FLIPPED: dict[type[exp.Expr], str] = {exp.GT: "LT", exp.GTE: "LTE", exp.LT: "LT", exp.LTE: "LTE"}
# Arguments that say nothing of the meaning.
_LAYOUT = {"big_int", "typed", "safe", "is_string", "with_", "hint", "comments", "copy"}


class Keys:
    """Makes keys of qualified expressions: every column has the alias of its source, every output a name.

    parameters: what a placeholder stands for.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._parameters = parameters

    def of(self, node: exp.Expr, aliases: Aliases) -> Key:
        """The key of an expression; aliases that are not in `aliases` stay as they are."""
        return self._key(node, aliases, (f"inner {i}" for i in count()))

    def _key(self, node: Any, aliases: Aliases, fresh: Iterator[str]) -> Key:
        match node:
            case exp.Paren():
                return self._key(node.this, aliases, fresh)
            case exp.Column():
                return "column", aliases.get(node.table, node.table), node.name
            case exp.Placeholder() | exp.Parameter() if node.name in self._parameters:
                return literal_key(self._parameters[node.name])
            case exp.Literal():
                return ("text", node.this) if node.is_string else _number(node.this)
            case exp.Identifier():
                return node.name
            case exp.Table():
                alias = node.alias_or_name
                rest = exp.Table(**{n: v for n, v in node.args.items() if n not in ("this", "alias")})
                options = self._arguments(rest, aliases, fresh)
                return "table", node.name.lower(), aliases.get(alias, alias), options
            case exp.And() | exp.Or():
                parts = [self._key(part, aliases, fresh) for part in node.flatten()]
                return type(node).__name__, _sorted(parts)
            case exp.Select():
                return self._select(node, aliases, fresh)
            case exp.Subquery() if not _is_source(node):
                return self._key(node.this, aliases, fresh)
        if isinstance(node, _COMMUTATIVE):
            both = [self._key(part, aliases, fresh) for part in (node.this, node.expression)]
            return type(node).__name__, _sorted(both)
        if type(node) in _FLIPPED:
            both = [self._key(part, aliases, fresh) for part in (node.this, node.expression)]
            return _FLIPPED[type(node)], tuple(both[::-1] if isinstance(node, exp.GT | exp.GTE) else both)
        if isinstance(node, exp.Expr):
            return type(node).__name__, self._arguments(node, aliases, fresh)
        if isinstance(node, list):
            return tuple(self._key(part, aliases, fresh) for part in node)
        return str(node)

    def _arguments(self, node: exp.Expr, aliases: Aliases, fresh: Iterator[str]) -> Key:
        return tuple(
            (name, self._key(value, aliases, fresh))
            for name, value in sorted(node.args.items())
            if name not in _LAYOUT and value is not None and value is not False and value != []
        )

    def _select(self, node: exp.Select, aliases: Aliases, fresh: Iterator[str]) -> Key:
        own = {source.alias_or_name: next(fresh) for source in sources_of(node)}
        inner = {**aliases, **own}
        named = _is_source(node.parent)
        outputs = tuple(
            (output.alias_or_name if named else "", self._key(unnamed(output), inner, fresh))
            for output in node.expressions
        )
        rest = node.copy()
        rest.set("expressions", [])
        return "Select", outputs, self._arguments(rest, inner, fresh)


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """What stands in FROM and its joins."""
    start = select.args.get("from_")
    joins = select.args.get("joins") or []
    return [item.this for item in ([start] if start is not None else []) + joins]


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND connects."""
    if condition is None:
        return []
    inner = condition.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return [part for side in inner.flatten() for part in conjuncts(side)]


def unnamed(output: exp.Expr) -> exp.Expr:
    """An output without its alias."""
    return output.this if isinstance(output, exp.Alias) else output


def literal_key(value: Parameter) -> Key:
    """The key of a constant."""
    return ("text", value) if isinstance(value, str) else _number(str(value))


def _number(text: str) -> Key:
    try:
        return "number", str(Decimal(text).normalize())
    except InvalidOperation:
        return "number", text


def _is_source(node: Any) -> bool:
    """Whether a subquery stands in FROM or WITH, where the names of its outputs count."""
    kinds = exp.From | exp.Join | exp.With
    return isinstance(node, exp.Subquery | exp.CTE) and isinstance(node.parent, kinds)


def _sorted(parts: list[Key]) -> tuple[Key, ...]:
    return tuple(sorted(parts, key=repr))
