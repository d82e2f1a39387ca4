"""How finely decimal text is written, for files that do not state tick and lot."""

from decimal import Decimal, InvalidOperation


def decimal_places(text: str) -> int:
    """How many decimal places `text` needs: 2 for "0.25000000", 0 for "300".

    Raises ValueError when `text` is no finite decimal number.
    """
    _, _, fraction = text.partition(".")
    if not text.isascii():
        raise ValueError(f"{text[:40]!r} is not a decimal number")
    if text.replace(".", "", 1).isdigit():
        return len(fraction.rstrip("0"))
    try:
        exponent = Decimal(text).normalize().as_tuple().exponent
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} is not a decimal number") from None
    if not isinstance(exponent, int):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return max(0, -exponent)
