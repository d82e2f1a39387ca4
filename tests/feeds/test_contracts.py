"""Contracts whose volume is not of the base: known by name, by what exchanges state and what files say."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from simulation_support import trading
from strategy_support import ask, bid, events, state

from orderbook.core.changes import Dictionary
from orderbook.feeds.exchanges.binance import BinanceFutures
from orderbook.feeds.exchanges.bybit import Bybit
from orderbook.feeds.exchanges.coinbase import Coinbase
from orderbook.feeds.exchanges.exchange import Exchange
from orderbook.feeds.exchanges.okx import Okx
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.raw_log import InstrumentText
from orderbook.feeds.recording.parquet_record import RecordWriter, read_footer
from orderbook.market.books import Books
from orderbook.market.events import BookState
from orderbook.market.instruments import ContractType, Instrument, Instruments, contract_type
from orderbook.strategies.execution.client import OrderRequest
from orderbook.strategies.execution.paper_client import PaperClient


@pytest.mark.parametrize(
    ("venue", "native", "contract"),
    [
        ("binance", "BTCUSDT", "linear"),
        ("binance_futures", "BTCUSDT", "linear"),
        ("binance_futures", "ETHBTC", "linear"),
        ("binance_futures", "BTCUSDT_240927", "linear"),
        ("binance_futures", "BTCUSD_PERP", "inverse"),
        ("binance_futures", "BTCUSD_240927", "inverse"),
        ("binance_delivery", "BTCUSD_PERP", "inverse"),
        ("bybit", "BTCUSDT.P", "linear"),
        ("bybit", "BTCPERP", "linear"),
        ("bybit", "BTCUSD", "inverse"),
        ("bybit", "BTCUSD.P", "inverse"),
        ("bybit", "ETHUSDH25", "inverse"),
        ("okx", "BTC-USDT", "linear"),
        ("okx", "BTC-USD", "linear"),
        ("okx", "BTC-USD-SWAP", "inverse"),
        ("okx", "BTC-USDT-SWAP", "unknown"),
        ("okx_swap", "BTC-USDT-SWAP", "unknown"),
        ("bitmex", "XBTUSD", "inverse"),
        ("bitmex", "ETHUSD", "unknown"),
        ("deribit", "BTC-PERPETUAL", "inverse"),
        ("glbx", "ESZ4", "unknown"),
        ("xnas", "MSFT", "linear"),
        ("kraken", "XBT/USD", "linear"),
        ("bitstamp", "btcusd", "linear"),
        ("SIM", "AAA-USD", "linear"),
    ],
)
def test_names_tell_contracts(venue: str, native: str, contract: str) -> None:
    assert contract_type(venue, native) == contract
    one = Instrument(venue, "A", native, Decimal(1), Decimal(1))
    assert one.contract == contract
    # Orders need its size.
    fixed = one.contract == "inverse" and venue in ("binance_futures", "binance_delivery", "bybit", "bitmex",
                                                    "okx", "deribit")  # fmt: skip
    assert (one.not_tradable is None) is (contract == "linear" or fixed)


def _binance(**more: object) -> bytes:
    filters = [{"filterType": "PRICE_FILTER", "tickSize": "0.1"}, {"filterType": "LOT_SIZE", "stepSize": "1"}]
    one = {"symbol": "A", "filters": filters, "pricePrecision": 1, "quantityPrecision": 0, **more}
    return json.dumps({"symbols": [one]}).encode()


def _okx(**more: object) -> bytes:
    one = {"instId": "A", "tickSz": "0.1", "lotSz": "1", **more}
    return json.dumps({"code": "0", "data": [one]}).encode()


def _coinbase(**more: object) -> bytes:
    one = {"product_id": "A", "price_increment": "5", "base_increment": "1", **more}
    return json.dumps({"products": [one]}).encode()


def _size(text: str) -> dict[str, str]:
    return {"contract_size": text}


def _bybit(category: str) -> bytes:
    lot = {"basePrecision": "1", "qtyStep": "1"}
    one = {"symbol": "A", "priceFilter": {"tickSize": "0.1"}, "lotSizeFilter": lot}
    return json.dumps({"result": {"category": category, "list": [one]}}).encode()


@pytest.mark.parametrize(
    ("kind", "body", "contract"),
    [
        (BinanceFutures, _binance(contractType="PERPETUAL"), "linear"),
        (BinanceFutures, _binance(contractType="PERPETUAL", contractSize=100), "inverse"),
        (Okx, _okx(instType="SPOT", ctType="", ctVal="", ctMult=""), "linear"),
        (Okx, _okx(instType="SWAP", ctType="linear", ctVal="0.01", ctMult="1"), "multiplier"),
        (Okx, _okx(instType="SWAP", ctType="linear", ctVal="0.1", ctMult="10"), "linear"),
        (Okx, _okx(instType="FUTURES", ctType="inverse", ctVal="100", ctMult="1"), "inverse"),
        (Coinbase, _coinbase(product_type="SPOT"), "linear"),
        (Coinbase, _coinbase(product_type="FUTURE", future_product_details=_size("0.01")), "multiplier"),
        (Coinbase, _coinbase(product_type="FUTURE", future_product_details=_size("1")), "linear"),
        (Coinbase, _coinbase(product_type="FUTURE"), "unknown"),
        (Bybit, _bybit("spot"), "linear"),
    ],
)
def test_what_exchanges_state_of_a_contract(kind: type[Exchange], body: bytes, contract: str) -> None:
    (one,) = kind.instruments(["A"], [body])
    assert one.contract == contract


@pytest.mark.parametrize("contract", ["inverse", "multiplier", "unknown"])
def test_orders_and_profit_on_other_contracts_are_refused_by_name(contract: ContractType) -> None:
    one = Instrument("V", "BTC-USD", "btc", Decimal("0.1"), Decimal(1), contract=contract)
    instruments = Instruments([one])
    books = Books(instruments, Dictionary())
    options = trading()
    account = PaperClient("S", books, instruments, options.simulation, options.risk.of("s"), "S")
    books.apply(events([bid(1, 99, 5), ask(2, 101, 5), state(BookState.VALID)], 1))
    for price in (None, 101):
        (update,) = account.place(OrderRequest(1, "BTC-USD", "buy", 1, price, None), 7)
        assert update.new.status == "refused"
        assert "V:BTC-USD: no orders: it" in (update.new.reason or "")
    assert not list(account.positions())


def test_files_of_ours_keep_contracts(tmp_path: Path) -> None:
    stated = Instruments([
        Instrument("okx", "A-B-PERP", "A-B-SWAP", Decimal(1), Decimal(1), contract="multiplier"),
        Instrument("okx", "A-C-PERP", "A-C-SWAP", Decimal(1), Decimal(1), contract="linear"),
    ])  # fmt: skip
    with RecordWriter(tmp_path / "a.parquet", stated):
        pass
    assert [one.contract for one in read_footer(tmp_path / "a.parquet")[0]] == ["multiplier", "linear"]
    assert [InstrumentText.of(one).instrument for one in stated] == list(stated)
    old = InstrumentText("binance_futures", "BTC-USD-PERP", "BTCUSD_PERP", "0.1", "1")
    assert old.instrument.contract == "inverse"


def test_the_recorded_coin_margined_contract_is_inverse(shared_data: Path) -> None:
    path = shared_data / "hftbacktest_more" / "coinm_btcusd_perp_20240808.gz"
    (one,) = BinanceCaptureSource(path).instruments
    assert (one.native_symbol, one.contract) == ("BTCUSD_PERP", "inverse")
