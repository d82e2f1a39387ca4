"""What a live feed has seen, and what went wrong."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

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
