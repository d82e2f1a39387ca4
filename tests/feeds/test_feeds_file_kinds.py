"""What a file is, by what it holds: every format that is read, and others' that must not be taken for one."""

import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from command_line_support import Program, orderbook  # noqa: F401

from orderbook.core.errors import SourceError
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source_kinds import KINDS, each_file, kind_of, open_source, open_sources
from orderbook.market.instruments import Instrument, Instruments

HTML = b"<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head></html>\n"
BYBIT = (
    b'{"topic":"orderbook.500.BTCUSDT","type":"snapshot","ts":1725321601755,"data":{"s":"BTCUSDT",'
    b'"b":[["59116.70","9.490"]],"a":[["59116.80","6.618"]],"u":28259371,"seq":231805146756},"cts":1725321601749}\n'
)
BYBIT_TRADES = (
    b"timestamp,symbol,side,size,price,tickDirection,trdMatchID,grossValue,homeNotional,foreignNotional\n"
    b"1590710399.365,BTCUSDT,Buy,16.585,9572.0,ZeroMinusTick,1e2a23f4-469b-58d9-85cb-84344e009cb5,1,16.585,1\n"
)
READ = {
    "changes": b'{"stream":"s","op":"+","row":{}}\n',
    "views": b'{"view":"v","ts":1,"version":[1,2,3],"key":{},"row":null}\n',
    "binance": b'17 {"stream":"abcusdt@depth","data":{"E":1,"s":"ABCUSDT","U":1,"u":2,"b":[],"a":[]}}\n',
    "lobster": b"34200.004241176,1,16113575,18,5853300,1\n34200.025552,1,16120456,18,5859100,-1\n",
    "tardis": b"exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount\n",
    "capture": b'{"t":"header","format":2,"exchange":"KRAKEN","config":{}}\n',
    "capture ": b"wss://ws.kraken.com <-> 1618678132.3858151\n",
    "capture  ": b'1618678132.8258188: {"event":"systemStatus"}\n',
    "capture   ": b'configuration: {"trades":["BTC-USD"]}\n',
    "hyperliquid": b'17 {"channel":"l2Book","data":{"coin":"BTC","levels":[[],[]],"time":5}}\n',
    "bybit": BYBIT,
    "bybit ": BYBIT_TRADES,
    "bybit  ": b"id,timestamp,price,volume,side,rpi\n1,1672531202252,16542.75,0.017389,buy,0\n",
}
# By their publishers' documentation, a line or two each.
OTHERS = {
    "tardis raw": b'2019-06-01T00:00:00.0000000Z {"table":"orderBookL2","action":"update"}\n',
    "kaiko trades": b"id,exchange,symbol,date,price,amount,sell\n1,cb,btcusd,1417412036761,300.0,0.01,true\n",
    "kaiko ob": b"date,type,price,amount\n1517448661000,b,10012.1,0.2\n",
    "coinapi": b"time_exchange;time_coinapi;guid;price;base_amount;taker_side\n2020-01-01;x;y;1;2;BUY\n",
    "binance vision trades": b"3195366013,42283.58,0.0033,139.53,1704067200024,True,True\n",
    "binance vision aggTrades": b"2847190271,42283.58,0.0033,3348271,3348271,1704067200024,True,True\n",
    "binance vision futures": b"id,price,qty,quote_qty,time,is_buyer_maker\n1,2,3,4,1704067200024,true\n",
    "binance vision bookDepth": b"timestamp,percentage,depth,notional\n2024-01-01 00:00:08,-5,5381.5,223.1\n",
    "binance vision bookTicker": b"update_id,best_bid_price,best_bid_qty,best_ask_price,best_ask_qty,"
    b"transaction_time,event_time\n1,2,3,4,5,6,7\n",
    "kraken ohlc": b"1381095240,122.0,122.0,122.0,122.0,0.1,1\n",
    "kraken trades": b"1381095255,122.00000,0.10000000\n",
    "okx": b"instrument_name,trade_id,side,price,size,created_time\nBTC-USDT,1,buy,2,3,1704067200024\n",
    "bitmex trades": b"timestamp,symbol,side,size,price,tickDirection,trdMatchID,grossValue,homeNotional,"
    b"foreignNotional\n2018-12-05D00:00:25.948313000,ADAZ18,Sell,166774,9.54e-06,MinusTick,498350a3-8c03-affd,1,2,3\n",
    "bitstamp ohlc": b"https://www.CryptoDataDownload.com\nunix,date,symbol,open,high,low,close,Volume\n",
    "combined stream": b'{"stream":"btcusdt@depth","data":{"e":"depthUpdate"}}\n',
    "json array": b'[{"id":28457,"price":"4.00000100","qty":"12.00000000","time":1499865549590}]\n',
    "html": HTML,
    "prose": b"Once upon a time\n",
    "escapes": b"\x1b[31mred\x1b[0m and \xff bytes\n",
    "binary": bytes(range(256)) * 4,
}


