"""Blocks of bytes of DBN files in, batches of events out, by compiled code; see `databento_decoder`."""

from collections import Counter
from collections.abc import Iterator, Sequence

import databento_dbn as dbn
import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import Problems
from orderbook.feeds.files.databento_decoder import EVENTS_OF_RECORD, HEAD_BYTES, decode
from orderbook.feeds.files.databento_state import (
    ACTIONS,
    BOOK,
    CONTEXT,
    EXAMPLE,
    EXAMPLES,
    FAULTS,
    IDENTIFIER,
    INTERVAL,
    NO_REASON,
    NONE_YET,
    SIDE_WORDS,
    Detail,
    Fault,
    Stop,
)
from orderbook.market.block_memory import Memory
from orderbook.market.events import EVENT, Events, StateReason

_KINDS = {
    Fault.UNMAPPED: "unmapped instrument",
    Fault.SECOND_PUBLISHER: "second publisher",
    Fault.UNUSABLE: "unusable record",
    Fault.UNUSABLE_TRADE: "unusable trade",
    Fault.OFF_TICK: "off the tick",
    Fault.UNKNOWN_ORDER: "unknown order",
    Fault.WITHOUT_END: "message without end",
}
_BEFORE_FILE = "records of orders from before the file"
# Of `one`, `other` and the order `unsigned`.
_DETAILS = {
    Detail.IDENTIFIER: "id {one}",
    Detail.PUBLISHERS: "{one} beside {other}",
    Detail.PRICE: "price {one}e-9",
    Detail.NO_SIDE: "an order without a side",
    Detail.PRICE_OF_ORDER: "price {one}e-9 for order {other_unsigned}",
    Detail.TOO_LONG: "a message of too many records",
    Detail.TICK: "price {one}e-9, tick {other}e-9",
    Detail.ORDER: "order {one_unsigned}",
    Detail.LEFT_OUT: "left out",
}
_AUCTION, _HALTED, _CLOSED = StateReason.AUCTION, StateReason.HALTED, StateReason.CLOSED
# Why a market that does not trade does not, by what happened to it; without an entry nothing has.
_REASONS = {
    dbn.StatusAction.PRE_OPEN: _AUCTION,
    dbn.StatusAction.PRE_CROSS: _AUCTION,
    dbn.StatusAction.QUOTING: _AUCTION,
    dbn.StatusAction.CROSS: _AUCTION,
    dbn.StatusAction.ROTATION: _AUCTION,
    dbn.StatusAction.NEW_PRICE_INDICATION: _AUCTION,
    dbn.StatusAction.PRE_CLOSE: _AUCTION,
    dbn.StatusAction.HALT: _HALTED,
    dbn.StatusAction.PAUSE: _HALTED,
    dbn.StatusAction.SUSPEND: _HALTED,
    dbn.StatusAction.CLOSE: _CLOSED,
    dbn.StatusAction.POST_CLOSE: _CLOSED,
    dbn.StatusAction.NOT_AVAILABLE_FOR_TRADING: _CLOSED,
    dbn.StatusAction.TRADING: StateReason.NONE,
}
_ERROR_TYPE = 21
_LATEST = 2**63 - 1
_NEVER = (_LATEST, 0)


def _reasons() -> NDArray[np.int64]:
    reasons = np.full(ACTIONS, NO_REASON, np.int64)
    for action, reason in _REASONS.items():
        reasons[int(action)] = reason
    return reasons


