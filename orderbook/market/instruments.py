"""Instruments: what trades where, and the exact conversion between wire text, ticks and lots.

Symbols are one name for the same pair on every venue; a venue's own name says what kind of contract it is.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

from orderbook.core.errors import DataError
from orderbook.market.contract_terms import Terms

# "linear": a volume times a price is an amount of the quote currency, as of spot, shares and USD-margined
# perpetuals. "inverse": contracts of an amount of the quote currency, settled in the base. "multiplier":
# contracts of another size than one unit of the base. "unknown": of a venue of contracts that states neither.
ContractType = Literal["linear", "inverse", "multiplier", "unknown"]

# Venues whose symbols are tickers, not currency pairs.
EQUITY_VENUES = frozenset({"arca", "bats", "edgx", "iex", "lobster", "nasdaq", "nyse", "xnas", "xnys"})

# Quote currencies that may end a symbol written without a separator, longest first.
QUOTES = (
    "FDUSD",
    "USDT",
    "USDC",
    "USDS",
    "EURT",
    "EURC",
    "PYUSD",
    "RLUSD",
    "USD",
    "EUR",
    "GBP",
    "JPY",
    "AUD",
    "CAD",
    "CHF",
    "KRW",
    "TRY",
    "BRL",
    "XBT",
    "BTC",
    "ETH",
    "DAI",
)
# Binance has no pair quoted in plain USD, and these would otherwise read as <base><letter>-USD.
BINANCE_QUOTES = ("FDUSD", "USDT", "USDC", "TUSD", "BUSD", "USDP", "BNB", *QUOTES[8:])

ALIASES = {"XBT": "BTC", "XDG": "DOGE"}
VENUE_ALIASES = {
    "bitfinex": {
        "UST": "USDT",
        "UDC": "USDC",
        "USTF0": "USDT-PERP",
        "BTCF0": "BTC",
        "ALG": "ALGO",
        "ATO": "ATOM",
        "DSH": "DASH",
        "IOT": "IOTA",
        "MNA": "MANA",
        "QTM": "QTUM",
    },
}

# Venues of futures, options and swaps whose volumes count contracts: data vendors name them so.
CONTRACT_VENUES = frozenset({
    "binance_options", "bitget_futures", "bitmex", "bitnomial", "bybit_options", "crypto_com_derivatives",
    "cryptofacilities", "deribit", "delta", "gate_io_futures", "glbx", "huobi_dm", "huobi_dm_linear_swap",
    "huobi_dm_options", "huobi_dm_swap", "ifeu", "ifll", "ifus", "kraken_futures", "kucoin_futures", "ndex",
    "okcoin_futures", "okx_futures", "okx_options", "okx_spreads", "okx_swap", "opra", "phemex", "xcbf",
    "xeee", "xeur",
})  # fmt: skip
# Coin-margined contracts by their names: quoted in USD where the venue's others are quoted in stablecoins.
_INVERSE = {
    "binance_futures": re.compile(r"[A-Z0-9]+USD_(PERP|\d{6})"),
    "binance_delivery": re.compile(r".*"),
    "bybit": re.compile(r"[A-Z0-9]+USD([FGHJKMNQUVXZ]\d\d)?(\.P)?"),
    "cryptofacilities": re.compile(r"[PF]I_.*"),
    "deribit": re.compile(r"(BTC|ETH)-(PERPETUAL|\d{1,2}[A-Z]{3}\d\d)"),
    "huobi_dm": re.compile(r".*"),
    "huobi_dm_swap": re.compile(r".*"),
    "kraken_futures": re.compile(r"[PF]I_.*"),
    "bitmex": re.compile(r"XBTUSD|XBT[FGHJKMNQUVXZ]\d\d"),
    "okx": re.compile(r"[A-Z0-9]+-USD-(SWAP|\d{6})"),
    "okx_swap": re.compile(r"[A-Z0-9]+-USD-SWAP"),
    "okx_futures": re.compile(r"[A-Z0-9]+-USD-\d{6}"),
}
_KRAKEN_LEGACY = re.compile(r"[XZ]([A-Z]{3})[XZ]([A-Z]{3})")
_BITFINEX_TRADING = re.compile(r"t[A-Z0-9:]+")
_SEPARATORS = re.compile(r"[-/_:]")
# A shorter base would cut tickers such as GBTC in two.
_SHORTEST_BASE = 2


def normalise_symbol(venue: str, native: str) -> str:
    """The normalised symbol of a venue's own: `BASE-QUOTE`, or the ticker itself for equities.

    `XBT/USD`, `BTCUSD` and `tBTCUSD` are `BTC-USD`; `BTCUSDT` is `BTC-USDT`; what follows the pair
    stays (`BTC-USD-220527`). Perpetuals are told apart: `BTCUSDT` of binance_futures, `BTCUSDT.P` of bybit
    and `BTC-USDT-SWAP` of okx are `BTC-USDT-PERP`; `BTCPERP.P` of bybit and `BTC` of hyperliquid are
    `BTC-USDC-PERP`. A symbol that ends in no known quote currency stays as it is, in capitals.
    """
    venue = venue.lower()
    if venue in EQUITY_VENUES:
        return native.upper()
    if venue.startswith("bitfinex") and _BITFINEX_TRADING.fullmatch(native):
        native = native[1:]
    native = native.upper()
    if venue.startswith("kraken") and (legacy := _KRAKEN_LEGACY.fullmatch(native)):
        native = "-".join(legacy.groups())
    native, suffix = _without_perpetual(venue, native)
    aliases = ALIASES | VENUE_ALIASES.get(venue, {})
    quotes: tuple[str, ...] = BINANCE_QUOTES if venue in ("binance", "binance_futures") else QUOTES
    quotes += tuple(alias for alias in aliases if alias not in quotes)
    first, *rest = _SEPARATORS.split(native)
    parted = venue == "okx" or ":" in native or "/" in native or (rest and rest[0] in quotes)
    pair = (first,) if parted else _split_pair(first, quotes)
    return "-".join(aliases.get(part, part) for part in (*pair, *rest, *suffix))


def contract_type(venue: str, native: str) -> ContractType:
    """What kind of contract a venue's own symbol names, where nothing else states it.

    Sources: the venues' documentation of contract specifications (Binance COIN-M Futures, Bybit inverse
    contracts, OKX swaps and futures, BitMEX, Deribit, Kraken Futures), Databento's datasets.
    """
    venue, native = venue.lower(), native.upper()
    inverse = _INVERSE.get(venue)
    if inverse is not None and inverse.fullmatch(native):
        return "inverse"
    dated_or_swap = venue == "okx" and native.count("-") > 1
    return "unknown" if dated_or_swap or venue in CONTRACT_VENUES else "linear"


def _without_perpetual(venue: str, native: str) -> tuple[str, tuple[str, ...]]:
    """What of a symbol names the pair, and ("PERP",) where it is a perpetual's."""
    if venue == "binance_futures" and "_" not in native:
        return native, ("PERP",)
    if venue == "bybit" and native.endswith(".P"):
        pair = native.removesuffix(".P")
        return (pair.removesuffix("PERP") + "USDC" if pair.endswith("PERP") else pair), ("PERP",)
    if venue == "hyperliquid" and not _SEPARATORS.search(native) and not native.startswith("@"):
        return f"{native}-USDC", ("PERP",)
    if venue == "okx" and native.endswith("-SWAP"):
        return native.removesuffix("-SWAP"), ("PERP",)
    return native, ()


