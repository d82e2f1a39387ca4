"""What names and calls in a function mean, and the types of its variables, from those of its arguments."""

import ast
import builtins
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import _Intrinsic

from orderbook.core.native_types import (
    BOOL,
    CLASSES,
    FLOAT,
    INT,
    LIBM,
    NONE,
    OF_TWO,
    ROUNDED,
    UNSIGNED,
    Int128,
    NativeError,
    Slot,
    UnknownName,
    WrittenDouble,
    constant_type,
    joined,
    plain_function,
    plain_type,
    result_type,
)

# Types only widen, so that this many passes over a function are never needed.
_ROUNDS = 20


@dataclass(eq=False)
class OwnFunction:
    """A function with arguments of given types; `kind` is what it returns."""

    name: str
    function: FunctionType
    arguments: tuple[types.Type, ...]
    node: ast.FunctionDef
    kind: types.Type | None = None
    variables: dict[str, types.Type] = field(default_factory=dict)
    # Whether its integers are those of Python; see WIDENS.
    widens: bool = False
    inferring: bool = False
    value: ir.Function | None = None

    @property
    def names(self) -> list[str]:
        return [a.arg for a in self.node.args.args]

    def fail(self, what: str, node: ast.expr | ast.stmt) -> NativeError:
        return NativeError(f"{self.function.__module__}.{self.function.__name__}, line {node.lineno}: {what}")


