"""Parameters of SQL: what CREATE PARAMETER declares, and whether the values that are given fit it.

A parameter takes what its default is: a number, TRUE or FALSE, a text, or a length of time, which is a text
such as '1 minute' or a number of seconds. CHECK bounds a number or a length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from sqlglot import exp

from orderbook.core.errors import SqlError, UserError, nearest
from orderbook.views.binding import checks
from orderbook.views.binding.checks import Bound, bounds_of
from orderbook.views.binding.nodes import CreateParameter
from orderbook.views.binding.parser import SqlText, parse_parameters, shown
from orderbook.views.binding.scope import identifier
from orderbook.views.binding.typed_nodes import interval_of
from orderbook.views.scalars.texts import SECOND
from orderbook.views.types import Parameter

_CHECK_FORM = "CHECK takes a range of the parameter, as in k > 0 or k BETWEEN 0 AND INTERVAL '1 hour'"
_PLACEHOLDER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")


class ParameterError(SqlError):
    """A value that a parameter does not take, at its declaration; `reason` says so without name and place."""

    def __init__(self, name: str, reason: str, place: SqlError) -> None:
        super().__init__(f"parameter {name}: {reason}", place.line, place.column, place.file)
        self.name, self.reason = name, reason


class _Kind(Enum):
    NUMBER = "a number"
    BOOLEAN = "TRUE or FALSE"
    TEXT = "a text"
    LENGTH = "a length of time"


@dataclass(frozen=True, slots=True)
class _Declared:
    """A CREATE PARAMETER of a text."""

    name: str
    default: Parameter
    tree: CreateParameter
    text: SqlText
    sql: str

    @property
    def kind(self) -> _Kind:
        if isinstance(self.default, str):
            return _Kind.LENGTH if interval_of(self.default) else _Kind.TEXT
        return _Kind.BOOLEAN if isinstance(self.default, bool) else _Kind.NUMBER

    @property
    def bounds(self) -> list[Bound]:
        """Those of its CHECK, in ns of a length. Raises SqlError where it is not of this parameter."""
        check = self.tree.args.get("check")
        if check is None:
            return []
        found = bounds_of(check, self.text, self._bound)
        if self.kind not in (_Kind.NUMBER, _Kind.LENGTH):
            raise self.text.error(f"CHECK on {self.kind.value} is not supported; {_CHECK_FORM}", check)
        for bound in found:
            if identifier(bound.column.this, self.text) != self.name:
                raise self.text.error(f"the CHECK of {self.name} is about it alone; {_CHECK_FORM}", check)
        return found

    def _bound(self, node: Any, text: SqlText) -> Decimal:
        if self.kind is not _Kind.LENGTH:
            return checks.number(node, text)
        unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
        written = node.this.name if isinstance(node, exp.Interval) else ""
        length = interval_of(f"{written} {unit.name}" if unit else written)
        if length is None or length[1]:
            message = f"a length of time is needed here, of days or less; {_CHECK_FORM}"
            raise text.error(message, node)
        return Decimal(length[0])

    def check(self, value: Parameter) -> None:
        """Raises ParameterError for a value that it does not take."""
        amount = self._amount(value)
        for bound in self.bounds:
            # Months have no length in ns.
            if amount is not None and not bound.holds(amount):
                raise self._error(f"{_shown(value)} is out of its range, {self._range()}")

    def _range(self) -> str:
        """Its CHECK as it is written."""
        found = re.search(r"\bCHECK\s*\((.*)\)", self.sql, re.IGNORECASE | re.DOTALL)
        return shown(found[1], 100) if found else ""

    def _amount(self, value: Parameter) -> Decimal | None:
        """What bounds are compared with: a number, or the ns of a length. Raises ParameterError."""
        given = _kind_of(value)
        length = interval_of(value) if isinstance(value, str) else None
        if self.kind is _Kind.LENGTH:
            if length is not None:
                return None if length[1] else Decimal(length[0])
            if given is _Kind.NUMBER:
                return _decimal(value) * SECOND
        elif given is self.kind:
            return _decimal(value) if given is _Kind.NUMBER else None
        instead = '; write "TEXT", in double quotes' if self.kind is _Kind.TEXT else ""
        like = f"as its default {_shown(self.default)} is"
        raise self._error(f"{_shown(value)} is not {self.kind.value}, {like}{instead}")

    def _error(self, reason: str) -> ParameterError:
        return ParameterError(self.name, reason, self.text.error("", self.tree.this))


def _kind_of(value: object) -> _Kind | None:
    if isinstance(value, bool):
        return _Kind.BOOLEAN
    if isinstance(value, int | float | Decimal):
        return _Kind.NUMBER if Decimal(value).is_finite() else None
    return _Kind.TEXT if isinstance(value, str) else None


def _decimal(value: object) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)  # type: ignore[arg-type]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return repr(shown(value))
    return f"{value:f}" if isinstance(value, Decimal) else shown(str(value))


def _declared(texts: Sequence[tuple[str | None, str]]) -> Iterator[_Declared]:
    for file, sql in texts:
        for statement in parse_parameters(file, sql):
            tree, text = statement.tree, statement.text
            assert isinstance(tree, CreateParameter)
            name, default = identifier(tree.this, text), _default(tree.expression, text)
            yield _Declared(name, default, tree, text, statement.sql)


def default_parameters(texts: Sequence[tuple[str | None, str]]) -> dict[str, Parameter]:
    """What CREATE PARAMETER of SQL texts gives as the values of parameters, by name.

    Raises SqlError where a value is no constant or outside of its CHECK, or one parameter has two.
    """
    return parameter_values(texts, {})


def parameter_values(
    texts: Sequence[tuple[str | None, str]], given: Mapping[str, Parameter]
) -> dict[str, Parameter]:
    """The values of parameters: those given, over those that CREATE PARAMETER of SQL texts declares.

    Raises ParameterError, at the declaration, for a value that a parameter does not take, and SqlError as
    `default_parameters`.
    """
    found: dict[str, Parameter] = {}
    for one in _declared(texts):
        if found.setdefault(one.name, one.default) != one.default:
            message = f"parameter {one.name} is {found[one.name]} elsewhere, not {one.default}; rename it"
            raise one.text.error(message, one.tree.this)
        one.check(one.default)
        if one.name in given:
            one.check(given[one.name])
    return {**found, **given}


def check_names(texts: Sequence[tuple[str | None, str]], given: Mapping[str, Parameter]) -> None:
    """Raises UserError for a name that no text declares or reads and that resembles one which is not given.

    Conditions of subscriptions may read others.
    """
    if not given:
        return
    known = {name for _, sql in texts for name in _PLACEHOLDER.findall(sql)}
    known |= {one.name for one in _declared(texts)}
    for name in given:
        near = None if name in known else nearest(name, known.difference(given))
        if near is not None:
            raise UserError(f"parameter {name}: nothing uses it; did you mean {near!r}?")


def _default(node: exp.Expr, text: SqlText) -> Parameter:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(number, exp.Literal) and not number.is_string:
        with suppress(InvalidOperation):
            value = Decimal(number.name)
            if value.is_finite():
                return sign * (int(value) if number.name.isdecimal() else value)
    raise text.error(
        f"DEFAULT takes a number or a string, not {shown(node.sql())}; a length of time is '1 minute', "
        "and INTERVAL :name where it is read",
        node,
    )
