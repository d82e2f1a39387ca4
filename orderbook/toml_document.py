"""A TOML file together with the line each of its keys stands on."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from orderbook.errors import ConfigurationError

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
