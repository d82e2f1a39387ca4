"""The parts of compiled decoders, each against what it stands for: msgspec, Decimal, zlib, a plain ladder."""

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zlib import crc32 as zlib_crc32

import msgspec
import numpy as np
import pytest

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.books import PythonLadder
from orderbook.feeds.text_values import IsoClock, WireNumbers
from orderbook.feeds.wire import text_ladder
from orderbook.feeds.wire.bytes_memory import PADDING, is_named, name_of
from orderbook.feeds.wire.checked_book import crc32, crc_tables
from orderbook.feeds.wire.decoder_state import BookMemory
from orderbook.feeds.wire.json_tape import ARRAY, DEEPEST, OBJECT, STRING, scan
from orderbook.feeds.wire.numbers import REFUSED, integer, iso_time, seconds_time, units
from orderbook.feeds.wire.order_amounts import OrderAmounts
from orderbook.feeds.wire.recent_trades import REMEMBERED, RecentTrades
from orderbook.feeds.wire.text_ladder import TextLadder
from orderbook.market.instruments import Instrument

EXAMPLES = 20_000
_ROOM = 4096


class Text:
    """Bytes as compiled code reads them."""

    def __init__(self, data: bytes) -> None:
        self.memory = np.frombuffer(data + bytes(PADDING), np.uint8).copy()
        self.start, self.length = int(self.memory.ctypes.data), len(data)


class Tape:
    def __init__(self) -> None:
        self.words, self.stack = np.zeros(_ROOM, np.int64), np.zeros(2 * DEEPEST, np.int64)

    def of(self, data: bytes, room: int = _ROOM) -> list[int]:
        text = Text(data)
        end = text.start + text.length
        tokens = scan(text.start, text.start, end, self.words.ctypes.data, room, self.stack.ctypes.data)
        return [int(token) for token in self.words[:tokens]]


def value_of(tokens: list[int], data: bytes, place: int = 0) -> tuple[object, int]:
    """What a tape says, and the place behind it."""
    token = tokens[place]
    kind, start, more = token & 15, (token >> 4) & ((1 << 28) - 1), token >> 32
    if kind not in (ARRAY, OBJECT):
        if kind == STRING:
            return data[start : start + more].decode(), place + 1
        text = {6: b"true", 7: b"false", 8: b"null"}.get(kind, data[start : start + more])
        return json.loads(text), place + 1
    found, place = [], place + 1
    while place < more:
        one, place = value_of(tokens, data, place)
        found.append(one)
    assert place == more
    return (dict(zip(found[::2], found[1::2], strict=True)) if kind == OBJECT else found), place


SAMPLES = (
    b'[1920,{"a":[["0.043160","0.00000000","1618678134.144286"]],"c":"2190162827"},"book-1000","SC/EUR"]',
    b'{"a" : [ ] , "b":{ } ,"c":[1.5e3,-0,0.1,true,false,null],"d":{"a longer name":-12.75E-2}}',
    b' [ [[]],{"":""},"abcdefghijklmnop",0,[10,[]]]\n',
)


def test_what_has_a_tape_is_json(sample_seed: int) -> None:
    tape, chance = Tape(), random.Random(sample_seed)
    for sample in SAMPLES:
        tokens = tape.of(sample)
        assert value_of(tokens, sample) == (json.loads(sample), len(tokens))
        assert tape.of(sample, len(tokens) - 1) == []
    taken = 0
    letters = b'[]{}",:0123.eE-+tfnrula \\\x00\x7f\xc3'
    for _ in range(EXAMPLES):
        data = bytearray(chance.choice(SAMPLES))
        for _ in range(chance.randrange(4)):
            place, what = chance.randrange(len(data)), chance.randrange(3)
            if what == 0:
                del data[place]
            else:
                data[place : place + (what == 1)] = bytes([chance.choice(letters)])
        tokens = tape.of(bytes(data))
        if tokens:
            taken += 1
            read = msgspec.json.decode(data)
            assert value_of(tokens, bytes(data))[0] == json.loads(data) == read
    assert taken > EXAMPLES / 5


@pytest.mark.parametrize(
    "text",
    ['["\\n"]', '["é"]', '["\t"]', "[" * 40 + "]" * 40, "[1]x", "[1", "", "01", "1.", "[1e400]", "nul"],
)
def test_what_is_unusual_or_wrong_has_none(text: str) -> None:
    assert Tape().of(text.encode()) == []


