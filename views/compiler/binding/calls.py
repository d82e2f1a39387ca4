"""Calls of scalar functions, by sqlglot's nodes and by name, to those of `functions.py`."""

from collections.abc import Sequence

from sqlglot import exp

from . import functions, refuse, times
from .binder import Binder, Handler, arguments
from .bound import Expression
from .scope import Scope

_NODES: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Sign: "sign",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Trunc: "trunc",
    exp.Round: "round",
    exp.Sqrt: "sqrt",
    exp.Ln: "ln",
    exp.Log: "log",
    exp.Exp: "exp",
    exp.Pow: "power",
    exp.Least: "least",
    exp.Greatest: "greatest",
    exp.Mod: "mod",
    exp.IntDiv: "div",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
}
_ARGUMENTS = ("this", "expression", "decimals")
_NAMED = {"starts_with": "starts_with", "prefix": "starts_with", "ends_with": "ends_with",
          "suffix": "ends_with", "contains": "contains"}  # fmt: skip


def call(binder: Binder, name: str, args: Sequence[Expression], node: exp.Expr) -> Expression:
    """The function of bound arguments; raises SqlError for a wrong number of them."""
    function = functions.FUNCTIONS[name]
    arguments(binder, name, node, len(args), function.least, function.most)
    return functions.call(name, args)


def _function(binder: Binder, node: exp.Func, scope: Scope) -> Expression:
    name = _NODES[type(node)]
    given = [n for key in _ARGUMENTS if (n := node.args.get(key)) is not None]
    given += node.expressions
    if any(v and k not in (*_ARGUMENTS, "expressions", "ignore_nulls") for k, v in node.args.items()):
        raise binder.text.error(
            refuse.sentence(f"this form of {name.upper()}", "leave the options out"), node
        )
    return call(binder, name, [binder.value(n, scope) for n in given], node)


def _anonymous(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    name = node.name.lower()
    handler: Handler | None = times.NAMED.get(name)
    if handler:
        return handler(binder, node, scope)
    if name not in _NAMED:
        raise binder.text.error(refuse.construct(node), node)
    return call(binder, _NAMED[name], [binder.value(n, scope) for n in node.expressions], node)


HANDLERS: dict[type[exp.Expr], Handler] = {**dict.fromkeys(_NODES, _function), exp.Anonymous: _anonymous}
