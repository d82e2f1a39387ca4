"""When a log makes what was appended durable."""

from dataclasses import dataclass

from orderbook.durations import UNITS, nanoseconds
from orderbook.errors import ConfigurationError, UserError


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """How long an appended record may stay undurable, in ns.

    0: an append returns once it is durable ("batch"). None: until somebody asks, a segment is full, or
    the log is closed ("never").
    """

    interval: int | None

    @classmethod
    def parse(cls, text: str) -> "SyncPolicy":
        """From "batch", "never" or an interval such as "100ms"; else ConfigurationError."""
        if text in ("batch", "never"):
            return cls(0 if text == "batch" else None)
        try:
            return cls(nanoseconds(text))
        except UserError:
            raise ConfigurationError(
                f'sync policy: {text!r} is not one; give "batch", "never", or an interval such as "100ms"'
            ) from None

    def __str__(self) -> str:
        """The text that parses to this policy."""
        if not self.interval:
            return "never" if self.interval is None else "batch"
        unit = next(unit for unit in ("s", "ms", "us", "ns") if self.interval % UNITS[unit] == 0)
        return f"{self.interval // UNITS[unit]}{unit}"
