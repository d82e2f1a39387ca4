"""What all tables of a configuration have in common: where their keys stand, their types, and their mistakes.

A TOML file is read together with the line each of its keys stands on. Tables are strict and frozen. A mistake
is one line each: where it is, what is expected, what stands there.
"""

import ipaddress
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, LiteralString

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import ErrorDetails, PydanticCustomError

from orderbook.core.errors import ConfigurationError, UserError
from orderbook.core.units import nanoseconds, size_of

# Table keys and array positions from the root: ("feeds", 0, "seed").
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """`values` as tomllib gives them, floats as exact Decimals; `lines` maps key paths to 1-based lines."""

    name: str
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of `path` or of the nearest enclosing key; 0 where the file has none of them."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0

    def contains(self, path: KeyPath) -> bool:
        """Whether the file itself sets `path`."""
        return path in self.lines


def read_toml(path: Path) -> TomlDocument:
    """Read and parse `path`; raise ConfigurationError with file, line and column where it is not TOML."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8").split("\n")
        raise ConfigurationError(f"{path}:{len(before)}:{len(before[-1]) + 1}: not UTF-8 text") from error
    return parse_toml(text, str(path))


def parse_toml(text: str, name: str) -> TomlDocument:
    """Parse TOML text; `name` stands for the file in errors."""
    try:
        values = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_syntax_error(str(error), text, name)) from error
    lines: dict[KeyPath, int] = {}
    for path, line in _positions(text):
        lines.setdefault(path, line)
    return TomlDocument(name, values, lines)


def _syntax_error(message: str, text: str, name: str) -> str:
    at = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if at is None:
        return f"{name}: not valid TOML: {message}"
    lines = text.rstrip("\n").split("\n")
    line, column = at[2] or len(lines), at[3] or len(lines[-1]) + 1
    return f"{name}:{line}:{column}: not valid TOML: {at[1]}"


def _positions(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every key of a valid document with its line, in order."""
    table: KeyPath = ()
    elements: dict[KeyPath, int] = {}
    for statement, line in _statements(text):
        parsed = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _header(parsed, elements)
            for length in range(1, len(table) + 1):
                yield table[:length], line
        else:
            for path in _key_paths(parsed, table):
                yield path, line


def _statements(text: str) -> Iterator[tuple[str, int]]:
    """Split into headers and assignments: each is the shortest run of lines that parses by itself."""
    statement, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            start = number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if parsed:
            yield statement, start
        statement = ""


def _header(parsed: Mapping[str, Any], elements: dict[KeyPath, int]) -> KeyPath:
    """The path a `[table]` or `[[array]]` header opens; `elements` counts the tables of each array."""
    path: KeyPath = ()
    inner: Any = parsed
    while inner:
        if isinstance(inner, list):
            elements[path] = elements.get(path, -1) + 1
            return (*path, elements[path])
        if path in elements:
            path = (*path, elements[path])
        key, inner = next(iter(inner.items()))
        path = (*path, key)
    return path


def _key_paths(value: Mapping[str, Any], prefix: KeyPath) -> Iterator[KeyPath]:
    for key, inner in value.items():
        yield (*prefix, key)
        if isinstance(inner, Mapping):
            yield from _key_paths(inner, (*prefix, key))


# pydantic's error types with the words for what it expected.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "int_type": "an integer",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "model_attributes_type": "a table or a string",
    "model_type": "a table",
    "path_type": "a string",
    "string_too_short": "a string that is not empty",
    "string_type": "a string",
    "tuple_type": "an array",
    "union_tag_invalid": "{expected_tags}",
}


def problem(path: KeyPath, message: str, document: TomlDocument | None) -> str:
    """One line; `document` None says that the key was given outside of any file."""
    dotted = ""
    for part in path:
        dotted += f"[{part}]" if isinstance(part, int) else f".{part}" if dotted else part
    if document is None:
        return f"{dotted}: {message}"
    line = document.line(path)
    return f"{document.name}:{line}: {dotted}: {message}" if line else f"{document.name}: {dotted}: {message}"


def explain(error: ErrorDetails, unknown_key: Callable[[KeyPath], str]) -> tuple[KeyPath, str]:
    """The key path and the message of one of pydantic's errors; `unknown_key` words a key not declared."""
    location, kind = error["loc"], error["type"]
    path = _without_tag(location)
    if kind == "extra_forbidden":
        return path, f"unknown key; {unknown_key(location)}"
    if kind == "missing":
        return path, "this key is required"
    if kind == "union_tag_not_found":
        return (*path, "kind"), "this key is required"
    if kind in ("feed", "environment"):
        return path, error["msg"]
    got = error["input"]
    if kind == "union_tag_invalid":
        path, got = (*path, "kind"), got["kind"]
    expected = _EXPECTED.get(kind, error["msg"]).format(**error.get("ctx", {}))
    return path, f"expected {expected}, got {_written(got)}"


def _without_tag(location: KeyPath) -> KeyPath:
    """pydantic names the kind of a feed between its position and its keys."""
    match location:
        case ("feeds", int(), str(), *_):
            return (*location[:2], *location[3:])
    return location


def _written(value: Any) -> str:
    """A value's type and, where it has one line, its text."""
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int():
            return f"the integer {value}"
        case float() | Decimal():
            return f"the number {value}"
        case str():
            return f"the string {json.dumps(value, ensure_ascii=False)}"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "an array" if value else "an empty array"
    return f"a {type(value).__name__}"


def matching(pattern: str, expected: LiteralString) -> AfterValidator:
    """Refuses a text that does not match, naming what is expected."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise PydanticCustomError("pattern", expected)
        return text

    return AfterValidator(check)


def read_by(reader: Callable[[str], object], expected: LiteralString) -> AfterValidator:
    """Refuses a text that the reader does with UserError, naming what is expected."""

    def check(text: str) -> str:
        try:
            reader(text)
        except UserError:
            raise PydanticCustomError("pattern", expected) from None
        return text

    return AfterValidator(check)


def _filled(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """An AfterValidator, unlike `min_length`, stays silent where the elements already have errors."""
    if not values:
        raise PydanticCustomError("too_short", "an array that is not empty")
    return values


# TOML floats arrive as Decimals; keys that need no exact value take them as floats.
Real = Annotated[
    float,
    BeforeValidator(lambda value: float(value) if isinstance(value, Decimal) else value),
    Field(allow_inf_nan=False),
]
Text = Annotated[str, Field(min_length=1)]
Filled = AfterValidator(_filled)
Products = Annotated[tuple[Text, ...], Field(strict=False), Filled]
File = Annotated[Path, Field(strict=False)]
Duration = Annotated[str, read_by(nanoseconds, 'a time such as "1s" or "2.5ms"')]
Size = Annotated[str, read_by(size_of, 'a size such as "512 MB" or "1.5 GB"')]


class Section(BaseModel):
    """A table of the configuration: unknown keys and values of other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def is_loopback_host(host: str) -> bool:
    """Whether a server on this host can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
