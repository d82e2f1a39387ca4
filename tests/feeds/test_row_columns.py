"""Rows by column: read, encoded, merged and logged as row by row."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.durability.journal import entry_of, stamped_record
from orderbook.feeds import byte_stream
from orderbook.feeds.change_encoding import encode_changes
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.files import row_forms
from orderbook.feeds.files.csv_blocks import read_csv_block
from orderbook.feeds.files.row_file import open_rows
from orderbook.feeds.merge import ChangeItem, Merger
from orderbook.feeds.row_batch import RowBatch, RowFrame, changes_after, positions_after
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.encoding.frames import encode_rows
from orderbook.views.encoding.moments import moments
from orderbook.views.encoding.rows import RowEncoder
from orderbook.views.scalars.texts import moment

DECLARED = """
CREATE STREAM rows (ts TIMESTAMP, name TEXT, other TEXT, price DECIMAL(18, 3), fine DECIMAL(18, 10) NOT NULL,
    size BIGINT, few INTEGER CHECK (few BETWEEN -9 AND 9), x DOUBLE, firm BOOLEAN);
CREATE STREAM few (ts TIMESTAMP, name TEXT, size BIGINT);
CREATE VIEW sizes AS SELECT name, SUM(size) AS size FROM rows GROUP BY name;
"""
PROGRAM = compile_views(DECLARED)
(RELATION,) = [relation for relation in PROGRAM.relations if relation.name == "rows"]
TEXTS = [place for place, column in enumerate(RELATION.columns) if column.name in ("name", "other")]

digits = st.text("0123456789", max_size=12)
numbers = st.builds(
    lambda sign, whole, point, rest, power: sign + whole + point + rest + power,
    st.sampled_from(["", "", "-", "+"]), digits, st.sampled_from(["", ".", "."]), digits,
    st.sampled_from(["", "", "", "", "e2", "E-3", "e-400", "e+15"]),
)  # fmt: skip
numbers |= st.sampled_from([
    "0", "-0", "5", "1.5", " 1", "1_0", "nan", "inf", "x", "\uff11", "0x1", str(2**53 + 1), str(2**63 - 1),
    str(-(2**63)), str(2**63),
])  # fmt: skip
times = st.builds(
    lambda year, month, day, rest, zone: f"{year:04}-{month:02}-{day:02}{rest}{zone if rest else ''}",
    st.sampled_from([1, 1600, 1677, 1682, 1970, 2000, 2024, 2257, 2258, 9999]),
    st.integers(0, 13), st.integers(0, 32),
    st.just("") | st.builds(
        lambda mark, hour, minute, rest: f"{mark}{hour:02}:{minute:02}{rest}",
        st.sampled_from(" T-"), st.integers(0, 24), st.integers(0, 60),
        st.just("") | st.builds(
            lambda second, rest: f":{second:02}{rest}",
            st.integers(0, 60), st.just("") | st.text("0123456789", max_size=10).map(lambda d: f".{d}"),
        ),
    ),
    st.sampled_from(["", "", "Z", " Z", "+01:00", "-0530", "+02", "+1"]),
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[str]] = {
    "ts": times, "name": st.sampled_from(["a", "b", "é", "zz"]), "other": st.text(max_size=2),
    "price": numbers, "fine": numbers, "size": numbers, "few": numbers, "x": numbers,
    "firm": st.sampled_from(["true", "False", "TRUE", "1", "yes"]),
}  # fmt: skip
GOOD = {
    "ts": "2024-01-31 12:00:00", "name": "a", "other": "b", "price": "1.5", "fine": "0", "size": "7",
    "few": "-3", "x": "2.5", "firm": "true",
}  # fmt: skip


@st.composite
def texts_of_a_row(draw: st.DrawFn) -> dict[str, str | None]:
    """A row of which some values are drawn; NULLs, too."""
    drawn = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=3))
    return GOOD | {name: draw(st.none() | VALUES[name]) for name in drawn}


def encoded_by_row(rows: Sequence[dict[str, Any]], dictionary: Dictionary) -> list[list[int] | str]:
    encoder, found = RowEncoder(RELATION, dictionary), list[list[int] | str]()
    for row in rows:
        try:
            found.append(encoder.encode(row))
        except DataError as error:
            found.append(str(error))
    return found


def check_encoded(frame: pl.DataFrame) -> None:
    """Codes, strings by their codes, and what is refused are those of each row."""
    one, other = Dictionary(), Dictionary()
    values, refused = encode_rows(frame, RELATION, one)
    wanted = encoded_by_row(list(frame.iter_rows(named=True)), other)
    kept = [place for place, row in enumerate(wanted) if isinstance(row, list)]
    assert refused == {place: row for place, row in enumerate(wanted) if isinstance(row, str)}
    for place in kept:
        row, own = list[Any](wanted[place]), values[place].tolist()
        for at in TEXTS:
            row[at], own[at] = (
                codes.decode(code) if code >= 0 else None
                for codes, code in ((other, row[at]), (one, own[at]))
            )
        assert own == row
    if not refused:
        assert one.strings() == other.strings()


@given(st.lists(texts_of_a_row(), max_size=12))
def test_texts_are_encoded_by_column_as_row_by_row(rows: list[dict[str, str | None]]) -> None:
    check_encoded(pl.DataFrame(rows, schema=dict.fromkeys(GOOD, pl.String)))


@pytest.mark.parametrize(
    ("name", "values", "dtype"),
    [
        ("x", [2**53 + 1, 2**64 - 1, None], pl.UInt64()),
        ("x", [0.1, -0.0, float("nan"), float("inf")], pl.Float32()),
        ("x", [10**37 + 1, 12345678901234567890, 3], pl.Decimal(38, 3)),
        ("price", [1.5, 0.1, 0.12345, float("nan"), 1e300], pl.Float64()),
        ("price", [10**15, -1, 2**62], pl.Int64()),
        ("size", [True, None], pl.Boolean()),
        ("name", ["a", None, "b"], pl.Categorical()),
        ("name", [1, 2], pl.Int8()),
        ("firm", [0, 1], pl.Int8()),
        ("ts", [2**64 - 1, 5], pl.UInt64()),
        ("few", [[1], [2]], pl.List(pl.Int64())),
    ],
)
def test_values_of_every_type_are_encoded_as_row_by_row(
    name: str, values: list[Any], dtype: pl.DataType
) -> None:
    rest = {own: pl.Series([value] * len(values)) for own, value in GOOD.items() if own != name}
    check_encoded(pl.DataFrame(rest | {name: pl.Series(values, dtype=dtype, strict=False)}))


def test_columns_that_are_missing_or_unknown_are_refused_as_row_by_row() -> None:
    frame = pl.DataFrame([GOOD] * 3)
    check_encoded(frame.drop("fine"))
    check_encoded(frame.drop("price"))
    check_encoded(frame.with_columns(more=1))


@given(st.lists(st.none() | times | numbers | st.text(max_size=20), max_size=20))
def test_times_in_texts_are_those_of_each(said: list[str | None]) -> None:
    found = moments(pl.Series(said, dtype=pl.String)).to_list()
    assert len(found) == len(said)
    for text, ns in zip(said, found, strict=True):
        # What is left to `moment` is null.
        assert ns is None or (text is not None and ns == moment(text))


def test_times_that_are_laid_out_alike_are_read_together() -> None:
    said = ["2024-01-31 12:00:00.5", "2024-02-29 23:59:59.1", "1969-12-31 00:00:00.0"]
    for zone in ("", "Z", "+01:00"):
        own = [text + zone for text in said]
        assert moments(pl.Series(own)).to_list() == [moment(text) for text in own]


@contextmanager
def blocks_of(size: int, by_column: bool = True) -> Iterator[None]:
    """Text is read in blocks of so many bytes; else row by row, by the csv module."""
    read = read_csv_block if by_column else lambda *_: None
    with (
        patch.object(byte_stream, "CHUNK_BYTES", size),
        patch.object(byte_stream, "PLAIN_BYTES", size),
        patch.object(byte_stream, "_LARGER_BYTES", 2 * size),
        patch.object(row_forms, "read_csv_block", read),
    ):
        yield


def read(path: Path, options: str = "") -> tuple[list[RelationChange], Any, str]:
    """The changes, the problems, and how it ended."""
    source, found, end = open_rows(f"{path}{options}"), list[RelationChange](), ""
    try:
        for batch in source:
            found += batch
    except SourceError as error:
        end = str(error)
    return found, (source.problems.counts, source.problems.examples, source.counts), end


# Fields, and what spoils lines: quotes, ends of lines, half of a character.
pieces = st.sampled_from([
    b"a", b"12", b"", b",", b",", b",", b"\n", b"\n", b"\r\n", b"\r", b'"', b'""', b'"x,y"', b'"x\ny"',
    b'"a""b"', b" ", b"\xc3\xa9", b"\xff", b"\0", b"\n1,2,3\n", b"\n5,u,v\n4,u,v\n", b"2024-01-31,u,v",
    b",,\n", b'"",b,\n',
])  # fmt: skip


@given(st.lists(pieces, max_size=40).map(b"".join), st.integers(1, 40), st.booleans())
def test_any_text_is_read_in_blocks_as_by_the_csv_module(text: bytes, size: int, timed: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes((b"ts,b,c\n" if timed else b"a,b,c\n") + text)
        with blocks_of(1 << 20, by_column=False):
            wanted = read(path)
        with blocks_of(size):
            assert read(path) == wanted
        with blocks_of(1 << 20):
            assert read(path) == wanted


def test_lines_that_are_alike_are_read_by_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('ts,b\n1,x\n2,"y"\n\n3,4,5\n6,"z\nz"\n')
    (batch,) = open_rows(str(path))
    assert isinstance(batch, RowBatch) and [(c.line, c.row["b"]) for c in batch] == [
        (2, "x"), (3, "y"), (7, "z\nz"),
    ]  # fmt: skip


def test_a_line_that_spoils_its_block_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"ts,b\n" + b"1,x\n" * 100 + b'2,y"y"\n' + b"3,z\n" * 300)
    with blocks_of(64):
        batches = list(open_rows(str(path)))
    assert sum(map(len, batches)) == 401
    assert sum(len(batch) for batch in batches if isinstance(batch, RowBatch)) > 100


plain = st.sampled_from(["1", "-2", "0", "null", "7"])
# By kind, so that columns have values of one most of the time.
JSON_VALUES = [
    plain, st.sampled_from(["1.5", "0.25", "-3.0", "1e2", "null", "1E-9"]),
    st.sampled_from(['"a"', '"b"', '""']),
    st.sampled_from(["true", "false", "null"]), st.sampled_from(['"2024-01-31 12:00:00"', '"1.5"', '"7"']),
    st.sampled_from([str(2**63), str(-(2**63)), "1e-40", "1e39", "1e400", "-0.0", '"\\u00e9"', '"\\ud800"']),
    st.sampled_from(["[1]", "{}", "x", "1 2", '"\n"', "1.", ""]),
]  # fmt: skip


_NUMBER = re.compile(r"-?\d+(\.\d+)?(E[+-]?\d+)?")


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Objects of some columns, most of them plain, some malformed; blank lines."""
    kinds = {name: draw(st.sampled_from([*JSON_VALUES[:5]] * 4 + JSON_VALUES)) for name in GOOD}
    kinds["ts"] = draw(st.sampled_from([plain, JSON_VALUES[1], JSON_VALUES[4]]))
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        own = {name: draw(kind) for name, kind in kinds.items() if draw(st.integers(0, 9))}
        if draw(st.integers(0, 15)) == 0:
            own["other"] = draw(st.one_of(JSON_VALUES))
        lines.append("{" + ", ".join(f'"{name}": {value}' for name, value in own.items()) + "}")
        if draw(st.integers(0, 15)) == 0:
            lines.append(draw(st.sampled_from(["", " ", "\r", "{", "5", '{"a": [1', "2]}", "{},{}"])))
    first = "{" + ", ".join(f'"{name}": null' for name in GOOD) + "}"
    return "\n".join([first, *lines]).encode() + draw(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]))


