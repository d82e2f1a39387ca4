"""What numbers of compiled methods count: no amount, in 10^-8, meets a double in the units of relations.

Prices, volumes, `tick`, `lot`, `position` and what orders are sent with count 10^-8 in compiled methods; a
double that the class or its parameters give stays as it is written, and no method changes it. Where one is
sent as an amount, added to one, or compared with one, the outcome is never what is meant: `size: float = 0.5`
would be less than half of 10^-8. What a product or a quotient counts is not known, so these are let through.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import FunctionType
from typing import Any

from orderbook.core.native import function_node
from orderbook.core.native_types import NativeError

# Arguments of orders that are amounts, by method, in their order; what has no name there is none.
_AMOUNTS: Mapping[str, Sequence[str]] = {
    "buy": ("volume", "price"), "sell": ("volume", "price"), "hold": ("target",),
    "modify": ("", "volume", "price", "stop"),
}  # fmt: skip
_NAMED = frozenset(("volume", "price", "target", "stop", "trail", "display", "take_profit", "stop_loss"))
# Of the state, what counts 10^-8 in every class.
STATE_AMOUNTS = frozenset(("tick", "lot", "position"))
# No price and no volume that is written as it is; what is more is taken to count 10^-8.
_MOST = 1e6
# A factor from there on, or its inverse, is taken to change what is counted.
_CONVERTS = 1_000
_SAME_UNIT = ("abs", "round", "int", "float")
_ADVICE = "make it a Decimal among `defaults`, as in {{'{name}': Decimal('{value}')}}, or write {conversion}"


class Unit(Enum):
    """What a number counts: a double as it is written; 10^-8; an integer that is written there; unknown."""

    PLAIN = auto()
    AMOUNT = auto()
    WRITTEN = auto()
    UNKNOWN = auto()


@dataclass
class _Method:
    """One method: the doubles of the class, by name, and the amounts of each of its arguments."""

    function: FunctionType
    doubles: Mapping[str, float]
    amounts: Mapping[str, Collection[str]]
    state: str
    assigned: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    looked_at: set[str] = field(default_factory=set)

    def unit(self, node: ast.expr) -> Unit:
        match node:
            case ast.Constant(float() as value):
                return Unit.PLAIN if 0 < abs(value) < _MOST else Unit.WRITTEN
            case ast.Constant(int()):
                return Unit.WRITTEN
            case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
                return self.unit(operand)
            case ast.Attribute(ast.Name(of), name):
                if of == self.state and name in self.doubles:
                    return Unit.PLAIN if abs(self.doubles[name]) < _MOST else Unit.UNKNOWN
                return Unit.AMOUNT if name in self.amounts.get(of, ()) else Unit.UNKNOWN
            case ast.Name(name):
                return self._of_name(name)
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                return _joined(self.unit(left), self.unit(right))
            case ast.BinOp(left, ast.Mult() | ast.Div() | ast.FloorDiv(), right):
                return self._of_product(left, right)
            case ast.IfExp(_, then, otherwise):
                return _joined(self.unit(then), self.unit(otherwise))
            case ast.Call(ast.Name(name), [operand]) if name in _SAME_UNIT:
                return self.unit(operand)
            case ast.Call(ast.Name("min" | "max"), [first, *others]):
                found = self.unit(first)
                for other in others:
                    found = _joined(found, self.unit(other))
                return found
            case ast.Call(ast.Attribute(ast.Name(of), "open_price")) if of == self.state:
                return Unit.AMOUNT
        return Unit.UNKNOWN

    def _of_name(self, name: str) -> Unit:
        if name not in self.assigned:
            value = self.function.__globals__.get(name)
            known = isinstance(value, int | float) and name not in self.function.__code__.co_varnames
            return self.unit(ast.Constant(value)) if known else Unit.UNKNOWN
        if name in self.looked_at:
            # Of a variable that is made of itself, what it is made of besides says.
            return Unit.WRITTEN
        self.looked_at.add(name)
        found = Unit.WRITTEN
        for value in self.assigned[name]:
            found = _joined(found, Unit.UNKNOWN if value is None else self.unit(value))
        self.looked_at.discard(name)
        return found

    def _of_product(self, left: ast.expr, right: ast.expr) -> Unit:
        """Of an amount or a double times a small number that is written there; of others it is not known."""
        one, other = _written(left), _written(right)
        if one is None and other is None:
            return Unit.UNKNOWN
        factor = one if other is None else other
        assert factor is not None
        kind = self.unit(left if other is not None else right)
        if factor == 0 or not 1 / _CONVERTS < abs(factor) < _CONVERTS:
            return Unit.UNKNOWN
        # Half of an amount is one; half of what is written is a double as it is written.
        return Unit.PLAIN if kind is Unit.WRITTEN and isinstance(factor, float) else kind

    def collect(self, body: ast.AST) -> None:
        """Notes what is assigned to variables."""
        for node in ast.walk(body):
            match node:
                case ast.Assign(targets, value):
                    for target in targets:
                        self._assign(target, value)
                case ast.AnnAssign(target, _, ast.expr() as value):
                    self._assign(target, value)
                case ast.AugAssign(target, op, value):
                    self._assign(target, value if isinstance(op, ast.Add | ast.Sub) else None)
                case ast.For(target):
                    self._assign(target, None)

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        match target:
            case ast.Name(name):
                self.assigned.setdefault(name, []).append(value)
            case ast.Tuple(parts):
                for part in parts:
                    self._assign(part, None)

    def check(self, body: ast.AST) -> None:
        """Raises NativeError where amounts meet doubles as they are written."""
        for node in ast.walk(body):
            match node:
                case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                    self._check_pair(left, right, node)
                case ast.AugAssign(target, ast.Add() | ast.Sub(), value):
                    self._check_pair(target, value, value)
                case ast.Compare(left, _, others):
                    for one, other in zip([left, *others], others, strict=False):
                        self._check_pair(one, other, node, compared=True)
                case ast.Call(ast.Name("min" | "max"), [first, *others]):
                    for other in others:
                        self._check_pair(first, other, node)
                case ast.Call(ast.Attribute(ast.Name(of), name)) if of == self.state and name in _AMOUNTS:
                    self._check_order(name, node)

    def _check_pair(self, one: ast.expr, other: ast.expr, node: ast.expr, compared: bool = False) -> None:
        units = self.unit(one), self.unit(other)
        if {*units} == {Unit.PLAIN, Unit.AMOUNT}:
            double, amount = (one, other) if units[0] is Unit.PLAIN else (other, one)
            one_text, other_text = ast.unparse(amount), ast.unparse(double)
            where = f"{one_text}, which counts 10^-8, beside {other_text}, which does not"
            conversion = f"{one_text} * 1e-8" if compared else f"round({other_text} * 1e8)"
            raise self._error(where, double, conversion, node)

    def _check_order(self, method: str, node: ast.Call) -> None:
        names = _AMOUNTS[method]
        given = [*zip(names, node.args, strict=False), *((one.arg or "", one.value) for one in node.keywords)]
        for name, argument in given:
            # What is written there is refused where it is compiled.
            if name in _NAMED and _written(argument) is None and self.unit(argument) is Unit.PLAIN:
                text = ast.unparse(argument)
                where = f"{text} as {name} of {method}, which counts 10^-8"
                raise self._error(where, argument, f"round({text} * 1e8)", node)

    def _error(self, what: str, double: ast.expr, conversion: str, node: ast.expr) -> NativeError:
        own = next(self._doubles_of(double), None)
        name, value = ("limit", ast.unparse(double)) if own is None else (own, str(self.doubles[own]))
        advice = _ADVICE.format(name=name, value=value, conversion=conversion)
        where = f"{self.function.__module__}.{self.function.__name__}, line {node.lineno}"
        return NativeError(f"{where}: {what}; {advice}")

    def _doubles_of(self, node: ast.expr) -> Iterator[str]:
        """The doubles of the class in an expression, and in what its variables are made of."""
        for part in ast.walk(node):
            match part:
                case ast.Attribute(ast.Name(of), name) if of == self.state and name in self.doubles:
                    yield name
                case ast.Name(name) if name in self.assigned and name not in self.looked_at:
                    self.looked_at.add(name)
                    for value in self.assigned[name]:
                        yield from () if value is None else self._doubles_of(value)
                    self.looked_at.discard(name)


def _joined(one: Unit, other: Unit) -> Unit:
    """What a number counts that is made of two, or is one of them."""
    if one is other or other is Unit.WRITTEN:
        return one
    return other if one is Unit.WRITTEN else Unit.UNKNOWN


def _written(node: ast.expr) -> float | None:
    """The number that is written there."""
    match node:
        case ast.Constant(int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    return None


def check_units(
    function: Any, doubles: Mapping[str, float], state: Collection[str], row: Collection[str]
) -> None:
    """Raises NativeError where a method sends, adds or compares a double as if it counted 10^-8.

    doubles: of the class, those that nothing changes. state, row: the amounts of the instance, and of the
    rows that the method is called with.
    """
    node = function_node(function)
    names = [one.arg for one in node.args.args]
    amounts = {names[0]: state, **dict.fromkeys(names[1:], row)}
    method = _Method(function, doubles, amounts, names[0])
    method.collect(node)
    method.check(node)
