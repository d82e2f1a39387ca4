"""What the tables of a configuration have in common: strict, frozen, and the types of their values."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, LiteralString

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from orderbook.durations import nanoseconds
from orderbook.errors import UserError
from orderbook.sizes import size_of


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
