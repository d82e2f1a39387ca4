"""Opening sources by kind, content and name; reading lines of whole and of damaged files."""

import gzip
import zlib
from decimal import Decimal
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import SourceError
from orderbook.feeds.byte_stream import Lines
from orderbook.feeds.change_stream import ChangeStreamSource
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.files.lobster import LobsterSource
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source_kinds import each_file, open_source, open_sources
from orderbook.feeds.text_values import decimal_places
from orderbook.market.instruments import Instrument, Instruments

CHANGE = b'{"stream":"s","op":"+","row":{}}\n'
DIFF = b'1 {"stream":"abcusdt@depth","data":{"E":1,"s":"ABCUSDT","U":1,"u":2,"b":[["1.50","0.20"]],"a":[]}}\n'
MESSAGE = b"34200.5,1,7,100,2239500,1\n"


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_kinds_are_found_by_content_and_name(tmp_path: Path, compress: object) -> None:
    assert callable(compress)
    files = {
        "some.file": (DIFF, "binance", BinanceCaptureSource),
        "rows": (b"\n" + CHANGE, "changes", ChangeStreamSource),
        "AMZN_2012-06-21_message_1.csv": (MESSAGE, "lobster", LobsterSource),
    }
    for name, (content, kind, source_type) in files.items():
        path = tmp_path / name
        path.write_bytes(compress(content))
        for text in (str(path), f"{kind}:{path}"):
            source = open_source(text)
            assert isinstance(source, source_type)
            assert source.name == f"{kind}:{path}"
            assert sum(len(batch) for batch in source) > 0 or kind == "binance"
            assert source.progress == 1.0


def test_records_are_found_by_content(tmp_path: Path) -> None:
    instrument = Instrument("nasdaq", "AMZN", "AMZN", Decimal("0.01"), Decimal(1))
    RecordWriter(tmp_path / "rows.parquet", Instruments([instrument])).close()
    for text in ("rows.parquet", "", "*.parquet"):
        assert isinstance(open_source(f"{tmp_path}/{text}"), RecordSource)


def test_a_glob_of_files_is_a_source_for_each(tmp_path: Path) -> None:
    names = [f"AMZN_2012-06-2{day}_message_1.csv" for day in (2, 1)]
    for name in (*names, names[0].replace("message", "orderbook")):
        (tmp_path / name).write_bytes(MESSAGE)
    first, second = f"{tmp_path}/{names[1]}", f"{tmp_path}/{names[0]}"
    assert each_file(f"{tmp_path}/AMZN_*.csv") == [first, second]
    assert each_file(f"lobster:{tmp_path}/*_1.csv") == [f"lobster:{first}", f"lobster:{second}"]
    assert each_file(f"itch:{tmp_path}/*2_*.csv?symbols=A,B") == [f"itch:{second}?symbols=A,B"]
    for alone in (first, f"{tmp_path}/*.none", f"record:{tmp_path}/*", f"capture:{tmp_path}/*"):
        assert each_file(alone) == [alone]
    opened = open_sources([f"{tmp_path}/*message*", first])
    assert [source.name for source in opened] == [f"lobster:{path}" for path in (first, second, first)]


def test_what_cannot_be_opened_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n\n")
    (tmp_path / "prose").write_bytes(b"Once upon a time\n")
    for text, message in (
        (f"{tmp_path}/missing", "No such file or directory; check the path"),
        (f"changes:{tmp_path}/missing", "No such file or directory; check the path"),
        (f"changes:{tmp_path}", "Is a directory"),
        (f"record:{tmp_path}", "no record files there"),
        (f"lobstr:{tmp_path}/prose", "'lobstr'; use lobster, binance, record, changes"),
        (f"{tmp_path}/empty", "empty"),
        (f"{tmp_path}/prose", "write lobster, binance, record, changes, .* and a colon"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            open_source(text)
        assert "\n" not in str(error.value)


contents = st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=20)


@given(lines=contents, ending=st.sampled_from([b"\n", b"\r\n"]), frames=st.integers(1, 3))
def test_lines_are_the_same_plain_and_compressed(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ending: bytes, frames: int
) -> None:
    lines = [b"text", *(line.rstrip(b"\r") for line in lines)]
    data = ending.join(lines) + ending
    folder = tmp_path_factory.mktemp("lines")
    size = -(-len(data) // frames)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    (folder / "plain").write_bytes(data)
    (folder / "gzip").write_bytes(b"".join(map(gzip.compress, parts)) + b"\0" * 5)
    (folder / "zstd").write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, parts)))
    for name in ("plain", "gzip", "zstd"):
        read = Lines(folder / name)
        for _ in range(2):
            assert list(read) == lines
            assert read.number == len(lines)
            assert read.progress == 1.0
            read.raise_if_cut()


@given(cut=st.integers(20, 2000), seed=st.binary(min_size=1, max_size=8))
def test_a_cut_file_gives_a_beginning_of_its_lines_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, cut: int, seed: bytes
) -> None:
    lines = [(seed * 9 + str(zlib.crc32(seed, i)).encode()).hex().encode() for i in range(300)]
    data = gzip.compress(b"\n".join(lines) + b"\n")
    path = tmp_path_factory.mktemp("lines") / "cut.gz"
    path.write_bytes(data[: min(cut, len(data) - 1)])
    read = Lines(path)
    found = list(read)
    assert found == lines[: len(found)]
    assert len(found) > 0 or cut < 200
    with pytest.raises(SourceError, match=f"truncated after line {len(found)}: "):
        read.raise_if_cut()


def test_corrupt_bytes_end_the_file_with_their_place(tmp_path: Path) -> None:
    lines = [str(zlib.crc32(b"", i)).encode() for i in range(50_000)]
    data = bytearray(zstandard.ZstdCompressor().compress(b"\n".join(lines) + b"\n"))
    middle = len(data) * 3 // 4
    data[middle : middle + 500] = bytes(500)
    path = tmp_path / "corrupt.zst"
    path.write_bytes(data)
    read = Lines(path)
    found = list(read)
    assert 0 < len(found) < len(lines)
    assert found[:-1] == lines[: len(found) - 1]
    with pytest.raises(SourceError, match="corrupt compressed data before byte"):
        read.raise_if_cut()


@pytest.mark.parametrize(
    ("text", "places"),
    [("0.25000000", 2), ("300", 0), ("300.", 0), ("1e-7", 7), ("1.50E2", 0), ("-0.125", 3), ("0.000", 0)],
)
def test_decimal_places_in_use(text: str, places: int) -> None:
    assert decimal_places(text) == places


@pytest.mark.parametrize("text", ["", "abc", "NaN", "Infinity", "1.2.3", "٣"])
def test_what_is_no_number_has_no_decimal_places(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        decimal_places(text)