class FunctionsOfModule(Protocol):
    """What a function asks of the module that it is compiled in; see NativeModule."""

    module: ir.Module
    methods: Mapping[str, Any]
    intrinsics: dict[tuple[Any, tuple[types.Type, ...]], tuple[Any, Any]]

    def specialised(
        self, function: FunctionType, arguments: tuple[types.Type, ...], widens: bool = False
    ) -> OwnFunction:
        """A function for arguments of these types, its types inferred."""

    def declared(self, own: OwnFunction) -> ir.Function:
        """The LLVM function, whose body comes later."""

    def slot(self, value: Slot) -> ir.Value:
        """An integer, left open where it is a hole."""

    def exported(self, function: types.ExternalFunction) -> ir.Function:
        """A function that was compiled apart, left open where it is a hole."""

    def external(self, symbol: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """A function of another module or of the C library."""


class Typed:
    """Finds what the names and calls of a function mean."""

    def __init__(self, module: FunctionsOfModule, own: OwnFunction) -> None:
        self.module, self.own = module, own
        self._space = own.function.__globals__
        code = own.function.__code__
        self._closure = dict(
            zip(code.co_freevars, (c.cell_contents for c in own.function.__closure__ or ()), strict=True)
        )

    def constant(self, node: ast.expr) -> Any:
        """What a name or an attribute of a module means outside of the function."""
        if isinstance(node, ast.Name):
            for space in (self._closure, self._space, vars(builtins)):
                if node.id in space:
                    return space[node.id]
            raise self.own.fail(f"the unknown name {node.id}", node)
        if isinstance(node, ast.Attribute):
            if self.is_local(node.value):
                self.field_of(node)
                raise self.own.fail(f"what {node.attr} has, which is a number", node)
            return getattr(self.constant(node.value), node.attr)
        raise self.own.fail("something that is not compiled", node)

    @contextmanager
    def at(self, statement: ast.stmt) -> Iterator[None]:
        """Says of what is wrong with a statement where it stands."""
        try:
            yield
        except NativeError as error:
            if ", line " in str(error):
                raise
            raise self.own.fail(str(error), statement) from error

    def is_local(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.own.variables

    def is_computed(self, node: ast.expr) -> bool:
        """Whether an expression stands for a value of the function, not of its module."""
        return self.is_local(node) or isinstance(node, ast.Call)

    def field_of(self, node: ast.Attribute) -> tuple[types.Type, int]:
        """The type and the offset of a field of a record."""
        record = self.typeof(node.value)
        if not isinstance(record, types.Record) or node.attr not in record.fields:
            error = self.own.fail(f"the unknown field {node.attr}", node)
            raise UnknownName(str(error), node.attr, record)
        field = record.fields[node.attr]
        if not isinstance(field.type, types.Integer | types.Float | types.Boolean):
            raise self.own.fail(f"a field of type {field.type}", node)
        return field.type, field.offset

    def typeof(self, node: ast.expr) -> types.Type:
        """The type of an expression."""
        match node:
            case ast.Constant(value):
                return constant_type(value)
            case ast.Name(name) if name in self.own.variables:
                return self.own.variables[name]
            case ast.Attribute(value, name) if self.is_computed(value):
                return plain_type(self.field_of(node)[0])
            case ast.Name() | ast.Attribute():
                return constant_type(self.constant(node))
            case ast.BinOp(_, ast.Pow(), _) if (power := self.power(node)) is not None:
                return constant_type(power)
            case ast.BinOp(left, op, right):
                return self.result(op, left, right)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
                return constant_type(-value)
            case ast.UnaryOp(ast.Not(), _) | ast.Compare():
                return BOOL
            case ast.UnaryOp(_, operand):
                kind = self.typeof(operand)
                return INT if kind == BOOL else kind
            case ast.BoolOp(_, values):
                kind = None
                for value in values:
                    kind = joined(kind, self.typeof(value))
                assert kind is not None
                return kind
            case ast.IfExp(_, then, otherwise):
                return joined(self.typeof(then), self.typeof(otherwise))
            case ast.Tuple(parts):
                return types.Tuple([self.typeof(part) for part in parts])
            case ast.Subscript(ast.Name() | ast.Attribute() as value, index) if not self.is_local(value):
                return constant_type(self.constant(value)[0])
            case ast.Subscript(value, ast.Constant(int() as index)):
                found: types.Type = self.typeof(value).types[index]
                return found
            case ast.Subscript(value, _):
                return self._item_type(self.typeof(value), node)
            case ast.Call():
                called, arguments = self.callee(node)
                return self._called(called, arguments, node)
        raise self.own.fail(f"{type(node).__name__} is not compiled", node)

    def power(self, node: ast.BinOp) -> int | float | None:
        """The power that is written there, as in `10**9`."""
        match node:
            case ast.BinOp(
                ast.Constant(int() | float() as base), ast.Pow(), ast.Constant(int() | float() as exponent)
            ):
                try:
                    found = base**exponent
                except ArithmeticError as error:
                    raise self.own.fail(str(error), node) from error
                return found
        return None

    def result(self, op: ast.operator, left: ast.expr, right: ast.expr) -> types.Type:
        """The type of what an operator makes of two expressions."""
        kind = result_type(op, self.typeof(left), self.typeof(right))
        return Int128 if self.own.widens and kind == INT and isinstance(op, ast.Mult | ast.Pow) else kind

    def own_function(self, called: Any, arguments: Sequence[ast.expr]) -> OwnFunction | None:
        """The function of Python that a call calls, for these arguments; None where it is none."""
        plain = plain_function(called)
        if plain is None:
            return None
        # What was compiled by itself, as the methods that records have, counts in 64 bits.
        widens = self.own.widens and called is plain
        kinds = [self.typeof(a) for a in arguments]
        if self.own.widens and not widens:
            # Of what methods are given a double is an amount, too.
            method = any(called is one for one in self.module.methods.values())
            whole = (Int128, FLOAT) if method else (Int128,)
            kinds = [INT if kind in whole else kind for kind in kinds]
        return self.module.specialised(plain, tuple(kinds), widens)

    def _item_type(self, kind: types.Type, node: ast.expr) -> types.Type:
        """Of an item of a tuple whose place is not written there."""
        if not isinstance(kind, types.UniTuple):
            raise self.own.fail("an item of what is no tuple of one type", node)
        return kind.dtype

    def argument_type(self, node: ast.expr) -> types.Type:
        """As `typeof`, with the value of an integer that is written there."""
        value = self.literal(node)
        return self.typeof(node) if value is None else types.IntegerLiteral(value)

    def literal(self, node: ast.expr) -> int | None:
        """The integer that is written there."""
        match node:
            case ast.Constant(int() as value) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
                return -value
            case ast.Name(name) if name not in self.own.variables:
                value = self.constant(node)
                return value if type(value) is int else None
        return None

    def callee(self, node: ast.Call) -> tuple[Any, Sequence[ast.expr]]:
        """What a call calls, and its arguments in the order of the function's parameters."""
        function, given = node.func, node.args
        if isinstance(function, ast.Attribute) and self.is_local(function.value):
            called = self.module.methods.get(function.attr)
            if called is None:
                error = self.own.fail(f"the unknown method {function.attr}", node)
                raise UnknownName(str(error), function.attr, None)
            self._check_given(called, node)
            given = [function.value, *given]
        else:
            called = self.constant(function)
        plain, named = plain_function(called), {k.arg: k.value for k in node.keywords}
        if plain is None:
            if named:
                raise self.own.fail("arguments by name", node)
            return called, given
        code, defaults = plain.__code__, plain.__defaults__ or ()
        names = code.co_varnames[len(given) : code.co_argcount]
        left = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        named = {
            **{
                name: ast.Constant(value) for name, value in zip(left, defaults, strict=True) if name in names
            },
            **named,
        }
        if set(names) != set(named):
            own = ", ".join(code.co_varnames[len(given) - len(node.args) : code.co_argcount])
            raise self.own.fail(f"arguments that are not those of {plain.__name__}: {own}", node)
        return called, [*given, *(named[name] for name in names)]

    def _check_given(self, called: Any, node: ast.Call) -> None:
        """Raises NativeError where a method that was compiled by itself is given what its parameter is not
        for."""
        plain = plain_function(called)
        if plain is None or called is plain:
            return
        names, kinds = plain.__code__.co_varnames, plain.__annotations__
        for name, argument in zip(names[1:], node.args, strict=False):
            if kinds.get(name) is bool and self.typeof(argument) is not BOOL:
                own = [one for one in names[1 : plain.__code__.co_argcount] if kinds.get(one) is not bool]
                why = f"{ast.unparse(argument)} as {name} of {plain.__name__}"
                raise self.own.fail(f"{why}, whose first arguments are {', '.join(own[:2])}", node)
        by_name = [(one.arg or "", one.value) for one in node.keywords]
        for name, argument in (*zip(names[1:], node.args, strict=False), *by_name):
            written = argument.operand if isinstance(argument, ast.UnaryOp) else argument
            double = isinstance(written, ast.Constant) and isinstance(written.value, float)
            if double and kinds.get(name) is int:
                where = self.own.fail(f"{ast.unparse(argument)} as {name} of {plain.__name__}", node)
                raise WrittenDouble(str(where), float(ast.literal_eval(argument)))

    def _called(self, function: Any, arguments: Sequence[ast.expr], node: ast.Call) -> types.Type:
        if isinstance(function, _Intrinsic):
            kind: types.Type = self.intrinsic(function, arguments)[0].return_type
            return kind
        if isinstance(function, types.ExternalFunction):
            return self.external_type(function)
        own = self.own_function(function, arguments)
        if own is not None:
            assert own.kind is not None
            return own.kind
        if function in (abs,):
            return self.typeof(arguments[0])
        if function in (min, max):
            kind = self.typeof(arguments[0])
            for argument in arguments[1:]:
                kind = joined(kind, self.typeof(argument))
            return kind
        if function is int or function is np.int64 or function in ROUNDED:
            self._takes(1, function, arguments, node)
            wide = self.own.widens and function is not np.int64 and self.typeof(arguments[0]) is Int128
            return Int128 if wide else INT
        if function == UNSIGNED:
            return UNSIGNED
        if function is bool or function in CLASSES:
            self._takes(1, function, arguments, node)
            return BOOL
        if function in (float, math.sqrt, math.fabs) or function in LIBM:
            self._takes(2 if function in OF_TWO else 1, function, arguments, node)
            return FLOAT
        raise self.own.fail(f"a call of {getattr(function, '__name__', function)}", node)

    def _takes(self, count: int, function: Any, arguments: Sequence[ast.expr], node: ast.Call) -> None:
        if len(arguments) != count:
            raise self.own.fail(f"{function.__name__} of {len(arguments)} arguments; give {count}", node)

    def external_type(self, function: types.ExternalFunction) -> types.Type:
        """What a function of another module returns."""
        kind: types.Type = function.sig.return_type
        return kind

    def intrinsic(self, function: _Intrinsic, arguments: Sequence[ast.expr]) -> tuple[Any, Any]:
        """The signature of an intrinsic for arguments, and what builds it."""
        kinds = tuple(self.argument_type(a) for a in arguments)
        known = self.module.intrinsics.get((function, kinds))
        if known is not None:
            return known
        try:
            found: tuple[Any, Any] = function._defn(None, *kinds)
        except Exception as error:
            raise self.own.fail(
                f"{function}: {error}", arguments[0] if arguments else self.own.node
            ) from error
        self.module.intrinsics[function, kinds] = found
        return found


class Inference(Typed):
    """Types of the variables of a function, and of what it returns."""

    def infer(self) -> None:
        own = self.own
        if len(own.names) != len(own.arguments):
            raise own.fail(f"{len(own.arguments)} arguments of {len(own.names)}", own.node)
        own.variables = dict(zip(own.names, own.arguments, strict=True))
        for _ in range(_ROUNDS):
            before = dict(own.variables), own.kind
            self._block(own.node.body)
            if (own.variables, own.kind) == before:
                break
        else:
            raise self.own.fail(f"types that change for ever: {before}, {own.variables}", own.node)
        if own.kind is None:
            own.kind = NONE

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            with self.at(statement):
                self._statement(statement)

    def _assigned(self, target: ast.expr, kind: types.Type) -> None:
        match target:
            case ast.Name(name):
                self.own.variables[name] = joined(self.own.variables.get(name), kind)
            case ast.Tuple(parts):
                for part, own in zip(parts, kind.types, strict=True):
                    self._assigned(part, own)
            case ast.Attribute():
                self.field_of(target)
            case _:
                raise self.own.fail("an assignment to something else than a variable", target)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets, value):
                kind = self.typeof(value)
                for target in targets:
                    self._assigned(target, kind)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._assigned(target, self.typeof(value))
            case ast.AugAssign(target, op, value):
                self._assigned(target, self.result(op, target, value))
            case ast.If(_, body, orelse):
                self._block(body)
                self._block(orelse)
            case ast.While(_, body):
                self._block(body)
            case ast.For(target, ast.Call(ast.Name("range")), body):
                self._assigned(target, INT)
                self._block(body)
            case ast.For(target, ast.Tuple(parts), body):
                for part in parts:
                    self._assigned(target, self.typeof(part))
                self._block(body)
            case ast.Return(None):
                self.own.kind = joined(self.own.kind, NONE)
            case ast.Return(value):
                assert value is not None
                self.own.kind = joined(self.own.kind, self.typeof(value))
            case ast.Expr(ast.Constant()) | ast.Pass() | ast.Break() | ast.Continue():
                pass
            case ast.Expr(value):
                self.typeof(value)
            case _:
                raise self.own.fail(f"{type(node).__name__} is not compiled", node)
