"""Tardis' derivative_ticker, liquidations and options_chain: the documented layout, against plain code."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.contract_values import RATE_PLACES, rounded
from orderbook.feeds.files.tardis import TardisSource, open_tardis
from orderbook.feeds.files.tardis_text import NOTHING, Kind, Status, read_rows
from orderbook.market.contract_terms import Terms
from orderbook.market.events import Action, Flag, Side

START = 1_700_000_000_000_000
NAMES = "exchange,symbol,timestamp,local_timestamp"
TICKER = (
    f"{NAMES},funding_timestamp,funding_rate,predicted_funding_rate,open_interest,last_price,index_price,"
    "mark_price"
)
CLOSED = f"{NAMES},id,side,price,amount"
CHAIN = (
    f"{NAMES},type,strike_price,expiration,open_interest,last_price,bid_price,bid_amount,bid_iv,ask_price,"
    "ask_amount,ask_iv,mark_price,mark_iv,underlying_index,underlying_price,delta,gamma,vega,theta,rho"
)
Told = list[tuple[int, ...]]


def write(path: Path, header: str, rows: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in (header, *rows)))
    return path


def told(source: TardisSource, *actions: Action) -> Told:
    """(time in µs, instrument, action, side, price, volume, order_id) of events."""
    events = np.concatenate(list(source))
    assert events["flags"][-1] & Flag.LAST
    fields = ("instrument", "action", "side", "price", "volume", "order_id")
    return [
        (int(event["receive_time"]) // 1000, *(int(event[name]) for name in fields))
        for event in events
        if not actions or event["action"] in actions
    ]


class Tickers:
    """Rows of derivative_ticker, and what changes from row to row."""

    def __init__(self, seed: int, symbols: Sequence[str]) -> None:
        self.chance, self.symbols = Random(seed), symbols
        self.rows: list[str] = []
        self.events: Told = []
        self.last: dict[str, dict[Action, tuple[int, ...]]] = {symbol: {} for symbol in symbols}

    def number(self, places: int) -> str:
        text = f"{Decimal(self.chance.randrange(1, 10**6)).scaleb(-places):f}"
        return self.chance.choice(("", text, text, text))

    def generate(self, count: int) -> "Tickers":
        values = {symbol: [""] * 7 for symbol in self.symbols}
        for row in range(count):
            symbol, time = self.chance.choice(self.symbols), START + 10 * row
            own = values[symbol]
            for place in self.chance.sample(range(7), self.chance.randrange(4)):
                own[place] = self.number(self.chance.choice((2, 8, 10, 16)))
                if place == 0:
                    own[place] = self.chance.choice(("", str(START + 8 * 3_600_000_000)))
            self.rows.append(f"deribit,{symbol},{time - 55},{time},{','.join(own)}")
            self.note(time, symbol, own)
        return self

    def note(self, time: int, symbol: str, row: Sequence[str]) -> None:
        paid, rate, _, interest, _, index, mark = row
        made: dict[Action, tuple[int, ...]] = {}
        if mark:
            made[Action.MARK] = (Side.NONE, rounded(mark), rounded(index) if index else 0, 0)
        if rate:
            made[Action.FUNDING] = (Side.NONE, rounded(rate, RATE_PLACES), 0, int(paid or 0) * 1000)
        if interest:
            made[Action.OPEN_INTEREST] = (Side.NONE, 0, rounded(interest), 0)
        for action, values in made.items():
            if self.last[symbol].get(action) != values:
                self.last[symbol][action] = values
                self.events.append((time, self.symbols.index(symbol), int(action), *map(int, values)))


def in_order(event: tuple[int, ...]) -> tuple[bool | int, ...]:
    """As a row's events are written."""
    return event[0], event[2] != Action.MARK, event[2]


@examples(25)
@given(st.integers(0, 10**6), st.integers(1, 2))
def test_tickers_are_what_changes(tmp_path_factory: pytest.TempPathFactory, seed: int, symbols: int) -> None:
    made = Tickers(seed, ("BTC-PERPETUAL", "ETH-PERPETUAL")[:symbols]).generate(80)
    made.symbols = list(dict.fromkeys(row.split(",")[1] for row in made.rows))
    path = write(tmp_path_factory.mktemp("tardis") / "x.csv", TICKER, made.rows)
    found = sorted(told(open_tardis(str(path))), key=in_order)
    order = ("BTC-PERPETUAL", "ETH-PERPETUAL")
    expected = [(t, made.symbols.index(order[i]), *rest) for t, i, *rest in made.events]
    assert found == sorted(expected, key=in_order)


