"""A compiler for the part of Python that generated modules and the map library are written in.

Functions of integers, doubles, 128-bit integers, booleans and tuples of these: assignments, `if`, `while`,
`for … in range`, calls. Types are inferred from the arguments; all functions that are reached become one
LLVM module, which is optimised as a whole and kept as object code (native_code.py). Intrinsics are those of
numba (engine/maps), which build LLVM instructions themselves. What this compiles is what numba would compile,
in a tenth of the time.

Arithmetic is that of numba: 64 bits wrap, `//` and `%` floor, and a divisor of 0 gives 0.
"""

import ast
import builtins
import linecache
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.typeconv import Conversion
from numba.extending import _Intrinsic

WIDE = ir.IntType(128)


class Int128Type(types.Type):  # type: ignore[misc]
    """The numba type of a signed 128-bit integer."""

    def __init__(self) -> None:
        super().__init__(name="Int128")

    def can_convert_from(self, typing_context: Any, other: types.Type) -> Conversion | None:
        return Conversion.safe if isinstance(other, types.Integer) else None


Int128 = Int128Type()

_I64, _F64, _BIT = ir.IntType(64), ir.DoubleType(), ir.IntType(1)
_INT, _FLOAT, _BOOL, _NONE = types.int64, types.float64, types.boolean, types.none
# Of unsigned integers only those of 64 bits are a type of their own: `>>` brings zeros, order is another.
_UNSIGNED = types.uint64

# What stands for a function of Python in compiled code; by `operator.floordiv` what divides 128 bits.
SUBSTITUTES: dict[Any, Callable[..., Any]] = {}
_LIBM = {math.log: "log", math.log10: "log10", math.exp: "exp", math.pow: "pow", math.fmod: "fmod"}


# Types only widen, so that this many passes over a function are never needed.
_ROUNDS = 20


class NativeError(Exception):
    """A function that is not of the part of Python that is compiled."""


class Slot(int):
    """An integer that is put into machine code where it is loaded, so that code is shared by all its values.

    Of 62 bits: where something lies in a program's state.
    """


class Number(Slot):
    """A number that a program's user chose. It is another than a slot that happens to be equal."""


# What is left open in machine code: a Slot, or a function of numba's type that was compiled apart.
Hole: TypeAlias = Any
# An integer is linked as an address, which cannot be 0.
SLOT_BASE = 1 << 62


_COMPILED_APART = re.compile("native_[0-9a-f]{32}")


def is_hole(value: object) -> bool:
    """Whether a constant is left open in machine code. Functions of the C library are not."""
    if isinstance(value, types.ExternalFunction):
        return _COMPILED_APART.fullmatch(str(value.symbol)) is not None
    return isinstance(value, Slot)


def hole_key(hole: Hole) -> str:
    """What tells a hole from others."""
    return f"{type(hole).__name__} {int(hole)}" if isinstance(hole, Slot) else str(hole.symbol)


def hole_symbol(number: int) -> str:
    """What stands for a hole in code that is not loaded, as long as each symbol that takes its place."""
    return f"native_{number:032x}"


def llvm_type(kind: types.Type) -> ir.Type:
    """The LLVM type of values of a type."""
    if isinstance(kind, types.Integer):
        return _I64
    if kind == _FLOAT:
        return _F64
    if kind == _BOOL:
        return _BIT
    if kind is Int128:
        return WIDE
    if isinstance(kind, types.BaseTuple):
        return ir.LiteralStructType([llvm_type(k) for k in kind.types])
    if isinstance(kind, types.Record):
        return ir.ArrayType(ir.IntType(8), kind.size).as_pointer()
    if kind == _NONE or isinstance(kind, types.NoneType):
        return ir.VoidType()
    raise NativeError(f"values of type {kind}")


def joined(one: types.Type | None, other: types.Type) -> types.Type:
    """The type that holds values of both."""
    if one is None or one == other:
        return other
    if isinstance(one, types.BaseTuple) and isinstance(other, types.BaseTuple) and len(one) == len(other):
        return types.Tuple([joined(a, b) for a, b in zip(one.types, other.types, strict=True)])
    order = [_BOOL, _INT, Int128, _FLOAT]
    if one in order and other in order:
        if {one, other} == {Int128, _FLOAT}:
            raise NativeError("a value that is a double and 128 bits wide")
        return order[max(order.index(one), order.index(other))]
    raise NativeError(f"a value that is {one} and {other}")


