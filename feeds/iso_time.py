"""ISO 8601 times, as exchanges write them, and ns since 1970 UTC."""

from datetime import UTC, datetime


class IsoClock:
    """Reads times; remembers the last one, and its second, which most messages share."""

    __slots__ = ("_prefix", "_second", "_text", "_time")

    def __init__(self) -> None:
        self._prefix = self._text = ""
        self._second = self._time = 0

    def nanoseconds(self, text: str) -> int:
        """ns since 1970 UTC of text such as "2017-06-25T11:23:14.775000Z", exact to 9 decimal places.

        Raises ValueError where the text is no ISO 8601 time, names no time zone, or lies outside
        1970 to 2261.
        """
        if text == self._text and text:
            return self._time
        self._time = self._read(text)
        self._text = text
        return self._time

    def _read(self, text: str) -> int:
        if text.endswith("Z") and len(text) >= 20:
            prefix, fraction = text[:19], text[20:-1]
            if not fraction or (text[19] == "." and fraction.isascii() and fraction.isdigit()):
                if prefix != self._prefix:
                    self._second = _second(datetime.fromisoformat(prefix).replace(tzinfo=UTC))
                    self._prefix = prefix
                return self._second * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(f"time {text!r} names no time zone")
        return _second(moment.replace(microsecond=0)) * 1_000_000_000 + moment.microsecond * 1000


def _second(moment: datetime) -> int:
    if not 1970 <= moment.year <= 2261:
        raise ValueError(f"time {moment.isoformat()} is outside 1970 to 2261")
    return round(moment.timestamp())