def test_a_documented_ticker(tmp_path: Path) -> None:
    rows = [
        "bitmex,XBTUSD,1580515202348000,1580515202497335,1580529600000000,0.0001,,1000000,9364.5,9365.1,9364.86",
        "bitmex,XBTUSD,1580515202448000,1580515202597335,1580529600000000,0.0001,,1000000,9365,9365.1,9364.86",
        "bitmex,XBTUSD,1580515203348000,1580515203497335,,-0.00004405208333333333,,,9364.5,,9364.86",
    ]
    source = open_tardis(str(write(tmp_path / "bitmex_derivative_ticker.csv", TICKER, rows)))
    events = np.concatenate(list(source))
    assert [int(event["action"]) for event in events] == [
        Action.MARK, Action.FUNDING, Action.OPEN_INTEREST, Action.MARK, Action.FUNDING]  # fmt: skip
    assert events["price"].tolist() == [936486000000, 10**8, 0, 936486000000, -44052083]
    assert events["volume"].tolist() == [936510000000, 0, 10**14, 0, 0]
    assert events["order_id"].tolist() == [0, 1580529600000000000, 0, 0, 0]
    assert events["flags"].tolist() == [0, 0, 1, 0, 1]
    assert events["exchange_time"].tolist() == [1580515202348000000] * 3 + [1580515203348000000] * 2
    assert not source.problems.counts


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,A,1,2,,oops,,1,1,1,1", "not a number"),
        ("x,A,1,2,,,,-1,1,1,1", "negative"),
        ("x,A,1,2,soon,0.1,,1,1,1,1", "microseconds"),
        ("x,A,1,2,,1e9,,1,1,1,1", "does not fit"),
        ("x,A,1,2,,1", "columns"),
    ],
)
def test_a_ticker_that_cannot_be_used(tmp_path: Path, row: str, reason: str) -> None:
    rows = ["x,A,0,1,,,,5,,,", row, "x,A,2,3,,,,6,,,"]
    source = open_tardis(str(write(tmp_path / "x.csv", TICKER, rows)))
    assert [event[5] for event in told(source)] == [5 * 10**8, 6 * 10**8]
    ((kind, count),) = source.problems.counts.items()
    assert reason in kind and count == 1


@pytest.mark.parametrize("name", ["deribit_liquidations_2021-12-01_X.csv", "trades/liquidations/01/X.csv"])
def test_liquidations(tmp_path: Path, name: str) -> None:
    rows = [
        "deribit,X,10,20,7,buy,9300.5,30",
        "deribit,X,11,20,8,sell,9300,20",
        "deribit,X,12,21,,unknown,9300,1",
    ]
    source = open_tardis(str(write(tmp_path / name, CLOSED, rows)))
    assert told(source) == [
        (20, 0, Action.LIQUIDATION, Side.BID, 930050000000, 30 * 10**8, 7),
        (20, 0, Action.LIQUIDATION, Side.ASK, 930000000000, 20 * 10**8, 8),
        (21, 0, Action.LIQUIDATION, Side.NONE, 930000000000, 10**8, 0),
    ]
    trades = open_tardis(str(write(tmp_path / "liquidations" / "trades" / "X.csv", CLOSED, rows)))
    assert {event[2] for event in told(trades)} == {Action.TRADE}


def option(time: int, symbol: str, mark: str, interest: str, bid: str = "0.01", ask: str = "0.02") -> str:
    kind, strike = ("put" if symbol.endswith("P") else "call"), symbol.split("-")[2]
    quotes = f"{bid},10,50.1,{ask},11,52.2"
    return (
        f"deribit,{symbol},{time},{time + 5},{kind},{strike},1593158400000000,{interest},0.0164,{quotes},"
        f"{mark},51.2,SYN.BTC-26JUN20,9350.1,0.5,0.0001,12.1,-4.5,3.2"
    )


