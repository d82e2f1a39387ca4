"""Change streams: exact numbers both ways, and bad lines named by number."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.change_stream import ChangeStreamSource, RelationChange, Value

numbers = st.decimals(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | numbers
rows = st.dictionaries(st.text(max_size=3), values, max_size=4)
streams, ops = st.sampled_from(["bids", "asks", "π"]), st.sampled_from(["+", "-"])
changes = st.builds(RelationChange, st.just(0), streams, ops, rows, st.booleans())


def read(source: ChangeStreamSource) -> list[RelationChange]:
    return [change for batch in source for change in batch]


@given(given_changes=st.lists(changes, max_size=12), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_what_is_written_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, given_changes: list[RelationChange], suffix: str
) -> None:
    path = tmp_path_factory.mktemp("changes") / f"changes.ndjson{suffix}"
    assert write_changes(path, given_changes) == len(given_changes)
    source = ChangeStreamSource(path, batch_size=5)
    batches = list(source)
    assert [len(batch) for batch in batches[:-1]] == [5] * (len(batches) - 1)
    found = [change for batch in batches for change in batch]
    assert [change.line for change in found] == list(range(1, len(given_changes) + 1))
    assert [change._replace(line=0) for change in found] == given_changes
    assert source.problems.report() == []


def test_numbers_keep_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "changes.ndjson"
    texts = ("223.95", "0.1", "1e-8", "123456789012345678901234567890.12345678", "100.00")
    text = "".join(f'{{"stream":"s","op":"+","row":{{"v":{number}}}}}\n' for number in texts)
    path.write_text(text)
    found = [change.row["v"] for change in read(ChangeStreamSource(path))]
    assert [str(number) for number in found] == [str(Decimal(number)) for number in texts]
    write_changes(path, read(ChangeStreamSource(path)))
    rows_again = [json.loads(line, parse_float=str)["row"]["v"] for line in path.read_text().splitlines()]
    assert [Decimal(number) for number in rows_again] == found


def test_last_is_true_when_absent_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "changes.ndjson"
    path.write_text(
        '\n{"stream":"bids","op":"+","row":{"id":7},"last":false}\r\n   \n'
        '{"op":"-","row":{"id":7},"stream":"bids"}'
    )
    assert read(ChangeStreamSource(path)) == [
        RelationChange(2, "bids", "+", {"id": 7}, False),
        RelationChange(4, "bids", "-", {"id": 7}, True),
    ]


def test_malformed_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "changes.ndjson"
    good = '{"stream":"s","op":"+","row":{"v":1}}'
    bad = [
        "nonsense",
        '{"stream":"s","op":"*","row":{}}',
        '{"stream":"s","op":"+"}',
        '{"stream":"s","op":"+","row":{"v":[1]}}',
        '{"stream":"s","op":"+","row":{"v":NaN}}',
        '{"stream":"s","op":"+","row":{},"lst":true}',
        '{"stream":"s","op":"+","row":{},"last":1}',
    ]
    lines = [good]
    for line in bad:
        lines += [line, good]
    path.write_text("\n".join(lines) + "\n")
    source = ChangeStreamSource(path)
    assert [change.line for change in read(source)] == list(range(1, 2 * len(bad) + 2, 2))
    assert source.problems.counts == {"malformed change": len(bad)}
    places = [text.split(":")[1] for text in source.problems.examples["malformed change"]]
    assert places == ["2", "4", "6", "8", "10"]
    assert "7 x malformed change: changes.ndjson:2: " in source.problems.report()[0]


def test_a_cut_last_line_is_one_error_after_everything_before_it(tmp_path: Path) -> None:
    path = tmp_path / "changes.ndjson"
    path.write_text('{"stream":"s","op":"+","row":{"v":1}}\n' * 3 + '{"stream":"s","op":"+","ro')
    found: list[list[RelationChange]] = []
    with pytest.raises(SourceError, match=r"last line \(4\) is not complete"):
        found.extend(ChangeStreamSource(path))
    assert [change.line for batch in found for change in batch] == [1, 2, 3]


def test_what_json_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s\.v: NaN"):
        write_changes(tmp_path / "changes.ndjson", [RelationChange(0, "s", "+", {"v": Decimal("NaN")})])
    with pytest.raises(SourceError, match="cannot write"):
        write_changes(tmp_path / "no" / "changes.ndjson", [])


@pytest.mark.parametrize("text", ["1.7e18", "1700000000000000000.0", "1700000000000000000"])
def test_a_rows_time_is_the_integer_that_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "changes.ndjson"
    path.write_text(f'{{"stream": "s", "op": "+", "row": {{"ts": {text}, "x": 1.0}}}}\n')
    (change,) = read(ChangeStreamSource(path))
    assert change.stated_time == 17 * 10**17 and isinstance(change.row["ts"], int)
    assert isinstance(change.row["x"], Decimal)


class _WrittenLine(msgspec.Struct, omit_defaults=True):
    stream: str
    op: str
    row: Mapping[str, Value]
    last: bool = True
    time: int | None = None


def write_changes(path: Path, changes: Iterable[RelationChange]) -> int:
    """Write a change stream, compressed where the name ends in .zst or .gz; returns how many changes.

    Decimals are written as JSON numbers, digit for digit. Raises DataError for a number that JSON does
    not have (NaN, infinity), SourceError when the file cannot be written.
    """
    encoder = msgspec.json.Encoder(decimal_format="number")
    count = 0
    try:
        with _created(path) as write:
            for change in changes:
                for name, value in change.row.items():
                    if isinstance(value, Decimal) and not value.is_finite():
                        raise DataError(f"{change.stream}.{name}: {value} is not a finite number")
                line = _WrittenLine(change.stream, change.op, change.row, change.last, change.time)
                write(encoder.encode(line) + b"\n")
                count += 1
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {error.strerror}; choose another place") from error
    return count


@contextmanager
def _created(path: Path) -> Iterator[Callable[[bytes], object]]:
    """The `write` of a new file, compressed by the name's ending."""
    if path.suffix == ".zst":
        with zstandard.open(path, "wb") as compressed:
            yield compressed.write
    elif path.suffix == ".gz":
        with gzip.open(path, "wb") as zipped:
            yield zipped.write
    else:
        with path.open("wb") as plain:
            yield plain.write
