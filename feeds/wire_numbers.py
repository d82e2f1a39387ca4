"""Wire text to the integers of books, each text converted once."""

from collections.abc import Callable

from orderbook.errors import DataError
from orderbook.instruments import SCALE

_CACHE_SIZE = 1 << 16
# What digits with so many decimal places are multiplied by.
_POWERS = tuple(10 ** (SCALE - places) for places in range(SCALE + 1))
# Digits before the point of DECIMAL(18, 8).
_WHOLE_DIGITS = 10


class WireNumbers(dict[str, int]):
    """Wire text to price or volume units, remembering texts; raises DataError for bad or negative ones.

    convert: `Instrument.ticks` or `lots`, exact for any text. scale: 10^8 times a unit. step: the tick or lot
    in units; `off` has the remembered texts that are no multiples of it.
    """

    __slots__ = ("_convert", "_scale", "_step", "off")

    def __init__(self, convert: Callable[[str], int], scale: int, step: int = 1) -> None:
        self._convert = convert
        self._scale = scale
        self.off: set[str] = set()
        self._step = step

    def change_step(self, step: int) -> None:
        """Count multiples of another tick or lot from now on."""
        self._step = step
        self.clear()

    def clear(self) -> None:
        """Forget all texts."""
        super().clear()
        self.off.clear()

    def __missing__(self, text: str) -> int:
        whole, _, fraction = text.partition(".")
        digits = whole + fraction
        count, rest = 0, 1
        if len(fraction) <= SCALE and len(whole) <= _WHOLE_DIGITS and digits.isdigit() and text.isascii():
            count, rest = divmod(int(digits) * _POWERS[len(fraction)], self._scale)
        if rest:
            # Unusual, or wrong.
            count = self._convert(text)
            if count < 0:
                raise DataError(f"{text} is negative")
        if len(self) >= _CACHE_SIZE:
            self.clear()
        self[text] = count
        if count % self._step:
            self.off.add(text)
        return count
