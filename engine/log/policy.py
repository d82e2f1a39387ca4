"""When a log makes what was appended durable."""

import re
from dataclasses import dataclass

from orderbook.errors import ConfigurationError

_UNITS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """How long an appended record may stay undurable, in ns.

    0: an append returns once it is durable ("batch"). None: until somebody asks, a segment is full, or
    the log is closed ("never").
    """

    interval: int | None

    @classmethod
    def parse(cls, text: str) -> "SyncPolicy":
        """From "batch", "never" or an interval such as "100ms" (us, ms or s); else ConfigurationError."""
        if text in ("batch", "never"):
            return cls(0 if text == "batch" else None)
        parts = re.fullmatch(r"([1-9][0-9]{0,8})(us|ms|s)", text, re.ASCII)
        if parts is None:
            raise ConfigurationError(
                f'sync policy: {text!r} is not one; give "batch", "never", or an interval such as "100ms"'
            )
        return cls(int(parts[1]) * _UNITS[parts[2]])

    def __str__(self) -> str:
        """The text that parses to this policy."""
        if not self.interval:
            return "never" if self.interval is None else "batch"
        unit = next(u for u in ("s", "ms", "us") if self.interval % _UNITS[u] == 0 or u == "us")
        return f"{self.interval // _UNITS[unit]}{unit}"
