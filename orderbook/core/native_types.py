"""Types of what `native` compiles, as numba names them and as LLVM does, and what its code leaves open.

A hole is a constant that is put into machine code where that is loaded (native_code.py).
"""

import ast
import math
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.typeconv import Conversion

WIDE = ir.IntType(128)


class Int128Type(types.Type):  # type: ignore[misc]
    """The numba type of a signed 128-bit integer."""

    def __init__(self) -> None:
        super().__init__(name="Int128")

    def can_convert_from(self, typing_context: Any, other: types.Type) -> Conversion | None:
        return Conversion.safe if isinstance(other, types.Integer) else None


Int128 = Int128Type()

I64, F64, BIT = ir.IntType(64), ir.DoubleType(), ir.IntType(1)
INT, FLOAT, BOOL, NONE = types.int64, types.float64, types.boolean, types.none
# Of unsigned integers only those of 64 bits are a type of their own: `>>` brings zeros, order is another.
UNSIGNED = types.uint64

# What stands for a function of Python in compiled code; by `operator.floordiv` what divides 128 bits, by
# `float` what makes them a double.
SUBSTITUTES: dict[Any, Callable[..., Any]] = {}
_ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
_HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
_LOGARITHMS = ("log10", "log2", "log1p", "exp", "expm1")
_NAMES = (*_LOGARITHMS, "pow", "fmod", "hypot", "copysign", "erf", "erfc", *_ANGLES, *_HYPERBOLIC)
LIBM = {math.log: "log", **{getattr(math, name): name for name in _NAMES}}
# Those of two arguments; the others have one.
OF_TWO = (math.pow, math.fmod, math.hypot, math.copysign, math.atan2)
# Those that give the integer to which a double is rounded, and how LLVM calls the rounding.
ROUNDED = {
    math.floor: "llvm.floor.f64", math.ceil: "llvm.ceil.f64", math.trunc: "llvm.trunc.f64",
    round: "llvm.rint.f64",
}  # fmt: skip
# What is asked of a double.
CLASSES = (math.isfinite, math.isnan, math.isinf)


class NativeError(Exception):
    """A function that is not of the part of Python that is compiled."""


class UnknownName(NativeError):
    """An attribute that a record has not: a field, or a method. record: of the field; None: it is called."""

    def __init__(self, text: str, name: str, record: types.Record | None) -> None:
        super().__init__(text)
        self.name, self.record = name, record


class WrittenDouble(NativeError):
    """A double that is written where a method of records takes an integer."""

    def __init__(self, text: str, value: float) -> None:
        super().__init__(text)
        self.value = value


# An attribute of a function whose integers are those of Python: products have 128 bits, and what is kept in
# 64 and has more is noted in the field BEYOND of the record that is its first argument, as a line.
WIDENS, BEYOND = "_widens", "beyond"


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


# How symbols of functions of users begin, as long as those of others.
PURE = "python_"
_COMPILED_APART = re.compile("(native|python)_[0-9a-f]{32}")


def is_hole(value: object) -> bool:
    """Whether a constant is left open in machine code. Functions of the C library are not."""
    if isinstance(value, types.ExternalFunction):
        return _COMPILED_APART.fullmatch(str(value.symbol)) is not None
    return isinstance(value, Slot)


def is_pure(function: types.ExternalFunction) -> bool:
    """Whether calls of a function that was compiled apart are one where their arguments are the same."""
    return str(function.symbol).startswith(PURE)


def hole_key(hole: Hole) -> str:
    """What tells a hole from others."""
    return f"{type(hole).__name__} {int(hole)}" if isinstance(hole, Slot) else str(hole.symbol)


def hole_symbol(number: int) -> str:
    """What stands for a hole in code that is not loaded, as long as each symbol that takes its place."""
    return f"native_{number:032x}"


def llvm_type(kind: types.Type) -> ir.Type:
    """The LLVM type of values of a type."""
    if isinstance(kind, types.Integer):
        return I64
    if kind == FLOAT:
        return F64
    if kind == BOOL:
        return BIT
    if kind is Int128:
        return WIDE
    if isinstance(kind, types.BaseTuple):
        return ir.LiteralStructType([llvm_type(k) for k in kind.types])
    if isinstance(kind, types.Record):
        return ir.ArrayType(ir.IntType(8), kind.size).as_pointer()
    if kind == NONE or isinstance(kind, types.NoneType):
        return ir.VoidType()
    raise NativeError(f"values of type {kind}")


def joined(one: types.Type | None, other: types.Type) -> types.Type:
    """The type that holds values of both."""
    if one is None or one == other:
        return other
    if isinstance(one, types.BaseTuple) and isinstance(other, types.BaseTuple) and len(one) == len(other):
        return types.Tuple([joined(a, b) for a, b in zip(one.types, other.types, strict=True)])
    order = [BOOL, INT, Int128, FLOAT]
    if one in order and other in order:
        return order[max(order.index(one), order.index(other))]
    raise NativeError(f"a value that is {one} and {other}")


def plain_function(function: Any) -> FunctionType | None:
    """The function of Python that something compiled was made of."""
    function = SUBSTITUTES.get(function, function) if _hashable(function) else function
    if isinstance(function, Dispatcher):
        function = function.py_func
    return function if isinstance(function, FunctionType) else None


def _hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None


def plain_type(kind: types.Type) -> types.Type:
    """The type in which values of a type are computed with."""
    return INT if isinstance(kind, types.Integer) and kind != UNSIGNED else kind


def constant_type(value: Any) -> types.Type:
    if isinstance(value, np.integer):
        return INT
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT if -(2**63) <= value < 2**63 else Int128
    if isinstance(value, float):
        return FLOAT
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return types.Tuple([constant_type(part) for part in value])
    if isinstance(value, str):
        raise NativeError(f"the text {value!r}; compare texts in a view, whose column says what they are")
    raise NativeError(f"the constant {value!r}")


def result_type(op: ast.operator, left: types.Type, right: types.Type) -> types.Type:
    if isinstance(op, ast.Div):
        return FLOAT
    kind = joined(left, right)
    if kind == BOOL and not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return INT
    return kind
