"""Conditions of strategies: the strategy's parameters written into the text."""

import re
from collections.abc import Mapping
from decimal import Decimal

Parameter = Decimal | int | float | str | bool

# A quoted text or name, or a parameter that does not follow another colon or a word.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![:\w]):(?P<name>[A-Za-z_]\w*)""")


def with_parameters(condition: str, parameters: Mapping[str, Parameter]) -> str:
    """The condition with literals for the parameters known; others stay for the engine to refuse."""

    def literal(match: re.Match[str]) -> str:
        name = match["name"]
        return match[0] if name is None or name not in parameters else _literal(parameters[name])

    return _PARAMETER.sub(literal, condition)


def parameter_names(condition: str) -> set[str]:
    """The parameters that a condition names."""
    return {match["name"] for match in _PARAMETER.finditer(condition) if match["name"] is not None}


def _literal(value: Parameter) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return f"({number:f})" if number < 0 else f"{number:f}"
