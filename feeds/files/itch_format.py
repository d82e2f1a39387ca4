"""The wire layout of NASDAQ TotalView-ITCH 5.0, and compiled readers of its fields.

Source: Nasdaq, "TotalView-ITCH 5.0" (message formats) and "BinaryFILE" (framing). A file is frames: two
bytes of length, then that many bytes of message. Numbers are unsigned and big-endian; a price has four
decimal places. Every message begins with its type, the stock locate, a tracking number and the time:

    type 1 | locate 2 | tracking 2 | ns since midnight 6 | …

What a day's file says of itself before the first order is its date, and its stocks by locate.
"""

import re
import sys
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orderbook.core.errors import SourceError
from orderbook.core.jit import jit
from orderbook.feeds.byte_stream import Blocks
from orderbook.feeds.storage import Place

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
EVENT_CODE = 11  # S
STOCK = 11  # R, H, h and others
TRADING_STATE = 19  # H
MARKET, HALT_ACTION = 19, 20  # h
REFERENCE = 11  # A, F, E, C, X, D, U: the order's number
SIDE, SHARES, PRICE, MPID = 19, 20, 32, 36  # A, F, and P but for the MPID
TAKEN, MATCH, PRINTABLE, TRADE_PRICE = 19, 23, 31, 32  # E, C; X has the shares alone
NEW_REFERENCE, NEW_SHARES, NEW_PRICE = 19, 27, 31  # U
TRADE_MATCH = 36  # P
CROSS_SHARES, CROSS_PRICE, CROSS_MATCH = 11, 27, 31  # Q

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


# 01302019.NASDAQ_ITCH50.gz and 20190130.BX_ITCH_50.gz; S013019-v50.txt.gz.
_NAME = re.compile(r"(?P<digits>\d{8})\.\w+_ITCH_?50(\..+)?|S(?P<short>\d{6})-v50(\..+)?")
_ORDERS = frozenset(b"AFECXDUPQ")
_START_OF_MESSAGES = b"\x00\x0cS"


def is_itch(start: bytes) -> bool:
    """Whether a file that starts so is ITCH: its first message is a system event."""
    return start.startswith(_START_OF_MESSAGES)


def midnight_of(path: Place, stated: str | None) -> int:
    """ns since 1970 UTC of the start, in New York, of the day stated (ISO), else of that in the name.

    Raises SourceError where neither is there, or is no date.
    """
    try:
        day = date.fromisoformat(stated) if stated is not None else _date_of(path.name)
    except ValueError as error:
        raise SourceError(f"{path}: the date is none ({error}); write it as date=2019-01-30") from None
    if day is None:
        raise SourceError(
            f"{path}: ITCH times are of a day, and the name tells none, as 01302019.NASDAQ_ITCH50 does; "
            "write the day behind the path: ?date=2019-01-30"
        )
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("America/New_York"))
    return round(midnight.timestamp()) * 1_000_000_000


def _date_of(name: str) -> date | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    if short := found["short"]:
        return datetime.strptime(short, "%m%d%y").date()
    digits = found["digits"]
    return datetime.strptime(digits, "%Y%m%d" if digits.startswith("20") else "%m%d%Y").date()


def stock_directory(path: Place) -> dict[int, str]:
    """Symbols by stock locate, from the directory messages before the file's first order or trade.

    Raises SourceError where the file cannot be opened, is no ITCH, or has no directory there.
    """
    symbols: dict[int, str] = {}
    for message in _messages(Blocks(path)):
        kind = message[0]
        if len(message) != LENGTHS[kind]:
            if LENGTHS[kind]:
                break
        elif kind in _ORDERS:
            break
        elif kind == ord("R"):
            locate = int.from_bytes(message[LOCATE : LOCATE + 2], "big")
            name = message[STOCK : STOCK + SYMBOL_BYTES]
            symbols[locate] = name.decode("ascii", "replace").rstrip()
    if not symbols:
        raise SourceError(
            f"{path}: no stock directory before its first order; get a whole day of ITCH 5.0, from its start"
        )
    return symbols


def _messages(blocks: Iterable[bytes]) -> Iterable[bytes]:
    """The complete messages of a file, without their frames, up to a frame of length 0."""
    rest = b""
    for block in blocks:
        rest += block
        position = 0
        while position + FRAME <= len(rest):
            length = int.from_bytes(rest[position : position + FRAME], "big")
            end = position + FRAME + length
            if not length:
                return
            if end > len(rest):
                break
            yield rest[position + FRAME : end]
            position = end
        rest = rest[position:]