def _split_pair(text: str, quotes: tuple[str, ...]) -> tuple[str, ...]:
    for quote in quotes:
        if text.endswith(quote) and len(text) - len(quote) >= _SHORTEST_BASE:
            return text[: -len(quote)], quote
    return (text,)


# Prices and volumes of the relations bids, asks and trades are DECIMAL(18, 8).
SCALE = 8
FIXED_POINT: int = 10**SCALE
LARGEST = 10**18 - 1
# The finest unit that a row can hold, in which books of exchanges are kept.
FINEST = Decimal(1).scaleb(-SCALE)

_NO_SIZE = {
    "inverse": "it is an inverse contract, of an amount that the source does not state",
    "multiplier": "its volume counts contracts of another size than one, which the source does not state",
    "unknown": "its volume counts contracts, of a size that the source does not state",
}
# Amounts of the quote currency that inverse contracts are of, where the source has no reference data: of BTC,
# and of others. Sources: the venues' contract specifications.
_INVERSE_SIZES = {
    "binance_futures": (Decimal(100), Decimal(10)),
    "binance_delivery": (Decimal(100), Decimal(10)),
    "okx": (Decimal(100), Decimal(10)),
    "okx_swap": (Decimal(100), Decimal(10)),
    "okx_futures": (Decimal(100), Decimal(10)),
    "bybit": (Decimal(1), Decimal(1)),
    "deribit": (Decimal(1), Decimal(1)),
    "bitmex": (Decimal(1), Decimal(1)),
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
        # Decimal takes 1_000, which no exchange writes.
        number = Decimal(text if "_" not in text else "")
    except InvalidOperation:
        raise DataError(f"{text!r} is not a decimal number") from None
    if not number.is_finite():
        raise DataError(f"{text!r} is not a finite number")
    if number.adjusted() >= 18 - SCALE:
        raise DataError(f"{text} does not fit DECIMAL(18, {SCALE})")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    value: int = int("".join(map(str, digits)))
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


def _steps(units: int, step: int) -> int | float:
    return units / step if units % step else units // step


# Stands for a unit that is not given.
_LIKE_STEP = Decimal(0)
_NOT_TOLD = Terms()


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument of one venue.

    `symbol` is the normalised name (see `normalise_symbol`), `native_symbol` the venue's own. `tick` and
    `lot` are the steps in which orders may be sent now; the exchange may change them, so that equal
    instruments may differ in them. Events and books count prices and volumes ("ticks" and "lots" there) in
    `price_unit` and `volume_unit`, which never change: where an exchange has levels off its own tick or lot,
    they are held as they are. Without units these are tick and lot. `contract` is what kind of contract it
    is, by its name (see `contract_type`) unless stated; `terms` are what else its venue lists.

    Raises DataError unless all are positive multiples of 10^-8, and tick and lot multiples of their units.
    """

    venue: str
    symbol: str
    native_symbol: str
    tick: Decimal = field(compare=False)
    lot: Decimal = field(compare=False)
    price_unit: Decimal = field(default=_LIKE_STEP, repr=False)
    volume_unit: Decimal = field(default=_LIKE_STEP, repr=False)
    contract: ContractType | None = None
    terms: Terms = field(default=_NOT_TOLD, repr=False, compare=False)
    tick_scale: int = field(init=False, repr=False, compare=False)
    lot_scale: int = field(init=False, repr=False, compare=False)
    tick_units: int = field(init=False, repr=False, compare=False)
    lot_units: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for step, unit in (("tick", "price_unit"), ("lot", "volume_unit")):
            own = getattr(self, step)
            whole = _scale(f"{self}: the {step}", own)
            if getattr(self, unit) == _LIKE_STEP:
                object.__setattr__(self, unit, own)
            scale = _scale(f"{self}: the {unit}", getattr(self, unit))
            if whole % scale:
                raise DataError(f"{self}: the {step} {own} is not a multiple of {getattr(self, unit)}")
            object.__setattr__(self, f"{step}_scale", scale)
            object.__setattr__(self, f"{step}_units", whole // scale)
        if self.contract is None:
            object.__setattr__(self, "contract", contract_type(self.venue, self.native_symbol))

    @classmethod
    def listed(
        cls,
        venue: str,
        native_symbol: str,
        tick: Decimal,
        lot: Decimal,
        names: str | None = None,
        contract: ContractType | None = None,
        terms: Terms = _NOT_TOLD,
    ) -> "Instrument":
        """An instrument as its exchange lists it: held as finely as rows can.

        names: the venue whose way of naming products it has, if not its own. Raises DataError.
        """
        symbol = normalise_symbol(names or venue, native_symbol)
        return cls(venue, symbol, native_symbol, tick, lot, FINEST, FINEST, contract, terms)

    def with_steps(self, tick: Decimal, lot: Decimal) -> "Instrument":
        """The instrument with another tick and lot. Raises DataError where its units cannot tell them."""
        return replace(self, tick=tick, lot=lot)

    def __str__(self) -> str:
        return f"{self.venue}:{self.symbol}"

    @property
    def not_tradable(self) -> str | None:
        """Why orders on it are refused: its profit, fees and limits would be wrong. None: they are taken."""
        if self.known_size is not None:
            return None
        return f"{self}: no orders: {_NO_SIZE[self.contract or 'unknown']}"

    @property
    def known_size(self) -> Decimal | None:
        """What one of the volumes is: of the base, of an inverse contract of the quote currency; None where
        that is not known."""
        if self.contract == "linear":
            return Decimal(1)
        if self.terms.multiplier is not None:
            return self.terms.multiplier
        if self.contract == "inverse" and self.venue in _INVERSE_SIZES:
            return _INVERSE_SIZES[self.venue][0 if self.symbol.startswith("BTC-") else 1]
        return None

    @property
    def size(self) -> Decimal:
        """As `known_size`; 1 where that is not known, so that orders are refused."""
        known = self.known_size
        return Decimal(1) if known is None else known

    @property
    def max_ticks(self) -> int:
        """The largest price, in price units, that a row can hold."""
        return LARGEST // self.tick_scale

    @property
    def max_lots(self) -> int:
        """The largest volume, in volume units, that a row can hold."""
        return LARGEST // self.lot_scale

    def ticks(self, text: str) -> int:
        """A price on the wire in price units. Raises DataError for text that is not a multiple of them."""
        ticks, rest = divmod(fixed_point(text), self.tick_scale)
        if rest:
            raise DataError(f"{self}: price {text} is not a multiple of the tick {self.price_unit}")
        return ticks

    def lots(self, text: str) -> int:
        """A volume on the wire in volume units. Raises DataError for text that is not a multiple of them."""
        lots, rest = divmod(fixed_point(text), self.lot_scale)
        if rest:
            raise DataError(f"{self}: volume {text} is not a multiple of the lot {self.volume_unit}")
        return lots

    def check_price(self, text: str) -> int:
        """A price of an order, in price units. Raises DataError where the exchange would not take it."""
        ticks, rest = divmod(fixed_point(text), self.tick_scale * self.tick_units)
        if rest:
            raise DataError(f"{self}: price {text} is not a multiple of the tick {self.tick}")
        return ticks * self.tick_units

    def check_volume(self, text: str) -> int:
        """A volume of an order, in volume units. Raises DataError where the exchange would not take it."""
        lots, rest = divmod(fixed_point(text), self.lot_scale * self.lot_units)
        if rest:
            raise DataError(f"{self}: volume {text} is not a multiple of the lot {self.lot}")
        return lots * self.lot_units

    def in_steps(self, ticks: int, lots: int) -> tuple[int | float, int | float]:
        """A price and a volume in units as multiples of tick and lot, fractions where they are off them."""
        return _steps(ticks, self.tick_units), _steps(lots, self.lot_units)

    def price(self, ticks: int) -> Decimal:
        """The price of a number of price units."""
        return self.price_unit * ticks

    def volume(self, lots: int) -> Decimal:
        """The volume of a number of volume units."""
        return self.volume_unit * lots


class Instruments:
    """The instruments of a run; the position of each is `EVENT["instrument"]`. Steps and terms may change.

    Raises DataError when two of them share a venue and symbol, or a venue and native symbol.
    """

    __slots__ = ("_by_symbol", "_instruments")

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self._instruments = list(instruments)
        self._by_symbol: dict[tuple[str, str], int] = {}
        by_native: dict[tuple[str, str], int] = {}
        for index, instrument in enumerate(self._instruments):
            for table, name in (
                (self._by_symbol, instrument.symbol),
                (by_native, instrument.native_symbol),
            ):
                if table.setdefault((instrument.venue, name), index) != index:
                    raise DataError(f"{instrument.venue}:{name} is declared twice")

    def __len__(self) -> int:
        return len(self._instruments)

    def __getitem__(self, index: int) -> Instrument:
        return self._instruments[index]

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._instruments)

    def adopt(self, instruments: Iterable[Instrument]) -> None:
        """Ticks, lots and terms are those of these, as far as they are instruments of the run."""
        for one in instruments:
            index = self._by_symbol.get((one.venue, one.symbol))
            if index is not None and self._instruments[index] == one:
                self._instruments[index] = one

    def change(self, index: int, tick_units: int, lot_units: int) -> bool:
        """An instrument has another tick and lot, both given in its units; False where it cannot have."""
        if not (0 <= index < len(self) and 0 < tick_units <= LARGEST and 0 < lot_units <= LARGEST):
            return False
        one = self._instruments[index]
        with suppress(DataError):
            self._instruments[index] = one.with_steps(one.price(tick_units), one.volume(lot_units))
            return True
        return False

    def index(self, venue: str, symbol: str) -> int:
        """The index of a normalised symbol. Raises DataError when there is none."""
        try:
            return self._by_symbol[venue, symbol]
        except KeyError:
            known = ", ".join(n for v, n in list(self._by_symbol)[:10] if v == venue) or f"nothing of {venue}"
            raise DataError(f"no instrument {venue}:{symbol}; known: {known}") from None
