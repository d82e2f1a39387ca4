"""Names of outputs in the clauses of the query that gives them."""

from collections.abc import Mapping

from sqlglot import exp

from .scope import Scope


def unaliased(node: exp.Expr) -> exp.Expr:
    """The expression of an output, without its AS."""
    return node.this if isinstance(node, exp.Alias) else node


def define(known: dict[str, exp.Expr], output: exp.Expr, scope: Scope) -> None:
    """Adds an output by the name that AS gives it; its expression may name those that are known."""
    if isinstance(output, exp.Alias):
        known[output.alias.lower()] = with_aliases(output.this, known, scope)


def with_aliases(node: exp.Expr, known: Mapping[str, exp.Expr], scope: Scope) -> exp.Expr:
    """The expression with the names of outputs replaced; a column of FROM comes before an output."""
    names = [c.name.lower() for c in node.find_all(exp.Column)]
    if not any(name in known and not scope.has(name) for name in names):
        return node
    root = exp.Paren(this=node.copy())
    root.parent = node.parent
    inside = root.walk(prune=lambda n: isinstance(n, exp.Query))
    for column in [n for n in inside if isinstance(n, exp.Column) and not n.args.get("table")]:
        name = column.name.lower()
        if name in known and not scope.has(name):
            column.replace(exp.Paren(this=known[name].copy()))
    return root.this
