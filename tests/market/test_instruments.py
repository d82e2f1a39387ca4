"""Instruments, symbols, exact conversions and the string dictionary."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError
from orderbook.market.instruments import Instrument, Instruments, fixed_point, normalise_symbol


@pytest.mark.parametrize(
    ("venue", "native", "symbol"),
    [
        ("kraken", "XBT/USD", "BTC-USD"),
        ("kraken", "XXBTZUSD", "BTC-USD"),
        ("kraken", "XDG/EUR", "DOGE-EUR"),
        ("kraken", "BTC/USD", "BTC-USD"),
        ("kraken", "STETH/DOT", "STETH-DOT"),
        ("bitstamp", "btcusd", "BTC-USD"),
        ("bitfinex", "tBTCUSD", "BTC-USD"),
        ("bitfinex", "tBTCF0:USTF0", "BTC-USDT-PERP"),
        ("bitfinex", "tETHUST", "ETH-USDT"),
        ("bitfinex", "tIOTETH", "IOTA-ETH"),
        ("bitfinex", "tAVAX:USD", "AVAX-USD"),
        ("bitfinex", "tTESTBTC:TESTUSD", "TESTBTC-TESTUSD"),
        ("bitstamp", "usdtusd", "USDT-USD"),
        ("bitstamp", "batbtc", "BAT-BTC"),
        ("coinbase", "BTC-USD", "BTC-USD"),
        ("binance", "BTCUSDT", "BTC-USDT"),
        ("binance", "BNBBUSD", "BNB-BUSD"),
        ("binance_futures", "BTCUSDT_240927", "BTC-USDT-240927"),
        ("binance_futures", "BTCUSDT", "BTC-USDT-PERP"),
        ("bybit", "BTCUSDT", "BTC-USDT"),
        ("bybit", "BTCUSDT.P", "BTC-USDT-PERP"),
        ("bybit", "BTCPERP.P", "BTC-USDC-PERP"),
        ("okx", "BTC-USDT-SWAP", "BTC-USDT-PERP"),
        ("hyperliquid", "BTC", "BTC-USDC-PERP"),
        ("hyperliquid", "kPEPE", "KPEPE-USDC-PERP"),
        ("hyperliquid", "PURR/USDC", "PURR-USDC"),
        ("hyperliquid", "@107", "@107"),
        ("okx", "BTC-USD-220527", "BTC-USD-220527"),
        ("okx", "STETH-OKB", "STETH-OKB"),
        ("gemini", "FETUSD", "FET-USD"),
        ("gemini", "USDTUSD", "USDT-USD"),
        ("poloniex", "BTC_USDT", "BTC-USDT"),
        ("lobster", "AMZN", "AMZN"),
        ("nasdaq", "GBTC", "GBTC"),
        ("somewhere", "amzn", "AMZN"),
    ],
)
def test_symbols_are_normalised(venue: str, native: str, symbol: str) -> None:
    assert normalise_symbol(venue, native) == symbol


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 8), st.booleans())
def test_fixed_point_reads_what_decimal_writes(value: int, dropped: int, scientific: bool) -> None:
    value = int(Decimal(value).scaleb(-dropped)) * 10**dropped
    number = Decimal(value).scaleb(-8)
    assert fixed_point(format(number, "e" if scientific else "f")) == value
    assert fixed_point(format(number.normalize(), "f")) == value


@given(st.text("0123456789.+-eE_ N٣", max_size=12) | st.decimals().map(str))
def test_fixed_point_agrees_with_decimal_or_refuses(text: str) -> None:
    try:
        value = fixed_point(text)
    except DataError:
        return
    assert Decimal(value).scaleb(-8) == Decimal(text)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "1.2.3", "NaN", "inf", "0.000000001", "1e-9", "10000000000", "1e10", "1e999999", "1,5"],
)
def test_fixed_point_refuses(text: str) -> None:
    with pytest.raises(DataError):
        fixed_point(text)


@pytest.mark.parametrize(("text", "value"), [("1.50000000000", 150000000), ("5.", 500000000), ("0E-12", 0)])
def test_fixed_point_accepts_zeros_past_the_last_place(text: str, value: int) -> None:
    assert fixed_point(text) == value


AMZN = Instrument("nasdaq", "AMZN", "AMZN", Decimal("0.01"), Decimal(1))
BTC = Instrument("kraken", "BTC-USD", "XBT/USD", Decimal("0.5"), Decimal("0.0001"))


def test_wire_text_becomes_ticks_and_lots_exactly() -> None:
    assert AMZN.ticks("223.95") == 22395
    assert AMZN.ticks("223.9500") == 22395
    assert BTC.ticks("62001.50000") == 124003
    assert BTC.lots("0.0003") == 3
    assert BTC.price(124003) == Decimal("62001.5")
    assert BTC.volume(3) == Decimal("0.0003")
    assert (AMZN.tick_scale, AMZN.lot_scale) == (10**6, 10**8)
    assert (BTC.tick_scale, BTC.lot_scale) == (5 * 10**7, 10**4)
    assert AMZN.max_lots == 9_999_999_999


@pytest.mark.parametrize("text", ["223.955", "0.001"])
def test_text_between_ticks_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"nasdaq:AMZN: price .* is not a multiple of the tick 0\.01"):
        AMZN.ticks(text)


def test_text_between_lots_is_refused() -> None:
    with pytest.raises(DataError, match=r"kraken:BTC-USD: volume .* is not a multiple of the lot 0\.0001"):
        BTC.lots("0.00015")


@pytest.mark.parametrize("step", ["0", "-1", "0.000000001", "0.000000015", "NaN", "Infinity", "10000000000"])
def test_instruments_refuse_steps_a_row_cannot_hold(step: str) -> None:
    with pytest.raises(DataError, match="x:Y: the tick"):
        Instrument("x", "Y", "Y", Decimal(step), Decimal(1))
    with pytest.raises(DataError, match="x:Y: the lot"):
        Instrument("x", "Y", "Y", Decimal(1), Decimal(step))


def test_the_table_finds_instruments_and_refuses_doubles() -> None:
    table = Instruments([AMZN, BTC])
    assert (len(table), table[1], list(table)) == (2, BTC, [AMZN, BTC])
    assert table.index("kraken", "BTC-USD") == 1
    with pytest.raises(DataError, match="no instrument kraken:ETH-USD; known: BTC-USD"):
        table.index("kraken", "ETH-USD")
    with pytest.raises(DataError, match="kraken:BTC-USD is declared twice"):
        Instruments([BTC, Instrument("kraken", "BTC-USD", "XXBTZUSD", Decimal(1), Decimal(1))])


@given(st.lists(st.text(max_size=3)))
def test_the_dictionary_maps_strings_both_ways(strings: list[str]) -> None:
    dictionary = Dictionary()
    codes = [dictionary.encode(s) for s in strings]
    assert sorted(set(codes)) == list(range(len(set(strings)))) == list(range(len(dictionary)))
    assert [dictionary.decode(c) for c in codes] == strings
    assert dictionary.encode_all(strings).tolist() == codes
    assert dictionary.decode_all(dictionary.encode_all(strings)) == strings
    with pytest.raises(DataError):
        dictionary.decode(len(dictionary))
    with pytest.raises(DataError):
        dictionary.decode(-1)
