"""What the tables of a configuration have in common: strict, frozen, and the types of their values."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, LiteralString

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


def matching(pattern: str, expected: LiteralString) -> AfterValidator:
    """Refuses a text that does not match, naming what is expected."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise PydanticCustomError("pattern", expected)
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


class Section(BaseModel):
    """A table of the configuration: unknown keys and values of other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
