"""Files of DBN as its library writes them, and what a source reads of them."""

from collections.abc import Iterable, Sequence
from datetime import date
from types import SimpleNamespace
from typing import Any, TypeVar

import databento_dbn as dbn
import numpy as np

from orderbook.core.errors import SourceError

E = TypeVar("E")
DAY = 1_600_000_000_000_000_000  # 2020-09-13 12:26:40 UTC
ALWAYS = [("ABC", date(2020, 1, 1), date(2021, 1, 1), 7), ("XYZ", date(2020, 1, 1), date(2021, 1, 1), 8)]


def member(kind: type[E], name: str) -> E:
    """A member of one of the library's enumerations, which it types as strings."""
    found = getattr(kind, name)
    assert isinstance(found, kind)
    return found


def metadata(
    schema: Any,
    mappings: Sequence[tuple[str, date, date, int]] = ALWAYS,
    span: tuple[int, int | None] = (0, None),
) -> bytes:
    return bytes(
        dbn.Metadata(
            dataset="TEST.SET",
            start=span[0],
            end=span[1],
            stype_in=member(dbn.SType, "RAW_SYMBOL"),
            stype_out=member(dbn.SType, "INSTRUMENT_ID"),
            schema=schema,
            symbols=sorted({name for name, *_ in mappings}),
            partial=[],
            not_found=[],
            mappings=[
                SimpleNamespace(
                    raw_symbol=symbol,
                    intervals=[
                        SimpleNamespace(start_date=start, end_date=end, symbol=str(number))
                        for name, start, end, number in mappings
                        if name == symbol
                    ],
                )
                for symbol in dict.fromkeys(name for name, *_ in mappings)
            ],
            version=3,
        )
    )


def until_error(source: Iterable[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """The batches, and the error that ended them ("" for none)."""
    batches: list[np.ndarray] = []
    try:
        batches.extend(source)
    except SourceError as error:
        return batches, str(error)
    return batches, ""
