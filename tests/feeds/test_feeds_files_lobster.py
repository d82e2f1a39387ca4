"""LOBSTER files of invented markets: level-N views, full depth, halts, damage."""

from collections.abc import Sequence
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from random import Random
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from lobster_reference import lobster_events
from plain_book import PlainBook, messages

from orderbook.core.errors import SourceError
from orderbook.feeds.files.lobster import LobsterSource
from orderbook.feeds.files.lobster_book import REMEMBERED_LEVELS
from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_sources
from orderbook.market.events import EVENT, Action, BookState, Side

ADD, CANCEL, DELETE, EXECUTE, HIDDEN = range(1, 6)
DIRECTIONS = {Side.BID: 1, Side.ASK: -1}
NAME = "TEST_2012-06-21_34200000_57600000_message_{}.csv"


class Market:
    """The whole truth: every order, of which a level-N file shows part."""

    def __init__(self, random: Random):
        self.random = random
        self.orders: dict[int, tuple[Side, int, int]] = {}
        self.last_id = 100

    def levels(self, side: Side, depth: int | None = None) -> list[tuple[int, int]]:
        totals: dict[int, int] = {}
        for own, price, volume in self.orders.values():
            if own is side:
                totals[price] = totals.get(price, 0) + volume
        return sorted(totals.items(), reverse=side is Side.BID)[:depth]

    def step(self) -> tuple[int, int, int, int, Side]:
        """Something happens: kind, order id, size, price, side."""
        kind = self.random.choice((ADD, ADD, ADD, CANCEL, DELETE, EXECUTE, HIDDEN))
        side = self.random.choice((Side.BID, Side.ASK))
        best = self.levels(side, 1)
        if kind == HIDDEN and best:
            return HIDDEN, 0, self.random.randint(1, 9), best[0][0], side
        candidates = [i for i, order in self.orders.items() if order[0] is side]
        if kind == EXECUTE:
            candidates = [i for i in candidates if self.orders[i][1] == best[0][0]]
        if kind in (ADD, HIDDEN) or not candidates:
            self.last_id += 1
            price = 1000 + self.random.randint(1, 8) * (-1 if side is Side.BID else 1)
            self.orders[self.last_id] = (side, price, self.random.choice((10, 10, 20, 35)))
            return ADD, self.last_id, self.orders[self.last_id][2], price, side
        order_id = self.random.choice(candidates)
        _, price, volume = self.orders[order_id]
        size = volume if kind == DELETE else self.random.randint(1, volume)
        if kind == CANCEL and size == volume:
            kind = DELETE
        self.orders[order_id] = (side, price, volume - size)
        if size == volume:
            del self.orders[order_id]
        return kind, order_id, size, price, side

    def row(self, depth: int) -> str:
        asks, bids = (self.levels(side, depth) for side in (Side.ASK, Side.BID))
        asks += [(9999999999, 0)] * (depth - len(asks))
        bids += [(-9999999999, 0)] * (depth - len(bids))
        return ",".join(f"{ask[0]},{ask[1]},{bid[0]},{bid[1]}" for ask, bid in zip(asks, bids, strict=True))


def text_of(step: tuple[int, int, int, int, Side], number: int) -> str:
    kind, order_id, size, price, side = step
    return f"{34200 + number // 1000}.{number % 1000:03d},{kind},{order_id},{size},{price},{DIRECTIONS[side]}"


def level_n_files(folder: Path, seed: int, steps: int, depth: int) -> tuple[Path, list[str]]:
    """A message and a book file of what happens in the best `depth` levels, and the book's rows."""
    market = Market(Random(seed))
    for _ in range(20):
        market.step()
    lines, rows = [], []
    for number in range(steps):
        before = market.row(depth)
        step = market.step()
        if step[0] == HIDDEN or market.row(depth) != before:
            lines.append(text_of(step, number))
            rows.append(market.row(depth))
    path = folder / NAME.format(depth)
    path.write_text("\n".join(lines) + "\n")
    path.with_name(path.name.replace("message", "orderbook")).write_text("\n".join(rows) + "\n")
    return path, rows


