"""PostgreSQL's wire protocol 3.0 from the server's side: messages of clients read, messages to them written.

Nothing here does I/O. Source: PostgreSQL's documentation, chapters "Frontend/Backend Protocol", "Message
Formats" and "Object Identifier Types".
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from struct import Struct, error, unpack_from
from typing import Any

# The first message of a connection has no type: its length, then one of these.
PROTOCOL_3, CANCEL_REQUEST, SSL_REQUEST, GSS_REQUEST = 196_608, 80_877_102, 80_877_103, 80_877_104
# Minor versions above 0 are negotiated down to it.
PROTOCOL_3_END = 200_000
MOST_STARTUP, MOST_MESSAGE = 10_000, 256 << 10

BOOL, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8 = 16, 20, 21, 23, 25, 26, 700, 701
UNKNOWN, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 705, 1043, 1082, 1114, 1184, 1700
_INT8_ARRAY, _TEXT_ARRAY = 1016, 1009
# The type of a column of an answer, by the name that messages have for it: oid, bytes (-1: any number).
COLUMN_TYPES = {
    "boolean": (BOOL, 1), "integer": (INT8, 8), "double": (FLOAT8, 8), "decimal": (NUMERIC, -1),
    "timestamp": (TIMESTAMPTZ, 8), "text": (TEXT, -1), "integer[]": (_INT8_ARRAY, -1),
    "text[]": (_TEXT_ARRAY, -1),
}  # fmt: skip
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_TO_2000 = int((_EPOCH - _UNIX).total_seconds()) * 1_000_000
_HEAD, _WORD, _SHORT, _LONG, _REAL = Struct("!cI"), Struct("!i"), Struct("!h"), Struct("!q"), Struct("!d")
_NUMERIC = Struct("!hhHH")


class ProtocolError(Exception):
    """A message that the protocol does not have, or that breaks off; the connection ends."""


class ValueProblem(Exception):
    """A parameter that cannot be read as what the client calls it."""


class Fields:
    """Reads the fields of one message in turn. Raises ProtocolError where it is too short."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def int16(self) -> int:
        """A signed number of two bytes."""
        return int(self._take(_SHORT)[0])

    def int32(self) -> int:
        """A signed number of four bytes."""
        return int(self._take(_WORD)[0])

    def text(self) -> str:
        """Text up to a zero byte."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("text without an end")
        found, self._at = self._body[self._at : end], end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError("text that is not UTF-8") from None

    def count(self) -> int:
        """A number of things that follow."""
        if (count := self.int16() & 0xFFFF) > len(self._body):
            raise ProtocolError("more is announced than there is")
        return count

    def value(self) -> bytes | None:
        """Bytes after their length; None: NULL."""
        return None if (size := self.int32()) < 0 else self.take(size)

    def take(self, size: int) -> bytes:
        """So many bytes."""
        if size < 0 or self._at + size > len(self._body):
            raise ProtocolError("a value without an end")
        found, self._at = self._body[self._at : self._at + size], self._at + size
        return found

    def rest(self) -> bytes:
        """What is left."""
        return self._body[self._at :]

    def _take(self, form: Struct) -> tuple[Any, ...]:
        try:
            found = form.unpack_from(self._body, self._at)
        except error:
            raise ProtocolError("a message without an end") from None
        self._at += form.size
        return found


def message(kind: bytes, *parts: bytes) -> bytes:
    """A message of a type, with its length."""
    body = b"".join(parts)
    return _HEAD.pack(kind, len(body) + 4) + body


def text(value: str) -> bytes:
    """Text with the zero byte that ends it."""
    return value.replace("\0", "").encode(errors="replace") + b"\0"


def int16(value: int) -> bytes:
    """A number of two bytes."""
    return _SHORT.pack(value)


def int32(value: int) -> bytes:
    """A number of four bytes."""
    return _WORD.pack(value)


def ready(status: bytes) -> bytes:
    """ReadyForQuery: I outside of a transaction, T in one, E in a failed one."""
    return message(b"Z", status)


def complete(tag: str) -> bytes:
    """CommandComplete."""
    return message(b"C", text(tag))


def failure(code: str, said: str, severity: str = "ERROR", position: int = 0) -> bytes:
    """ErrorResponse. code: a SQLSTATE. position: of the character in the query, from 1; 0: not known."""
    fields = [b"S" + text(severity), b"V" + text(severity), b"C" + text(code), b"M" + text(said)]
    if position:
        fields.append(b"P" + text(str(position)))
    return message(b"E", *fields, b"\0")


def row_description(columns: Sequence[tuple[str, str]], formats: Sequence[int]) -> bytes:
    """RowDescription of columns, each a name and a type of COLUMN_TYPES; formats: see `format_of`."""
    parts = [int16(len(columns))]
    for place, (name, kind) in enumerate(columns):
        oid, size = COLUMN_TYPES[kind]
        parts += [text(name), int32(0), int16(0), int32(oid), int16(size), int32(-1)]
        parts.append(int16(format_of(formats, place)))
    return message(b"T", *parts)


def tuple_body(values: Sequence[bytes | None]) -> bytes:
    """The fields of a row: their number, and each after its length, which is -1 for NULL."""
    parts = [int16(len(values))]
    for value in values:
        parts += [int32(-1)] if value is None else [int32(len(value)), value]
    return b"".join(parts)


def data_row(values: Sequence[bytes | None]) -> bytes:
    """DataRow."""
    return message(b"D", tuple_body(values))


def format_of(formats: Sequence[int], place: int) -> int:
    """0 for text, 1 for binary, of a column or parameter: none given is text, one is that of all."""
    if not formats:
        return 0
    return formats[0] if len(formats) == 1 else formats[place]


def encoders(kinds: Iterable[str], formats: Sequence[int]) -> list[Any]:
    """For each column what makes the protocol's bytes of a value, as messages of the monitor have it."""
    return [_BINARY[k] if format_of(formats, place) else _TEXT[k] for place, k in enumerate(kinds)]


