"""The faults that a simulated exchange and its network can have, and what a session counts them as.

`FAULTS` is the table; docs/feeds.md explains it. Kinds are those of `FeedStatistics.problems`.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["orders", "levels"]
# When a fault may strike: for every frame, every answer to a GET, every new connection, every second.
Occasion = Literal["frame", "answer", "connection", "second"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    probability: on each occasion, while all faults are on.
    orders, levels: what it is counted as, at once, by a session that speaks the dialect of order books with
        sequence numbers, or of price levels with checksums; empty where it does no harm or only shows by
        what comes after it; None where the dialect cannot have it.
    then: what may be counted after it, in either dialect.
    """

    name: str
    occasion: Occasion
    probability: float
    orders: tuple[str, ...] | None = ()
    levels: tuple[str, ...] | None = ()
    then: tuple[str, ...] = ()

    def counted(self, dialect: Dialect) -> tuple[str, ...] | None:
        """What it is counted as at once."""
        return self.orders if dialect == "orders" else self.levels


def _alike(
    name: str, occasion: Occasion, probability: float, kind: str, then: tuple[str, ...] = ()
) -> Fault:
    """A fault that both dialects count as the same."""
    return Fault(name, occasion, probability, (kind,), (kind,), then)


# What is lost shows by the next sequence number or checksum.
_LOST = ("gap", "checksum")
_BROKEN = ("disconnected",)
_MISSED = ("disconnected", "missed trades")
_CUT = (*_MISSED, "no synchronisation")

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("drop", "frame", 0.004, then=(*_LOST, "no synchronisation", "missed trades")),
        Fault("duplicate", "frame", 0.004, ("late message", "reset"), (), ("late trade",)),
        Fault(
            "reorder",
            "frame",
            0.004,
            then=(*_LOST, "late message", "exchange clock backwards", "missed trades", "late trade"),
        ),
        Fault("delay", "frame", 0.002),
        _alike("truncated frame", "frame", 0.002, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("malformed JSON", "frame", 0.002, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("nested frame", "frame", 0.001, "malformed JSON", ("malformed", "missed trades", *_LOST)),
        _alike("wrong field", "frame", 0.002, "malformed"),
        _alike("unknown message", "frame", 0.003, "unknown type"),
        _alike("unknown product", "frame", 0.003, "unknown product"),
        _alike("oversized frame", "frame", 0.0005, "oversized frame", _MISSED),
        Fault("corrupt checksum", "frame", 0.003, None, ("checksum",)),
        _alike("exchange clock backwards", "frame", 0.003, "exchange clock backwards"),
        _alike("clock backwards", "second", 0.03, "clock backwards"),
        _alike("stall", "second", 0.01, "silence", _MISSED),
        _alike("disconnect", "second", 0.02, "disconnected", _MISSED),
        Fault("sequence reset", "second", 0.02, ("late message", "reset"), None, ("gap",)),
        _alike("refused connection", "connection", 0.2, "disconnected"),
        _alike(
            "refused subscription",
            "connection",
            0.1,
            "refused",
            ("no synchronisation", "books do not synchronise", "silence", *_MISSED),
        ),
        # A streamed snapshot is cut off by the end of its connection.
        Fault("cut snapshot", "answer", 0.1, ("unusable snapshot", "no snapshot"), _BROKEN, _CUT),
        Fault("refused snapshot", "answer", 0.15, ("no snapshot",), None, ("no synchronisation",)),
        Fault("lost snapshot", "answer", 0.1, ("no snapshot",), None, ("no synchronisation",)),
        # Does no harm where the messages since then are still held, or shows by the next message.
        Fault("old snapshot", "answer", 0.2, (), None, ("old snapshot", "gap", "no synchronisation")),
    )
}


class Faults:
    """Which faults strike, seeded. None does while `on` is False.

    names: those that may; factor: how much more often than in the table. Where probabilities are given for an
    occasion, they are used instead. `counts` are how often each has struck.
    """

    def __init__(
        self,
        seed: int,
        dialect: Dialect,
        names: Collection[str],
        factor: float = 1.0,
        probabilities: Mapping[Occasion, float] | None = None,
    ) -> None:
        self.on = True
        self.counts: Counter[str] = Counter()
        self.random = random.Random(f"faults {seed}")
        self._factor = factor
        self._probabilities = probabilities or {}
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
            at -= self._probabilities.get(occasion, fault.probability * self._factor)
            if at < 0:
                return fault.name
        return None

    def counted(self, name: str) -> tuple[str, ...]:
        """Counts a fault that happens now; what the session is to count it as."""
        self.counts[name] += 1
        return FAULTS[name].counted(self._dialect) or ()