class RecordDecoder:
    """Decodes the records of one or more files, one after the other; `enter` begins each.

    ticks: of each instrument, in 1e-9. alone: every record is a message, as in files of trades. sound: books
    are not these records' concern, as there and in files of status.
    problems, counts: what is wrong with records, and what was left out.
    `damage` says what ended a file before its bytes did, None where nothing has.
    """

    def __init__(
        self,
        ticks: Sequence[int],
        problems: Problems,
        counts: Counter[str],
        batch_size: int,
        *,
        alone: bool,
        sound: bool,
    ) -> None:
        self.damage: str | None = None
        self._problems, self._counts = problems, counts
        self._batch_size = max(batch_size, EVENTS_OF_RECORD)
        self._memory = Memory()
        self._books = np.zeros(len(ticks), BOOK)
        self._levels = np.zeros((len(ticks), 2, SIDE_WORDS), np.int64)
        self._books["index"] = np.arange(len(ticks))
        self._books["tick"] = ticks
        self._books["instrument_id"] = self._books["publisher"] = NONE_YET
        self._books["synchronised"] = sound
        size = self._levels.itemsize * 2 * SIDE_WORDS
        self._books["levels"] = self._levels.ctypes.data + size * np.arange(len(ticks))
        self._found = np.zeros(FAULTS, np.int64)
        self._examples = np.zeros(FAULTS * EXAMPLES, EXAMPLE)
        self._reasons = _reasons()
        self._new_levels = np.zeros((2, SIDE_WORDS), np.int64)
        self._contexts = np.zeros(1, CONTEXT)
        self._context = self._contexts[0]
        self._context["alone"], self._context["sound"] = alone, sound
        for name, array in (
            ("pool", self._memory.pool),
            ("books", self._books),
            ("counts", self._found),
            ("examples", self._examples),
            ("reasons", self._reasons),
            ("levels", self._new_levels),
        ):
            self._context[name] = array.ctypes.data
        self._rest = b""
        self._told = 0
        self._context["known_start"], self._context["known_end"] = _NEVER
        self._new_output(self._batch_size)

    @property
    def records(self) -> int:
        """How many records of the file were read."""
        return int(self._context["number"])

    @property
    def incomplete(self) -> str | None:
        """What is wrong with the end of the bytes so far, None where they end with a record."""
        return "truncated within a record" if self._rest else None

    def enter(self, mappings: Sequence[tuple[int, int, int, int]]) -> None:
        """A file begins, of which these are the instruments: numeric id, from, before (ns), index."""
        self.damage, self._rest = None, b""
        by_id: dict[int, list[tuple[int, int, int]]] = {}
        for instrument_id, start, end, index in mappings:
            interval = max(start, -_LATEST), min(end, _LATEST), index
            by_id.setdefault(instrument_id, []).append(interval)
        rows = np.zeros(1 << (2 * len(by_id)).bit_length(), IDENTIFIER)
        mask, first = len(rows) - 1, 0
        for instrument_id, intervals in by_id.items():
            slot = instrument_id & mask
            while rows["count"][slot]:
                slot = (slot + 1) & mask
            rows[slot] = instrument_id, first, len(intervals)
            first += len(intervals)
        intervals = [one for own in by_id.values() for one in own]
        self._identifiers, self._intervals = rows, np.array(intervals, INTERVAL)
        context = self._context
        context["identifiers"], context["mask"] = rows.ctypes.data, mask
        context["intervals"] = self._intervals.ctypes.data
        context["known_start"], context["known_end"] = _NEVER
        context["number"] = 0

    def doubt(self, reason: StateReason) -> None:
        """All books are doubtful from here on."""
        self._books["doubt"] = reason

    def block(self, block: bytes) -> Iterator[Events]:
        """Decode the records that the next bytes complete."""
        data = np.frombuffer(self._rest + block, np.uint8)
        context = self._context
        context["data"], context["position"], context["end"] = data.ctypes.data, 0, len(data)
        while True:
            decode(int(self._contexts.ctypes.data))
            match Stop(int(context["stop"])):
                case Stop.OUTPUT_FULL:
                    if context["written"]:
                        yield self._take()
                    self._make_room(int(context["needed"]))
                case Stop.NEEDS_MEMORY:
                    self._memory.grow()
                case Stop.LEFT:
                    position = int(context["position"])
                    size = 4 * int(data[position])
                    if not self._leave(data[position : position + size].tobytes()):
                        break
                    context["position"] = position + size
                case Stop.DAMAGED:
                    head = data[int(context["position"]) :][:2].tolist()
                    self.damage = f"not readable as DBN: a record of type {head[1]} in {4 * head[0]} bytes"
                    break
                case Stop.NEEDS_BYTES:
                    break
        self._rest = data[int(context["position"]) :].tobytes()
        self._report()

    def rest(self) -> Iterator[Events]:
        """The events that are left at the end; messages that are open then are left out."""
        for book in self._books[self._books["waiting_count"] > 0]:
            self._problems.add("message without end", f"instrument {book['instrument_id']}", "left out")
        if self._context["written"]:
            yield self._take()

    def _new_output(self, size: int) -> None:
        self._out = np.empty(size, EVENT)
        self._context["out"], self._context["room"] = self._out.ctypes.data, size
        self._context["written"] = 0

    def _make_room(self, needed: int) -> None:
        if needed > len(self._out):
            self._new_output(needed)

    def _take(self) -> Events:
        batch = self._out[: int(self._context["written"])]
        self._new_output(self._batch_size)
        return batch

    def _leave(self, record: bytes) -> bool:
        """Count a record of another type; False, and damage, where there is no such type."""
        try:
            kind = dbn.RType.from_int(record[1])
        except dbn.DBNError as error:
            self.damage = f"not readable as DBN: {error}"
            return False
        self._context["number"] += 1
        if record[1] == _ERROR_TYPE:
            self._report()
            text = record[HEAD_BYTES:].partition(b"\0")[0].decode("utf-8", "replace")
            self._problems.add("error record", f"record {self.records}", text)
        else:
            self._counts[f"records of {kind}"] += 1
        return True

    def _report(self) -> None:
        """State what was found since the last report."""
        known = int(self._context["example_count"])
        for example in self._examples[self._told : known]:
            words = {name: int(example[name]) for name in EXAMPLE.names or ()}
            fault = Fault(words["fault"])
            where = f"instrument {words['instrument_id']} at {words['time'] & (2**64 - 1)}"
            if fault is Fault.UNMAPPED:
                where = f"record {words['other']}"
            elif fault is Fault.WITHOUT_END:
                where = f"instrument {words['instrument_id']}"
            unsigned = {f"{name}_unsigned": words[name] & (2**64 - 1) for name in ("one", "other")}
            detail = _DETAILS[Detail(words["detail"])].format(**words, **unsigned)
            self._problems.add(_KINDS[fault], where, detail)
        self._told = known
        for fault, kind in _KINDS.items():
            if number := int(self._found[fault]):
                self._problems.counts[kind] = number
        if number := int(self._found[Fault.BEFORE_FILE]):
            self._counts[_BEFORE_FILE] = number