def book_row(book: PlainBook, depth: int) -> str:
    market = Market(Random(0))
    sides = (Side.BID, Side.ASK)
    totals = [(side, price, volume) for side in sides for price, volume in book.best(side)]
    market.orders = dict(enumerate(totals))
    return market.row(depth)


def replay(batches: Sequence[np.ndarray]) -> PlainBook:
    book = PlainBook()
    for events in messages(batches):
        book.apply_all(events)
    return book


@given(seed=st.integers(0, 10**6), depth=st.integers(1, 5))
def test_the_book_is_the_row_whatever_happens_below(
    tmp_path_factory: pytest.TempPathFactory, seed: int, depth: int
) -> None:
    path, rows = level_n_files(tmp_path_factory.mktemp("lobster"), seed, 150, depth)
    book = PlainBook()
    seen = []
    for events in messages(LobsterSource(path, batch_size=7)):
        book.apply_all(events)
        assert max(len(book.levels[Side.BID]), len(book.levels[Side.ASK])) <= depth
        seen.append(book_row(book, depth))
    assert seen == rows


@given(seed=st.integers(0, 10**6))
def test_full_depth_messages_alone_rebuild_every_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    market = Market(Random(seed))
    path = tmp_path_factory.mktemp("lobster") / NAME.format(5)
    truths, lines = [], []
    for number in range(60):
        lines.append(text_of(market.step(), number))
        truths.append(dict(market.orders))
    path.write_text("\n".join(lines))
    book = PlainBook()
    for events, truth in zip(messages(LobsterSource(path)), truths, strict=True):
        book.apply_all(events)
        assert {order_id: tuple(order) for order_id, order in book.orders.items()} == truth


def test_orders_keep_their_ids_through_a_time_out_of_view(tmp_path: Path) -> None:
    steps = [
        # message, best bid after it, orders after it
        ("1,5,10,1000,1", (1000, 30), {5: 10, -1: 20}),
        ("1,6,5,1001,1", (1001, 5), {6: 5}),
        ("3,6,5,1001,1", (1000, 30), {5: 10, -1: 20}),
        ("4,77,8,1000,1", (1000, 22), {5: 10, -1: 12}),
        ("3,5,6,1000,1", (1000, 16), {-1: 16}),
        ("1,8,3,1002,1", (1002, 3), {8: 3}),
        ("3,8,3,1002,1", (1000, 9), {-2: 9}),
    ]
    path = tmp_path / NAME.format(1)
    path.write_text("".join(f"34200.0,{message}\n" for message, _, _ in steps))
    rows = "".join(f"2000,7,{price},{volume}\n" for _, (price, volume), _ in steps)
    path.with_name(path.name.replace("message", "orderbook")).write_text(rows)
    source = LobsterSource(path)
    book = PlainBook()
    for events, (_, best, orders) in zip(messages(source), steps, strict=True):
        book.apply_all(events)
        assert book.best(Side.BID) == [best]
        bids = sorted(volume for side, _, volume in book.orders.values() if side == Side.BID)
        assert bids == sorted(orders.values())
        known = {i: order[2] for i, order in book.orders.items() if order[0] == Side.BID and i > 0}
        assert known == {i: volume for i, volume in orders.items() if i > 0}
    assert source.counts == {
        "resynchronisations": 6,
        "came into view": 4,
        "left the view": 2,
        "restored": 1,
        "corrected": 1,
    }


def test_times_are_exact_and_new_york_has_summer_time(tmp_path: Path) -> None:
    line = "34200.004241176,1,5,18,5853300,1\n34200.1,1,6,18,5853300,1\n57600,1,7,18,5853300,1\n"
    for date, utc_hours in (("2012-06-21", 4), ("2012-12-21", 5)):
        path = tmp_path / f"AAPL_{date}_message_1.csv"
        path.write_text(line)
        events = np.concatenate(list(LobsterSource(path)))
        events = events[events["action"] == Action.ADD]
        midnight = int(np.datetime64(date, "ns").astype(np.int64)) + utc_hours * 3600 * 10**9
        seconds = (events["exchange_time"] - midnight).tolist()
        assert seconds == [34_200_004_241_176, 34_200_100_000_000, 57_600_000_000_000]
        assert (events["receive_time"] == events["exchange_time"]).all()


