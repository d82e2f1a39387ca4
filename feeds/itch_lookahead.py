"""Orders of messages to come, fetched into the cache: a look-up among a million of them would miss it."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from feeds import itch_messages as wire
from orderbook.jit import jit
from orderbook.memory import Record
from orderbook.order_table import ROW, home_of

_NAMES_ORDER = np.zeros(256, np.bool_)
_NAMES_ORDER[list(b"AFECXDU")] = True
_REPLACE = ord("U")
_ROW_BYTES = ROW.itemsize


@intrinsic
def _fetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, prefetch, "llvm.prefetch.p0")
        to_write, keep, data = number(1), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), to_write, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@jit()
def _fetch_row(context: Record, order_id: int) -> None:
    """Fetches where the search for an order begins, and the row after, which lies in the next line."""
    home = home_of(context, order_id)
    _fetch(home)
    _fetch(home + _ROW_BYTES)


@jit()
def fetch_order(context: Record, at: int) -> None:
    """Fetches what the message at an address will look up; reads no further than a replace does."""
    kind = wire.number_1(at)
    if _NAMES_ORDER[kind]:
        _fetch_row(context, wire.number_8(at + wire.REFERENCE))
        if kind == _REPLACE:
            _fetch_row(context, wire.number_8(at + wire.NEW_REFERENCE))
