"""DBN files: their records in order, whose instrument each is, and what definitions state.

Source: Databento, "Databento Binary Encoding". The records are decoded by Databento's own library.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from math import gcd
from typing import Any

import databento_dbn as dbn

from feeds.byte_stream import Blocks
from feeds.places import Place
from orderbook.errors import SourceError
from orderbook.symbols import ContractType

UNDEFINED_PRICE = dbn.UNDEF_PRICE
UNDEFINED_TIME = dbn.UNDEF_TIMESTAMP
# Prices and quantities are in units of 1e-9, and the finest tick is 1e-8.
_ONE = 10**9
FINEST_TICK = 10
_ALL_TIME = (0, 2**63)
# A fragment has no metadata to tell its version; definitions grew with each, other market data did not.
_DEFINITION = 19
_VERSIONS = {360: 1, 400: 2, 520: 3}
_LATEST = 3


class RecordFile:
    """The records of a DBN file, plain, gzip or zstd; those of older versions as version 3 has them.

    `metadata` is None for a fragment. Iteration raises SourceError where the file is truncated or corrupt,
    after the records before that. Raises SourceError when the file is missing or does not begin as DBN.
    """

    def __init__(self, path: Place):
        self.path = path
        self.number = 0
        self._blocks = Blocks(path)
        first = next(self._decoded(), None)
        self.metadata = first if isinstance(first, dbn.Metadata) else None

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._blocks.progress

    @property
    def span(self) -> tuple[int, int]:
        """The time that was asked for, ns since 1970 UTC: from, and before; all time where it is not told."""
        if self.metadata is None:
            return _ALL_TIME
        return self.metadata.start, self.metadata.end or _ALL_TIME[1]

    @property
    def begin(self) -> int:
        """When the first record is of, ns since 1970 UTC; 0 where there is none that can be read."""
        try:
            return next((int(record.ts_event) for record in self), 0)
        except SourceError:
            return 0

    @property
    def venue(self) -> str:
        """The dataset's first part."""
        return self.metadata.dataset.partition(".")[0].lower() if self.metadata is not None else "databento"

    @property
    def schema(self) -> str | None:
        """The kind of all records, None where it is not told."""
        return self.metadata.schema if self.metadata is not None else None

    def __iter__(self) -> Iterator[Any]:
        self.number = 0
        for record in self._decoded():
            if not isinstance(record, dbn.Metadata):
                self.number += 1
                yield record

    def _decoded(self) -> Iterator[Any]:
        decoder = None
        try:
            for block in self._blocks:
                if decoder is None and block:
                    decoder = _decoder(self.path, block)
                if decoder is not None:
                    yield from decoder.write_and_decode(block)
        except dbn.DBNError as error:
            self._end(f"not readable as DBN: {error}")
        if decoder is None or decoder.buffer() or self._blocks.cut:
            self._end(self._blocks.cut or "truncated within a record")

    def _end(self, reason: str) -> None:
        raise SourceError(
            f"{self.path}: {reason}, after record {self.number}; everything before it was read; "
            "get the whole file again"
        )


def _decoder(path: Place, start: bytes) -> dbn.DBNDecoder:
    whole = start.startswith(b"DBN")
    version = None
    if not whole and ".frag" not in path.name:
        raise SourceError(f"{path}: does not begin as DBN; check the path")
    if not whole and len(start) > 1:
        version = _VERSIONS.get(4 * start[0], _LATEST) if start[1] == _DEFINITION else _LATEST
    return dbn.DBNDecoder(has_metadata=whole, input_version=version)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A symbol's numeric id, from `start` to before `end`, ns since 1970 UTC."""

    symbol: str
    instrument_id: int
    start: int
    end: int


def mappings_of(file: RecordFile) -> list[Mapping]:
    """Whose records are whose: by the metadata, else by the file's own mapping and definition records.

    Ids that none of them explains are their own symbols. Raises SourceError as iterating the file does.
    """
    metadata = file.metadata
    if metadata is not None and metadata.mappings:
        by_id = str(metadata.stype_in) == "instrument_id"
        return [
            _mapping(name, interval, by_id)
            for name, intervals in metadata.mappings.items()
            for interval in intervals
            if interval["symbol"]
        ]
    symbols: dict[int, str] = {}
    unexplained: set[int] = set()
    for record in file:
        if isinstance(record, dbn.SymbolMappingMsg):
            symbols[record.instrument_id] = record.stype_out_symbol or record.stype_in_symbol
        elif isinstance(record, dbn.InstrumentDefMsg):
            symbols[record.instrument_id] = record.raw_symbol
        elif not isinstance(record, dbn.SystemMsg | dbn.ErrorMsg):
            unexplained.add(record.instrument_id)
    for instrument_id in unexplained - symbols.keys():
        symbols[instrument_id] = str(instrument_id)
    return [Mapping(symbol, instrument_id, *_ALL_TIME) for instrument_id, symbol in sorted(symbols.items())]


def _mapping(name: str, interval: Any, by_id: bool) -> Mapping:
    symbol, number = (interval["symbol"], name) if by_id else (name, interval["symbol"])
    return Mapping(symbol, int(number), _start_of(interval["start_date"]), _start_of(interval["end_date"]))


def _start_of(day: date) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000_000


@dataclass(slots=True)
class Definition:
    """What definition records state of a symbol: its tick in 1e-9, 0 where none is, and its contract."""

    tick: int = 0
    contract: ContractType | None = None


def definitions_of(
    paths: list[Place], symbols: set[str], report: Callable[[SourceError], None]
) -> dict[str, Definition]:
    """Definitions of `symbols` from the records of files; the tick is one that fits all where they differ.

    An increment that is not stated, or is no multiple of 1e-8, is passed over. A file that cannot be read
    gives what it can, and its error to `report`.
    """
    found: dict[str, Definition] = {}
    for path in paths:
        try:
            for record in RecordFile(path):
                if not isinstance(record, dbn.InstrumentDefMsg) or record.raw_symbol not in symbols:
                    continue
                definition = found.setdefault(record.raw_symbol, Definition())
                definition.contract = _contract_of(record)
                tick = record.min_price_increment
                if 0 < tick < UNDEFINED_PRICE and tick % FINEST_TICK == 0:
                    definition.tick = gcd(definition.tick, tick)
        except SourceError as error:
            report(error)
    return found


def _contract_of(record: Any) -> ContractType:
    """Shares and currencies are traded as they are; derivatives by contracts of so many units."""
    if str(record.instrument_class) in ("K", "X"):
        return "linear"
    one_unit = str(record.instrument_class) == "F" and record.unit_of_measure_qty == _ONE
    return "linear" if one_unit else "multiplier"
