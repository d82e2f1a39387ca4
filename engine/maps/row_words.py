"""Words of rows four by four, as LLVM vectors: LLVM splits them into the registers the machine has."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orderbook.core.jit import primitive
from orderbook.engine.maps.memory import MASK64, WORD, _load, _store, pointer, signed

_FOUR = ir.VectorType(WORD, 4)


def _four(builder: ir.IRBuilder, address: ir.Value, index: ir.Value) -> ir.Value:
    return builder.bitcast(pointer(builder, address, index), _FOUR.as_pointer())


def _same_four(one: int, other: int, index: int) -> bool:
    return all(_load(one, index + lane) == _load(other, index + lane) for lane in range(4))


@primitive(_same_four)
def same_four(typing_context, one, other, index):
    """same_four(one, other, index) -> bool: whether words index .. index + 3 of two addresses are equal."""

    def generate(context, builder, signature, arguments):
        left, right = (
            builder.load(_four(builder, address, arguments[2]), align=8) for address in arguments[:2]
        )
        differing = builder.bitcast(builder.icmp_signed("!=", left, right), ir.IntType(4))
        return builder.icmp_signed("==", differing, ir.IntType(4)(0))

    return types.boolean(types.int64, types.int64, types.int64), generate


def _copy_four(to: int, source: int, index: int) -> None:
    for lane in range(4):
        _store(to, index + lane, _load(source, index + lane))


@primitive(_copy_four)
def copy_four(typing_context, to, source, index):
    """copy_four(to, source, index): sets words index .. index + 3 at `to` to those at `source`."""

    def generate(context, builder, signature, arguments):
        to, source, index = arguments
        builder.store(
            builder.load(_four(builder, source, index), align=8), _four(builder, to, index), align=8
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _products_of_four(factors: int, source: int, index: int) -> int:
    return signed(sum(_product(_load(factors, at), _load(source, at)) for at in range(index, index + 4)))


@primitive(_products_of_four)
def products_of_four(typing_context, factors, source, index):
    """products_of_four(factors, source, index) -> int64: the sum of four `product`s, from word `index` on."""

    def generate(context, builder, signature, arguments):
        factors, words = (
            builder.load(_four(builder, address, arguments[2]), align=8) for address in arguments[:2]
        )
        folded = builder.xor(words, builder.lshr(words, _FOUR([WORD(32)] * 4)))
        kind = ir.FunctionType(WORD, [_FOUR])
        total = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v4i64")
        return builder.call(total, [builder.mul(folded, factors)])

    return types.int64(types.int64, types.int64, types.int64), generate


def _product(factor: int, word: int) -> int:
    word = int(word) & MASK64
    return signed((word ^ word >> 32) * int(factor))


@primitive(_product)
def product(typing_context, factor, word):
    """product(factor, word) -> int64: of the word, its high half mixed into its low one, modulo 2^64."""

    def generate(context, builder, signature, arguments):
        factor, word = arguments
        return builder.mul(builder.xor(word, builder.lshr(word, WORD(32))), factor)

    return types.int64(types.int64, types.int64), generate
