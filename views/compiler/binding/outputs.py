"""A query's outputs: their names, given or derived and made distinct, and more of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from views.compiler.unique_names import UniqueNames

from .bound import Aggregate, Cast, ColumnRef, Expression, Output, Select, Window
from .dialect import SqlText


@dataclass(frozen=True, slots=True)
class NamedOutput:
    """An output, whether its name was given by AS, and where it stands."""

    output: Output
    given: bool
    node: exp.Expr


def default_name(expression: Expression) -> str:
    """The name of an output without AS: the column's, `sum_volume`, `count`, `rank`, or else `value`."""
    match expression:
        case ColumnRef(_, name):
            return name
        case Cast(argument):
            return default_name(argument)
        case Aggregate(function, ColumnRef(_, name)) | Window(function, ColumnRef(_, name)):
            return f"{function}_{name}"
        case Aggregate(function) | Window(function):
            return function
    return "value"


def distinct_names(named: Sequence[NamedOutput], text: SqlText) -> tuple[tuple[Output, ...], frozenset[str]]:
    """The outputs with distinct names, and the names that were there more than once.

    A name given twice by AS is an error; a derived one gets a number: price, price_2.
    """
    given: set[str] = set()
    for item in named:
        if item.given and item.output.name in given:
            raise text.error(f"two outputs are named {item.output.name}", item.node)
        if item.given:
            given.add(item.output.name)
    names = UniqueNames(given)
    outputs = [
        Output(item.output.name if item.given else names.new(item.output.name), item.output.expression)
        for item in named
    ]
    counts = Counter(item.output.name for item in named)
    return tuple(outputs), frozenset(name for name, count in counts.items() if count > 1)


def with_hidden(select: Select, hidden: Iterable[Expression]) -> Select:
    """The query with more outputs, named apart."""
    outputs = list(select.outputs)
    taken = {o.name for o in outputs}
    for count, expression in enumerate(hidden, 1):
        name = f"hidden_{count}"
        while name in taken:
            name += "_"
        taken.add(name)
        outputs.append(Output(name, expression))
    return replace(select, outputs=tuple(outputs))


def outputs_of(id: str, outputs: Iterable[Output]) -> tuple[Output, ...]:
    """The outputs of a source, selected."""
    return tuple(
        Output(o.name, ColumnRef(id, o.name, o.expression.type, o.expression.nullable)) for o in outputs
    )