def microseconds(stamp: int | str) -> int:
    """Of ns since 1970 UTC, µs since then: PostgreSQL's times have no more places."""
    return int(stamp) // 1000


def timestamp_text(stamp: int | str) -> str:
    """ns since 1970 UTC as PostgreSQL shows them."""
    moment = _UNIX + timedelta(microseconds=microseconds(stamp))
    return moment.isoformat(sep=" ").removesuffix("+00:00") + "+00"


def _boolean_text(value: Any) -> bytes:
    return b"t" if value else b"f"


def _plain_text(value: Any) -> bytes:
    return str(value).encode(errors="replace")


def _array_text(value: Sequence[Any]) -> bytes:
    return ("{" + ",".join(map(_element, value)) + "}").encode(errors="replace")


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    said = str(value)
    if re.fullmatch(r"[^\s{}\",\\]+", said) and said.upper() != "NULL":
        return said
    return '"' + said.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _double_text(value: Any) -> bytes:
    return repr(float(value)).removesuffix(".0").encode()


def _numeric_binary(value: Any) -> bytes:
    """Digits of base 10,000; see numeric_send in PostgreSQL's numeric.c."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    plain = "".join(map(str, digits)) + "0" * max(exponent, 0)
    whole, places = (plain, "") if not scale else (plain[:-scale], plain[-scale:].rjust(scale, "0"))
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    places = places.ljust(-(-len(places) // 4) * 4, "0")
    groups = [int((whole + places)[at : at + 4]) for at in range(0, len(whole + places), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    head = _NUMERIC.pack(len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return head + b"".join(int16(group) for group in groups)


def _array_binary(oid: int, element: Any) -> Any:
    def encoded(value: Sequence[Any]) -> bytes:
        nulls = any(one is None for one in value)
        parts = [int32(1 if value else 0), int32(int(nulls)), int32(oid)]
        parts += [int32(len(value)), int32(1)] if value else []
        for one in value:
            own = None if one is None else element(one)
            parts += [int32(-1)] if own is None else [int32(len(own)), own]
        return b"".join(parts)

    return encoded


def _long(value: Any) -> bytes:
    return _LONG.pack(int(value))


_TEXT = {
    "boolean": _boolean_text,
    "integer": _plain_text,
    "double": _double_text,
    "decimal": _plain_text,
    "timestamp": lambda value: timestamp_text(value).encode(),
    "text": _plain_text,
    "integer[]": _array_text,
    "text[]": _array_text,
}
_BINARY = {
    "boolean": lambda value: b"\1" if value else b"\0",
    "integer": _long,
    "double": lambda value: _REAL.pack(float(value)),
    "decimal": _numeric_binary,
    "timestamp": lambda value: _LONG.pack(microseconds(value) - _MICROSECONDS_TO_2000),
    "text": _plain_text,
    "integer[]": _array_binary(INT8, _long),
    "text[]": _array_binary(TEXT, _plain_text),
}

_BINARY_NUMBERS = {INT2: "!h", INT4: "!i", INT8: "!q", OID: "!I", FLOAT4: "!f", FLOAT8: "!d"}
_NUMBERS = (INT2, INT4, INT8, OID, FLOAT4, FLOAT8, NUMERIC)


def literal(value: bytes | None, oid: int, form: int) -> str:
    """A parameter as SQL: a number, or text in quotes, whatever is in it. Raises ValueProblem."""
    if value is None:
        return "NULL"
    try:
        return _literal(value, oid, form)
    except (error, UnicodeDecodeError, InvalidOperation, OverflowError, ValueError):
        raise ValueProblem(f"a parameter that is no value of the type with the oid {oid}") from None


def _literal(value: bytes, oid: int, form: int) -> str:
    if form == 0:
        said = value.decode()
        if oid in _NUMBERS:
            number = Decimal(said.strip())
            return _number(number) if number.is_finite() else f"{_quoted(str(float(number)))}::DOUBLE"
        if oid == BOOL:
            return _quoted(said.strip()) + "::BOOLEAN"
        if oid in (TIMESTAMP, TIMESTAMPTZ):
            return _quoted(said.strip()) + "::TIMESTAMP"
        return _quoted(said)
    if oid in _BINARY_NUMBERS:
        number = unpack_from(_BINARY_NUMBERS[oid], value)[0]
        if isinstance(number, float):
            return f"{_quoted(repr(number))}::DOUBLE"
        return _number(Decimal(number))
    if oid == BOOL:
        return "TRUE" if value != b"\0" else "FALSE"
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        moment = _EPOCH + timedelta(microseconds=_LONG.unpack(value)[0])
        return _quoted(moment.strftime("%Y-%m-%d %H:%M:%S.%f")) + "::TIMESTAMP"
    if oid == DATE:
        return _quoted((_EPOCH + timedelta(days=_WORD.unpack(value)[0])).strftime("%Y-%m-%d")) + "::DATE"
    if oid == NUMERIC:
        return _number(_read_numeric(value))
    if oid in (TEXT, VARCHAR, UNKNOWN, 0, 18, 19, 1042):
        return _quoted(value.decode())
    raise ValueError


def _read_numeric(value: bytes) -> Decimal:
    count, weight, sign, scale = _NUMERIC.unpack_from(value)
    if sign not in (0, 0x4000) or len(value) != _NUMERIC.size + 2 * count:
        raise ValueError
    groups = unpack_from(f"!{count}h", value, _NUMERIC.size)
    whole = 0
    for group in groups:
        if not 0 <= group < 10_000:
            raise ValueError
        whole = whole * 10_000 + group
    exact = Decimal(whole).scaleb(4 * (weight - count + 1))
    return -exact if sign else round(exact, scale) if scale else exact


def _number(number: Decimal) -> str:
    if abs(number.adjusted()) > 400:
        raise ValueError
    # In brackets, so that a sign does not become one with what stands before it.
    return f"({number:f})"


def _quoted(said: str) -> str:
    if "\0" in said:
        raise ValueError
    return "'" + said.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Startup:
    """What the first message of a connection asks for: its code, and of a session its parameters."""

    code: int
    parameters: dict[str, str]
    process: int = 0
    secret: bytes = b""


def read_startup(body: bytes) -> Startup:
    """The first message, without its length. Raises ProtocolError."""
    fields = Fields(body)
    code = fields.int32()
    if code == CANCEL_REQUEST:
        return Startup(code, {}, fields.int32(), fields.rest())
    parameters: dict[str, str] = {}
    if PROTOCOL_3 <= code < PROTOCOL_3_END:
        while name := fields.text():
            parameters[name] = fields.text()
    return Startup(code, parameters)
