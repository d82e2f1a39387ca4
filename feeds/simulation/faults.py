"""The faults that a simulated exchange and its network can have, and what a session counts them as.

`FAULTS` is the table; docs/feeds.md explains it. Kinds are those of `FeedStatistics.problems`.
"""

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["orders", "levels"]
# When a fault may strike: for every frame, every answer to a GET, every new connection, every second.
Occasion = Literal["frame", "answer", "connection", "second"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    probability: on each occasion, while all faults are on.
    orders, levels: what it is counted as by a session that speaks the dialect of order books with sequence
        numbers, or of price levels with checksums; empty where it does no harm or shows later, as others do;
        None where the dialect cannot have it.
    """

    name: str
    occasion: Occasion
    probability: float
    orders: tuple[str, ...] | None = ()
    levels: tuple[str, ...] | None = ()

    def counted(self, dialect: Dialect) -> tuple[str, ...] | None:
        """What it is counted as."""
        return self.orders if dialect == "orders" else self.levels


_BAD_JSON = ("malformed JSON",)
_UNKNOWN = ("unknown type",)

FAULTS = {
    fault.name: fault
    for fault in (
        # What is lost shows by the next sequence number or checksum: a gap, or a wrong checksum.
        Fault("drop", "frame", 0.004),
        Fault("duplicate", "frame", 0.004, ("late message", "reset"), ()),
        Fault("reorder", "frame", 0.004),
        Fault("delay", "frame", 0.002),
        Fault("truncated frame", "frame", 0.002, _BAD_JSON, _BAD_JSON),
        Fault("malformed JSON", "frame", 0.002, _BAD_JSON, _BAD_JSON),
        Fault("nested frame", "frame", 0.001, _BAD_JSON, _BAD_JSON),
        Fault("wrong field", "frame", 0.002, ("malformed",), ("malformed",)),
        Fault("unknown message", "frame", 0.003, _UNKNOWN, _UNKNOWN),
        Fault("unknown product", "frame", 0.003, ("unknown product",), ("unknown product",)),
        Fault("oversized frame", "frame", 0.0005, ("oversized frame",), ("oversized frame",)),
        Fault("corrupt checksum", "frame", 0.003, None, ("checksum",)),
        Fault(
            "exchange clock backwards",
            "frame",
            0.003,
            ("exchange clock backwards",),
            ("exchange clock backwards",),
        ),
        Fault("clock backwards", "second", 0.03, ("clock backwards",), ("clock backwards",)),
        Fault("stall", "second", 0.01, ("silence",), ("silence",)),
        Fault("disconnect", "second", 0.02, ("disconnected",), ("disconnected",)),
        Fault("sequence reset", "second", 0.02, ("reset",), None),
        Fault("refused connection", "connection", 0.2, ("disconnected",), ("disconnected",)),
        Fault("refused subscription", "connection", 0.1, ("refused",), ("refused",)),
        # A streamed snapshot is cut off by the end of its connection.
        Fault("cut snapshot", "answer", 0.1, ("unusable snapshot", "no snapshot"), ("disconnected",)),
        Fault("refused snapshot", "answer", 0.15, ("no snapshot",), None),
        Fault("lost snapshot", "answer", 0.05, ("no snapshot",), None),
        # Not counted where the messages since then are still held: then it does no harm.
        Fault("old snapshot", "answer", 0.2, (), None),
    )
}


class Faults:
    """Which faults strike, seeded. None does while `on` is False.

    names: those that may; factor: how much more often than in the table. `counts` are how often each has.
    """

    def __init__(self, seed: int, dialect: Dialect, names: Collection[str], factor: float = 1.0) -> None:
        self.on = True
        self.counts: Counter[str] = Counter()
        self.random = random.Random(f"faults {seed}")
        self._factor = factor
        self._dialect = dialect
        self._names = frozenset(names)
        self._by_occasion: dict[Occasion, list[Fault]] = {}
        for fault in FAULTS.values():
            if fault.name in self._names and fault.counted(dialect) is not None:
                self._by_occasion.setdefault(fault.occasion, []).append(fault)

    def strikes(self, occasion: Occasion) -> str | None:
        """The fault that strikes on this occasion, if any; the caller counts it where it happens."""
        if not self.on:
            return None
        faults = self._by_occasion.get(occasion, ())
        at = self.random.random()
        for fault in faults:
            at -= min(fault.probability * self._factor, 0.9 / len(faults))
            if at < 0:
                return fault.name
        return None

    def counted(self, name: str) -> tuple[str, ...]:
        """Counts a fault that happens now; what the session is to count it as."""
        self.counts[name] += 1
        return FAULTS[name].counted(self._dialect) or ()
