"""ITCH 5.0 messages written from the specification's tables, without a line of the decoder.

Each function takes the fields of one message in the specification's order and returns its bytes; `framed`
puts the length before it. Prices are in units of $0.0001, times in ns since midnight.
"""

import struct


def framed(*messages: bytes) -> bytes:
    """The messages as a file holds them."""
    return b"".join(struct.pack(">H", len(message)) + message for message in messages)


def _message(kind: bytes, locate: int, time: int, layout: str, *fields: object) -> bytes:
    head = struct.pack(">cHH", kind, locate, 0) + time.to_bytes(6, "big")
    return head + struct.pack(">" + layout, *fields)


def _stock(symbol: str) -> bytes:
    return symbol.encode("ascii").ljust(8)


def system_event(time: int, code: bytes) -> bytes:
    return _message(b"S", 0, time, "c", code)


def stock_directory(locate: int, time: int, symbol: str) -> bytes:
    classes = (b"Q", b"N", 100, b"N", b"C", b"Z ", b"P", b"N", b"N", b"1", b"N", 0, b"N")
    return _message(b"R", locate, time, "8sccIcc2scccccIc", _stock(symbol), *classes)


def trading_action(locate: int, time: int, symbol: str, state: bytes) -> bytes:
    return _message(b"H", locate, time, "8scc4s", _stock(symbol), state, b" ", b"    ")


def operational_halt(locate: int, time: int, symbol: str, market: bytes, action: bytes) -> bytes:
    return _message(b"h", locate, time, "8scc", _stock(symbol), market, action)


def add(
    locate: int, time: int, reference: int, side: bytes, shares: int, symbol: str, price: int, mpid: str = ""
) -> bytes:
    """A, or F where there is an attribution."""
    fields = (reference, side, shares, _stock(symbol), price)
    if mpid:
        return _message(b"F", locate, time, "QcI8sI4s", *fields, mpid.encode("ascii"))
    return _message(b"A", locate, time, "QcI8sI", *fields)


def executed(locate: int, time: int, reference: int, shares: int, match: int) -> bytes:
    return _message(b"E", locate, time, "QIQ", reference, shares, match)


def executed_with_price(
    locate: int, time: int, reference: int, shares: int, match: int, printable: bytes, price: int
) -> bytes:
    return _message(b"C", locate, time, "QIQcI", reference, shares, match, printable, price)


def cancelled(locate: int, time: int, reference: int, shares: int) -> bytes:
    return _message(b"X", locate, time, "QI", reference, shares)


def deleted(locate: int, time: int, reference: int) -> bytes:
    return _message(b"D", locate, time, "Q", reference)


def replaced(locate: int, time: int, original: int, new: int, shares: int, price: int) -> bytes:
    return _message(b"U", locate, time, "QQII", original, new, shares, price)


def trade(locate: int, time: int, shares: int, symbol: str, price: int, match: int) -> bytes:
    return _message(b"P", locate, time, "QcI8sIQ", 0, b"B", shares, _stock(symbol), price, match)


def cross(locate: int, time: int, shares: int, symbol: str, price: int, match: int) -> bytes:
    return _message(b"Q", locate, time, "Q8sIQc", shares, _stock(symbol), price, match, b"O")


def broken_trade(locate: int, time: int, match: int) -> bytes:
    return _message(b"B", locate, time, "Q", match)


def without_effect(locate: int, time: int, symbol: str) -> list[bytes]:
    """One message of each type that changes no book and is no trade."""
    stock = _stock(symbol)
    return [
        _message(b"Y", locate, time, "8sc", stock, b"0"),
        _message(b"L", locate, time, "4s8sccc", b"GSCO", stock, b"Y", b"N", b"A"),
        _message(b"V", 0, time, "QQQ", 1, 2, 3),
        _message(b"W", 0, time, "c", b"1"),
        _message(b"K", locate, time, "8sIcI", stock, 34200, b"A", 100_000),
        _message(b"J", locate, time, "8sIIII", stock, 1, 2, 3, 4),
        _message(b"I", locate, time, "QQc8sIIIcc", 1, 2, b"B", stock, 3, 4, 5, b"O", b"L"),
        _message(b"N", locate, time, "8sc", stock, b"A"),
        _message(b"O", locate, time, "8scIIIQII", stock, b"Y", 1, 2, 3, 4, 5, 6),
    ]
