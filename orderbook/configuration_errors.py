"""Mistakes in a configuration as one line each: where it is, what is expected, what stands there."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from pydantic_core import ErrorDetails

from orderbook.toml_document import KeyPath, TomlDocument

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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most resembles, or None when none comes close."""
    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to write instead of `name`: the nearest known name, else all of them."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"


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
    if kind == "feed":
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
