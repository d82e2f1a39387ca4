"""A compiler for the part of Python that generated modules and the map library are written in.

Functions of integers, doubles, 128-bit integers, booleans and tuples of these: assignments, `if`, `while`,
`for … in range`, calls. Types are inferred from the arguments; all functions that are reached become one
LLVM module, which is optimised as a whole and kept as object code (native_code.py). Intrinsics are those of
numba (engine/maps), which build LLVM instructions themselves. What this compiles is what numba would compile,
in a tenth of the time.

Arithmetic is that of numba: 64 bits wrap (but see WIDENS), `//` and `%` floor, and a divisor of 0 gives 0.
"""

import ast
import linecache
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import types

from orderbook.core.native_emission import Emitter
from orderbook.core.native_inference import Inference, OwnFunction
from orderbook.core.native_types import (
    BIT,
    BOOL,
    F64,
    FLOAT,
    I64,
    INT,
    NONE,
    SLOT_BASE,
    WIDENS,
    Hole,
    NativeError,
    Slot,
    hole_key,
    hole_symbol,
    is_pure,
    llvm_type,
    plain_function,
    plain_type,
)


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


def function_node(function: FunctionType) -> ast.FunctionDef:
    """The tree of a function's text, with the lines of its file."""
    code = function.__code__
    return _tree(code.co_filename)[code.co_name, code.co_firstlineno]


class NativeModule:
    """Functions compiled together; `add` each, then `object_code`."""

    def __init__(self, methods: Mapping[str, Any] | None = None, holes: Sequence[Hole] = ()) -> None:
        """holes: those that are left open; others are put in."""
        self.module = ir.Module()
        self._holes = {hole_key(hole): hole_symbol(number) for number, hole in enumerate(holes)}
        # What is called by `record.name(…)`, with the record as the first argument.
        self.methods = methods or {}
        self._functions: dict[tuple[FunctionType, tuple[types.Type, ...], bool], OwnFunction] = {}
        self._pending: list[OwnFunction] = []
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
        if own.kind not in (INT, FLOAT, BOOL, NONE):
            raise NativeError(f"{plain.__name__} returns {own.kind}")
        kind = ir.FunctionType(F64 if own.kind == FLOAT else I64, [llvm_type(a) for a in arguments])
        entry = ir.Function(self.module, kind, symbol)
        builder = ir.IRBuilder(entry.append_basic_block())
        value = builder.call(self.declared(own), entry.args)
        if own.kind == NONE:
            builder.ret(I64(0))
        else:
            builder.ret(builder.zext(value, I64) if value.type == BIT else value)
        while self._pending:
            Emitter(self, self._pending.pop()).emit()
        _inline(self.module)
        return own.kind

    def specialised(
        self, function: FunctionType, arguments: tuple[types.Type, ...], widens: bool = False
    ) -> OwnFunction:
        """A function for arguments of these types, its types inferred."""
        arguments, widens = tuple(map(plain_type, arguments)), widens or hasattr(function, WIDENS)
        known = self._functions.get((function, arguments, widens))
        if known is None:
            node = function_node(function)
            name = f"{function.__module__}.{function.__name__}.{len(self._functions)}"
            known = OwnFunction(name, function, arguments, node, widens=widens)
            self._functions[function, arguments, widens] = known
            known.inferring = True
            Inference(self, known).infer()
            known.inferring = False
        elif known.inferring and known.kind is None:
            raise NativeError(f"{function.__name__} calls itself")
        return known

    def declared(self, own: OwnFunction) -> ir.Function:
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
            return I64(int(value))
        place = self.module.globals.get(symbol)
        if place is None:
            place = ir.GlobalVariable(self.module, ir.IntType(8), symbol)
            # Two may be equal.
            place.unnamed_addr = True
        return place.ptrtoint(I64).sub(I64(SLOT_BASE))

    def exported(self, function: types.ExternalFunction) -> ir.Function:
        """A function that was compiled apart, left open where it is a hole."""
        symbol = self._holes.get(hole_key(function), function.symbol)
        found = self.external(
            symbol, llvm_type(function.sig.return_type), list(map(llvm_type, function.sig.args))
        )
        if is_pure(function):
            # What one notes where it raises is read by no compiled code.
            found.attributes.add("readnone")
        return found

    def external(self, symbol: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """A function of another module or of the C library."""
        known = self.module.globals.get(symbol)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(result, list(arguments)), symbol)
            known.attributes.add("nounwind")
        return known


# Functions of so few instructions, those inlined into them counted, are inlined wherever they are called.
_SMALL = 120
# Of several functions of so many that one calls none is inlined: what LLVM takes for a function rises faster.
_LARGE = 2000


def _inline(module: ir.Module) -> None:
    """Marks the internal functions that are inlined: small ones, and those that are called once.

    Of the latter large ones are not where one function calls several. None calls itself, so that callees can
    be sized first.
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
    apart: set[str] = set()

    def size(name: str) -> int:
        """Instructions of a function once its callees are inlined."""
        if name not in sizes:
            large = [one for one in callees[name] if called[one] == 1 and size(one) > _LARGE]
            apart.update(large if len(large) > 1 else ())
            own = sum(len(block.instructions) for block in internal[name].blocks)
            inlined = (one for one in callees[name] if _is_inlined(one))
            sizes[name] = own + sum(size(one) for one in inlined)
        return sizes[name]

    def _is_inlined(name: str) -> bool:
        return name not in apart and (called[name] == 1 or size(name) <= _SMALL)

    for name in internal:
        size(name)
    for name, function in internal.items():
        if name in apart:
            function.attributes.add("noinline")
        elif _is_inlined(name):
            function.attributes.add("alwaysinline")
