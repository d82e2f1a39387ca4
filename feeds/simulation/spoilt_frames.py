"""Frames that are not as the exchange meant them."""

import random
import re
from datetime import datetime, timedelta

from feeds.simulated_market import iso_time
from feeds.simulation.venue import Frame, Venue

_DEEP = b'{"type":' + b"[" * 100_000
_TIME = re.compile(rb'("time(?:stamp)?":")([^"]+)"')


def spoil(fault: str | None, frame: Frame, venue: Venue, chance: random.Random) -> bytes | None:
    """A frame with a fault; None where the fault does not spoil frames, or not this one."""
    data = frame.data
    match fault:
        case "truncated frame":
            return data[: chance.randrange(1, len(data) - 1)]
        case "malformed JSON":
            return chance.choice((b"", b"\xff\xfe{}", data[2:], data + b"}", b"<html>502</html>"))
        case "nested frame":
            return _DEEP
        case "oversized frame":
            return bytes(venue.kind.largest_frame + 1)
        case "wrong field":
            return venue.wrong(frame)
        case "corrupt checksum":
            return venue.corrupt(frame)
        case "exchange clock backwards" if frame.changes:
            return _earlier(data, chance.uniform(60.0, 3600.0))
    return None


def _earlier(data: bytes, seconds: float) -> bytes:
    """A message that says it is from so many seconds earlier."""

    def back(match: re.Match[bytes]) -> bytes:
        moment = datetime.fromisoformat(match[2].decode()) - timedelta(seconds=seconds)
        return match[1] + iso_time(round(moment.timestamp() * 1e6) * 1000).encode() + b'"'

    return _TIME.sub(back, data)
