"""Writes the body of a function whose types are known as instructions of LLVM.

Arithmetic is that of numba: 64 bits wrap (but see WIDENS), `//` and `%` floor, and a divisor of 0 gives 0.
"""

import ast
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import _Intrinsic

from orderbook.core.native_inference import FunctionsOfModule, OwnFunction, Typed
from orderbook.core.native_types import (
    BEYOND,
    BIT,
    BOOL,
    F64,
    FLOAT,
    I64,
    INT,
    LIBM,
    NONE,
    ROUNDED,
    SUBSTITUTES,
    UNSIGNED,
    WIDE,
    Int128,
    NativeError,
    Slot,
    constant_type,
    joined,
    llvm_type,
    plain_function,
    plain_type,
)


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


class Emitter(Typed):
    """Writes the LLVM function."""

    def __init__(self, module: FunctionsOfModule, own: OwnFunction) -> None:
        super().__init__(module, own)
        assert own.value is not None
        self.function = own.value
        entry = self.function.append_basic_block("entry")
        self.builder = ir.IRBuilder(entry)
        self._places = {
            name: self.builder.alloca(llvm_type(kind), name=name)
            for name, kind in own.variables.items()
            if kind != NONE
        }
        for name, place in self._places.items():
            # A variable that has no value yet is 0, not what happens to lie there.
            if name not in own.names:
                self.builder.store(ir.Constant(place.type.pointee, None), place)
        self._line = own.node.lineno
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
            if self.own.kind == NONE:
                self.builder.ret_void()
            else:
                self.builder.unreachable()

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.builder.block.is_terminated:
                return
            self._line = statement.lineno
            with self.at(statement):
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
                self._assign(target, self._binary(op, target, value), self.result(op, target, value))
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
                if self.own.kind == NONE:
                    if not isinstance(value, ast.Constant):
                        self.value(value)
                    self.builder.ret_void()
                else:
                    self.builder.ret(self.as_type(value, self.own.kind))
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
                if self.own.widens and kind == FLOAT and plain_type(field) == INT:
                    what = "an integer; make that a float, or this int(…) or round(…)"
                    raise self.own.fail(f"a double in {target.attr}, {what}", target)
                value = self.cast(value, kind, plain_type(field))
                if isinstance(field, types.Integer) and field.bitwidth < 64:
                    value = self.builder.trunc(value, ir.IntType(field.bitwidth))
                self.builder.store(value, self._field(target, value.type), align=1)

    def _field(self, node: ast.Attribute, kind: ir.Type) -> ir.Value:
        """The address of a field of a record."""
        start = self.builder.bitcast(self.value(node.value), ir.IntType(8).as_pointer())
        at = self.builder.gep(start, [I64(self.field_of(node)[1])])
        return self.builder.bitcast(at, kind.as_pointer())

    def _read(self, node: ast.Attribute) -> ir.Value:
        """The value of a field."""
        field, _ = self.field_of(node)
        if not isinstance(field, types.Integer) or field.bitwidth == 64:
            return self.builder.load(self._field(node, llvm_type(field)), align=1)
        value = self.builder.load(self._field(node, ir.IntType(field.bitwidth)), align=1)
        return self.builder.sext(value, I64) if field.signed else self.builder.zext(value, I64)

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
        bounds = [self.as_type(a, INT) for a in arguments]
        step = 1 if len(arguments) < 3 else self.literal(arguments[2])
        if not step:
            raise self.own.fail("a range whose step is not written there", target)
        start, stop = (I64(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        with self._at_entry():
            place = self.builder.alloca(I64)
        self.builder.store(start, place)
        head, inside, ahead, after = self._blocks(4)
        self._to(head)
        self.builder.position_at_end(head)
        at = self.builder.load(place)
        self.builder.cbranch(self.builder.icmp_signed("<" if step > 0 else ">", at, stop), inside, after)
        self.builder.position_at_end(inside)
        self._assign(target, at, INT)
        self._loops.append((ahead, after))
        self._block(body)
        self._loops.pop()
        self._to(ahead)
        self.builder.position_at_end(ahead)
        self.builder.store(self.builder.add(self.builder.load(place), I64(step)), place)
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
        return self._holds(self.value(node), self.typeof(node), node)

    def _holds(self, value: ir.Value, kind: types.Type, node: ast.expr) -> ir.Value:
        if kind == BOOL:
            return value
        if kind == FLOAT:
            return self.builder.fcmp_unordered("!=", value, F64(0.0))
        if not isinstance(value.type, ir.IntType):
            raise self.own.fail("a condition that is no number; of a row it is its multiplicity", node)
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
        if kind == BOOL:
            value, own = self.builder.zext(value, I64), I64
            if wanted == I64:
                return value
        if own == I64 and wanted == WIDE:
            return self.builder.sext(value, WIDE)
        if own == WIDE and wanted == I64 and self.own.widens:
            return self._narrowed(value)
        if own == WIDE and wanted == F64:
            return self._wide_to_double(value)
        if own == I64 and wanted == F64:
            return self.builder.sitofp(value, F64)
        if own == I64 and wanted == BIT:
            return self.builder.icmp_signed("!=", value, I64(0))
        if own == F64 and wanted == I64:
            # What 64 bits do not hold is the nearest that they do, NaN is 0; `fptosi` leaves both open.
            return self.builder.call(self.module.external("llvm.fptosi.sat.i64.f64", I64, [F64]), [value])
        raise NativeError(f"{self.own.name}: {kind} where {target} is wanted")

    def _wide_to_double(self, value: ir.Value) -> ir.Value:
        signature, generate = SUBSTITUTES[float]._defn(None, Int128)  # type: ignore[attr-defined]
        return generate(_Context(), self.builder, signature, [value])

    def _narrowed(self, value: ir.Value) -> ir.Value:
        """128 bits in 64; the nearest where these do not hold it, which is noted."""
        low = self.builder.trunc(value, I64)
        beyond = self.builder.icmp_signed("!=", self.builder.sext(low, WIDE), value)
        self._note(beyond)
        negative = self.builder.icmp_signed("<", value, WIDE(0))
        nearest = self.builder.select(negative, I64(-(2**63)), I64(2**63 - 1))
        return self.builder.select(beyond, nearest, low)

    def _note_size(self, value: ir.Value) -> None:
        """What 128 bits are to hold is near this double."""
        size = self._of_double("llvm.fabs.f64", value)
        self._note(self.builder.fcmp_ordered(">=", size, F64(2.0**127)))

    def _note(self, beyond: ir.Value) -> None:
        """An integer has more bits than there are, where this holds; see WIDENS."""
        record = self.own.arguments[0] if self.own.arguments else None
        if isinstance(record, types.Record) and BEYOND in record.fields:
            node = ast.Attribute(ast.Name(self.own.names[0]), BEYOND)
            noted = self._read(node)
            first = self.builder.and_(beyond, self.builder.icmp_signed("==", noted, I64(0)))
            line = self.builder.select(first, I64(self._line), noted)
            self.builder.store(line, self._field(node, I64), align=1)

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
            case ast.BinOp(_, ast.Pow(), _) if (power := self.power(node)) is not None:
                return _constant(power)
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
                return self.builder.load(self.builder.gep(items, [self.as_type(index, INT)]))
            case ast.Call():
                return self._call(*self.callee(node))
        raise self.own.fail(f"{type(node).__name__} is not compiled", node)

    def _item(self, values: tuple[Any, ...], index: ast.expr) -> ir.Value:
        kind = llvm_type(constant_type(values[0]))
        name = f"values.{id(values)}"
        array = self.module.module.globals.get(name)
        if array is None:
            content = ir.Constant(ir.ArrayType(kind, len(values)), [_constant(v) for v in values])
            array = ir.GlobalVariable(self.module.module, content.type, name)
            array.linkage, array.global_constant, array.initializer = "internal", True, content
        return self.builder.load(self.builder.gep(array, [I64(0), self.as_type(index, INT)]))

    def _unary(self, op: ast.unaryop, operand: ast.expr) -> ir.Value:
        if isinstance(op, ast.Not):
            return self.builder.not_(self.truth(operand))
        kind = self.typeof(operand)
        value = self.cast(self.value(operand), kind, INT if kind == BOOL else kind)
        if isinstance(op, ast.USub):
            return self.builder.fneg(value) if value.type == F64 else self.builder.neg(value)
        return self.builder.not_(value) if isinstance(op, ast.Invert) else value

    def _binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> ir.Value:
        kind = self.result(op, left, right)
        if isinstance(op, ast.Div):
            return self.builder.fdiv(self.as_type(left, FLOAT), self.as_type(right, FLOAT))
        if isinstance(op, ast.Pow) and kind != FLOAT:
            return self._whole_power(left, right, kind)
        one, other = self.as_type(left, kind), self.as_type(right, kind)
        builder = self.builder
        if kind == FLOAT:
            match op:
                case ast.Add():
                    return builder.fadd(one, other)
                case ast.Sub():
                    return builder.fsub(one, other)
                case ast.Mult():
                    return builder.fmul(one, other)
                case ast.Mod():
                    return self._float_mod(one, other)
                case ast.FloorDiv():
                    whole = builder.fdiv(builder.fsub(one, self._float_mod(one, other)), other)
                    return self._of_double("llvm.rint.f64", whole)
                case ast.Pow():
                    return builder.call(self.module.external("pow", F64, [F64, F64]), [one, other])
            raise self.own.fail(f"{type(op).__name__} of doubles", left)
        simple = {
            ast.Add: builder.add,
            ast.Sub: builder.sub,
            ast.Mult: builder.mul,
            ast.BitAnd: builder.and_,
            ast.BitOr: builder.or_,
            ast.BitXor: builder.xor,
            ast.LShift: builder.shl,
            ast.RShift: builder.lshr if kind == UNSIGNED else builder.ashr,
        }
        wide = self.own.widens and Int128 in (self.typeof(left), self.typeof(right))
        if wide and isinstance(op, ast.Mult):
            self._note_size(builder.fmul(self._wide_to_double(one), self._wide_to_double(other)))
        if type(op) in simple:
            made: ir.Value = simple[type(op)](one, other)
            return made
        if kind is Int128:
            if not isinstance(op, ast.FloorDiv | ast.Mod):
                raise self.own.fail(f"{type(op).__name__} of 128 bits", left)
            return self._wide_floored(op, one, other)
        if kind == UNSIGNED or not isinstance(op, ast.FloorDiv | ast.Mod):
            signs = "unsigned " if kind == UNSIGNED else ""
            raise self.own.fail(f"{type(op).__name__} of {signs}integers", left)
        return self._floored(op, one, other)

    def _whole_power(self, base: ast.expr, exponent: ast.expr, kind: types.Type) -> ir.Value:
        """An integer to a power that is written there."""
        times = self.literal(exponent)
        if times is None or times < 0:
            raise self.own.fail(
                "an integer to a power that is not written there, or below 0; make it a double, as float(x)",
                exponent,
            )
        one, found = self.as_type(base, kind), ir.Constant(llvm_type(kind), 1)
        if kind is Int128:
            size = self.builder.call(
                self.module.external("pow", F64, [F64, F64]), [self._wide_to_double(one), F64(float(times))]
            )
            self._note_size(size)
        while times:
            found = self.builder.mul(found, one) if times & 1 else found
            one, times = self.builder.mul(one, one), times >> 1
        return found

    def _of_double(self, name: str, value: ir.Value) -> ir.Value:
        """An intrinsic of LLVM of a double, which is one."""
        return self.builder.call(self.module.external(name, F64, [F64]), [value])

    def _floored(self, op: ast.operator, one: ir.Value, other: ir.Value) -> ir.Value:
        builder = self.builder
        zero = builder.icmp_signed("==", other, I64(0))
        # The least integer by -1 traps; it wraps here.
        negated = builder.icmp_signed("==", other, I64(-1))
        divisor = builder.select(builder.or_(zero, negated), I64(1), other)
        quotient = builder.sdiv(one, divisor)
        rest = builder.sub(one, builder.mul(quotient, divisor))
        apart = builder.icmp_signed("<", builder.xor(rest, divisor), I64(0))
        below = builder.and_(apart, builder.icmp_signed("!=", rest, I64(0)))
        if isinstance(op, ast.Mod):
            found = builder.select(below, builder.add(rest, divisor), rest)
        else:
            found = builder.sub(quotient, builder.zext(below, I64))
            found = builder.select(negated, builder.neg(one), found)
        return builder.select(zero, I64(0), found)

    def _wide_floored(self, op: ast.operator, one: ir.Value, other: ir.Value) -> ir.Value:
        builder = self.builder
        divide = plain_function(SUBSTITUTES[operator.floordiv])
        assert divide is not None
        called = self.module.declared(self.module.specialised(divide, (Int128, Int128)))
        zero = builder.icmp_signed("==", other, WIDE(0))
        divisor = builder.select(zero, WIDE(1), other)
        found = builder.call(called, [one, divisor])
        if isinstance(op, ast.Mod):
            found = builder.sub(one, builder.mul(found, divisor))
        return builder.select(zero, WIDE(0), found)

    def _float_mod(self, one: ir.Value, other: ir.Value) -> ir.Value:
        builder = self.builder
        rest = builder.frem(one, other)
        apart = builder.xor(
            builder.fcmp_ordered("<", rest, F64(0.0)), builder.fcmp_ordered("<", other, F64(0.0))
        )
        below = builder.and_(apart, builder.fcmp_ordered("!=", rest, F64(0.0)))
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
        found: ir.Value = BIT(0)
        for part in parts.elts:
            found = self.builder.or_(found, self._compared(ast.Eq(), value, part))
        return found

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ir.Value:
        if type(op) not in _SYMBOLS:
            raise self.own.fail("`is`; whether a row is there its multiplicity says", left)
        kind = joined(self.typeof(left), self.typeof(right))
        one, other = self.as_type(left, kind), self.as_type(right, kind)
        symbol = _SYMBOLS[type(op)]
        if kind == FLOAT:
            compare = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
            return compare(symbol, one, other)
        if kind in (BOOL, UNSIGNED):
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
            ahead = (more, after) if all_of else (after, more)
            self.builder.cbranch(self._holds(value, kind, node), *ahead)
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
        own = self.own_function(function, arguments)
        if own is not None:
            values = [self._argument(a, k) for a, k in zip(arguments, own.arguments, strict=True)]
            return builder.call(self.module.declared(own), values)
        return self._builtin(function, arguments)

    def _argument(self, node: ast.expr, kind: types.Type) -> ir.Value:
        """An argument of a function; a double that is to be an integer is the nearest."""
        given, value = self.typeof(node), self.value(node)
        if given == FLOAT and kind == INT:
            value = self._of_double("llvm.rint.f64", value)
        return self.cast(value, given, kind)

    def _builtin(self, function: Any, arguments: Sequence[ast.expr]) -> ir.Value:
        builder = self.builder
        if function in (min, max):
            kind = self._called(function, arguments, None)  # type: ignore[arg-type]
            found = self.as_type(arguments[0], kind)
            for argument in arguments[1:]:
                value = self.as_type(argument, kind)
                symbol = "<" if function is min else ">"
                compare = builder.fcmp_ordered if kind == FLOAT else builder.icmp_signed
                better = compare(symbol, value, found)
                found = builder.select(better, value, found)
            return found
        if function in (int, *ROUNDED) and self.own.widens and self.typeof(arguments[0]) is Int128:
            return self.value(arguments[0])
        if function in ROUNDED and self.typeof(arguments[0]) == FLOAT:
            return self.cast(self._of_double(ROUNDED[function], self.value(arguments[0])), FLOAT, INT)
        if function is int or function is np.int64 or function in ROUNDED:
            return self.as_type(arguments[0], INT)
        if function == UNSIGNED:
            value, kind = self.value(arguments[0]), self.typeof(arguments[0])
            return builder.trunc(value, I64) if kind is Int128 else self.cast(value, kind, INT)
        if function is bool:
            return self.truth(arguments[0])
        if function is abs and self.typeof(arguments[0]) != FLOAT:
            value = self.value(arguments[0])
            return builder.select(builder.icmp_signed("<", value, value.type(0)), builder.neg(value), value)
        doubles = [self.as_type(a, FLOAT) for a in arguments]
        if function is float:
            return doubles[0]
        if function in (abs, math.fabs):
            return self._of_double("llvm.fabs.f64", doubles[0])
        if function is math.sqrt:
            return self._of_double("llvm.sqrt.f64", doubles[0])
        if function is math.isnan:
            return builder.fcmp_unordered("uno", doubles[0], doubles[0])
        if function is math.isinf:
            size = self._of_double("llvm.fabs.f64", doubles[0])
            return builder.fcmp_ordered("==", size, F64(math.inf))
        if function is math.isfinite:
            nothing = builder.fsub(doubles[0], doubles[0])
            return builder.fcmp_ordered("==", nothing, F64(0.0))
        return builder.call(self.module.external(LIBM[function], F64, [F64] * len(doubles)), doubles)


_SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def _constant(value: Any) -> ir.Constant:
    kind = llvm_type(constant_type(value))
    if isinstance(value, tuple):
        return ir.Constant(kind, [_constant(part) for part in value])
    return ir.Constant(kind, value if isinstance(value, float) else int(value))


def _reached(block: ir.Block, function: ir.Function) -> bool:
    """Whether any block goes on with this one."""
    return any(block in (b.terminator.operands if b.terminator else ()) for b in function.blocks)
