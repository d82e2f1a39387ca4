"""Functions in Python: CREATE FUNCTION … LANGUAGE python, and their calls.

They are declared by files alone: what is sent by clients or added while a program runs calls those that there
are. A call is marked once macros are expanded, before names are resolved.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from sqlglot import exp

from orderbook.core.errors import UserError
from orderbook.core.user_functions import MOST_PARAMETERS
from orderbook.views.binding.bound import Cast, Expression, Function, Literal
from orderbook.views.binding.nodes import UserCall
from orderbook.views.binding.parser import START, SqlText, Statement, parse_functions, position
from orderbook.views.binding.scope import Binder, Handler, Scope, arguments, identifier
from orderbook.views.binding.typed_nodes import TypingError, adopt, timestamp
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import DOUBLE, Kind, Type

TYPES = "SMALLINT, INTEGER, BIGINT, DOUBLE, BOOLEAN, TIMESTAMP"
TypeOf = Callable[[exp.DataType, SqlText], Type]


def declared_functions(
    texts: Sequence[tuple[str | None, str]], type_of: TypeOf, is_taken: Callable[[str], str | None]
) -> dict[str, UserFunction]:
    """The functions of SQL texts, by name. is_taken: what has a name already. Raises SqlError."""
    found: dict[str, UserFunction] = {}
    for file, sql in texts:
        for statement in parse_functions(file, sql):
            name = identifier(statement.tree.this, statement.text)
            taken = "a function in Python" if name in found else is_taken(name)
            if taken:
                message = f"{name} is {taken} already; name the function otherwise"
                raise statement.text.error(message, statement.tree.this)
            found[name] = _declared(statement, type_of)
    return found


def _declared(statement: Statement, type_of: TypeOf) -> UserFunction:
    tree, text = statement.tree, statement.text
    if text.file is None:
        message = "a function in Python is declared by a file, not by text that is given in code or sent"
        raise text.error(message, tree.this)
    if len(tree.expressions) > MOST_PARAMETERS:
        raise text.error(f"a function has up to {MOST_PARAMETERS} parameters", tree.expressions[-1])
    names: set[str] = set()
    for given in tree.expressions:
        own = identifier(given.this, text)
        if own in names:
            raise text.error(f"parameter {own} is declared twice", given)
        names.add(own)
    kinds = [_type(node.args["kind"], text, type_of) for node in tree.expressions]
    result = _type(tree.args["kind"], text, type_of)
    target = tree.args["target"]
    try:
        return UserFunction.of(target.name, str(Path(text.file).parent), kinds, result)
    except UserError as error:
        raise text.error(str(error), target) from error


def _type(node: exp.DataType, text: SqlText, type_of: TypeOf) -> Type:
    if node.this is exp.DType.DECIMAL:
        message = "DECIMAL is not a type of functions in Python; declare DOUBLE, to which arguments are cast"
        raise text.error(message, node)
    kind = type_of(node, text)
    if kind.kind is Kind.TEXT:
        raise text.error(f"TEXT is not a type of functions in Python; they take and give {TYPES}", node)
    return kind


def with_calls(tree: exp.Expr, functions: Mapping[str, UserFunction], text: SqlText) -> exp.Expr:
    """The tree with its calls of functions in Python marked as such. Raises SqlError for one in FROM."""
    for call in list(tree.find_all(exp.Anonymous)) if functions else ():
        function = functions.get(call.name.lower())
        if function is None:
            continue
        if isinstance(call.parent, exp.Table):
            raise text.error(f"{call.name} is a function of values, not called in FROM", call)
        marked = UserCall(this=call.name, expressions=call.expressions, function=function)
        marked.meta[START] = position(call)
        call.replace(marked)
    return tree


def refuse_functions(texts: Collection[tuple[str | None, str]]) -> None:
    """Raises SqlError for a function in Python that texts declare: whoever sends them may load no code."""
    for file, sql in texts:
        for statement in parse_functions(file, sql):
            message = "a function in Python is not added to what runs; declare it in a file before the start"
            raise statement.text.error(message, statement.tree.this)


def _call(binder: Binder, node: UserCall, scope: Scope) -> Expression:
    function: UserFunction = node.args["function"]
    wanted = function.parameters
    arguments(binder, node.name, node, len(node.expressions), len(wanted), len(wanted))
    given = [
        _converted(node.name, binder.value(one, scope), kind)
        for one, kind in zip(node.expressions, wanted, strict=True)
    ]
    nullable = function.result == DOUBLE or any(one.nullable for one in given)
    return Function(function, tuple(given), function.result, nullable)


def _converted(name: str, argument: Expression, wanted: Type) -> Expression:
    """An argument as the parameter's type, where no value is lost."""
    (argument,) = adopt([argument], wanted)
    if wanted.kind is Kind.TIMESTAMP and isinstance(argument, Literal) and isinstance(argument.value, str):
        argument = timestamp(argument.value) or argument
    kind = argument.type
    if wanted.kind is Kind.DOUBLE and kind.numeric:
        return argument if kind == DOUBLE else Cast(argument, DOUBLE, argument.nullable)
    if kind.kind is not wanted.kind:
        raise TypingError(f"{name.upper()} of {kind} is not supported; it takes {wanted} there: cast it")
    if kind.low < wanted.low or kind.high > wanted.high:
        most = "BIGINT" if wanted.high > 2**31 else "INTEGER"
        raise TypingError(f"{name.upper()} of an integer that may not fit {most}: cast it to {most}")
    return argument


HANDLERS: dict[type[exp.Expr], Handler] = {UserCall: _call}
