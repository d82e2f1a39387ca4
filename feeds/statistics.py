"""What a live feed has seen, and what went wrong."""

from dataclasses import dataclass, field

from orderbook.problems import Problems


@dataclass(slots=True)
class FeedStatistics:
    """Counters since the feed was made; read them at any time. `problems` never stop a feed."""

    frames: int = 0        # websocket messages received
    bytes: int = 0         # their payload
    messages: int = 0      # those of a known type, whole
    malformed: int = 0     # those that could not be read or used
    events: int = 0        # events decoded
    gaps: int = 0          # books lost to a missing, late or unusable message
    resyncs: int = 0       # books rebuilt from a snapshot after their first
    reconnects: int = 0    # connections after the first
    problems: Problems = field(default_factory=Problems)
