"""COLUMNS(...) in the outputs of SELECT: an output for each column of FROM that it means.

COLUMNS('a.*') is the columns whose names hold a match of the regular expression, COLUMNS(*) all, also with
EXCLUDE, and COLUMNS(['a', 'b']) those listed. Several of one output are the same column in each.
"""

from collections.abc import Sequence

from sqlglot import exp

from orderbook.views.binding.parser import START, SqlText, position
from orderbook.views.binding.scope import MergedColumn, Scope, identifier, nearest, refusal_text
from orderbook.views.scalars import patterns

_FORMS = "write COLUMNS('regular expression'), COLUMNS(* EXCLUDE (a)) or COLUMNS(['a', 'b'])"


def with_columns(text: SqlText, tree: exp.Select, scope: Scope) -> exp.Select:
    """The query with each output that has COLUMNS in it as several."""
    if not any(_found(item) for item in tree.expressions):
        return tree
    tree = tree.copy()
    outputs: list[exp.Expr] = []
    for item in tree.expressions:
        calls = _found(item)
        if not calls:
            outputs.append(item)
            continue
        names = _meant(text, calls[0], scope)
        for call in calls[1:]:
            if call != calls[0]:
                raise text.error("the COLUMNS of one output mean the same columns", call)
        outputs += [_with_name(item, qualifier, name) for qualifier, name in names]
    tree.set("expressions", outputs)
    return tree


def _found(item: exp.Expr) -> list[exp.Columns]:
    return [n for n in item.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(n, exp.Columns)]


def _with_name(item: exp.Expr, qualifier: str, name: str) -> exp.Expr:
    root = exp.Paren(this=item.copy())
    for call in _found(root):
        column = exp.column(name, table=qualifier or None)
        for node in column.walk():
            node.meta[START] = position(call)
        call.replace(column)
    found: exp.Expr = root.this
    return found


def _meant(text: SqlText, call: exp.Columns, scope: Scope) -> Sequence[tuple[str, str]]:
    """The columns that a call means, with the alias of their relation, in the order of *."""
    known: list[tuple[str, str]] = []
    for index, column in scope.visible(0, len(scope.items)):
        if isinstance(column, MergedColumn):
            known.append(("", column.name))
        elif not column.hidden:
            known.append((scope.items[index].alias, column.name))
    given = call.this
    if isinstance(given, exp.Column) and isinstance(given.this, exp.Star):
        alias = identifier(given.args["table"], text)
        own = scope.item(alias, given).columns
        known, given = [(alias, c.name) for c in own if not c.hidden], given.this
    if isinstance(given, exp.Literal) and given.is_string:
        try:
            found = [pair for pair in known if patterns.regexp_matches(pair[1], given.name)]
        except patterns.PatternError as error:
            raise text.error(f"{given.name[:60]!r} is no regular expression: {error}", given) from None
        if not found:
            raise text.error(f"no column has a name like {given.name[:60]!r}", given)
        return found
    if isinstance(given, exp.Star) and not given.args.get("replace") and not given.args.get("rename"):
        listed = given.args.get("except_") or []
        nodes = listed if isinstance(listed, list) else [listed]
        left_out = {_named(text, n, known) for n in nodes}
        return [pair for pair in known if pair[1] not in left_out]
    if isinstance(given, exp.Array) and all(
        isinstance(n, exp.Literal) and n.is_string for n in given.expressions
    ):
        names = [_named(text, n, known) for n in given.expressions]
        return [pair for name in names for pair in known if pair[1] == name]
    raise text.error(refusal_text("COLUMNS of such a value", _FORMS), call)


def _named(text: SqlText, node: exp.Expr, known: Sequence[tuple[str, str]]) -> str:
    name = node.name.lower()
    if all(n != name for _, n in known):
        raise text.error(f"FROM has no column {name}{nearest(name, (n for _, n in known))}", node)
    return name
