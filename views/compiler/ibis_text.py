"""Queries built with ibis, as SQL; ibis itself is needed by those alone who give one."""

from importlib import import_module
from typing import Any, Protocol, TypeGuard

from orderbook.errors import SqlError


class IbisExpression(Protocol):
    """An expression of ibis, as far as it is called here."""

    def unbind(self) -> Any:
        """The expression without the backend of its tables."""


def is_ibis(query: object) -> TypeGuard[IbisExpression]:
    """Whether it is an expression of ibis."""
    return any(kind.__module__.partition(".")[0] == "ibis" for kind in type(query).__mro__)


def ibis_text(query: IbisExpression) -> str:
    """The SQL of an expression of ibis. Raises SqlError where it has none."""
    to_sql = import_module("ibis").to_sql
    try:
        return str(to_sql(query, dialect="duckdb"))
    except Exception as error:
        raise SqlError(f"the ibis expression has no SQL: {' '.join(str(error).split())}") from None