@examples(40)
@given(json_lines(), st.integers(20, 400), st.booleans())
def test_lines_of_json_are_read_in_blocks_as_one_by_one(text: bytes, size: int, timed: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(text)
        options = "?time=ts" if timed else "?columns=" + ",".join(name for name in GOOD if name != "ts")

        def found() -> object:
            problems = Problems()
            said, codes, dictionary = read(path, options), list[Any](), Dictionary()
            try:
                for changes in (source := open_rows(f"{path}{options}")):
                    batch = encode_changes(changes, PROGRAM.relations, dictionary, source.name, problems)
                    codes += zip(batch.kinds.tolist(), batch.values.tolist(), strict=True)
            except SourceError:
                pass
            for place, (kind, values) in enumerate(codes):
                for at in TEXTS:
                    values[at] = dictionary.decode(values[at]) if kind >= 0 <= values[at] else None
                codes[place] = kind, values if kind >= 0 else None
            # A column of numbers has as many places for all of them.
            refused = [
                _NUMBER.sub(lambda found: str(Decimal(found[0]).normalize() + 0), line)
                for line in problems.report()
            ]
            return said, codes, refused

        with patch.object(row_forms, "_json_columns", lambda *_: None):
            wanted = found()
        assert found() == wanted
        with blocks_of(size):
            assert found() == wanted


def test_lines_of_json_that_are_alike_are_read_by_column(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"ts": 1, "b": "x", "c": 1.5}\n\n{"b": null, "ts": 2, "c": 2.25, "d": 1}\n')
    (batch,) = open_rows(str(path))
    assert isinstance(batch, RowBatch) and [(c.line, c.time, dict(c.row)) for c in batch] == [
        (1, 1, {"ts": 1, "b": "x", "c": Decimal("1.5")}),
        (3, 2, {"ts": 2, "b": None, "c": Decimal("2.25")}),
    ]


def frame_of(source: str, lines: Sequence[int], values: dict[str, list[Any]], stamped: bool) -> RowFrame:
    times = np.array(values["ts"], np.int64) if stamped else None
    return RowFrame(source, "rows", pl.DataFrame(values), np.array(lines, np.int64), times)


@given(st.data(), st.booleans())
def test_rows_of_several_files_are_merged_and_logged_as_row_by_row(
    data: st.DataObject, stamped: bool
) -> None:
    stamps = st.lists(st.integers(0, 9), max_size=8)
    with TemporaryDirectory() as folder:
        paths = []
        for number in range(data.draw(st.integers(1, 3))):
            path = Path(folder) / f"rows{number}.csv"
            lines = [
                f"{ts},{data.draw(st.sampled_from('ab'))},{data.draw(st.sampled_from(['1', 'x', '']))}"
                for ts in data.draw(stamps)
            ]
            path.write_text("\n".join(["ts,name,size" if stamped else "at,name,size", *lines, ""]))
            paths.append(path)
        columns = "?relation=few&columns=ts,name,size" if stamped else "?relation=few&columns=name,size"

        def taken(change: Callable[[ChangeItem], ChangeItem] = lambda item: item) -> list[Any]:
            problems, found = Problems(), list[Any]()
            for item in Merger([open_rows(f"{path}{columns}") for path in paths]):
                assert isinstance(item, ChangeItem)
                own = change(item)
                program, dictionary = PROGRAM.relations, PROGRAM.dictionary
                batch = encode_changes(own.changes, program, dictionary, own.source, problems)
                for i, (kind, codes) in enumerate(zip(batch.kinds, batch.values.tolist(), strict=True)):
                    position = positions_after(own.source, own.changes[i : i + 1])
                    found.append((kind, codes if kind >= 0 else None, batch.flags[i], position))
            return [problems.counts, problems.examples, *found]

        with blocks_of(1 << 20, by_column=False):
            wanted = taken()
        assert taken(logged) == taken() == wanted


CLOCKED = """
CREATE STREAM few (ts TIMESTAMP, name TEXT, size BIGINT);
CREATE STREAM kept (ts TIMESTAMP, name TEXT, size BIGINT) RETAIN INTERVAL '3 seconds';
CREATE VIEW recent AS
SELECT name, SUM(size) AS size FROM few WHERE ts > NOW() - INTERVAL '2 seconds' GROUP BY name;
CREATE VIEW held AS SELECT name, COUNT(*) AS n FROM kept GROUP BY name;
"""


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.integers(0, 3)), max_size=15),
    st.lists(st.integers(0, 20), max_size=15),
)
def test_ticks_come_between_rows_as_between_messages(
    few: list[tuple[int, str, int]], kept: list[int]
) -> None:
    program = compile_views(CLOCKED)
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / "few.csv", Path(folder) / "kept.csv"]
        own = [f"{ts * 10**9 // 2},{name},{size}\n" for ts, name, size in few]
        others = [f"{ts * 10**9},a,1\n" for ts in kept]
        for path, lines in zip(paths, (own, others), strict=True):
            path.write_text("ts,name,size\n" + "".join(lines))
        found = []
        for pace in ("batch", "message"):
            pipeline = Pipeline(GatedEngine(program, "interpreter"), Instruments(()))
            for item in Merger([open_rows(str(path)) for path in paths]):
                pipeline.apply(item, pace)
            views = [sorted(pipeline.engine[view].items()) for view in ("recent", "held")]
            found.append((views, pipeline.late, pipeline.messages, pipeline.changes, pipeline.engine.version))
        assert found[0] == found[1]


def logged(item: ChangeItem) -> ChangeItem:
    """An item as a log gives it back."""
    entry = entry_of(stamped_record(Stamped(1, 0, item)))
    assert isinstance(entry, Stamped) and isinstance(entry.item, ChangeItem)
    assert entry.item.source == item.source and list(entry.item.changes) == list(item.changes)
    return entry.item


def test_what_comes_after_the_lines_that_a_log_has() -> None:
    frames = [
        frame_of(source, [2, 3, 5, 9], {"ts": [1, 2, 3, 4], "name": list("abcd")}, True) for source in "xy"
    ]
    batch = RowBatch(frames, np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 1] * 4))
    assert positions_after("", batch) == {"x": 9, "y": 9}
    left = changes_after("", batch, {"x": 3, "z": 7})
    assert [(c.line, c.row["name"]) for c in left] == [
        (2, "a"), (3, "b"), (5, "c"), (5, "c"), (9, "d"), (9, "d"),
    ]  # fmt: skip
    assert changes_after("", batch, {}) is batch