class _Context:
    """What intrinsics ask of numba's target."""

    def get_value_type(self, kind: types.Type) -> ir.Type:
        return llvm_type(kind)

    def get_dummy_value(self) -> None:
        return None

    def make_tuple(
        self, builder: ir.IRBuilder, kind: types.BaseTuple, values: Sequence[ir.Value]
    ) -> ir.Value:
        return _tuple(builder, kind, values)


def _tuple(builder: ir.IRBuilder, kind: types.BaseTuple, values: Sequence[ir.Value]) -> ir.Value:
    made = ir.Constant(llvm_type(kind), ir.Undefined)
    for place, value in enumerate(values):
        made = builder.insert_value(made, value, place)
    return made


@cache
def _tree(path: str) -> Mapping[tuple[str, int], ast.FunctionDef]:
    """The functions of a file, by name and first line."""
    parsed = ast.parse("".join(linecache.getlines(path)))
    found = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name, first] = node
    return found


def plain_function(function: Any) -> FunctionType | None:
    """The function of Python that something compiled was made of."""
    function = SUBSTITUTES.get(function, function) if _hashable(function) else function
    if isinstance(function, Dispatcher):
        function = function.py_func
    return function if isinstance(function, FunctionType) else None


def _hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None


@dataclass(eq=False)
class _Function:
    """A function with arguments of given types; `kind` is what it returns."""

    name: str
    function: FunctionType
    arguments: tuple[types.Type, ...]
    node: ast.FunctionDef
    kind: types.Type | None = None
    variables: dict[str, types.Type] = field(default_factory=dict)
    inferring: bool = False
    value: ir.Function | None = None

    @property
    def names(self) -> list[str]:
        return [a.arg for a in self.node.args.args]

    def fail(self, what: str, node: ast.expr | ast.stmt) -> NativeError:
        return NativeError(f"{self.function.__module__}.{self.function.__name__}, line {node.lineno}: {what}")


class NativeModule:
    """Functions compiled together; `add` each, then `object_code`."""

    def __init__(self, methods: Mapping[str, Any] | None = None, holes: Sequence[Hole] = ()) -> None:
        """holes: those that are left open; others are put in."""
        self.module = ir.Module()
        self._holes = {hole_key(hole): hole_symbol(number) for number, hole in enumerate(holes)}
        # What is called by `record.name(…)`, with the record as the first argument.
        self.methods = methods or {}
        self._functions: dict[tuple[FunctionType, tuple[types.Type, ...]], _Function] = {}
        self._pending: list[_Function] = []
        # Signatures of intrinsics, and what builds them, by types of arguments.
        self.intrinsics: dict[tuple[Any, tuple[types.Type, ...]], tuple[Any, Any]] = {}

    def add(self, function: Any, symbol: str, arguments: Sequence[types.Type]) -> types.Type:
        """Compiles a function that C calls by `symbol`, and gives the type of what it returns.

        C gets float64, or int64: of nothing 0, of booleans 0 and 1. Raises NativeError for others.
        """
        plain = plain_function(function)
        assert plain is not None
        own = self.specialised(plain, tuple(arguments))
        assert own.kind is not None
        if own.kind not in (_INT, _FLOAT, _BOOL, _NONE):
            raise NativeError(f"{plain.__name__} returns {own.kind}")
        kind = ir.FunctionType(_F64 if own.kind == _FLOAT else _I64, [llvm_type(a) for a in arguments])
        entry = ir.Function(self.module, kind, symbol)
        builder = ir.IRBuilder(entry.append_basic_block())
        value = builder.call(self.declared(own), entry.args)
        if own.kind == _NONE:
            builder.ret(_I64(0))
        else:
            builder.ret(builder.zext(value, _I64) if value.type == _BIT else value)
        while self._pending:
            _Emitter(self, self._pending.pop()).emit()
        _inline(self.module)
        return own.kind

    def specialised(self, function: FunctionType, arguments: tuple[types.Type, ...]) -> _Function:
        """A function for arguments of these types, its types inferred."""
        arguments = tuple(map(_plain_type, arguments))
        known = self._functions.get((function, arguments))
        if known is None:
            code = function.__code__
            node = _tree(code.co_filename)[code.co_name, code.co_firstlineno]
            name = f"{function.__module__}.{function.__name__}.{len(self._functions)}"
            known = _Function(name, function, arguments, node)
            self._functions[function, arguments] = known
            known.inferring = True
            _Inference(self, known).infer()
            known.inferring = False
        elif known.inferring and known.kind is None:
            raise NativeError(f"{function.__name__} calls itself")
        return known

    def declared(self, own: _Function) -> ir.Function:
        """The LLVM function, whose body comes later."""
        if own.value is None:
            assert own.kind is not None
            kind = ir.FunctionType(llvm_type(own.kind), [llvm_type(a) for a in own.arguments])
            own.value = ir.Function(self.module, kind, own.name)
            own.value.linkage = "internal"
            own.value.attributes.add("nounwind")
            self._pending.append(own)
        return own.value

    def slot(self, value: Slot) -> ir.Value:
        """An integer, left open where it is a hole."""
        symbol = self._holes.get(hole_key(value))
        if symbol is None:
            return _I64(int(value))
        place = self.module.globals.get(symbol)
        if place is None:
            place = ir.GlobalVariable(self.module, ir.IntType(8), symbol)
            # Two may be equal.
            place.unnamed_addr = True
        return place.ptrtoint(_I64).sub(_I64(SLOT_BASE))

    def exported(self, function: types.ExternalFunction) -> ir.Function:
        """A function that was compiled apart, left open where it is a hole."""
        symbol = self._holes.get(hole_key(function), function.symbol)
        return self.external(
            symbol, llvm_type(function.sig.return_type), list(map(llvm_type, function.sig.args))
        )

    def external(self, symbol: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """A function of another module or of the C library."""
        known = self.module.globals.get(symbol)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(result, list(arguments)), symbol)
            known.attributes.add("nounwind")
        return known


