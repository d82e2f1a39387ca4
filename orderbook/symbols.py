"""Normalised symbols: one name for the same pair on every venue."""

import re

# Venues whose symbols are tickers, not currency pairs.
EQUITY_VENUES = frozenset({"arca", "bats", "edgx", "iex", "lobster", "nasdaq", "nyse", "xnas", "xnys"})

# Quote currencies that may end a symbol written without a separator, longest first.
QUOTES = (
    "FDUSD", "USDT", "USDC", "USDS", "EURT", "EURC", "PYUSD", "RLUSD",
    "USD", "EUR", "GBP", "JPY", "AUD", "CAD", "CHF", "KRW", "TRY", "BRL", "XBT", "BTC", "ETH", "DAI",
)
# Binance has no pair quoted in plain USD, and these would otherwise read as <base><letter>-USD.
BINANCE_QUOTES = ("FDUSD", "USDT", "USDC", "TUSD", "BUSD", "USDP", "BNB", *QUOTES[8:])

ALIASES = {"XBT": "BTC", "XDG": "DOGE"}
VENUE_ALIASES = {
    "bitfinex": {
        "UST": "USDT", "UDC": "USDC", "USTF0": "USDT-PERP", "BTCF0": "BTC",
        "ALG": "ALGO", "ATO": "ATOM", "DSH": "DASH", "IOT": "IOTA", "MNA": "MANA", "QTM": "QTUM",
    },
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
    and `BTC-USDT-SWAP` of okx are `BTC-USDT-PERP`, `BTCPERP.P` is `BTC-USDC-PERP`. A symbol that ends in
    no known quote currency stays as it is, in capitals.
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


def _without_perpetual(venue: str, native: str) -> tuple[str, tuple[str, ...]]:
    """What of a symbol names the pair, and ("PERP",) where it is a perpetual's."""
    if venue == "binance_futures" and "_" not in native:
        return native, ("PERP",)
    if venue == "bybit" and native.endswith(".P"):
        pair = native.removesuffix(".P")
        return (pair.removesuffix("PERP") + "USDC" if pair.endswith("PERP") else pair), ("PERP",)
    if venue == "okx" and native.endswith("-SWAP"):
        return native.removesuffix("-SWAP"), ("PERP",)
    return native, ()


def _split_pair(text: str, quotes: tuple[str, ...]) -> tuple[str, ...]:
    for quote in quotes:
        if text.endswith(quote) and len(text) - len(quote) >= _SHORTEST_BASE:
            return text[: -len(quote)], quote
    return (text,)