def test_a_chain_of_options(tmp_path: Path) -> None:
    put, call = "BTC-26JUN20-9000-P", "BTC-26JUN20-9500-C"
    rows = [
        option(10, put, "0.016483749999", "100.1"),
        option(11, call, "", ""),
        option(20, put, "0.016483749999", "100.1", bid="0.011"),
        option(30, put, "0.017", "100.1"),
        option(40, call, "0.5", "0"),
    ]
    source = open_tardis(str(write(tmp_path / "OPTIONS.csv", CHAIN, rows)))
    assert [one.native_symbol for one in source.instruments] == [put, call]
    expiry = 1593158400 * 10**9
    assert [one.terms for one in source.instruments] == [
        Terms(kind="option", option_type="put", strike=Decimal(9000), expiry=expiry),
        Terms(kind="option", option_type="call", strike=Decimal(9500), expiry=expiry),
    ]
    assert told(source, Action.MARK, Action.OPEN_INTEREST) == [
        (15, 0, Action.MARK, Side.NONE, 1648375, 0, 0),
        (15, 0, Action.OPEN_INTEREST, Side.NONE, 0, 10010000000, 0),
        (35, 0, Action.MARK, Side.NONE, 1700000, 0, 0),
        (45, 1, Action.MARK, Side.NONE, 50000000, 0, 0),
        (45, 1, Action.OPEN_INTEREST, Side.NONE, 0, 0, 0),
    ]
    # Their best quotes are books of one level, as those of quotes are.
    levels = told(source, Action.LEVEL)
    assert [event[:2] for event in levels] == [(15, 0)] * 2 + [(16, 1)] * 2 + [(25, 0)] * 2 + [(35, 0)] * 2
    header = f"{NAMES},ask_amount,ask_price,bid_price,bid_amount"
    write(tmp_path / "q.csv", header, [f"deribit,{put},1,2,1,1,1,1"])
    with pytest.raises(SourceError, match="both tell the book"):
        open_tardis(str(tmp_path / "*.csv"))


def test_types_are_merged_by_time(tmp_path: Path) -> None:
    book = f"{NAMES},is_snapshot,side,price,amount"
    write(tmp_path / "a_book.csv", book, ["x,A,1,10,true,bid,100,1", "x,A,2,30,false,bid,100,2"])
    write(tmp_path / "b_ticker.csv", TICKER, ["x,A,1,20,,,,5,,,", "x,A,1,40,,,,6,,,"])
    write(tmp_path / "c_liquidations.csv", CLOSED, ["x,A,1,25,,sell,99.5,3"])
    source = open_tardis(str(tmp_path / "*.csv"))
    assert [(event[0], event[2]) for event in told(source)] == [
        (10, Action.CLEAR), (10, Action.LEVEL), (10, Action.STATE), (20, Action.OPEN_INTEREST),
        (25, Action.LIQUIDATION), (30, Action.LEVEL), (40, Action.OPEN_INTEREST)]  # fmt: skip


numbers = st.from_regex(r"[+-]?[0-9]{0,22}\.?[0-9]{0,22}([eE][+-]?[0-9]{1,2})?", fullmatch=True)
TIES = [
    "0.0000000005",
    "0.000000005",
    "0.000000015",
    "0.0000000150000000000000000001",
    "1234567890.123456785",
    "5e-9",
    "15e-9",
    "5e-10",
    "9999999999.999999995",
    "9999999999.999999994999",
    "-0.000000025",
    "0e99",
    "123456789012345678e-18",
    "1e-30",
    "1234567890123456789012e-15",
    "999999.9999999999995",
]


@examples(300)
@given(texts=st.lists(numbers | st.text("0123456789.eE+-x", max_size=12), min_size=1, max_size=20))
@example(TIES)
def test_computed_numbers_are_rounded_half_to_even(texts: list[str]) -> None:
    block = "".join(f"{text},{text}\n" for text in texts if text).encode()
    count = sum(map(bool, texts))
    shape: Any = (count, 2)
    for kind, places in ((Kind.COMPUTED, 8), (Kind.RATE, RATE_PLACES)):
        values, status = np.zeros(shape, np.int64), np.zeros(count, np.uint8)
        hashes = np.zeros(count, np.uint64)
        starts, lines = np.zeros(count, np.int64), np.zeros(count, np.int64)
        kinds = np.array([kind, Kind.SKIPPED], np.int8)
        read_rows(np.frombuffer(block, np.uint8), kinds, values, hashes, status, starts, lines)
        named = [text for text in texts if text]
        for text, value, state in zip(named, values[:, 0].tolist(), status.tolist(), strict=True):
            try:
                assert (value, state) == (rounded(text, places), Status.GOOD), text
            except DataError:
                assert state in (Status.NUMBER, Status.LARGE), text
            assert value != NOTHING
