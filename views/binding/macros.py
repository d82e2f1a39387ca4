"""Macros: CREATE MACRO, and their calls as what they stand for, before names are resolved.

A call becomes the macro's expression, with arguments in the place of its parameters. In a query of the macro
they keep to the names that are seen where the call stands: each is `Outward`, bound that many queries out.
What a macro says is at the place of the call, for errors. A table macro is a query, called in FROM with
constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from orderbook.views.binding.aggregates import call_of
from orderbook.views.binding.bound import Expression
from orderbook.views.binding.nodes import Outward
from orderbook.views.binding.parser import START, SqlText, is_function, parse_macros, position
from orderbook.views.binding.scope import Binder, Handler, Scope, identifier, refusal

# So that macros of macros do not grow without bound.
_MOST_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro: its parameters, with what they are where they are not given, and its expression or query."""

    parameters: Mapping[str, exp.Expr | None]
    body: exp.Expr
    table: bool


class Macros:
    """The macros of SQL texts. Raises SqlError for one that is declared twice, built in, or calls itself."""

    def __init__(self, texts: Sequence[tuple[str | None, str]]) -> None:
        self._macros: dict[str, Macro] = {}
        declared = [statement for file, sql in texts for statement in parse_macros(file, sql)]
        # What they say, by which they are told from others.
        self.said = tuple(statement.sql for statement in declared)
        for statement in declared:
            tree, text = statement.tree, statement.text
            name = identifier(tree.this, text)
            if name in self._macros:
                raise text.error(f"macro {name} is declared twice", tree.this)
            if is_function(name.upper()):
                raise text.error(f"{name} is a function already; name the macro otherwise", tree.this)
            parameters: dict[str, exp.Expr | None] = {}
            for given in tree.expressions:
                own = identifier(given.this, text)
                if own in parameters:
                    raise text.error(f"parameter {own} of macro {name} is declared twice", given)
                parameters[own] = given.args.get("default")
            self._macros[name] = Macro(parameters, tree.expression, bool(tree.args.get("table")))
        self.names = self._macros.keys()
        for statement in declared:
            self._check(statement.text, statement.tree, [identifier(statement.tree.this, statement.text)])

    def _check(self, text: SqlText, tree: exp.Expr, path: list[str]) -> None:
        for name in self._called(self._macros[path[-1]].body):
            if name in path:
                cycle = " -> ".join([*path[path.index(name) :], name])
                raise text.error(f"macros call each other in a cycle: {cycle}", tree.this)
            self._check(text, tree, [*path, name])

    def _called(self, tree: exp.Expr) -> set[str]:
        names = {call.name.lower() for call in tree.find_all(exp.Anonymous)}
        return names & self._macros.keys()

    def expanded(self, tree: exp.Expr, text: SqlText) -> exp.Expr:
        """The tree with its calls of macros replaced; raises SqlError for wrong ones."""
        calls, nodes = list(tree.find_all(exp.Anonymous)), 0
        while calls:
            call = calls.pop()
            macro = self._macros.get(call.name.lower())
            if macro is None:
                continue
            of_table = isinstance(call.parent, exp.Table) and call.arg_key == "this"
            if macro.table is not of_table:
                where = "in FROM" if macro.table else "as a value, not in FROM"
                raise text.error(f"macro {call.name} is called {where}", call)
            body = exp.Paren(this=_applied(macro, _arguments(macro, call, text), position(call)))
            calls += body.find_all(exp.Anonymous)
            nodes += sum(1 for _ in body.walk())
            if nodes > _MOST_NODES:
                raise text.error("macros make this statement too large; split it into views", tree)
            if of_table:
                assert isinstance(call.parent, exp.Table)
                _derive(call.parent, body.this)
            else:
                call.replace(body)
        return tree


def _arguments(macro: Macro, call: exp.Anonymous, text: SqlText) -> dict[str, exp.Expr]:
    found: dict[str, exp.Expr] = {}
    names = list(macro.parameters)
    for place, node in enumerate(call.expressions):
        if isinstance(node, exp.PropertyEQ | exp.Kwarg):
            name, value = identifier(node.this, text), node.expression
        elif place < len(names):
            name, value = names[place], node
        else:
            count = len(names)
            raise text.error(f"macro {call.name} takes {count} argument{'s' * (count != 1)}", call)
        if name not in macro.parameters:
            raise text.error(f"macro {call.name} has no parameter {name}; it has {', '.join(names)}", node)
        if name in found:
            raise text.error(f"parameter {name} of macro {call.name} is given twice", node)
        if macro.table and value.find(exp.Column):
            message = (
                f"macro {call.name} is a query, and takes constants; write a view, and a condition on it"
            )
            raise text.error(message, value)
        found[name] = value
    for name, default in macro.parameters.items():
        if name not in found and default is None:
            raise text.error(f"macro {call.name} needs its parameter {name}", call)
        found.setdefault(name, default or exp.Null())
    return found


def _applied(macro: Macro, arguments: Mapping[str, exp.Expr], start: int) -> exp.Expr:
    """The body with arguments in the place of parameters."""
    body = exp.Paren(this=macro.body.copy())
    for node in body.walk():
        node.meta[START] = start
    for column in list(body.find_all(exp.Column)):
        name = column.name.lower()
        if column.table or isinstance(column.this, exp.Star) or name not in arguments:
            continue
        value = exp.Paren(this=arguments[name].copy())
        # What a table macro takes is constant, the same in every query.
        levels = 0 if macro.table else _levels(column)
        column.replace(Outward(this=value, levels=levels) if levels else value)
    replaced: exp.Expr = body.this
    return replaced


def _levels(node: exp.Expr) -> int:
    """How many queries a node is in, that see those around them."""
    count, select = 0, node.find_ancestor(exp.Select)
    while select is not None:
        whole: exp.Expr = select
        while isinstance(whole.parent, exp.Subquery | exp.SetOperation | exp.Paren):
            whole = whole.parent
        parent = whole.parent
        in_from = isinstance(parent, exp.From | exp.CTE) or (
            isinstance(parent, exp.Join) and whole.arg_key == "this"
        )
        count += not in_from
        select = select.find_ancestor(exp.Select)
    return count


def _derive(table: exp.Table, query: exp.Expr) -> None:
    """Puts a query into FROM in the place of the call of a table macro."""
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.this.name.lower()))
    derived = exp.Subquery(this=query, alias=alias.copy())
    derived.meta[START] = position(table)
    for key, value in table.args.items():
        if value and key not in ("this", "alias"):
            derived.set(key, value)
    table.replace(derived)


def _outward(binder: Binder, node: Outward, scope: Scope) -> Expression:
    if any(call_of(n) for n in node.this.walk(prune=lambda n: isinstance(n, exp.Query))):
        instead = "compute it in a derived table"
        raise refusal(binder, "aggregate as an argument of a macro with a query", instead, node)
    owner: Scope | None = scope
    for _ in range(node.args["levels"]):
        assert owner is not None
        owner = owner.parent
    assert owner is not None
    return binder.value(node.this, owner)


HANDLERS: dict[type[exp.Expr], Handler] = {Outward: _outward}
