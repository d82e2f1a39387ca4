"""MessagePack with exact numbers and any text, for what logs and checkpoints keep."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

_DECIMAL, _INTEGER, _TEXT = range(1, 4)
_SURROGATE = re.compile("[\ud800-\udfff]")
_encode = msgspec.msgpack.Encoder().encode


def packed(value: Any) -> bytes:
    """A value made of mappings, sequences and scalars; a Decimal keeps its digits, an int may be of any
    size, a text may have halves of surrogate pairs."""
    return _encode(_tagged(value))


def unpacked(data: bytes, kind: Any = Any) -> Any:
    """The value of `packed`, of a type; sequences are lists where the type does not say otherwise.

    Raises msgspec.DecodeError or ValueError for other bytes.
    """
    return msgspec.msgpack.decode(data, type=kind, ext_hook=_extension)


def _tagged(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, Mapping):
        return {name: _tagged(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_tagged(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_INTEGER, str(value).encode())
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        return msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _extension(code: int, data: memoryview) -> Decimal | int | str:
    if code == _DECIMAL:
        return Decimal(bytes(data).decode())
    if code == _INTEGER:
        return int(bytes(data))
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    raise ValueError(f"unknown extension {code}")
