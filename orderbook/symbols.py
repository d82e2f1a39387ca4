"""Symbols: one name for the same pair on every venue, and what a venue's own name says of the contract."""

import re
from typing import Literal

# "linear": a volume times a price is an amount of the quote currency, as of spot, shares and USD-margined
# perpetuals. "inverse": contracts of an amount of the quote currency, settled in the base. "multiplier":
# contracts of another size than one unit of the base. "unknown": of a venue of contracts that states neither.
ContractType = Literal["linear", "inverse", "multiplier", "unknown"]

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
    if venue == "okx" and native.endswith("-SWAP"):
        return native.removesuffix("-SWAP"), ("PERP",)
    return native, ()


def _split_pair(text: str, quotes: tuple[str, ...]) -> tuple[str, ...]:
    for quote in quotes:
        if text.endswith(quote) and len(text) - len(quote) >= _SHORTEST_BASE:
            return text[: -len(quote)], quote
    return (text,)