def test_halts_crosses_and_hidden_executions_leave_the_book_alone(tmp_path: Path) -> None:
    path = tmp_path / NAME.format(1)
    path.write_text(
        "34200.0,1,5,18,5853300,1\n"
        "34200.1,7,0,0,-1,-1\n"
        "34200.2,7,0,0,0,-1\n"
        "34200.3,7,0,0,1,-1\n"
        "34200.4,6,-1,500,5853400,-1\n"
        "34200.5,5,0,7,5853350,1\n"
        "34200.6,4,5,8,5853300,1\n"
    )
    states = []
    book = PlainBook()
    for events in messages(LobsterSource(path)):
        book.apply_all(events)
        states.append(book.state)
    assert states[:4] == [BookState.VALID, BookState.STALE, BookState.STALE, BookState.VALID]
    assert book.orders == {5: [Side.BID, 5853300, 10]}
    assert book.trades == [(Side.NONE, 5853400, 500), (Side.ASK, 5853350, 7), (Side.ASK, 5853300, 8)]


def damaged(path: Path, line_number: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[line_number - 1] = text
    path.write_text("\n".join(lines) + "\n")


def test_malformed_lines_are_counted_and_the_next_row_is_right_again(tmp_path: Path) -> None:
    path, rows = level_n_files(tmp_path, 3, 120, 2)
    book_path = path.with_name(path.name.replace("message", "orderbook"))
    damaged(path, 10, "34200.1,1,xyz,18,1000,1")
    damaged(path, 12, "34200.1,9,5,18,1000,1")
    damaged(book_path, 20, "1,2,3")
    damaged(book_path, 22, "1003,-5,1000,5,1004,5,999,5")
    source = LobsterSource(path)
    assert sum(map(len, source)) == sum(map(len, source)) > 0
    book = PlainBook()
    for number, events in enumerate(messages(source)):
        book.apply_all(events)
        row = int(events["sequence"][0])
        assert row == number + 1 or number >= 9
        assert (book.state is BookState.STALE) == (row in (20, 22))
        if book.state is BookState.VALID:
            assert book_row(book, 2) == rows[row - 1]
    assert row == len(rows)
    assert source.problems.counts == {"malformed message": 2, "malformed book row": 2}
    assert source.problems.examples["malformed message"] == [
        f"{path.name}:10: 34200.1,1,xyz,18,1000,1: order id 'xyz' is not a decimal number",
        f"{path.name}:12: 34200.1,9,5,18,1000,1: type '9' is out of range",
    ]


def collect(source: LobsterSource) -> tuple[list[np.ndarray], str]:
    batches: list[np.ndarray] = []
    with pytest.raises(SourceError) as error:
        batches.extend(source)
    assert "\n" not in str(error.value)
    return batches, str(error.value)


def test_half_a_line_at_the_end_is_one_error_after_everything_before_it(tmp_path: Path) -> None:
    path, rows = level_n_files(tmp_path, 4, 100, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b",")])
    batches, error = collect(LobsterSource(path))
    assert book_row(replay(batches), 3) == rows[-2]
    assert f"line ({len(rows)}) is not complete" in error


