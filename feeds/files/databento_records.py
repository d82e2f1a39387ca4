"""DBN files: their records in order, whose instrument each is, and what definitions state.

Source: Databento, "Databento Binary Encoding". Metadata and records of definitions and mappings are decoded
by Databento's own library.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from math import gcd
from typing import Any, NoReturn

import databento_dbn as dbn

from orderbook.core.errors import SourceError
from orderbook.feeds.byte_stream import Blocks, larger
from orderbook.feeds.storage import Place
from orderbook.market.contract_terms import Kind, Terms, amount, expiry_of, option_type_of
from orderbook.market.instruments import ContractType

UNDEFINED_PRICE, UNDEFINED_TIME = dbn.UNDEF_PRICE, dbn.UNDEF_TIMESTAMP
# Prices and quantities are in units of 1e-9, and the finest tick is 1e-8.
_ONE = 10**9
FINEST_TICK = 10
_ALL_TIME = (0, 2**63)
# How a file with metadata begins: then its version and the length of the metadata, four bytes.
_WHOLE, _PREFIX = b"DBN", 8
# Bytes of what every record begins with; its time is the second half.
_HEAD = 16
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
        head = next(self._parts(self._blocks))
        try:
            self.metadata = dbn.Metadata.decode(head) if head else None
        except dbn.DBNError as error:
            self.end(f"not readable as DBN: {error}", 0)

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
        start = b""
        parts = self._parts(self._blocks)
        next(parts)
        for part in parts:
            start += part
            if len(start) >= _HEAD:
                return int.from_bytes(start[_HEAD // 2 : _HEAD], "little")
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

    def body(self) -> Iterator[bytes]:
        """The bytes of the records in blocks; where the file ends early `cut` says why."""
        parts = self._parts(larger(self._blocks))
        next(parts)
        yield from parts

    def _parts(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The bytes of the metadata, b"" for a fragment, then those of the records in blocks."""
        start: bytes | None = b""
        for block in blocks:
            if start is None:
                yield block
                continue
            start += block
            if not start.startswith(_WHOLE[: len(start)]):
                _check_fragment(self.path)
                yield b""
                yield start
                start = None
            elif len(start) >= _PREFIX:
                head = _PREFIX + int.from_bytes(start[4:_PREFIX], "little")
                if len(start) >= head:
                    yield start[:head]
                    yield start[head:]
                    start = None
        if start is not None:
            self.end(self._blocks.cut or "truncated within a record", 0)

    @property
    def cut(self) -> str | None:
        """Why the file ended early, None where it is whole."""
        return self._blocks.cut

    def _decoded(self) -> Iterator[Any]:
        decoder = None
        try:
            for block in self._blocks:
                if decoder is None and block:
                    decoder = _decoder(self.path, block)
                if decoder is not None:
                    yield from decoder.write_and_decode(block)
        except dbn.DBNError as error:
            self.end(f"not readable as DBN: {error}", self.number)
        except BaseException as error:
            # The library panics over records that are shorter than their types.
            if type(error).__name__ != "PanicException":
                raise
            self.end("not readable as DBN: a record of another length than its type", self.number)
        if decoder is None or decoder.buffer() or self._blocks.cut:
            self.end(self._blocks.cut or "truncated within a record", self.number)

    def end(self, reason: str, number: int) -> NoReturn:
        """Raises SourceError, which says why its records end, after how many."""
        raise SourceError(
            f"{self.path}: {reason}, after record {number}; everything before it was read; "
            "get the whole file again"
        )


def _decoder(path: Place, start: bytes) -> dbn.DBNDecoder:
    whole = start.startswith(_WHOLE)
    version = None
    if not whole:
        _check_fragment(path)
    if not whole and len(start) > 1:
        version = _VERSIONS.get(4 * start[0], _LATEST) if start[1] == _DEFINITION else _LATEST
    return dbn.DBNDecoder(has_metadata=whole, input_version=version)


def _check_fragment(path: Place) -> None:
    if ".frag" not in path.name:
        raise SourceError(f"{path}: does not begin as DBN; check the path")


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


_NOT_TOLD = Terms()


@dataclass(slots=True)
class Definition:
    """What definition records state of a symbol: its tick in 1e-9, 0 where none is, and its contract.

    Where records differ, terms are those of the last.
    """

    tick: int = 0
    contract: ContractType | None = None
    terms: Terms = _NOT_TOLD


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
                definition.terms = _terms_of(record)
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


_KINDS: dict[str, Kind] = {
    "K": "share",
    "F": "future",
    "C": "option",
    "P": "option",
    "S": "spread",
    "M": "spread",
    "T": "spread",
    "X": "spot",
}


def _terms_of(record: Any) -> Terms:
    kind = _KINDS.get(str(record.instrument_class))
    whole = kind in ("share", "spot")
    expires = record.expiration != UNDEFINED_TIME and kind in ("future", "option", "spread")
    return Terms(
        kind=kind,
        settlement=record.settl_currency or None,
        multiplier=Decimal(1) if whole else _units(record.unit_of_measure_qty),
        expiry=expiry_of(record.expiration, 1) if expires else None,
        strike=_units(record.strike_price) if kind == "option" else None,
        option_type=option_type_of(str(record.instrument_class)) if kind == "option" else None,
    )


def _units(number: int) -> Decimal | None:
    """A number of 1e-9 as stated; None where none is."""
    return None if number == UNDEFINED_PRICE else amount(Decimal(number) / _ONE)
