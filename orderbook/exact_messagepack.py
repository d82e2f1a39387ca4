"""MessagePack with exact decimals, for what logs and checkpoints keep."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

_DECIMAL = 1
_encode = msgspec.msgpack.Encoder().encode


def packed(value: Any) -> bytes:
    """A value made of mappings, sequences and scalars; a Decimal keeps its digits."""
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
    return value


def _extension(code: int, data: memoryview) -> Decimal:
    if code != _DECIMAL:
        raise ValueError(f"unknown extension {code}")
    return Decimal(bytes(data).decode())
