"""Frames that wait, decoded in one call without the interpreter lock, as far as compiled code reads them.

A decoder of frames is a compiled function `decode(context)`, which reads the tape of a frame (json_tape),
writes its events and changes the words of its book; or gives False, for whatever is unusual. It may change
ladders before it knows, which is undone, but no other word of a book.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from orderbook.core.jit import called_with, jit, resolved
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.wire import text_ladder
from orderbook.feeds.wire.bytes_memory import PADDING, copy_bytes
from orderbook.feeds.wire.checked_book import crc_tables
from orderbook.feeds.wire.decoder_state import (
    CONTEXT,
    FIELDS,
    BookMemory,
    ConnectionMemory,
    addresses,
    context_at,
    int64_words,
)
from orderbook.feeds.wire.json_tape import DEEPEST, scan
from orderbook.market.block_memory import load, store
from orderbook.market.events import EVENT

# Longer frames, which are snapshots, are left.
LONGEST = 1 << 18
# What a call takes at most, and what it writes: frames, tokens of one, events, changes of ladders by one.
MOST = 1024
_TOKENS, _EVENTS, _NOTES = 1 << 17, 1 << 14, 1 << 13
# A frame is begun while so many events have room.
_ROOM = _EVENTS // 2
# Bytes of the memory that a decoder may use for what waits.
SCRATCH = 1 << 16
_TEXT, _LARGEST_TEXT = 1 << 16, 1 << 24
_ZEROS = bytes(PADDING)
_EVENT_BYTES = EVENT.itemsize
_NEVER = 2**63 - 1

# Where bytes objects begin: CPython, Include/cpython/bytesobject.h.
_BYTES_AT = bytes.__basicsize__ - 1


@dataclass(frozen=True, slots=True)
class FrameLoop:
    """How the frames of an exchange are taken, by the address of a context; compiled when it is needed.

    waiting: those that wait; gives how many were taken. one: one frame, by its bytes, how many they are, when
    it was received, and CONTEXT's `receive_time` and `until`; 1 if it was taken, else 0.
    """

    waiting: Callable[[int], int]
    one: Callable[[], Callable[[int, bytes, int, int, int, int], int]]


def frame_loop(decode: Callable[..., Any]) -> FrameLoop:
    """The compiled loop over the frames of a context, by a compiled `decode`."""

    @jit(nogil=True)
    def take(context_address: int) -> int:
        """Takes frames up to one that is left; how many were taken."""
        context = context_at(context_address)
        first = context.number
        while context.number < context.count:
            number = context.number
            length, time = load(context.lengths + 8 * number), load(context.times + 8 * number)
            if time < context.receive_time or time >= context.until or context.room - context.written < _ROOM:
                break
            begin = context.place
            tokens = scan(context.text, begin, begin + length, context.tape, context.tape_room, context.stack)
            if tokens == 0:
                break
            written = context.written
            context.time = time
            if not decode(context):
                context.written = written
                if load(context.notes):
                    text_ladder.undo(context.notes)
                break
            if load(context.notes):
                text_ladder.keep(context.notes)
            context.receive_time = time
            context.place, context.number = begin + length + PADDING, number + 1
        return context.number - first

    @cache
    def one() -> Callable[[int, bytes, int, int, int, int], int]:
        @called_with("ioiiii")
        def take_one(context_address: int, data: int, size: int, time: int, last: int, until: int) -> int:
            context = context_at(context_address)
            copy_bytes(data + _BYTES_AT, context.text, size)
            store(context.text + size, 0)
            store(context.lengths, size)
            store(context.times, time)
            context.receive_time, context.until = last, until
            context.place, context.number, context.count = context.text, 0, 1
            return take(context_address)

        return take_one

    return FrameLoop(take, one)


class FrameDecoder:
    """Decodes the frames of one connection by a compiled loop; `words` are those of its CONTEXT."""

    def __init__(
        self, loop: FrameLoop, books: Sequence[BookMemory], connection: ConnectionMemory | None = None
    ) -> None:
        connection = connection or ConnectionMemory()
        record = np.zeros(1, CONTEXT)
        self.words = int64_words(record)
        self._address = int(record.ctypes.data)
        self._events = np.empty(_EVENTS, EVENT)
        self._bytes = memoryview(self._events.view(np.uint8))  # type: ignore[arg-type]
        self._lengths, self._times = np.zeros(MOST, np.int64), np.zeros(MOST, np.int64)
        self._length_words = int64_words(self._lengths)
        self._time_words = int64_words(self._times)
        self._make_room(_TEXT)
        memory = {
            "lengths": self._lengths,
            "times": self._times,
            "tape": np.empty(_TOKENS, np.int64),
            "stack": np.empty(2 * DEEPEST, np.int64),
            "out": self._events,
            "notes": np.empty(1 + _NOTES * text_ladder.NOTE_BYTES // 8, np.int64),
            "scratch": np.empty(SCRATCH, np.uint8),
            "tables": crc_tables(),
            "books": addresses(books),
        }
        memory["notes"][0] = 0
        self._memory = record, memory, tuple(books), connection
        for name, own in memory.items():
            self.words[FIELDS[name]] = own.ctypes.data
        for name, value in (
            ("tape_room", _TOKENS),
            ("room", _EVENTS),
            ("notes_room", _NOTES),
            ("book_count", len(books)),
            ("connection", connection.address),
            ("until", _NEVER),
        ):
            self.words[FIELDS[name]] = value
        # Compiles it, where that has not been done.
        self._loop, self._one = resolved(loop.waiting, self._address), loop.one()

    def _make_room(self, size: int) -> None:
        self._text = np.zeros(size, np.uint8)
        self._place = int(self._text.ctypes.data)
        self._text_bytes = memoryview(self._text)  # type: ignore[arg-type]
        self.words[FIELDS["text"]] = self._place

    def take_checksums(self) -> int:
        """How many checksums were compared, and equal, since the last call."""
        found = self.words[CHECKSUMS]
        self.words[CHECKSUMS] = 0
        return found

    def load_frames(self, frames: Sequence[bytes], times: Sequence[int]) -> int:
        """Have frames, received at these times, ns, wait to be decoded; how many of the first could be.

        Those that waited before are forgotten.
        """
        words = self.words
        frames = frames[:MOST]
        lengths = array("q", map(len, frames))
        count, size = len(frames), sum(lengths) + PADDING * len(frames)
        if max(lengths, default=0) > LONGEST or size > _LARGEST_TEXT:
            count = next((n for n, length in enumerate(lengths) if length > LONGEST), count)
            count = min(count, _LARGEST_TEXT // (LONGEST + PADDING))
            frames, lengths = frames[:count], lengths[:count]
            size = sum(lengths) + PADDING * count
        if size > len(self._text):
            self._make_room(2 * size)
        self._text_bytes[:size] = _ZEROS.join((*frames, b""))
        self._length_words[:count] = lengths
        self._time_words[:count] = array("q", times[:count])
        words[_PLACE], words[_NUMBER], words[_COUNT] = self._place, 0, count
        return count

    def take(self, frame: bytes, time: int, last: int, until: int, events: EventWriter) -> bool:
        """Decode one frame, unless it is unusual; see `run`. Those that waited before are forgotten."""
        size, words = len(frame), self.words
        if size > LONGEST:
            return False
        if size + PADDING > len(self._text):
            self._make_room(2 * size + PADDING)
        taken: int = self._one(self._address, frame, size, time, last, until)
        if written := words[_WRITTEN]:
            events.extend_units(self._bytes[: _EVENT_BYTES * written])
            words[_WRITTEN] = 0
        return taken != 0

    def run(self, last: int, until: int, events: EventWriter) -> int:
        """Decode the frames that wait up to one that is unusual; how many were decoded.

        last: the time of what was received before; until: frames of this time or later are left, as are
        those that were received before what came before them. Events are added as units.
        """
        words, taken = self.words, 0
        words[_RECEIVE_TIME], words[_UNTIL] = last, until
        while True:
            found = self._loop(self._address)
            taken += found
            written = words[_WRITTEN]
            if written:
                events.extend_units(self._bytes[: _EVENT_BYTES * written])
                words[_WRITTEN] = 0
            if written <= _EVENTS - _ROOM or not found:
                return taken

    def skip(self) -> None:
        """The next frame that waits is decoded otherwise."""
        words = self.words
        number = words[_NUMBER]
        words[_PLACE] += self._length_words[number] + PADDING
        words[_NUMBER] = number + 1


_RECEIVE_TIME, _UNTIL, _WRITTEN = FIELDS["receive_time"], FIELDS["until"], FIELDS["written"]
CHECKSUMS = FIELDS["checksums"]
_PLACE, _NUMBER, _COUNT = FIELDS["place"], FIELDS["number"], FIELDS["count"]