def zipped(data: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "zip": lambda data: zipped(data, "inner.data"),
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "crlf": lambda data: b"\r\n" + data.replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", READ)
def test_every_format_is_found_however_it_is_packed(tmp_path: Path, kind: str, packed: str) -> None:
    path = tmp_path / "download.bin"
    path.write_bytes(PACKED[packed](READ[kind]))
    assert kind_of(path) == kind.strip()


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("other", OTHERS)
def test_other_formats_are_refused_with_how_they_begin(tmp_path: Path, other: str, packed: str) -> None:
    path = tmp_path / "download"
    path.write_bytes(PACKED[packed](OTHERS[other]))
    with pytest.raises(SourceError, match="of no kind known by its content; it begins ") as error:
        open_source(str(path))
    text = str(error.value)
    assert text.isprintable() and all(kind in text for kind in KINDS)
    start = OTHERS[other].splitlines()[0][:20].decode("latin-1")
    assert not start.isascii() or not start.isprintable() or start in text


def test_a_first_line_that_is_damaged_does_not_hide_what_follows(tmp_path: Path) -> None:
    for kind, data in READ.items():
        path = tmp_path / kind.strip()
        path.write_bytes(b'{"broken\n' + data)
        assert kind_of(path) == kind.strip()


def refused(path: Path) -> str:
    with pytest.raises(SourceError) as error:
        open_source(str(path))
    assert str(error.value).isprintable()
    return str(error.value)


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    change = READ["changes"] * 50
    big = gzip.compress(b"".join(str(i).encode() + b" " for i in range(100_000)) + b"\n")
    for name, data, message in (
        ("empty", b"", "empty; nothing to read"),
        ("blank", b"\n \n", "empty; nothing to read"),
        ("empty.gz", gzip.compress(b""), "empty; nothing to read"),
        ("twice.gz", gzip.compress(gzip.compress(change)), "compressed twice; unpack it once"),
        ("twice.zst", zstandard.compress(gzip.compress(change)), "compressed twice"),
        ("cut.gz", gzip.compress(change)[:14], "the compressed data has no end before its first line"),
        ("two.zip", zipped(change, "a.csv", "b.csv"), r"a zip of 2 files \(a.csv, b.csv\); unpack it"),
        ("cut.zip", zipped(big, "a.csv")[:-40], "a damaged zip archive"),
        ("utf16", change.decode().encode("utf-16"), "text in UTF-16; convert it: iconv"),
        ("utf16.gz", gzip.compress(change.decode().encode("utf-16-be").join([b"\xfe\xff", b""])), "UTF-16"),
        ("trace.pcap", b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(16), "what exchanges send is encrypted"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(SourceError, match=message) as error:
            open_source(str(path))
        assert str(error.value).startswith(f"{path}: ") and str(error.value).isprintable()
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE t (x INTEGER)")
    assert f"name its table: table:{tmp_path / 'rows.db'}#TABLE" in refused(tmp_path / "rows.db")


def test_a_cut_gzip_of_a_known_kind_is_read_up_to_the_cut(tmp_path: Path) -> None:
    lines = b"".join(
        json.dumps({"stream": "s", "op": "+", "row": {"x": i * i * 7919 % 100_003}}).encode() + b"\n"
        for i in range(20_000)
    )
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(lines)[:-5000])
    source = open_source(str(path))
    assert source.name.startswith("changes:")
    batches: list[object] = []
    with pytest.raises(SourceError, match="truncated after line"):
        batches.extend(one for batch in source for one in batch)
    assert len(batches) > 5_000


def record(path: Path) -> Path:
    one = Instrument("nasdaq", "AMZN", "AMZN", Decimal("0.01"), Decimal(1))
    RecordWriter(path, Instruments([one])).close()
    return path


def test_parquet_files_are_told_apart_whatever_their_names(tmp_path: Path) -> None:
    named = record(tmp_path / "rows.parquet").rename(tmp_path / "rows.csv.gz")
    assert isinstance(open_source(str(named)), RecordSource)
    packed = tmp_path / "rows.parquet.gz"
    packed.write_bytes(gzip.compress(named.read_bytes()))
    for text in (str(packed), f"record:{packed}", f"views:{packed}"):
        with pytest.raises(SourceError, match="a Parquet file compressed as a whole; unpack it"):
            open_source(text)
    lake = pa.table({"origin_time": [1], "received_time": [1], "bid_0_price": [1.0], "bid_0_size": [1.0]})
    pq.write_table(lake, tmp_path / "lake.parquet")
    assert "its columns are origin_time, received_time, bid_0_price" in refused(tmp_path / "lake.parquet")


def test_a_folder_is_what_its_files_are(tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.mkdir()
    (days / "README.md").write_text("what this is")
    for day in (2, 1):
        (days / f"{day}.txt").write_bytes(READ["changes"])
    assert each_file(str(days)) == [f"{days}/1.txt", f"{days}/2.txt"]
    assert each_file(f"changes:{days}") == [f"changes:{days}/1.txt", f"changes:{days}/2.txt"]
    assert [source.name for source in open_sources([str(days)])] == [
        f"changes:{days}/1.txt",
        f"changes:{days}/2.txt",
    ]
    (tmp_path / "none").mkdir()
    assert "no record files there" in refused(tmp_path / "none")


def test_an_unknown_file_is_one_line_and_status_2(orderbook: Program, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "page.csv"
    path.write_bytes(HTML)
    for arguments in (("replay", path), ("run", "--feed", path), ("backtest", path, "--out", tmp_path / "j")):
        result = orderbook(*arguments, "--view", "depth")
        assert result.status == 2
        assert len(result.error_lines) == 1 and "it begins '<!DOCTYPE html>'" in result.error_lines[0]
