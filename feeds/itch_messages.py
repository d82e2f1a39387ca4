"""The wire layout of NASDAQ TotalView-ITCH 5.0, and compiled readers of its fields.

Source: Nasdaq, "TotalView-ITCH 5.0" (message formats) and "BinaryFILE" (framing). A file is frames: two
bytes of length, then that many bytes of message. Numbers are unsigned and big-endian; a price has four
decimal places. Every message begins with its type, the stock locate, a tracking number and the time:

    type 1 | locate 2 | tracking 2 | ns since midnight 6 | …
"""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orderbook.jit import jit

# Bytes of a message by its type, without the frame's length.
LENGTHS_BY_TYPE = {
    "S": 12,  # system event
    "R": 39,  # stock directory
    "H": 25,  # stock trading action
    "Y": 20,  # Reg SHO restriction
    "L": 26,  # market participant position
    "V": 35,  # market-wide circuit breaker: levels
    "W": 12,  # market-wide circuit breaker: breached
    "K": 28,  # IPO quoting period
    "J": 35,  # limit up, limit down auction collar
    "h": 21,  # operational halt
    "A": 36,  # add order
    "F": 40,  # add order with attribution
    "E": 31,  # order executed
    "C": 36,  # order executed at another price
    "X": 23,  # order cancelled in part
    "D": 19,  # order deleted
    "U": 35,  # order replaced
    "P": 44,  # trade against an order that was not displayed
    "Q": 40,  # cross trade
    "B": 19,  # broken trade
    "I": 50,  # net order imbalance
    "N": 20,  # retail price improvement
    "O": 48,  # direct listing with capital raise
}
LENGTHS = np.zeros(256, np.int64)
for _type, _length in LENGTHS_BY_TYPE.items():
    LENGTHS[ord(_type)] = _length

FRAME = 2
LOCATE, TIME = 1, 5
EVENT_CODE = 11                       # S
STOCK = 11                            # R, H, h and others
TRADING_STATE = 19                    # H
MARKET, HALT_ACTION = 19, 20          # h
REFERENCE = 11                        # A, F, E, C, X, D, U: the order's number
SIDE, SHARES, PRICE, MPID = 19, 20, 32, 36        # A, F, and P but for the MPID
TAKEN, MATCH, PRINTABLE, TRADE_PRICE = 19, 23, 31, 32  # E, C; X has the shares alone
NEW_REFERENCE, NEW_SHARES, NEW_PRICE = 19, 27, 31      # U
TRADE_MATCH = 36                                       # P
CROSS_SHARES, CROSS_PRICE, CROSS_MATCH = 11, 27, 31    # Q

SYMBOL_BYTES = 8
SYMBOLS = 1 << 16  # locates are two bytes

START_OF_MESSAGES, END_OF_SYSTEM_HOURS, END_OF_MESSAGES = b"OEC"

def mpid_number(mpid: str) -> int:
    """The broker_id of a market participant: its four letters' ASCII codes as one big-endian number.

    So it is the same in every file, and never 0, which stands for no attribution.
    """
    return int.from_bytes(mpid.encode("ascii").ljust(4), "big")


def mpid_of(number: int) -> str:
    """The market participant that `mpid_number` gives this number, "" for 0."""
    return number.to_bytes(4, "big").decode("ascii").rstrip(" \0")


@intrinsic
def _load_big(typing_context: Any, address: Any, size: Any) -> Any:
    width = ir.IntType(8 * size.literal_value) if isinstance(size, types.IntegerLiteral) else None
    if width is None:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.inttoptr(arguments[0], width.as_pointer()), align=1)
        if sys.byteorder == "little" and width.width > 8:
            value = builder.bswap(value)
        return builder.zext(value, ir.IntType(64)) if width.width < 64 else value

    return types.int64(types.int64, size), generate


@jit()
def number_1(address: int) -> int:
    """The byte at an address."""
    return _load_big(address, 1)


@jit()
def number_2(address: int) -> int:
    """The two-byte number at an address."""
    return _load_big(address, 2)


@jit()
def number_4(address: int) -> int:
    """The four-byte number at an address."""
    return _load_big(address, 4)


@jit()
def number_8(address: int) -> int:
    """The eight-byte number at an address; above 2^63 it is negative."""
    return _load_big(address, 8)


@jit()
def time_of(message: int) -> int:
    """The time of the message at an address, ns since midnight."""
    return _load_big(message + TIME - 2, 8) & 0xFFFFFFFFFFFF
