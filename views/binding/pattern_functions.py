"""Patterns that texts are compared with: LIKE, ILIKE, GLOB, SIMILAR TO and regular expressions.

A constant pattern of LIKE is looked up in a table of all texts; one that is computed, or has an escape, is
compared when its texts are new. Regular expressions are constants, and what is wrong in one is told here.
"""

from collections.abc import Sequence

from sqlglot import exp

from orderbook.views.binding import functions
from orderbook.views.binding.bound import Expression, Literal
from orderbook.views.binding.scope import Binder, Handler, Scope, arguments, refusal
from orderbook.views.binding.text_functions import apply
from orderbook.views.binding.typed_nodes import (
    comparison,
    is_null_literal,
    logical,
    negation,
    number,
)
from orderbook.views.scalars import patterns
from orderbook.views.types import BOOLEAN, TEXT, Kind


def _like(binder: Binder, node: exp.Like | exp.ILike, scope: Scope) -> Expression:
    return _alike(binder, node, scope, Literal("", TEXT))


def _alike(binder: Binder, node: exp.Like | exp.ILike, scope: Scope, escape: Expression) -> Expression:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    if isinstance(node.expression, exp.Any | exp.All):
        return _like_each(binder, node, scope, escape)
    args = [binder.value(n, scope) for n in (node.this, node.expression)]
    if isinstance(args[1], Literal) and _no_part(escape, args[1]):
        match = functions.call(name, args)
    elif is_null_literal(args[1]) or is_null_literal(escape):
        match = Literal(None, BOOLEAN, nullable=True)
    else:
        match = _holds(f"{name}_text", [*args, escape])
    return negation(match) if node.args.get("negate") else match


def _no_part(escape: Expression, pattern: Literal) -> bool:
    """Whether what escapes is not in a constant pattern."""
    known = escape.value if isinstance(escape, Literal) else None
    return isinstance(known, str) and (known == "" or known not in str(pattern.value))


def _like_each(binder: Binder, node: exp.Like | exp.ILike, scope: Scope, escape: Expression) -> Expression:
    """LIKE ANY, LIKE ALL of a list of patterns."""
    every = isinstance(node.expression, exp.All)
    name = f"{type(node).__name__.upper()} {'ALL' if every else 'ANY'}"
    listed = listed_values(node.expression.this)
    if listed is None:
        raise refusal(binder, f"{name} of a query", "list the patterns", node)
    found = []
    for pattern in listed:
        one = type(node)(this=node.this.copy(), expression=pattern.copy(), negate=node.args.get("negate"))
        found.append(_alike(binder, one, scope, escape))
    return logical("AND" if every else "OR", found)


def listed_values(node: exp.Expr) -> Sequence[exp.Expr] | None:
    """The nodes of a list such as [1, 2], ARRAY[1, 2] or (1, 2); None for another node."""
    inner = node.unnest()
    if isinstance(inner, exp.Array | exp.Tuple) and inner.expressions:
        return inner.expressions
    return None if isinstance(inner, exp.Query | exp.Array | exp.Tuple) else [inner]


def _escape(binder: Binder, node: exp.Escape, scope: Scope) -> Expression:
    escape = binder.value(node.expression, scope)
    if isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) > 1:
        raise binder.text.error("ESCAPE takes one character", node)
    return _alike(binder, node.this, scope, escape)


def _glob(binder: Binder, node: exp.Glob, scope: Scope) -> Expression:
    return _holds("glob", [binder.value(n, scope) for n in (node.this, node.expression)])


def _holds(name: str, args: Sequence[Expression]) -> Expression:
    return comparison(">", apply(name, args), number(0))


def _constant(binder: Binder, what: str, node: exp.Expr, scope: Scope) -> str | None:
    """A constant text, None where it is NULL."""
    value = binder.value(node, scope)
    if is_null_literal(value):
        return None
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise refusal(binder, f"{what} that is no constant text", "write it as in '^[A-Z]+'", node)
    return value.value