def test_names() -> None:
    names = [
        "",
        "a",
        "b",
        "ab",
        "bids",
        "sequence",
        "timestamp",
        "sequence_num",
        "sixteen letters!",
        "price_level",
    ]
    for one in names:
        text = Text(one.encode() + b'":1')
        for other in names:
            assert is_named(text.start, len(one), name_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("tick", "step"), [("0.01", 1), ("0.00000001", 1), ("0.25", 1), ("0.05", 5), ("1", 1)]
)
def test_numbers_are_those_of_decoders_in_python(tick: str, step: int, sample_seed: int) -> None:
    chance = random.Random(sample_seed)
    one = Instrument("venue", "A", "A", Decimal(tick) / step, Decimal(1))
    known = BookMemory(one, 0).words
    reference = WireNumbers(one.ticks, one.tick_scale, step)
    taken = 0
    for _ in range(EXAMPLES // 10):
        text = "".join(chance.choice("0123456789.0125e-") for _ in range(chance.randrange(1, 14)))
        if chance.random() < 0.7:
            text = f"{chance.randrange(10 ** chance.randrange(1, 11))}.{chance.randrange(10**4):04}0000"[:20]
        data = Text(text.encode())
        found = units(data.start, data.length, one.tick_scale, known[5], step)
        try:
            expected = reference[text]
        except (DataError, ValueError):
            expected = REFUSED
        assert found in (expected, REFUSED), text
        off = expected != REFUSED and expected % step
        if "e" not in text and len(text) < 16 and not off:
            assert found == expected, text
        taken += found != REFUSED
    assert taken > 100


def test_exponents() -> None:
    for text, expected in (("1e-2", 1), ("1.5E1", 1500), ("12e+0", 1200), ("1e9", 10**11), ("1e-3", REFUSED)):
        data = Text(text.encode())
        assert units(data.start, data.length, 10**6, 2, 1) == expected
    for text in (
        "",
        ".",
        "e1",
        "1e",
        "1e+",
        "--1",
        "-1",
        "1e10",
        "99999999999",
        "1.2.3",
        " 1",
        "1e-99",
        "9" * 30,
    ):
        data = Text(text.encode())
        assert units(data.start, data.length, 10**6, 2, 1) == REFUSED


def test_times(sample_seed: int) -> None:
    chance, clock = random.Random(sample_seed), IsoClock()
    taken = 0
    for _ in range(EXAMPLES // 10):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(9_200_000_000))
        text = moment.replace(tzinfo=None).isoformat() + chance.choice(
            ["Z", ".1Z", ".123456789Z", ".000001Z"]
        )
        if chance.random() < 0.3:
            place = chance.randrange(len(text))
            text = text[:place] + chance.choice("0123456789-:.TZ+") + text[place + 1 :]
        data = Text(text.encode())
        found = iso_time(data.start, data.length)
        try:
            expected = clock.nanoseconds(text)
        except ValueError:
            expected = REFUSED
        assert found in (expected, REFUSED), text
        taken += found == expected
    assert taken > EXAMPLES / 20
    for text, seconds in (("1618678134.144286", 1618678134144286000), ("5", 5 * 10**9), ("0.000000001", 1)):
        data = Text(text.encode())
        assert seconds_time(data.start, data.length) == seconds
    for text in ("", ".5", "5.", "1.0000000001", "12345678901", "-1", "1e3"):
        data = Text(text.encode())
        assert seconds_time(data.start, data.length) == REFUSED
    data = Text(b"0123456789")
    assert [integer(data.start, n, 9) for n in (0, 1, 9, 10)] == [REFUSED, 0, 12345678, REFUSED]


def test_crc32(sample_seed: int) -> None:
    chance, tables = random.Random(sample_seed), crc_tables()
    for length in range(100):
        data = chance.randbytes(length)
        text = Text(data)
        assert crc32(text.start, length, tables.ctypes.data) == zlib_crc32(data)


class Levels:
    """A TextLadder and a ladder of Python, of the same levels."""

    def __init__(self) -> None:
        self.ladder, self.plain = TextLadder(3), PythonLadder()

    def check(self) -> None:
        assert len(self.ladder) == len(self.plain)
        for count in (1, 3, 5000):
            assert self.ladder.best(count) == self.plain.best(count)

    def change(self, chance: random.Random, keys: int) -> None:
        key = chance.randrange(-keys, keys)
        what = chance.random()
        for ladder in (self.ladder, self.plain):
            if what < 0.6:
                ladder.put(key, str(key) * (30 if what < 0.05 else 1), str(what))
            elif what < 0.95:
                ladder.remove(key)
            elif len(ladder):
                ladder.drop_last()


def test_a_ladder_is_a_plain_one(sample_seed: int) -> None:
    chance, both = random.Random(sample_seed), Levels()
    for number in range(3000):
        both.change(chance, 30)
        if number % 20 == 0:
            both.check()
    for number in range(3000):
        for ladder in (both.ladder, both.plain):
            ladder.put(number, str(number), "1")
    both.check()
    both.ladder.clear()
    both.plain.clear()
    both.check()


def test_changes_of_a_ladder_are_undone(sample_seed: int) -> None:
    chance, both = random.Random(sample_seed), Levels()
    notes = np.zeros(1 + 100 * text_ladder.NOTE_BYTES // 8, np.int64)
    at = int(notes.ctypes.data)
    for _ in range(300):
        both.change(chance, 20)
        record = both.ladder._record[0]
        record["changed"] = 0
        best, free = both.ladder.best(3), int(record["free_count"])
        for _ in range(chance.randrange(1, 10)):
            key = chance.randrange(-20, 20)
            if chance.random() < 0.5:
                slot = text_ladder.set_level(at, both.ladder.address, key)
                text_ladder.put_lengths(slot, 0, 0)
            else:
                text_ladder.remove_level(at, both.ladder.address, key)
        if both.ladder.best(3) != best:
            assert record["changed"]
        text_ladder.undo(at)
        assert notes[0] == 0 and record["free_count"] == free
        both.check()


def test_amounts_of_orders_are_a_dict(sample_seed: int) -> None:
    chance, table, plain = random.Random(sample_seed), OrderAmounts(), dict[int, int]()
    known = [chance.getrandbits(63) for _ in range(1500)] + list(range(50))
    for number in range(EXAMPLES):
        order, what = chance.choice(known), chance.random()
        if what < 0.5:
            table[order] = plain[order] = number
        elif what < 0.9:
            assert table.pop(order, -7) == plain.pop(order, -7)
        else:
            assert table.get(order) == plain.get(order) and (order in table) == (order in plain)
        assert len(table) == len(plain)
        if number == EXAMPLES // 2:
            table.clear()
            plain.clear()
            table.update({one: one % 7 for one in known})
            plain.update({one: one % 7 for one in known})
    assert all(table.get(order) == plain.get(order) for order in known)


def test_a_ladder_is_filled_at_once(sample_seed: int) -> None:
    chance = random.Random(sample_seed)
    one = BookMemory(Instrument("venue", "A", "A", Decimal("0.1"), Decimal("0.1")), 0)
    for as_digits in (False, True):
        for sign in (1, -1):
            ladder = TextLadder(10, as_digits=as_digits)
            levels = [(f"{chance.randrange(3000) / 10:.2f}", f"0{number}.5") for number in range(3000)]
            assert ladder.fill(one, sign, levels)
            slow = TextLadder(10, as_digits=as_digits)
            for price, size in levels:
                slow.put(sign * round(float(price) * 10), price, size)
            assert ladder.best(5000) == slow.best(5000) and len(ladder) == len(slow)
            for odd in (
                ("1.0", "0"),
                ("1.01", "1"),
                ("1", "x"),
                ("1.0\n2", "1"),
                ("é", "1"),
                ("1" * 60, "1"),
            ):
                assert not ladder.fill(one, sign, [*levels, odd]) and len(ladder) == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_the_last_trades_are_known_again_and_no_others(seed: int) -> None:
    chance, recent, plain = random.Random(seed), RecentTrades(), dict[str, None]()
    ids = [str(number * 2**20) for number in range(2000)]
    ids += [str(UUID(int=chance.getrandbits(128))) for _ in range(2000)]
    for _ in range(12_000):
        one = chance.choice(ids) if chance.random() < 0.7 else chance.choice(list(plain) or ids)
        assert recent.add(one) == (one not in plain)
        plain.setdefault(one)
        if len(plain) > REMEMBERED:
            del plain[next(iter(plain))]
    with pytest.raises(ValueError, match="UUID"):
        recent.add("x")