def compressed_in_blocks(data: bytes, block: int = 500) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = []
    for start in range(0, len(data), block):
        parts.append(compressor.compress(data[start : start + block]))
        parts.append(compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    return b"".join(parts) + compressor.flush()


def test_a_cut_zstd_frame_gives_what_it_holds(tmp_path: Path) -> None:
    path, rows = level_n_files(tmp_path, 5, 1000, 2)
    compressed = path.with_name(path.name + ".zst")
    data = compressed_in_blocks(path.read_bytes())
    compressed.write_bytes(data[: len(data) * 3 // 4])
    batches, error = collect(LobsterSource(compressed))
    count = int(batches[-1]["sequence"][-1])
    assert 0.5 * len(rows) < count < len(rows)
    assert book_row(replay(batches), 2) == rows[count - 1]
    assert "the compressed data has no end" in error


@pytest.mark.parametrize("shorter", ["message", "orderbook"])
def test_files_of_different_length_are_one_error_at_the_end(tmp_path: Path, shorter: str) -> None:
    path, rows = level_n_files(tmp_path, 6, 100, 2)
    cut = path.with_name(path.name.replace("message", shorter))
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:30]))
    batches, error = collect(LobsterSource(path))
    assert book_row(replay(batches), 2) == rows[29]
    assert f"{cut}: ends at row 30" in error


def test_names_that_do_not_tell_stock_and_date_are_refused(tmp_path: Path) -> None:
    for name in ("messages.csv", "AAPL_2012-06-21_orderbook_1.csv"):
        (tmp_path / name).write_text("34200.0,1,5,18,5853300,1\n")
        with pytest.raises(SourceError, match="SYMBOL_YYYY-MM-DD"):
            LobsterSource(tmp_path / name)
    (tmp_path / "AAPL_2012-13-21_message_1.csv").write_text("")
    with pytest.raises(SourceError, match="not a date"):
        LobsterSource(tmp_path / "AAPL_2012-13-21_message_1.csv")
    with pytest.raises(SourceError, match="No such file"):
        LobsterSource(tmp_path / "AAPL_2012-12-21_message_1.csv")


spellings = st.sampled_from(("{}", "+{}", " {}", '"{}"', "{}e0", "{}E+0", "0{}"))
decimals = st.decimals(min_value=0, max_value=86_400, allow_nan=False, allow_infinity=False, places=14)


@given(time=decimals, cut=st.integers(0, 14), spelled=st.lists(spellings, min_size=6, max_size=6))
def test_numbers_are_the_same_however_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, time: Decimal, cut: int, spelled: list[str]
) -> None:
    text = f"{time:f}"[: len(f"{time:f}") - cut].removeprefix("0")
    text = "0" if text in ("", ".") else text
    fields = (text, "1", "5", "18.0", "5853300", "1.")
    line = ",".join(how.format(field) for how, field in zip(spelled, fields, strict=True))
    path = tmp_path_factory.mktemp("lobster") / "AAPL_2012-06-21_message_1.csv"
    path.write_text(f"{line}\r\n")
    source = LobsterSource(path)
    (add,) = (event for event in np.concatenate(list(source)) if event["action"] == Action.ADD)
    midnight = int(np.datetime64("2012-06-21T04:00", "ns").astype(np.int64))
    exact = Decimal(text) * 10**9
    assert int(add["exchange_time"]) == midnight + int(exact.to_integral_value(ROUND_HALF_EVEN))
    assert (add["order_id"], add["volume"], add["price"], add["side"]) == (5, 18, 5853300, Side.BID)
    assert source.counts["times rounded"] == (exact != exact.to_integral_value())
    assert source.problems.counts == {}


@pytest.mark.parametrize(
    "field", ["", "x", "1,000", "0x10", "NaN", "1_0", "1.5", "٣", "1e", "--1", "1e999", "inf"]
)
@pytest.mark.parametrize("place", range(6))
def test_what_is_no_number_names_its_field_and_leaves_no_book_that_looks_right(
    tmp_path: Path, field: str, place: int
) -> None:
    good = ["34200.5", "1", "7", "10", "1000", "1"]
    if place == 0 and field in ("1.5",):
        return
    lines = [",".join(good)] * 3
    lines[1] = ",".join([*good[:place], field, *good[place + 1 :]])
    path = tmp_path / NAME.format(1)
    path.write_text("\n".join([*lines, "34201,7,0,0,-1,1", "34202,7,0,0,1,1"]) + "\n")
    source = LobsterSource(path)
    states = [event["volume"] for event in np.concatenate(list(source)) if event["action"] == Action.STATE]
    assert states[:2] == [BookState.VALID, BookState.STALE]
    assert BookState.VALID not in states[1:]
    (example,) = source.problems.examples["malformed message"]
    assert example.startswith(f"{path.name}:2: ")
    named = ("time", "type", "order id", "size", "price", "direction")[place]
    assert named in example if "," not in field else "7 columns" in example