def _regexp(
    binder: Binder, name: str, given: Sequence[exp.Expr], options: str | None, scope: Scope
) -> Expression:
    """A function of a text, a regular expression and what else it takes, with these options."""
    subject, expression, *others = given
    args = [binder.value(subject, scope)]
    pattern = _constant(binder, "a regular expression", expression, scope)
    boolean = name in ("regexp_matches", "regexp_full_match")
    if pattern is None or options is None:
        return Literal(None, BOOLEAN if boolean else TEXT, nullable=True)
    try:
        pattern = patterns.with_options(pattern, options)
        groups = patterns.regex(pattern).groups
    except patterns.PatternError as error:
        raise binder.text.error(f"{pattern[:60]!r} is no regular expression: {error}", expression) from None
    args.append(Literal(pattern, TEXT))
    for node in others:
        if name == "regexp_extract":
            args.append(_group(binder, node, groups, scope))
            continue
        replacement = _constant(binder, "a replacement", node, scope)
        if replacement is None:
            return Literal(None, TEXT, nullable=True)
        try:
            patterns.check_replacement(replacement, groups)
        except patterns.PatternError as error:
            raise binder.text.error(str(error), node) from None
        args.append(Literal(replacement, TEXT))
    return _holds(name, args) if boolean else apply(name, args)


def _group(binder: Binder, node: exp.Expr, groups: int, scope: Scope) -> Expression:
    value = binder.value(node, scope)
    known = value.value if isinstance(value, Literal) and value.type.kind is Kind.INTEGER else None
    if type(known) is not int or not 0 <= known <= groups:
        instead = f"write REGEXP_EXTRACT(x, pattern, n), n from 0 to the {groups} groups there are"
        raise refusal(binder, "REGEXP_EXTRACT of such a group", instead, node)
    return value


def _options(binder: Binder, node: exp.Expr | None, scope: Scope) -> str | None:
    return "" if node is None else _constant(binder, "options", node, scope)


def _similar(name: str) -> Handler:
    def handler(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
        options = _options(binder, node.args.get("flag") or node.args.get("options"), scope)
        return _regexp(binder, name, [node.this, node.expression], options, scope)

    return handler


def _named(name: str) -> Handler:
    """REGEXP_MATCHES(text, pattern, options)."""

    def handler(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
        given = node.expressions
        arguments(binder, name, node, len(given), 2, 3)
        return _regexp(binder, name, given[:2], _options(binder, (*given, None)[2], scope), scope)

    return handler


def _extract(binder: Binder, node: exp.RegexpExtract, scope: Scope) -> Expression:
    """REGEXP_EXTRACT(text, pattern, group, options); the parser has other names for the last two."""
    group = node.args.get("position") or exp.Literal.number(0)
    options = _options(binder, node.args.get("occurrence"), scope)
    if any(node.args.get(k) for k in ("parameters", "group")):
        raise binder.text.error("REGEXP_EXTRACT takes 2 to 4 arguments", node)
    return _regexp(binder, "regexp_extract", [node.this, node.expression, group], options, scope)


def _replace(binder: Binder, node: exp.RegexpReplace, scope: Scope) -> Expression:
    """REGEXP_REPLACE(text, pattern, replacement, options); the parser has another name for the last."""
    replacement, given = node.args.get("replacement"), node.args.get("position") or node.args.get("modifiers")
    if replacement is None or any(node.args.get(k) for k in ("occurrence", "parameters")):
        raise binder.text.error("REGEXP_REPLACE takes 3 or 4 arguments", node)
    options = _options(binder, given, scope)
    name = "regexp_replace_all" if options and "g" in options else "regexp_replace"
    plain = options if options is None else options.replace("g", "")
    return _regexp(binder, name, [node.this, node.expression, replacement], plain, scope)


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Glob: _glob,
    exp.SimilarTo: _similar("regexp_full_match"),
    exp.RegexpLike: _similar("regexp_matches"),
    exp.RegexpFullMatch: _similar("regexp_full_match"),
    exp.RegexpExtract: _extract,
    exp.RegexpReplace: _replace,
}
NAMED: dict[str, Handler] = {name: _named(name) for name in ("regexp_matches", "regexp_full_match")}
