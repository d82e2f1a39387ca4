"""What a feed has seen, and what went wrong."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from orderbook.events import Action, BookState, Flag
from orderbook.problems import Problems


@dataclass(slots=True)
class FeedStatistics:
    """Counters since the feed was made; read them at any time. `problems` never stop a feed."""

    frames: int = 0        # websocket messages received
    bytes: int = 0         # their payload
    messages: int = 0      # those of a known type, whole
    malformed: int = 0     # those that could not be read or used
    events: int = 0        # events decoded
    gaps: int = 0          # books lost, for whatever reason but the connection's end
    resyncs: int = 0       # books rebuilt from a snapshot after their first
    reconnects: int = 0    # connections after the first
    stale_seconds: float = 0.0  # of all books together, from a book's loss until it was valid again
    problems: Problems = field(default_factory=Problems)

    @classmethod
    def total(cls, parts: Iterable["FeedStatistics"]) -> "FeedStatistics":
        """Those of several connections together."""
        total = cls()
        for part in parts:
            for one in fields(cls):
                if one.name != "problems":
                    setattr(total, one.name, getattr(total, one.name) + getattr(part, one.name))
            total.problems.extend(part.problems)
        return total


def counted(events: np.ndarray, counts: Counter[str], changes: str) -> np.ndarray:
    """EVENT[n] of a recorded feed of levels, added up in `counts`: messages that change its book, under the
    name `changes`, snapshots and trades."""
    action, flags = events["action"], events["flags"]
    diffs = (action == Action.LEVEL) & (flags & (Flag.LAST | Flag.SNAPSHOT) == Flag.LAST)
    valid = (action == Action.STATE) & (events["volume"] == BookState.VALID)
    counts[changes] += int(np.count_nonzero(diffs))
    counts["snapshots applied"] += int(np.count_nonzero(valid))
    counts["trades"] += int(np.count_nonzero(action == Action.TRADE))
    return events