def test_malformed_trades_of_hidden_orders_leave_the_book_valid(tmp_path: Path) -> None:
    path = tmp_path / NAME.format(1)
    path.write_text("34200.0,1,5,18,5853300,1\n34200.1,5,0,x,5853300,1\n34200.2,3,5,18,5853300,1\n")
    source = LobsterSource(path)
    assert replay(list(source)).state is BookState.VALID
    assert source.problems.counts == {"malformed message": 1}


def test_a_header_a_byte_order_mark_and_windows_line_ends_are_no_messages(tmp_path: Path) -> None:
    path = tmp_path / NAME.format(1)
    lines = ["", '"time","type","id","size","price","direction"', "34200.0,1,5,18,5853300,1", "  "]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    source = LobsterSource(path)
    assert replay(list(source)).orders == {5: [Side.BID, 5853300, 18]}
    assert source.problems.counts == {}


def test_the_next_day_begins_with_an_empty_book(tmp_path: Path) -> None:
    for day, order in (("21", 5), ("22", 6)):
        (tmp_path / f"AAPL_2012-06-{day}_message_1.csv").write_text(f"34200.0,1,{order},18,5853300,1\n")
    sources = open_sources([f"lobster:{tmp_path}/*.csv"])
    items = [item for item in Merger(sources) if isinstance(item, np.ndarray)]
    assert replay(items).orders == {6: [Side.BID, 5853300, 18]}


def test_zipped_files_are_read_as_they_are(tmp_path: Path) -> None:
    path, rows = level_n_files(tmp_path, 9, 60, 2)
    expected = np.concatenate(list(LobsterSource(path)))
    for file in list(tmp_path.iterdir()):
        with ZipFile(tmp_path / f"{file.name}.zip", "w", ZIP_DEFLATED) as archive:
            archive.write(file, file.name)
        file.unlink()
    (source,) = open_sources([f"{tmp_path}/*.zip"])
    assert np.concatenate(list(source)).tobytes() == expected.tobytes()
    assert book_row(replay(list(source)), 2) == rows[-1] and source.progress == 1.0  # type: ignore[arg-type]


def spoilt_message(line: str, random: Random) -> str:
    """A message that says something else, or nothing."""
    fields = line.split(",")
    place = random.randrange(6)
    match random.randrange(9):
        case 0:
            fields[place] = random.choice(
                ["", "x", "-", "1e2", "+7", " 3", "0", "-1", "9" * 18, "9" * 19, '"1"']
            )
        case 1:
            fields[1] = str(random.randint(1, 7))
        case 2:
            fields[2] = str(random.choice([-1, -2, 0, 101, 105, 110]))
        case 3:
            fields[3] = str(random.choice([0, 1, 5, 10, 10**15 - 1, 10**15]))
        case 4:
            fields[4] = str(random.choice([-1, 0, 1, 995, 999, 1001, 1004]))
        case 5:
            fields[0] += random.choice(
                [".5", "00000001", "5", "4999999999", "000000500", "00000050000", "00000049999999"]
            )
        case 6:
            return line + random.choice(["\r", "\r\r", " ", ",", "\n\n", "\n \t\n"])
        case 7:
            return line[: random.randrange(len(line))]
        case _:
            fields.pop(place)
    return ",".join(fields)


