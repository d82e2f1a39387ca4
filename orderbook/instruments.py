"""Instruments: what trades where, and the exact conversion between wire text, ticks and lots."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from orderbook.errors import DataError
from orderbook.symbols import ContractType, contract_type, normalise_symbol

__all__ = ["FIXED_POINT", "SCALE", "Instrument", "Instruments", "fixed_point", "normalise_symbol"]

# Prices and volumes of the relations bids, asks and trades are DECIMAL(18, 8).
SCALE = 8
FIXED_POINT = 10**SCALE
LARGEST = 10**18 - 1

_NOT_LINEAR = {
    "inverse": "it is an inverse contract, whose profit is in the base currency",
    "multiplier": "its volume counts contracts of another size than one",
    "unknown": "its volume counts contracts, of a size that the source does not state",
}


def fixed_point(text: str) -> int:
    """The number written in `text` times 10^8, exactly.

    Raises DataError for text that is no finite decimal number, has a non-zero digit past the eighth
    decimal place, or needs more than 18 digits.
    """
    whole, _, fraction = text.partition(".")
    digits = whole[1:] if whole.startswith("-") else whole
    plain = text.isascii() and digits.isdecimal() and (fraction.isdecimal() or not fraction)
    if plain and len(fraction) <= SCALE:
        value = int(whole + fraction.ljust(SCALE, "0"))
    else:
        value = _fixed_point_of_unusual(text)
    if abs(value) > LARGEST:
        raise DataError(f"{text} does not fit DECIMAL(18, {SCALE})")
    return value


def _fixed_point_of_unusual(text: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise DataError(f"{text!r} is not a decimal number") from None
    if not number.is_finite():
        raise DataError(f"{text!r} is not a finite number")
    if number.adjusted() >= 18 - SCALE:
        raise DataError(f"{text} does not fit DECIMAL(18, {SCALE})")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    value = int("".join(map(str, digits)))
    shift = exponent + SCALE
    if shift >= 0:
        value *= 10**shift
    else:
        # A number below 10^10 with a longer tail than this has a digit past the eighth place.
        value, rest = divmod(value, 10 ** min(-shift, len(digits) + 1))
        if rest:
            raise DataError(f"{text} has more than {SCALE} decimal places")
    return -value if sign else value


def _scale(name: str, step: Decimal) -> int:
    if not step.is_finite() or step <= 0:
        raise DataError(f"{name} must be above 0, not {step}")
    # Written out only where that is short.
    if -SCALE <= step.adjusted() < 18 - SCALE:
        with suppress(DataError):
            return fixed_point(format(step, "f"))
    raise DataError(
        f"{name} {step} is not a multiple of 1e-{SCALE} below 1e{18 - SCALE}: "
        f"rows of DECIMAL(18, {SCALE}) cannot hold it exactly"
    )


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument of one venue.

    `symbol` is the normalised name (see `normalise_symbol`), `native_symbol` the venue's own. `tick`
    is the price of one tick, `lot` the volume of one lot. `contract` is what kind of contract it is, by its
    name (see `contract_type`) unless stated. Raises DataError unless both are positive multiples of 10^-8.
    """

    venue: str
    symbol: str
    native_symbol: str
    tick: Decimal
    lot: Decimal
    contract: ContractType | None = None
    tick_scale: int = field(init=False, repr=False, compare=False)
    lot_scale: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick_scale", _scale(f"{self}: the tick", self.tick))
        object.__setattr__(self, "lot_scale", _scale(f"{self}: the lot", self.lot))
        if self.contract is None:
            object.__setattr__(self, "contract", contract_type(self.venue, self.native_symbol))

    def __str__(self) -> str:
        return f"{self.venue}:{self.symbol}"

    @property
    def not_tradable(self) -> str | None:
        """Why orders on it are refused: its profit, fees and limits would be wrong. None: they are taken."""
        if self.contract == "linear":
            return None
        return f"{self}: no orders: {_NOT_LINEAR[self.contract or 'unknown']}"

    @property
    def max_ticks(self) -> int:
        """The largest price, in ticks, that a row can hold."""
        return LARGEST // self.tick_scale

    @property
    def max_lots(self) -> int:
        """The largest volume, in lots, that a row can hold."""
        return LARGEST // self.lot_scale

    def ticks(self, text: str) -> int:
        """A price on the wire as ticks. Raises DataError for text that is not a multiple of the tick."""
        ticks, rest = divmod(fixed_point(text), self.tick_scale)
        if rest:
            raise DataError(f"{self}: price {text} is not a multiple of the tick {self.tick}")
        return ticks

    def lots(self, text: str) -> int:
        """A volume on the wire as lots. Raises DataError for text that is not a multiple of the lot."""
        lots, rest = divmod(fixed_point(text), self.lot_scale)
        if rest:
            raise DataError(f"{self}: volume {text} is not a multiple of the lot {self.lot}")
        return lots

    def price(self, ticks: int) -> Decimal:
        """The price of a number of ticks."""
        return self.tick * ticks

    def volume(self, lots: int) -> Decimal:
        """The volume of a number of lots."""
        return self.lot * lots


class Instruments:
    """The instruments of a run, immutable; the position of each is `EVENT["instrument"]`.

    Raises DataError when two of them share a venue and symbol, or a venue and native symbol.
    """

    __slots__ = ("_by_native", "_by_symbol", "_instruments")

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self._instruments = tuple(instruments)
        self._by_symbol: dict[tuple[str, str], int] = {}
        self._by_native: dict[tuple[str, str], int] = {}
        for index, instrument in enumerate(self._instruments):
            for table, name in (
                (self._by_symbol, instrument.symbol),
                (self._by_native, instrument.native_symbol),
            ):
                if table.setdefault((instrument.venue, name), index) != index:
                    raise DataError(f"{instrument.venue}:{name} is declared twice")

    def __len__(self) -> int:
        return len(self._instruments)

    def __getitem__(self, index: int) -> Instrument:
        return self._instruments[index]

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._instruments)

    def index(self, venue: str, symbol: str) -> int:
        """The index of a normalised symbol. Raises DataError when there is none."""
        return self._find(self._by_symbol, venue, symbol)

    def index_of_native(self, venue: str, native_symbol: str) -> int:
        """The index of a venue's own symbol. Raises DataError when there is none."""
        return self._find(self._by_native, venue, native_symbol)

    def _find(self, table: dict[tuple[str, str], int], venue: str, name: str) -> int:
        try:
            return table[venue, name]
        except KeyError:
            known = ", ".join(n for v, n in list(table)[:10] if v == venue) or f"nothing of {venue}"
            raise DataError(f"no instrument {venue}:{name}; known: {known}") from None
