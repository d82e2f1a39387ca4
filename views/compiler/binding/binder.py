"""What the parts of the expression binder share: the binder as they see it, and how they refuse."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sqlglot import exp

from orderbook.errors import SqlError

from . import refuse
from .bound import Expression, Select
from .dialect import SqlText
from .scope import Scope


class Binder(Protocol):
    """Binds the expressions of one view.

    `bind_query` binds a subquery in the scope it stands in, `unique` names a source so that no other of the
    view has its name, `lookup` gives the relation of a name or raises SqlError.
    """

    @property
    def text(self) -> SqlText: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def bind_query(self) -> Callable[[exp.Expr, Scope], Select]: ...

    @property
    def unique(self) -> Callable[[str, exp.Expr], str]: ...

    @property
    def lookup(self) -> Callable[[str, SqlText, exp.Expr], Any]: ...

    def value(self, node: exp.Expr, scope: Scope) -> Expression: ...

    def condition(self, node: exp.Expr, scope: Scope) -> Expression: ...


Handler = Callable[[Binder, Any, Scope], Expression]


def refusal(binder: Binder, name: str, instead: str, node: exp.Expr) -> SqlError:
    """The error that a construct is not supported, with what to write instead."""
    return binder.text.error(refuse.sentence(name, instead), node)


def arguments(binder: Binder, name: str, node: exp.Expr, given: int, least: int, most: int | None) -> None:
    """Raises SqlError unless a function was given as many arguments as it takes."""
    if given < least or (most is not None and given > most):
        count = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        plural = "" if count.endswith("1") else "s"
        raise binder.text.error(f"{name.upper()} takes {count} argument{plural}", node)