def spoilt_row(row: str, random: Random) -> str:
    """A row that shows something else, or nothing."""
    fields = row.split(",")
    place = random.randrange(len(fields))
    match random.randrange(6):
        case 0:
            fields[place] = random.choice(
                ["", "x", "+5", "-7", "0", " 12", "9" * 15, "9" * 16, "9" * 19, "1_0"]
            )
        case 1:
            levels = [fields[k : k + 4] for k in range(0, len(fields), 4)]
            random.shuffle(levels)
            fields = [field for level in levels for field in level]
        case 2:
            fields[place] = fields[(place + 4) % len(fields)]
        case 3:
            return row + random.choice(["\r", ",", "\n\n", " "])
        case 4:
            return row[: random.randrange(len(row))]
        case _:
            fields = [str(random.randint(990, 1010)) for _ in fields]
    return ",".join(fields)


def assert_as_plain(path: Path, batch_size: int, anew: bool = False) -> int:
    """How many events there are, which are those of the plain decoder."""
    source = LobsterSource(path, batch_size=batch_size)
    source.anew = anew
    batches = [np.empty(0, EVENT)]
    # A file that is cut says so at its end.
    with suppress(SourceError):
        batches.extend(source)
    events, counts = lobster_events(path, anew)
    found = np.concatenate(batches)
    assert found.tolist() == events.tolist()
    assert +source.counts == +counts
    return len(found)


@pytest.mark.parametrize("rows_beside", [True, False])
@given(seed=st.integers(0, 10**9))
def test_compiled_code_makes_of_any_lines_what_plain_python_does(
    tmp_path_factory: pytest.TempPathFactory, rows_beside: bool, seed: int
) -> None:
    random = Random(seed)
    depth, folder = random.randint(1, 6), tmp_path_factory.mktemp("lobster")
    path, rows = level_n_files(folder, seed, random.choice([20, 400]), depth)
    lines = path.read_text().splitlines()
    rate = random.choice([0, 0.02, 0.3])
    lines = [spoilt_message(line, random) if random.random() < rate else line for line in lines]
    rows = [spoilt_row(row, random) if random.random() < rate else row for row in rows]
    ends = ["\n", "\r\n", ""]
    header = random.choice(["", "time,type,order id,size,price,direction\n"])
    path.write_text(header + "\n".join(lines) + random.choice(ends))
    beside = path.with_name(path.name.replace("message", "orderbook"))
    beside.write_text("\n".join(rows) + random.choice(ends))
    if not rows_beside:
        beside.unlink()
    assert_as_plain(path, random.choice([1, 7, 10_000]), random.random() < 0.5)


def test_more_orders_levels_and_hidden_levels_than_there_was_room_for(tmp_path: Path) -> None:
    path = tmp_path / NAME.format(1)
    beside = path.with_name(path.name.replace("message", "orderbook"))
    lines, rows = [], []
    # Bids rise past more levels than are remembered, and fall back, which brings back those that are.
    for number in range(2 * REMEMBERED_LEVELS + 1_000):
        step = min(number, 2 * REMEMBERED_LEVELS + 1_000 - number)
        price = 1_000 + step
        kind = 1 if number < REMEMBERED_LEVELS + 500 else 5
        lines.append(f"{34200 + number / 1000:.3f},{kind},{number},{10 + step % 5},{price},1")
        rows.append(f"9999999999,0,{price},{10 + step % 5}")
    path.write_text("\n".join(lines) + "\n")
    beside.write_text("\n".join(rows) + "\n")
    assert assert_as_plain(path, 1_000) > 3 * REMEMBERED_LEVELS
    # Thousands of orders of one level leave together.
    lines = [f"{34200 + number / 1000:.3f},1,{number},1,1000,1" for number in range(5_000)]
    rows = [f"9999999999,0,1000,{number + 1}" for number in range(4_999)] + ["9999999999,0,999,5"]
    path.write_text("\n".join(lines) + "\n")
    beside.write_text("\n".join(rows) + "\n")
    assert assert_as_plain(path, 64) == 2 * 5_000 + 2


@pytest.mark.parametrize("levels", [1, 10])
def test_recorded_days_are_as_plain_python_reads_them(levels: int, shared_data: Path) -> None:
    (path,) = (shared_data / "lobster").glob(f"*_message_{levels}.csv.zst")
    assert assert_as_plain(path, 5_000) > 2_000