# Functions of so few instructions, those inlined into them counted, are inlined wherever they are called.
_SMALL = 120


def _inline(module: ir.Module) -> None:
    """Marks the internal functions that are inlined: small ones, and those that are called once.

    None calls itself, so that callees can be sized first.
    """
    internal = {f.name: f for f in module.functions if f.linkage == "internal"}
    called: Counter[str] = Counter()
    callees: dict[str, list[str]] = {}
    for function in module.functions:
        names = [
            one.callee.name
            for block in function.blocks
            for one in block.instructions
            if isinstance(one, ir.CallInstr) and getattr(one.callee, "name", None) in internal
        ]
        called.update(names)
        callees[function.name] = names
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        """Instructions of a function once its callees are inlined."""
        if name not in sizes:
            own = sum(len(block.instructions) for block in internal[name].blocks)
            inlined = (one for one in callees[name] if _is_inlined(one))
            sizes[name] = own + sum(size(one) for one in inlined)
        return sizes[name]

    def _is_inlined(name: str) -> bool:
        return called[name] == 1 or size(name) <= _SMALL

    for name, function in internal.items():
        if _is_inlined(name):
            function.attributes.add("alwaysinline")


class _Typed:
    """Finds what the names and calls of a function mean."""

    def __init__(self, module: NativeModule, own: _Function) -> None:
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
            return getattr(self.constant(node.value), node.attr)
        raise self.own.fail("something that is not compiled", node)

    def is_local(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.own.variables

    def is_computed(self, node: ast.expr) -> bool:
        """Whether an expression stands for a value of the function, not of its module."""
        return self.is_local(node) or isinstance(node, ast.Call)

    def field_of(self, node: ast.Attribute) -> tuple[types.Type, int]:
        """The type and the offset of a field of a record."""
        record = self.typeof(node.value)
        if not isinstance(record, types.Record) or node.attr not in record.fields:
            raise self.own.fail(f"a field {node.attr} of {record}", node)
        field = record.fields[node.attr]
        if not isinstance(field.type, types.Integer | types.Float | types.Boolean):
            raise self.own.fail(f"a field of type {field.type}", node)
        return field.type, field.offset

    def typeof(self, node: ast.expr) -> types.Type:
        """The type of an expression."""
        match node:
            case ast.Constant(value):
                return _constant_type(value)
            case ast.Name(name) if name in self.own.variables:
                return self.own.variables[name]
            case ast.Attribute(value, name) if self.is_computed(value):
                return _plain_type(self.field_of(node)[0])
            case ast.Name() | ast.Attribute():
                return _constant_type(self.constant(node))
            case ast.BinOp(ast.Constant(float() as value), ast.Pow(), ast.Constant(int() as power)):
                return _constant_type(value**power)
            case ast.BinOp(left, op, right):
                return _result(op, self.typeof(left), self.typeof(right))
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
                return _constant_type(-value)
            case ast.UnaryOp(ast.Not(), _) | ast.Compare():
                return _BOOL
            case ast.UnaryOp(_, operand):
                kind = self.typeof(operand)
                return _INT if kind == _BOOL else kind
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
                return _constant_type(self.constant(value)[0])
            case ast.Subscript(value, ast.Constant(int() as index)):
                found: types.Type = self.typeof(value).types[index]
                return found
            case ast.Subscript(value, _):
                return self._item_type(self.typeof(value), node)
            case ast.Call():
                called, arguments = self.callee(node)
                return self._called(called, arguments, node)
        raise self.own.fail(f"{type(node).__name__} is not compiled", node)

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
                raise self.own.fail(f"the unknown method {function.attr}", node)
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
            raise self.own.fail(f"arguments that are not those of {plain.__name__}", node)
        return called, [*given, *(named[name] for name in names)]

    def _called(self, function: Any, arguments: Sequence[ast.expr], node: ast.Call) -> types.Type:
        if isinstance(function, _Intrinsic):
            kind: types.Type = self.intrinsic(function, arguments)[0].return_type
            return kind
        if isinstance(function, types.ExternalFunction):
            return self.external_type(function)
        plain = plain_function(function)
        if plain is not None:
            kinds = tuple(self.typeof(a) for a in arguments)
            found = self.module.specialised(plain, kinds).kind
            assert found is not None
            return found
        if function in (abs,):
            return self.typeof(arguments[0])
        if function in (min, max):
            kind = self.typeof(arguments[0])
            for argument in arguments[1:]:
                kind = joined(kind, self.typeof(argument))
            return kind
        if function is int or function is np.int64:
            return _INT
        if function == _UNSIGNED:
            return _UNSIGNED
        if function is bool or function is math.isfinite:
            return _BOOL
        if function is float or function is math.sqrt or function in _LIBM:
            return _FLOAT
        raise self.own.fail(f"a call of {function}", node)

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


def _plain_type(kind: types.Type) -> types.Type:
    """The type in which values of a type are computed with."""
    return _INT if isinstance(kind, types.Integer) and kind != _UNSIGNED else kind


def _constant_type(value: Any) -> types.Type:
    if isinstance(value, np.integer):
        return _INT
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT if -(2**63) <= value < 2**63 else Int128
    if isinstance(value, float):
        return _FLOAT
    if value is None:
        return _NONE
    if isinstance(value, tuple):
        return types.Tuple([_constant_type(part) for part in value])
    raise NativeError(f"the constant {value!r}")


def _result(op: ast.operator, left: types.Type, right: types.Type) -> types.Type:
    if isinstance(op, ast.Div):
        return _FLOAT
    kind = joined(left, right)
    if kind == _BOOL and not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return _INT
    return kind


class _Inference(_Typed):
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
            own.kind = _NONE

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
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
                self._assigned(target, _result(op, self.typeof(target), self.typeof(value)))
            case ast.If(_, body, orelse):
                self._block(body)
                self._block(orelse)
            case ast.While(_, body):
                self._block(body)
            case ast.For(target, ast.Call(ast.Name("range")), body):
                self._assigned(target, _INT)
                self._block(body)
            case ast.For(target, ast.Tuple(parts), body):
                for part in parts:
                    self._assigned(target, self.typeof(part))
                self._block(body)
            case ast.Return(None):
                self.own.kind = joined(self.own.kind, _NONE)
            case ast.Return(value):
                assert value is not None
                self.own.kind = joined(self.own.kind, self.typeof(value))
            case ast.Expr(ast.Constant()) | ast.Pass() | ast.Break() | ast.Continue():
                pass
            case ast.Expr(value):
                self.typeof(value)
            case _:
                raise self.own.fail(f"{type(node).__name__} is not compiled", node)


class _Emitter(_Typed):
    """Writes the LLVM function."""

    def __init__(self, module: NativeModule, own: _Function) -> None:
        super().__init__(module, own)
        assert own.value is not None
        self.function = own.value
        entry = self.function.append_basic_block("entry")
        self.builder = ir.IRBuilder(entry)
        self._places = {
            name: self.builder.alloca(llvm_type(kind), name=name)
            for name, kind in own.variables.items()
            if kind != _NONE
        }
        self._loops: list[tuple[ir.Block, ir.Block]] = []
        self._types: dict[ast.expr, types.Type] = {}

    def typeof(self, node: ast.expr) -> types.Type:
        """The type of an expression; those of variables are known now."""
        known = self._types.get(node)
        if known is None:
            known = self._types[node] = super().typeof(node)
        return known

    def emit(self) -> None:
        """Writes its body."""
        for name, value in zip(self.own.names, self.function.args, strict=True):
            kind = self.own.arguments[self.own.names.index(name)]
            self.builder.store(self.cast(value, kind, self.own.variables[name]), self._places[name])
        self._block(self.own.node.body)
        if not self.builder.block.is_terminated:
            if self.own.kind == _NONE:
                self.builder.ret_void()
            else:
                self.builder.unreachable()

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.builder.block.is_terminated:
                return
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets, value):
                kind, made = self.typeof(value), self.value(value)
                for target in targets:
                    self._assign(target, made, kind)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._assign(target, self.value(value), self.typeof(value))
            case ast.AugAssign(target, op, value):
                kind = _result(op, self.typeof(target), self.typeof(value))
                self._assign(target, self._binary(op, target, value), kind)
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.While(test, body):
                self._while(test, body)
            case ast.For(target, ast.Call(_, arguments), body):
                self._for(target, arguments, body)
            case ast.For(target, ast.Tuple(parts), body):
                self._each(target, parts, body)
            case ast.Return(None):
                self.builder.ret_void()
            case ast.Return(value):
                assert value is not None and self.own.kind is not None
                made = self.as_type(value, self.own.kind)
                if self.own.kind == _NONE:
                    self.builder.ret_void()
                else:
                    self.builder.ret(made)
            case ast.Break():
                self.builder.branch(self._loops[-1][1])
            case ast.Continue():
                self.builder.branch(self._loops[-1][0])
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value):
                self.value(value)

    def _assign(self, target: ast.expr, value: ir.Value, kind: types.Type) -> None:
        match target:
            case ast.Name(name):
                self.builder.store(self.cast(value, kind, self.own.variables[name]), self._places[name])
            case ast.Tuple(parts):
                values = [self.builder.extract_value(value, place) for place in range(len(parts))]
                for part, own, one in zip(parts, values, kind.types, strict=True):
                    self._assign(part, own, one)
            case ast.Attribute():
                field, _ = self.field_of(target)
                value = self.cast(value, kind, _plain_type(field))
                if isinstance(field, types.Integer) and field.bitwidth < 64:
                    value = self.builder.trunc(value, ir.IntType(field.bitwidth))
                self.builder.store(value, self._field(target, value.type), align=1)

    def _field(self, node: ast.Attribute, kind: ir.Type) -> ir.Value:
        """The address of a field of a record."""
        start = self.builder.bitcast(self.value(node.value), ir.IntType(8).as_pointer())
        at = self.builder.gep(start, [_I64(self.field_of(node)[1])])
        return self.builder.bitcast(at, kind.as_pointer())

    def _read(self, node: ast.Attribute) -> ir.Value:
        """The value of a field."""
        field, _ = self.field_of(node)
        if not isinstance(field, types.Integer) or field.bitwidth == 64:
            return self.builder.load(self._field(node, llvm_type(field)), align=1)
        value = self.builder.load(self._field(node, ir.IntType(field.bitwidth)), align=1)
        return self.builder.sext(value, _I64) if field.signed else self.builder.zext(value, _I64)

    def _blocks(self, count: int) -> list[ir.Block]:
        return [self.function.append_basic_block() for _ in range(count)]

    def _to(self, block: ir.Block) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        then, otherwise, after = self._blocks(3)
        self.builder.cbranch(self.truth(test), then, otherwise)
        self.builder.position_at_end(then)
        self._block(body)
        self._to(after)
        self.builder.position_at_end(otherwise)
        self._block(orelse)
        self._to(after)
        self.builder.position_at_end(after)
        if not after.is_terminated and not _reached(after, self.function):
            self.builder.unreachable()

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        head, inside, after = self._blocks(3)
        self._to(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.truth(test), inside, after)
        self.builder.position_at_end(inside)
        self._loops.append((head, after))
        self._block(body)
        self._loops.pop()
        self._to(head)
        self.builder.position_at_end(after)

    def _for(self, target: ast.expr, arguments: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        bounds = [self.as_type(a, _INT) for a in arguments]
        step = 1 if len(arguments) < 3 else self.literal(arguments[2])
        if not step:
            raise self.own.fail("a range whose step is not written there", target)
        start, stop = (_I64(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        with self._at_entry():
            place = self.builder.alloca(_I64)
        self.builder.store(start, place)
        head, inside, ahead, after = self._blocks(4)
        self._to(head)
        self.builder.position_at_end(head)
        at = self.builder.load(place)
        self.builder.cbranch(self.builder.icmp_signed("<" if step > 0 else ">", at, stop), inside, after)
        self.builder.position_at_end(inside)
        self._assign(target, at, _INT)
        self._loops.append((ahead, after))
        self._block(body)
        self._loops.pop()
        self._to(ahead)
        self.builder.position_at_end(ahead)
        self.builder.store(self.builder.add(self.builder.load(place), _I64(step)), place)
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def _each(self, target: ast.expr, parts: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        (after,) = self._blocks(1)
        for part in parts:
            (ahead,) = self._blocks(1)
            self._assign(target, self.value(part), self.typeof(part))
            self._loops.append((ahead, after))
            self._block(body)
            self._loops.pop()
            self._to(ahead)
            self.builder.position_at_end(ahead)
        self._to(after)
        self.builder.position_at_end(after)

    @contextmanager
    def _at_entry(self) -> Iterator[None]:
        with self.builder.goto_entry_block():
            yield

    def truth(self, node: ast.expr) -> ir.Value:
        """Whether an expression holds."""
        kind, value = self.typeof(node), self.value(node)
        if kind == _BOOL:
            return value
        if kind == _FLOAT:
            return self.builder.fcmp_unordered("!=", value, _F64(0.0))
        return self.builder.icmp_signed("!=", value, value.type(0))

    def as_type(self, node: ast.expr, kind: types.Type) -> ir.Value:
        """The value of an expression as one of another type."""
        return self.cast(self.value(node), self.typeof(node), kind)

    def cast(self, value: ir.Value, kind: types.Type, target: types.Type) -> ir.Value:
        """A value of one type as one of another."""
        if isinstance(target, types.BaseTuple) and isinstance(kind, types.BaseTuple):
            if target == kind:
                return value
            parts = [
                self.cast(self.builder.extract_value(value, place), one, other)
                for place, (one, other) in enumerate(zip(kind.types, target.types, strict=True))
            ]
            return _tuple(self.builder, target, parts)
        own, wanted = llvm_type(kind), llvm_type(target)
        if own == wanted:
            return value
        if kind == _BOOL:
            value, own = self.builder.zext(value, _I64), _I64
            if wanted == _I64:
                return value
        if own == _I64 and wanted == WIDE:
            return self.builder.sext(value, WIDE)
        if own == _I64 and wanted == _F64:
            return self.builder.sitofp(value, _F64)
        if own == _I64 and wanted == _BIT:
            return self.builder.icmp_signed("!=", value, _I64(0))
        if own == _F64 and wanted == _I64:
            return self.builder.fptosi(value, _I64)
        raise NativeError(f"{self.own.name}: {kind} where {target} is wanted")

    def value(self, node: ast.expr) -> ir.Value:
        """The value of an expression."""
        match node:
            case ast.Constant(value):
                return _constant(value)
            case ast.Name(name) if name in self._places:
                return self.builder.load(self._places[name])
            case ast.Attribute(value, _) if self.is_computed(value):
                return self._read(node)
            case ast.Name() | ast.Attribute():
                constant = self.constant(node)
                return self.module.slot(constant) if isinstance(constant, Slot) else _constant(constant)
            case ast.BinOp(ast.Constant(float() as value), ast.Pow(), ast.Constant(int() as power)):
                return _constant(value**power)
            case ast.BinOp(left, op, right):
                return self._binary(op, left, right)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
                return _constant(-value)
            case ast.UnaryOp(op, operand):
                return self._unary(op, operand)
            case ast.Compare(left, ops, rights):
                return self._compare(left, ops, rights)
            case ast.BoolOp(op, values):
                return self._either(isinstance(op, ast.And), values, self.typeof(node))
            case ast.IfExp(test, then, otherwise):
                return self._choice(test, then, otherwise, self.typeof(node))
            case ast.Tuple(parts):
                return _tuple(self.builder, self.typeof(node), [self.value(part) for part in parts])
            case ast.Subscript(ast.Name() | ast.Attribute() as value, index) if not self.is_local(value):
                return self._item(self.constant(value), index)
            case ast.Subscript(value, ast.Constant(int() as index)):
                return self.builder.extract_value(self.value(value), index)
            case ast.Subscript(ast.Name(name), index):
                kind = llvm_type(self._item_type(self.typeof(node.value), node))
                items = self.builder.bitcast(self._places[name], kind.as_pointer())
                return self.builder.load(self.builder.gep(items, [self.as_type(index, _INT)]))
            case ast.Call():
                return self._call(*self.callee(node))
        raise self.own.fail(f"{type(node).__name__} is not compiled", node)

    def _item(self, values: tuple[Any, ...], index: ast.expr) -> ir.Value:
        kind = llvm_type(_constant_type(values[0]))
        name = f"values.{id(values)}"
        array = self.module.module.globals.get(name)
        if array is None:
            content = ir.Constant(ir.ArrayType(kind, len(values)), [_constant(v) for v in values])
            array = ir.GlobalVariable(self.module.module, content.type, name)
            array.linkage, array.global_constant, array.initializer = "internal", True, content
        return self.builder.load(self.builder.gep(array, [_I64(0), self.as_type(index, _INT)]))

    def _unary(self, op: ast.unaryop, operand: ast.expr) -> ir.Value:
        if isinstance(op, ast.Not):
            return self.builder.not_(self.truth(operand))
        kind = self.typeof(operand)
        value = self.cast(self.value(operand), kind, _INT if kind == _BOOL else kind)
        if isinstance(op, ast.USub):
            return self.builder.fneg(value) if value.type == _F64 else self.builder.neg(value)
        return self.builder.not_(value) if isinstance(op, ast.Invert) else value

    def _binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> ir.Value:
        kind = _result(op, self.typeof(left), self.typeof(right))
        if isinstance(op, ast.Div):
            return self.builder.fdiv(self.as_type(left, _FLOAT), self.as_type(right, _FLOAT))
        one, other = self.as_type(left, kind), self.as_type(right, kind)
        builder = self.builder
        if kind == _FLOAT:
            match op:
                case ast.Add():
                    return builder.fadd(one, other)
                case ast.Sub():
                    return builder.fsub(one, other)
                case ast.Mult():
                    return builder.fmul(one, other)
                case ast.Mod():
                    return self._float_mod(one, other)
            raise self.own.fail(f"{type(op).__name__} of doubles", left)
        simple = {
            ast.Add: builder.add,
            ast.Sub: builder.sub,
            ast.Mult: builder.mul,
            ast.BitAnd: builder.and_,
            ast.BitOr: builder.or_,
            ast.BitXor: builder.xor,
            ast.LShift: builder.shl,
            ast.RShift: builder.lshr if kind == _UNSIGNED else builder.ashr,
        }
        if type(op) in simple:
            made: ir.Value = simple[type(op)](one, other)
            return made
        if kind is Int128:
            if not isinstance(op, ast.FloorDiv):
                raise self.own.fail(f"{type(op).__name__} of 128 bits", left)
            divide = plain_function(SUBSTITUTES[operator.floordiv])
            assert divide is not None
            called = self.module.specialised(divide, (Int128, Int128))
            return builder.call(self.module.declared(called), [one, other])
        if kind == _UNSIGNED:
            raise self.own.fail(f"{type(op).__name__} of unsigned integers", left)
        return self._floored(op, one, other)

    def _floored(self, op: ast.operator, one: ir.Value, other: ir.Value) -> ir.Value:
        builder = self.builder
        zero = builder.icmp_signed("==", other, _I64(0))
        # The least integer by -1 traps; it wraps here.
        negated = builder.icmp_signed("==", other, _I64(-1))
        divisor = builder.select(builder.or_(zero, negated), _I64(1), other)
        quotient = builder.sdiv(one, divisor)
        rest = builder.sub(one, builder.mul(quotient, divisor))
        apart = builder.icmp_signed("<", builder.xor(rest, divisor), _I64(0))
        below = builder.and_(apart, builder.icmp_signed("!=", rest, _I64(0)))
        if isinstance(op, ast.Mod):
            found = builder.select(below, builder.add(rest, divisor), rest)
        else:
            found = builder.sub(quotient, builder.zext(below, _I64))
            found = builder.select(negated, builder.neg(one), found)
        return builder.select(zero, _I64(0), found)

    def _float_mod(self, one: ir.Value, other: ir.Value) -> ir.Value:
        builder = self.builder
        rest = builder.frem(one, other)
        apart = builder.xor(
            builder.fcmp_ordered("<", rest, _F64(0.0)), builder.fcmp_ordered("<", other, _F64(0.0))
        )
        below = builder.and_(apart, builder.fcmp_ordered("!=", rest, _F64(0.0)))
        return builder.select(below, builder.fadd(rest, other), rest)

    def _compare(self, left: ast.expr, ops: Sequence[ast.cmpop], rights: Sequence[ast.expr]) -> ir.Value:
        found = None
        for op, right in zip(ops, rights, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                held = self._among(left, right)
                held = self.builder.not_(held) if isinstance(op, ast.NotIn) else held
            else:
                held = self._compared(op, left, right)
            found = held if found is None else self.builder.and_(found, held)
            left = right
        assert found is not None
        return found

    def _among(self, value: ast.expr, parts: ast.expr) -> ir.Value:
        if not isinstance(parts, ast.Tuple):
            raise self.own.fail("a look for a value in what is not written there", parts)
        found: ir.Value = _BIT(0)
        for part in parts.elts:
            found = self.builder.or_(found, self._compared(ast.Eq(), value, part))
        return found

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ir.Value:
        kind = joined(self.typeof(left), self.typeof(right))
        one, other = self.as_type(left, kind), self.as_type(right, kind)
        symbol = _SYMBOLS[type(op)]
        if kind == _FLOAT:
            compare = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
            return compare(symbol, one, other)
        if kind in (_BOOL, _UNSIGNED):
            return self.builder.icmp_unsigned(symbol, one, other)
        return self.builder.icmp_signed(symbol, one, other)

    def _either(self, all_of: bool, values: Sequence[ast.expr], kind: types.Type) -> ir.Value:
        """`and`, `or`: later values are computed only where they count."""
        after = self.function.append_basic_block()
        with self._at_entry():
            place = self.builder.alloca(llvm_type(kind))
        for number, node in enumerate(values):
            value = self.as_type(node, kind)
            self.builder.store(value, place)
            if number == len(values) - 1:
                break
            (more,) = self._blocks(1)
            holds = value if kind == _BOOL else self.builder.icmp_signed("!=", value, value.type(0))
            self.builder.cbranch(holds, *((more, after) if all_of else (after, more)))
            self.builder.position_at_end(more)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(place)

    def _choice(self, test: ast.expr, then: ast.expr, otherwise: ast.expr, kind: types.Type) -> ir.Value:
        with self._at_entry():
            place = self.builder.alloca(llvm_type(kind))
        with self.builder.if_else(self.truth(test)) as (yes, no):
            with yes:
                self.builder.store(self.as_type(then, kind), place)
            with no:
                self.builder.store(self.as_type(otherwise, kind), place)
        return self.builder.load(place)

    def _call(self, function: Any, arguments: Sequence[ast.expr]) -> ir.Value:
        builder = self.builder
        if isinstance(function, _Intrinsic):
            signature, generate = self.intrinsic(function, arguments)
            values = [
                self.value(a) if isinstance(k, types.IntegerLiteral) else self.as_type(a, k)
                for a, k in zip(arguments, signature.args, strict=True)
            ]
            return generate(_Context(), builder, signature, values)
        if isinstance(function, types.ExternalFunction):
            values = [self.as_type(a, k) for a, k in zip(arguments, function.sig.args, strict=True)]
            return builder.call(self.module.exported(function), values)
        plain = plain_function(function)
        if plain is not None:
            own = self.module.specialised(plain, tuple(self.typeof(a) for a in arguments))
            return builder.call(self.module.declared(own), [self.value(a) for a in arguments])
        return self._builtin(function, arguments)

    def _builtin(self, function: Any, arguments: Sequence[ast.expr]) -> ir.Value:
        builder = self.builder
        if function in (min, max):
            kind = self._called(function, arguments, None)  # type: ignore[arg-type]
            found = self.as_type(arguments[0], kind)
            for argument in arguments[1:]:
                value = self.as_type(argument, kind)
                symbol = "<" if function is min else ">"
                compare = builder.fcmp_ordered if kind == _FLOAT else builder.icmp_signed
                better = compare(symbol, value, found)
                found = builder.select(better, value, found)
            return found
        if function is int or function is np.int64:
            return self.as_type(arguments[0], _INT)
        if function == _UNSIGNED:
            value, kind = self.value(arguments[0]), self.typeof(arguments[0])
            return builder.trunc(value, _I64) if kind is Int128 else self.cast(value, kind, _INT)
        if function is bool:
            return self.truth(arguments[0])
        if function is abs and self.typeof(arguments[0]) != _FLOAT:
            value = self.value(arguments[0])
            return builder.select(builder.icmp_signed("<", value, value.type(0)), builder.neg(value), value)
        doubles = [self.as_type(a, _FLOAT) for a in arguments]
        if function is float:
            return doubles[0]
        if function is abs:
            return builder.call(self.module.external("llvm.fabs.f64", _F64, [_F64]), doubles)
        if function is math.sqrt:
            return builder.call(self.module.external("llvm.sqrt.f64", _F64, [_F64]), doubles)
        if function is math.isfinite:
            nothing = builder.fsub(doubles[0], doubles[0])
            return builder.fcmp_ordered("==", nothing, _F64(0.0))
        return builder.call(self.module.external(_LIBM[function], _F64, [_F64] * len(doubles)), doubles)


_SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def _constant(value: Any) -> ir.Constant:
    kind = llvm_type(_constant_type(value))
    if isinstance(value, tuple):
        return ir.Constant(kind, [_constant(part) for part in value])
    return ir.Constant(kind, value if isinstance(value, float) else int(value))


def _reached(block: ir.Block, function: ir.Function) -> bool:
    """Whether any block goes on with this one."""
    return any(block in (b.terminator.operands if b.terminator else ()) for b in function.blocks)
