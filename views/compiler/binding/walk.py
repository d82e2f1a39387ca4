"""Walks over bound expressions."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from views.compiler.types import Relation, Type

from .bound import Expression, OrderItem, ScalarSubquery, Select


def parts(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of, outermost first; not what is inside of subqueries."""
    yield expression
    if not isinstance(expression, ScalarSubquery):
        for field in fields(expression):
            yield from _parts(getattr(expression, field.name))


def has(expression: Expression, *kinds: type) -> bool:
    """Whether a part of the expression is of one of the kinds."""
    return any(isinstance(p, kinds) for p in parts(expression))


def rewritten(value: Any, change: Callable[[Any], Any]) -> Any:
    """A bound node, or a tuple of them, with parts replaced, those of subqueries and sources among them.

    `change` gives what stands in the place of a node, outermost first; None goes on into its parts.
    """
    if isinstance(value, tuple):
        return tuple(rewritten(item, change) for item in value)
    if not is_dataclass(value) or isinstance(value, Type | Relation | type):
        return value
    new = change(value)
    if new is not None:
        return new
    return replace(value, **{f.name: rewritten(getattr(value, f.name), change) for f in fields(value)})


def _parts(value: Any) -> Iterator[Expression]:
    if isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, OrderItem):
        yield from parts(value.expression)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Type | Select):
        yield from parts(value)
